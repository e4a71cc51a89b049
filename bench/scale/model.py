"""Where a cluster breaks first: a model of servers, PostgreSQL and the publisher on measured costs of one step.

A step is one append. It costs CPU at a server, holds one connection while PostgreSQL works on it and makes it durable, and
is later read and published by the one publisher of its shard. Costs are constants (`Inputs`), arrivals are Poisson.

    arrivals ─► server's CPU ─► a connection ─► PostgreSQL's CPU ─► flush of the WAL, shared ─► done ─► publisher
                n servers       pool each       one machine a shard                                    one a shard

A shard is a PostgreSQL of its own with the logs of some executions; nothing in a step's path meets another shard.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path

INPUTS = Path(__file__).with_name("inputs.json")
DAY_S = 86_400


@dataclass(frozen=True)
class Inputs:
    """What one step costs; `bench/scale/measure.py` measures it."""

    #: events that a step adds to the log
    events: float
    #: CPU of a server process, HTTP to its worker included
    server_cpu_s: float
    #: CPU of PostgreSQL, all its processes
    database_cpu_s: float
    #: transactions; fewer than one, since appends of a moment share theirs
    transactions: float
    wal_bytes: float
    #: tables and indexes
    stored_bytes: float
    #: of one flush of the WAL
    fsync_s: float
    #: time of the publisher for one event: read, sent and acknowledged, many at a time
    publish_s: float
    #: messages of the bus: one an event, and a hint
    messages: float


@dataclass(frozen=True)
class Cluster:
    """What it runs on. The defaults are a common machine; the figures of docs/scale.md name theirs."""

    servers: int = 1
    #: cores that one server process can use: it decides on one
    server_cores: int = 1
    #: connections of one server to one shard (`store.connections`)
    pool: int = 6
    shards: int = 1
    database_cores: int = 16
    #: bytes a second that a shard's disk and its replicas take
    wal_bandwidth: float = 200e6
    #: connections that one PostgreSQL serves well
    max_connections: int = 400


#: What may break, in the words of the answer.
SERVERS = "server CPU"
DATABASE = "PostgreSQL CPU"
WAL = "WAL bandwidth"
CONNECTIONS = "connections held"
PUBLISHER = "one publisher"


@dataclass(frozen=True)
class Capacity:
    """Steps a second that each part could carry; the least is the cluster's."""

    parts: dict[str, float]
    #: connections of all servers to one shard, and whether PostgreSQL has as many
    connections: int
    fits: bool

    @property
    def steps(self) -> float:
        return min(self.parts.values())

    @property
    def first(self) -> str:
        return min(self.parts, key=lambda part: self.parts[part])


def capacity(inputs: Inputs, cluster: Cluster) -> Capacity:
    # One flush follows the other then: a connection works while some pass, joins the next, and waits for its end.
    held_s = (math.ceil(inputs.database_cpu_s / inputs.fsync_s) + 1) * inputs.fsync_s
    connections = cluster.servers * cluster.pool
    usable = min(connections, cluster.max_connections)
    return Capacity(
        {
            SERVERS: cluster.servers * cluster.server_cores / inputs.server_cpu_s,
            DATABASE: cluster.shards * cluster.database_cores / inputs.database_cpu_s,
            WAL: cluster.shards * cluster.wal_bandwidth / inputs.wal_bytes,
            CONNECTIONS: cluster.shards * usable / held_s,
            PUBLISHER: cluster.shards / (inputs.publish_s * inputs.events),
        },
        connections,
        connections <= cluster.max_connections,
    )


@dataclass(frozen=True)
class Latency:
    """Mean seconds of a step's append, and how busy each part is."""

    total_s: float
    busy: dict[str, float]


def latency(inputs: Inputs, cluster: Cluster, steps: float) -> Latency:
    """At a load below the capacity. Queues: M/D/c by halving Erlang's wait; a flush is shared by all that came meanwhile."""
    per_server, per_shard = steps / cluster.servers, steps / cluster.shards
    at_server = _queued(per_server, inputs.server_cpu_s, cluster.server_cores)
    in_database = _queued(per_shard, inputs.database_cpu_s, cluster.database_cores)
    flush = flush_wait(per_shard, inputs.fsync_s)
    # A connection is held for both; waiting for one begins when its server's pool (of this shard) is busy.
    held = in_database + flush
    pool = _queued(per_server / cluster.shards, held, cluster.pool) - held
    parts = capacity(inputs, cluster).parts
    return Latency(at_server + pool + held, {part: steps / most for part, most in parts.items()})


def flush_wait(rate: float, fsync_s: float) -> float:
    """Mean time from the wish to be durable until it is. Whoever comes during a flush waits for its end and for the next.

    With Poisson arrivals: a flush that nobody joined is followed by an idle time of 1/rate on average.
    """
    idle_s = math.exp(-rate * fsync_s) / rate
    return fsync_s * (1 + 0.5 * fsync_s / (fsync_s + idle_s))


def _queued(rate: float, service_s: float, places: int) -> float:
    """Mean time in an M/D/c queue: half of M/M/c's wait, plus the service."""
    load = rate * service_s
    if load >= places:
        return math.inf
    return service_s + 0.5 * _erlang_c(load, places) * service_s / (places - load)


def _erlang_c(load: float, places: int) -> float:
    """The chance that all places are taken (by the recurrence of Erlang B, which overflows nowhere)."""
    blocked = 1.0
    for n in range(1, places + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked / (1 - load / places * (1 - blocked))


def shards_for(inputs: Inputs, cluster: Cluster, steps: float, headroom: float = 0.6) -> Cluster:
    """The cluster with as many servers and shards as carry the load with each part busy at most `headroom`."""
    servers = math.ceil(steps * inputs.server_cpu_s / cluster.server_cores / headroom)
    grown = replace(cluster, servers=max(1, servers))
    while True:
        parts = capacity(inputs, grown).parts
        short = [part for part, most in parts.items() if steps > most * headroom]
        if not short and capacity(inputs, grown).fits:
            return grown
        if SERVERS in short:
            grown = replace(grown, servers=grown.servers + 1)
        elif not capacity(inputs, grown).fits and grown.pool > 1:
            grown = replace(grown, pool=grown.pool - 1)
        else:
            grown = replace(grown, shards=grown.shards + 1)


def steps_a_second(inputs: Inputs, events_a_day: float, peak: float = 1.0) -> float:
    return events_a_day / DAY_S / inputs.events * peak


def load(path: Path = INPUTS) -> tuple[Inputs, dict[str, str]]:
    """The measured inputs, and what they were measured on."""
    recorded = json.loads(path.read_text(encoding="utf-8"))
    return Inputs(**recorded["inputs"]), recorded["machine"]


def save(inputs: Inputs, machine: dict[str, str], path: Path = INPUTS) -> None:
    path.write_text(json.dumps({"machine": machine, "inputs": asdict(inputs)}, indent=2) + "\n", encoding="utf-8")
