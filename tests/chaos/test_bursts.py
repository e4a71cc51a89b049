"""Timers, and schedules, that are due at the same moment, with two servers on one PostgreSQL that share them: servers are killed with -9
in the middle, and each timer fires once, each schedule starts one run, and every run completes.

CHAOS_SEED chooses other moments.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, LiteralString

import pytest

from arclog.model.config.schedules import Schedule
from arclog.model.ids import MICROS
from arclog.ports.storage.store import ExecutionFilter
from arclog.ports.views.api import ExecuteRequest, RegisterRequest
from arclog.wiring.embedded import Embedded
from bench.children import copied_runs
from tests.chaos.test_remote_workers import DEADLINE_S, until
from tests.chaos.test_server_pair import Pair
from tests.servers.postgres import Database

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("CHAOS_SEED", "20261118"))
#: While more than 500 timers are late, the server without the duty helps; schedules are leased 256 at a time.
COUNTS = {"timers": 1500, "schedules": 800}
WAITING = "{metadata: {name: waiting}, workflow: [{step: start, tool: {kind: wait, for_s: 0.5}}]}"
SCHEDULED = "{metadata: {name: scheduled, path: scheduled}, workload: {number: 0}, workflow: [{step: start, tool: {kind: noop}}]}"
#: What is prepared is put off by an hour in one transaction, and is due in another one, once both servers are ready.
PUT_OFF: dict[str, LiteralString] = {
    "timers": "UPDATE arclog.timers SET due = due + 3600000000",
    "schedules": "UPDATE arclog.schedules SET wakes_at = wakes_at + 3600000000",
}
DUE: dict[str, LiteralString] = {kind: statement.replace("+", "-") for kind, statement in PUT_OFF.items()}
#: Number of timers that have not fired, or of schedules that have not started their runs.
LEFT: dict[str, LiteralString] = {
    "timers": "SELECT count(*) FROM arclog.timers",
    "schedules": "SELECT (SELECT count(*) FROM arclog.schedules)"
    " - (SELECT count(*) FROM arclog.executions WHERE path = 'scheduled')",
}

SHARES = {
    "timers": 'arclog_executions_ended_total{state="COMPLETED"}',  # the run of a timer ends with it
    "schedules": "arclog_executions_started_total",
}


class Servers(Pair):
    """Two servers that decide two timers at a time, so that a burst lasts long enough for both."""

    def __init__(self, folder: Path, database: Database) -> None:
        super().__init__(folder, database.dsn)
        self._connection = database.connect()
        self.home = folder / "client"
        self.environment |= {
            "ARCLOG_ENGINE_SWEEP_S": "0.05",
            "ARCLOG_ENGINE_FIRED_AT_ONCE": "2",
            # Timers that were put off are loaded, too: a server that fires a timer then may not know that the other one has fired it.
            "ARCLOG_ENGINE_LOAD_AHEAD_S": "7200",
            "ARCLOG_SCHEDULES_LEASE_S": "1",
            # A server of a busy machine may stand still for a second.
            "ARCLOG_ENGINE_DUTY_LEASE_S": "2",
            "ARCLOG_LEASES_MAX_LOSSES": "1000",
        }
        self.all: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self.all = [self.server_at(0), self.server_at(1)]
        for index in range(2):
            assert self.share(index, "timers") == 0  # the first answer takes longest

    def close(self) -> None:
        super().close()
        self._connection.close()

    def set(self, statement: LiteralString) -> None:
        self._connection.execute(statement)

    def number(self, query: LiteralString) -> int:
        (number,) = self._connection.execute(query).fetchone() or (0,)
        return int(number)

    def owner(self) -> int:
        """The index of the server that has the timers' duty. An owner is named by its machine, its process and a random part."""
        (owner,) = self._connection.execute("SELECT owner FROM arclog.duties WHERE duty = 'timers'").fetchone() or ("",)
        return [process.pid for process in self.all].index(int(owner.split("-")[-2]))

    def share(self, index: int, kind: str) -> int:
        """How many timers a server has fired, or how many runs of schedules it has started."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[index]}/metrics", timeout=DEADLINE_S) as answer:
            match = re.search(rf"^{SHARES[kind]} (\S+)$", answer.read().decode(), re.MULTILINE)
        return round(float(match.group(1))) if match else 0

    def kill(self, among: list[int], *, undone: bool) -> int:
        """Kill one of these servers with appends on their way, which wait for a lock. PostgreSQL carries them out afterwards, or undoes
        them. Returns the index of the server.
        """
        with self._connection.transaction():
            self.set("LOCK TABLE arclog.executions IN SHARE MODE")
            until(lambda: any(self._waiting(_ports(self.all[index].pid)) for index in among), self)
            victim = next(index for index in among if self._waiting(_ports(self.all[index].pid)))
            ports = _ports(self.all[victim].pid)
            os.killpg(self.all[victim].pid, signal.SIGKILL)
            self.all[victim].wait()
            waiting = self._waiting(ports)
            assert waiting, "its appends are left"
            if undone:
                self._connection.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s) AS pid", [waiting])
                until(lambda: not self._waiting(ports), self)
        return victim

    def _waiting(self, ports: list[int]) -> list[int]:
        """The processes of PostgreSQL that wait for the lock, of the connections from these ports."""
        query = (
            "SELECT pid FROM pg_stat_activity JOIN pg_locks USING (pid)"
            " WHERE client_port = ANY(%s) AND relation = 'arclog.executions'::regclass AND NOT granted"
        )
        return [pid for (pid,) in self._connection.execute(query, [ports])]

    def prepare(self, kind: str, count: int, *, are_alike: bool) -> None:
        if kind == "schedules":
            self.ask(lambda runtime: _schedules(runtime, count, are_alike=are_alike))
        else:
            self.ask(lambda runtime: _waiting_run(runtime, count))
            original = self.number("SELECT execution_id FROM arclog.executions")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("ARCLOG_STORE_URL", self._url)
                copied_runs.copy("", {original: tuple(range(1, count))})
        self.set(PUT_OFF[kind])

    def has_completed(self, count: int) -> bool:
        return self.number("SELECT count(*) FROM arclog.executions WHERE state = 'COMPLETED'") >= count


def _ports(pid: int) -> list[int]:
    """The local ports of a process's TCP connections, as in proc(5)."""
    sockets = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed in the meantime
            sockets.add(str(path.readlink()))
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].partition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in sockets]


async def _waiting_run(runtime: Embedded, count: int) -> None:
    """A run whose timer is set, and room in the store for its copies."""
    await runtime.start_worker()
    run = (await runtime.api.execute(ExecuteRequest(WAITING))).execution_id
    head = 0
    while await runtime.engine.store.next_due() is None:
        head = await runtime.api.wait(run, after=head)
    await copied_runs.make_spans(runtime.engine.store, count, int(run))


async def _schedules(runtime: Embedded, count: int, *, are_alike: bool) -> None:
    """Schedules, with the same workload if they are alike. Crashes at the first decisions on runs with the same workload are counted together
    (ADR 025): after two kills, runs that are alike would not be begun.
    """
    await runtime.api.register(RegisterRequest(SCHEDULED))
    now, settings = runtime.engine.wall.now(), runtime.engine.settings
    tenant, project, environment = (settings.text(f"scope.{name}") for name in ("tenant", "project", "environment"))
    for number in range(count):
        workload = {"number": 0 if are_alike else number}
        name = f"s{number}"
        schedule = Schedule(
            tenant,
            project,
            environment,
            name,
            "0 0 29 2 *",
            "UTC",
            "scheduled",
            now,
            0,
            workload,
            next_due=now - MICROS,
        )
        await runtime.engine.store.add_schedule(schedule)


async def _counts(runtime: Embedded) -> tuple[Counter[int], set[str]]:
    """How many events of the types that may be there once the completed runs have, and the idempotency keys of the runs."""
    store = runtime.engine.store
    runs = await store.executions(ExecutionFilter(states=("COMPLETED",)), limit=10_000)
    counts: Counter[Any] = Counter()
    for run in runs:
        types = Counter(entry.event.type for entry in await store.events(run.execution_id))
        for name in ("timer.fired", "step.done", "playbook.finished"):
            counts[name, types[name]] += 1
    return counts, {run.new.idempotency_key or str(run.execution_id) for run in runs}


@pytest.fixture
def servers(tmp_path: Path, postgres: Database) -> Iterator[Servers]:
    servers = Servers(tmp_path, postgres)
    try:
        yield servers
    finally:
        servers.close()


@pytest.mark.parametrize(
    ("kind", "kills", "fate"),
    [
        ("timers", 0, ""),
        *((kind, 1, fate) for kind in COUNTS for fate in ("undone", "carried out")),
        *(pytest.param(kind, 6, "either", marks=pytest.mark.soak) for kind in COUNTS),
    ],
)
def test_all_of_a_burst_that_two_servers_share_fire_once(servers: Servers, kind: str, kills: int, fate: str) -> None:
    """Without a kill, both servers try to fire the timers in the middle. A single kill is that of the server that has the timers' duty, once
    both have fired some; several are of either server, which is started again each time. `fate` is that of the appends that are on their
    way when a server is killed.
    """
    random = Random(SEED)
    count = COUNTS[kind] * max(kills, 1)
    servers.prepare(kind, count, are_alike=kills <= 1)
    servers.start()
    if kind == "schedules":
        servers.worker_of_both()
    holder = servers.owner()
    servers.set(DUE[kind])
    until(lambda: servers.share(1 - holder, kind) > 0, servers)
    killed: list[tuple[int, int]] = []
    for number in range(kills):
        goal = count - round(count * (number + random.uniform(0.2, 0.7)) / kills)
        until(lambda goal=goal: servers.number(LEFT[kind]) <= goal, servers)  # type: ignore[misc]  # bound
        among = [holder] if kills == 1 else random.sample(range(2), 2)
        victim = servers.kill(among, undone=fate == "undone" or (fate == "either" and random.random() < 0.5))
        killed.append((victim, servers.number(LEFT[kind])))
        if kills > 1:
            servers.all[victim] = servers.server_at(victim)
    print(f"CHAOS_SEED={SEED}, killed servers, and what was left: {killed}")

    until(lambda: servers.has_completed(count), servers)
    assert servers.number(LEFT[kind]) == 0
    assert servers.number("SELECT count(*) FROM arclog.executions") == count
    if kills == 1:  # several may hit the same run, which is in quarantine then until the servers are back
        assert servers.number("SELECT count(*) FROM arclog.crashes WHERE paused_at > 0") == 0
    counts, keys = servers.ask(_counts, read_only=True)
    fired = 1 if kind == "timers" else 0
    assert counts == {("timer.fired", fired): count, ("step.done", 1): count, ("playbook.finished", 1): count}
    assert len(keys) == count
    for process in servers.all:
        if process.poll() is None:
            process.terminate()
            assert process.wait(DEADLINE_S) == 0, servers.output.read_text()
