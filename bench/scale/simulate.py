"""A discrete-event simulation of the model's cluster: the same parts, queues and costs, one step at a time.

Everything happens in an order that the seed decides alone. It knows nothing of the model's formulas.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from bench.scale.model import Cluster, Inputs


@dataclass(frozen=True)
class Seen:
    """What came of it, after the warm-up."""

    #: steps a second that were done
    steps: float
    #: mean seconds from a step's arrival to its durable append
    latency_s: float
    #: share of time that PostgreSQL's cores were busy
    database_busy: float
    #: share of time that the servers' cores were
    server_busy: float
    #: events that wait to be published at the end
    unpublished: int


class _Places:
    """Some equal places that serve in order of arrival."""

    def __init__(self, world: _World, places: int) -> None:
        self._world = world
        self._free = places
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()
        self.busy_s = 0.0

    def use(self, seconds: float, then: Callable[[], None]) -> None:
        if self._free:
            self._free -= 1
            self._serve(seconds, then)
        else:
            self._waiting.append((seconds, then))

    def _serve(self, seconds: float, then: Callable[[], None]) -> None:
        if self._world.counts:
            self.busy_s += seconds
        self._world.after(seconds, lambda: self._served(then))

    def _served(self, then: Callable[[], None]) -> None:
        if self._waiting:
            self._serve(*self._waiting.popleft())
        else:
            self._free += 1
        then()


class _Pool:
    """Connections: taken, held as long as their holder likes, given back."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, then: Callable[[], None]) -> None:
        if self._free:
            self._free -= 1
            then()
        else:
            self._waiting.append(then)

    def give_back(self) -> None:
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._free += 1


class _Wal:
    """One flush at a time; it makes everything durable that was there when it began."""

    def __init__(self, world: _World, fsync_s: float) -> None:
        self._world, self._fsync_s = world, fsync_s
        self._next: list[Callable[[], None]] = []
        self._flushing = False

    def flush(self, then: Callable[[], None]) -> None:
        self._next.append(then)
        if not self._flushing:
            self._begin()

    def _begin(self) -> None:
        self._flushing, now = True, self._next
        self._next = []
        self._world.after(self._fsync_s, lambda: self._flushed(now))

    def _flushed(self, group: list[Callable[[], None]]) -> None:
        self._flushing = False
        if self._next:
            self._begin()
        for then in group:
            then()


class _World:
    """The clock and what is to happen."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.counts = False
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (self.now + seconds, next(self._order), then))

    def run(self, until: float) -> None:
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, then = heapq.heappop(self._agenda)
            then()
        self.now = until


def simulate(inputs: Inputs, cluster: Cluster, steps: float, *, seconds: float, seed: int = 1) -> Seen:
    """So many steps a second on average, for a while; the first fifth is not counted."""
    world = _World(seed)
    servers = [_Places(world, cluster.server_cores) for _ in range(cluster.servers)]
    pools = [[_Pool(cluster.pool) for _ in range(cluster.shards)] for _ in range(cluster.servers)]
    databases = [_Places(world, cluster.database_cores) for _ in range(cluster.shards)]
    wals = [_Wal(world, inputs.fsync_s) for _ in range(cluster.shards)]
    publishers = [_Places(world, 1) for _ in range(cluster.shards)]
    done = 0
    waited_s = 0.0
    unpublished = 0

    def arrive() -> None:
        world.after(world.random.expovariate(steps), arrive)
        began, which = world.now, world.random.randrange(cluster.servers)
        shard = world.random.randrange(cluster.shards)
        pool, database, wal = pools[which][shard], databases[shard], wals[shard]

        def decided() -> None:
            pool.take(connected)

        def connected() -> None:
            database.use(inputs.database_cpu_s, worked)

        def worked() -> None:
            wal.flush(durable)

        def durable() -> None:
            nonlocal done, waited_s, unpublished
            pool.give_back()
            if world.counts:
                done += 1
                waited_s += world.now - began
            unpublished += 1
            publishers[shard].use(inputs.publish_s * inputs.events, published)

        def published() -> None:
            nonlocal unpublished
            unpublished -= 1

        servers[which].use(inputs.server_cpu_s, decided)

    world.after(0.0, arrive)
    world.run(seconds / 5)
    world.counts = True
    world.run(seconds)
    counted = seconds * 4 / 5
    return Seen(
        done / counted,
        waited_s / max(1, done),
        sum(database.busy_s for database in databases) / counted / cluster.database_cores / cluster.shards,
        sum(server.busy_s for server in servers) / counted / cluster.server_cores / cluster.servers,
        round(unpublished * inputs.events),
    )
