"""No statement reads a table that grows from end to end, and what each costs does not depend on what else is stored.

The first is what SQLite plans, for every named statement; the second what it did: the steps of its machine, counted, with ten
times as many runs, commands, timers, schedules and the rest in the store.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from arclog.model.events import Event
from arclog.ports.storage.access import AuditEntry
from arclog.ports.storage.outbox import NewDelivery
from arclog.ports.storage.store import (
    Append,
    Appended,
    ExecutionFilter,
    ExecutionState,
    NewCommand,
    NewExecution,
    Scope,
    Timer,
)
from arclog.ports.storage.task_logs import LogLine
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite.queries import SQL
from arclog.testing.conformance.store.administration import schedule
from arclog.testing.virtual import FakeClock
from tests.unit.stores.filling import FIRST, RUNNING, STEP, copies, minted_us, whole_run

#: tables that do not grow with what is run: settings of the installation, its servers and workers
BOUNDED = {"limits", "resources", "workers", "nodes", "duties", "compatibility", "crowded"}
#: statements that read a table, or an index, from one end on; why that is right
ALLOWED = {
    "held": "as many commands as workers hold; only where few tenants compete or a limit is set",
    "held_resources": "as many commands as workers hold that need resources",
    "expired": "as many commands as workers hold",
    "granted": "as many commands as workers hold; only for a report that came twice",
    "crowd_holding": "as many commands as workers hold; once, when a pool becomes crowded",
    "crowd_lanes": "the lanes of a pool, once, when it becomes crowded",
    "shares": "counts the open commands, for people and metrics",
    "backlog": "counts the open commands, for people and metrics",
    "trim_audit_of_caller": "counts the entries of a tenant, once for hundreds of its entries",
    "trim_audit_of_tenant": "counts the entries of a tenant, once for hundreds of its entries",
    "keys": "the keys of an installation, for people",
    "has_keys": "the first row",
    "schedules": "a page of all schedules, in their order",
    "executions_to_settle": "an index of executions that are to be settled alone",
    "retirable": "the newest row of the log",
    "count_retirable": "the newest row of the log",
    "retiring": "what retention has begun to remove",
}


@pytest.fixture
async def store(tmp_path: Path) -> Any:
    store = SqliteStore(tmp_path / "a.db", clock=FakeClock(minted_us(FIRST)))
    await store.open()
    store._writer._connection.execute("PRAGMA synchronous = OFF")
    yield store
    await store.close()


def plan_of(connection: apsw.Connection, text: str) -> list[str]:
    numbered = [int(match) for match in re.findall(r"\?(\d+)", text)]
    count = max(numbered) if numbered else text.count("?")
    return [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + text, (None,) * count)]


async def test_no_statement_scans_what_grows(store: SqliteStore) -> None:
    connection = store._writer._connection
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    scanned: dict[str, list[str]] = {}
    for name, text in SQL.items():
        aliases = {
            alias or table: table
            for table, alias in re.findall(r"(?:FROM|JOIN|,)\s+(\w+)(?:\s+(?:AS\s+)?(\w+))?", text)
        }
        for line in plan_of(connection, text):
            match = re.match(r"SCAN (\w+)", line)
            table = aliases.get(match.group(1), match.group(1)) if match else ""
            if (table in tables and table not in BOUNDED) or "AUTOMATIC" in line:
                scanned.setdefault(name, []).append(line)
    assert {name: lines for name, lines in scanned.items() if name not in ALLOWED} == {}


def test_what_is_allowed_is_there() -> None:
    assert set(ALLOWED) <= set(SQL)


# -- what it did -------------------------------------------------------------------------------------------------------

NAMES = {text: name for name, text in SQL.items()}
HOOK = NewDelivery("http://a/hook", "", "completed", b"{}")


class Steps:
    """Counts what the machine does for each statement, on all connections of a store."""

    def __init__(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self._watch(store._writer._connection)
        plain = apsw.Connection

        def connected(*given: Any, **more: Any) -> apsw.Connection:
            connection = plain(*given, **more)
            self._watch(connection)
            return connection

        monkeypatch.setattr(apsw, "Connection", connected)

    def _watch(self, connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._note)

    def _note(self, event: dict[str, Any]) -> None:
        name = NAMES.get(event["sql"], event["sql"].split("\n")[0][:40])
        self.counts[name] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


class Filled:
    """A store with so much of everything, and what is done to it."""

    def __init__(self, store: SqliteStore, size: int) -> None:
        self.store = store
        self.size = size
        self.last = FIRST + (size + 10) * STEP

    def new_id(self) -> int:
        self.last += 1
        return self.last

    async def fill(self) -> None:
        store, size = self.store, self.size
        await whole_run(store, deliveries=[HOOK])
        copies(store._writer._connection, size)
        (delivery,) = await store.lease_deliveries(1 << 60, 1 << 61)
        for n in range(size):
            await self._live(n)
            await store.add_schedule(schedule(f"s{n}", (1 << 50) + n, tenant="acme"))
            await store.register_plan(f"{n:064}", f"flows/{n % 10}", b"plan", "source", n, tenant="acme")
        await store.attempted(delivery)
        await store.add_audit([AuditEntry(n, "granted", "me", "acme", "GET", "/", "", "", "") for n in range(size)])
        await store.append_logs([LogLine(FIRST + STEP, 1, "a", 1, "t", 1, 1, "stdout", "x") for _ in range(size)])

    async def _live(self, n: int) -> int:
        """A run that waits: for a worker, a timer or nothing."""
        execution_id = FIRST + n * STEP + 77
        command = NewCommand(execution_id + 5, "s", 1, ("gpu",), pool="far", order=n)
        await whole_run_begun(self.store, execution_id, [command], [Timer(execution_id, "t", (1 << 55) + n)])
        return execution_id

    async def everything(self) -> None:
        """What a server does all day, once."""
        for act in (self._a_run, self._a_group, self._reads, self._lists, self._duties):
            await act()

    async def _a_run(self) -> None:
        store, own = self.store, self.new_id()
        command = NewCommand(self.new_id(), "s", 1, ("noop",))
        await whole_run_begun(store, own, [command], [Timer(own, "t", 5)])
        (taken,) = await store.claim("w", limit=1, lease_until=1 << 60, kinds=["noop"])
        await store.heartbeat("w", [(taken.command_id, taken.fence)], 1 << 61)
        await store.append(
            Append(
                own,
                1,
                _events("step.scheduled", "step.done"),
                self.new_id(),
                RUNNING,
                extend=[(taken.command_id, 1, 9)],
            )
        )
        await store.append(
            Append(own, 3, _events("task.done"), self.new_id(), RUNNING, close=[command.command_id], clear_timers=["t"])
        )
        await store.put_snapshot(own, 3, "code", b"state")
        await whole_run(store, self.new_id(), steps=1)

    async def _a_group(self) -> None:
        """Runs that begin, go on and end together."""
        store, scope = self.store, Scope("default", "p", "e")
        runs = [self.new_id() for _ in range(10)]
        ended = ExecutionState("COMPLETED", ended_at=1, terminal_event="playbook.finished")

        async def appended(head: int, names: Sequence[str], now: ExecutionState, **more: Any) -> None:
            new = NewExecution("run", "a", "flows/group", 1, "d" * 64, scope, 1) if head == 0 else None
            appends = [Append(run, head, _events(*names), self.new_id(), now, new, **more) for run in runs]
            outcomes = await store.append_all([each(append) for append in appends])
            assert all(isinstance(outcome, Appended) for outcome in outcomes)

        def each(append: Append) -> Append:
            own = append.execution_id
            if append.expected:
                return append
            command = NewCommand(self.new_id(), "s", 1, ("group",), pool="group")
            return replace(append, issue=[command], set_timers=[Timer(own, "t", 1 << 54)])

        await appended(0, ("playbook.started", "step.scheduled"), ExecutionState("PENDING"))
        await appended(2, ("task.started",), RUNNING)
        await appended(3, ("step.done",), RUNNING, clear_timers=["t"])
        await appended(4, ("step.failed", "playbook.finished"), ended)

    async def _reads(self) -> None:
        store, own = self.store, FIRST + 3 * STEP
        await store.events(own)
        await store.events(own, types=["playbook.finished"])
        await store.step_events(own, "s1", 1)
        await store.step_runs(own)
        await store.execution(own)
        await store.by_run_id(f"run-{own}")
        await store.snapshot(own, "code")
        await store.tail(after=store._writer._connection.execute("SELECT max(pos) FROM log").get - 5)
        await store.marks("playbook.finished", since=minted_us(FIRST + self.size * STEP), limit=10)
        await store.commands(own)
        await store.plan("0" * 64)
        await store.registered("flows/1", tenant="acme")
        await store.schedule("acme", "s1")
        await store.logs(FIRST + 2 * STEP)

    async def _lists(self) -> None:
        store = self.store
        await store.executions(limit=20)
        await store.executions(ExecutionFilter(tenant="default"), limit=20)
        for tenant in ("default", ""):
            for which in (
                ExecutionFilter(tenant=tenant, states=("CANCELLED",)),
                ExecutionFilter(tenant=tenant, states=("PENDING", "RUNNING")),
                ExecutionFilter(tenant=tenant, path="flows/none"),
                ExecutionFilter(tenant=tenant, path="flows/a", states=("FAILED",)),
                ExecutionFilter(tenant=tenant, origin=FIRST),
                ExecutionFilter(tenant=tenant, name="none"),
                ExecutionFilter(tenant=tenant, name="a", states=("FAILED",)),
            ):
                await store.executions(which, limit=20)
        await store.catalog(tenant="acme", limit=5)
        await store.catalog(tenant="acme", prefix="flows/7", limit=5)
        await store.versions("flows/3", tenant="acme", limit=5)
        await store.schedules("acme", limit=5)
        await store.late_schedules(5, 5)
        await store.audit(limit=5)
        await store.audit(decision="denied", limit=5)
        await store.audit(tenant="acme", decision="denied", limit=5)
        await store.results(FIRST)
        await store.kept_results(limit=5)
        await store.pending_paths(limit=5)
        await store.live_in_path("default", "flows/none", "RUNNING", limit=5)
        await store.live_in_path("default", "flows/3", "PENDING", limit=5)

    async def _duties(self) -> None:
        store = self.store
        await store.due_timers(1 << 54)
        await store.coming_timers(5, 1 << 54)
        await store.next_due()
        await store.lease_schedules("me", 5, 9)
        await store.lease_deliveries(5, 9)
        await store.executions_to_settle()
        await store.given_up(0)
        await store.lease_duty("gc", "me", 1, 2)
        await store.contest("far")
        await store.add_audit([AuditEntry(1 << 40, "granted", "me", "acme", "GET", "/", "", "", "")], keep_from=2)
        await store.trim_audit("acme", "me", 1 << 20, 1 << 20)
        await store.retire(minted_us(FIRST) - 1)
        await store.reclaim()
        own = self.new_id()
        await whole_run_begun(store, own, [], [], state="PENDING", path=f"flows/{own}")
        await store.append(Append(own, 1, _events("playbook.started"), self.new_id(), RUNNING, slots=3))


def _events(*names: str) -> list[Any]:
    return [
        Event(name, 1, "s" if name.startswith("step") else "", 1 if name.startswith("step") else 0) for name in names
    ]


async def whole_run_begun(
    store: SqliteStore,
    execution_id: int,
    commands: list[NewCommand],
    timers: list[Timer],
    state: str = "RUNNING",
    path: str = "flows/live",
) -> None:
    new = NewExecution(
        f"run-{execution_id}", "a", path, 1, "d" * 64, Scope("default", "p", "e"), minted_us(execution_id)
    )
    first = _events("playbook.execution.requested")
    await store.append(
        Append(execution_id, 0, first, execution_id + 1, ExecutionState(state), new, commands, set_timers=timers)
    )


async def steps_of(tmp_path: Path, size: int) -> Counter[str]:
    store = SqliteStore(tmp_path / f"{size}.db", clock=FakeClock(minted_us(FIRST)))
    await store.open()
    store._writer._connection.execute("PRAGMA synchronous = OFF")
    filled = Filled(store, size)
    await filled.fill()
    await filled.everything()
    await store._writer.checkpoint()  # while the log is copied, every transaction does a little more
    with pytest.MonkeyPatch.context() as patched:
        steps = Steps(store, patched)
        for readers in (store._reader, store._lists):
            await readers.close()
            readers.open()
        await filled.everything()
        counts = steps.counts
    await store.close()
    return counts


async def test_what_is_stored_makes_nothing_dearer(tmp_path: Path) -> None:
    small, large = [await steps_of(tmp_path, size) for size in (60, 600)]
    dearer = {
        name: (small[name], large[name])
        for name in large
        if large[name] > 1.5 * small[name] + 50 and name not in ALLOWED
    }
    assert dearer == {}
    assert len(small) > 60
