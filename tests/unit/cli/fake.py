"""An Api without a store: runs are lists of envelopes that tests write down."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, BinaryIO

from arclog.model.envelope import Subject, widen
from arclog.model.errors import NotFound, RequestRejected
from arclog.model.events import TERMINAL, Event
from arclog.model.ids import timestamp
from arclog.ports.storage.task_logs import ANY_LINE, LogFilter
from arclog.ports.views.api import (
    CatalogDiff,
    CatalogEntry,
    CatalogVersion,
    Collected,
    EventSearchPage,
    ExecuteRequest,
    Forked,
    ForkRequest,
    ListedRun,
    Origin,
    PlaybookStats,
    RegisterRequest,
    ReplayCheck,
    RunsDiff,
    SignalAnswer,
    SignalRequest,
    Started,
    Status,
    StoredResult,
    Summary,
)
from arclog.ports.views.history import Imported, SimulateRequest, SimulationReport, Trace, TraceNode
from arclog.ports.views.insight import Cause, StateView, StepSummary, Wait, Why
from arclog.ports.views.overview import Activity, ApprovalPage, FailingPlaybook, Lease, RunPage, RunQuery, StuckRun

#: what tests of the catalog need, they ask of a real engine
NO_CATALOG = "nothing is registered here"

ID = "380452616754167808"
RUN_ID = "5f0c5a0e-0000-4000-8000-000000000001"
T0 = 1_790_000_000_000_000
_LIFECYCLE = {"COMPLETED": "playbook.completed", "FAILED": "playbook.failed", "CANCELLED": "execution.cancelled"}


class FakeRun:
    """One run: its state, its events as `(type, {Event fields})`, its log lines."""

    def __init__(self, *events: tuple[str, dict[str, Any]], state: str = "COMPLETED", **summary: Any) -> None:
        subject = Subject(int(ID), "demo", {"tenant_id": "default"})
        self.events = [
            widen(
                Event(kind, T0 + 10_000 * number, **fields), subject, number + 1, 7_000 + number, T0 + 10_000 * number
            )
            for number, (kind, fields) in enumerate(events)
        ]
        self.state = state
        self.summary = {"steps": {}, "ctx": {}, "result": None, "error": None, **summary}
        self.logs: list[dict[str, Any]] = []
        self.paused = False
        self.source = ""
        #: how many events a reader sees at first; whoever waits sees one more
        self.shown = len(self.events)

    @property
    def ended(self) -> bool:
        return any(event["event_type"] in TERMINAL for event in self.events[: self.shown])

    def go_on(self) -> None:
        self.shown = min(self.shown + 1, len(self.events))

    def log(self, step: str, text: str, **more: Any) -> None:
        line = {"position": len(self.logs) + 1, "timestamp": timestamp(T0), "step": step, "task": f"{step}_task"}
        self.logs.append({**line, "attempt": 1, "stream": "stdout", "text": text, **more})


class FakeApi:
    """Implements `ports.api.Api` over FakeRuns."""

    def __init__(self, runs: dict[str, FakeRun] | None = None) -> None:
        self.runs = runs or {}
        self.requests: builtins.list[ExecuteRequest] = []
        self.cancelled: builtins.list[tuple[str, str]] = []
        self.signals: builtins.list[SignalRequest] = []
        #: what a new run will be
        self.next: FakeRun | None = None
        self.refusal: Exception | None = None
        self.stored: builtins.list[StoredResult] = []
        #: content of every stored result
        self.body = b""
        #: what lines the last reader of logs wanted
        self.log_filter = ANY_LINE
        #: how many events readers got
        self.handed_out = 0

    def run(self, execution_id: str) -> FakeRun:
        if execution_id not in self.runs:
            raise NotFound(f"there is no execution {execution_id}")
        return self.runs[execution_id]

    async def execute(self, request: ExecuteRequest) -> Started:
        if self.refusal is not None:
            raise self.refusal
        self.requests.append(request)
        assert self.next is not None
        self.runs[ID] = self.next
        return Started(ID, RUN_ID)

    async def wait(self, execution_id: str, *, after: int = 0, timeout_s: float | None = None) -> int:
        run = self.run(execution_id)
        while not run.ended and run.shown <= after:
            run.go_on()
            if timeout_s is not None:
                break
        return run.shown

    async def ended(self, execution_id: str, *, timeout_s: float | None = None) -> bool:
        run = self.run(execution_id)
        while not run.ended:
            run.go_on()
            if timeout_s is not None:
                break
        return run.ended

    async def status(self, execution_id: str) -> Status:
        run = self.run(execution_id)
        state = run.state if run.ended else "RUNNING"
        ended = timestamp(T0 + 120_000) if run.ended else None
        return Status(execution_id, state, "start", timestamp(T0), ended, _LIFECYCLE.get(state))

    async def summary(self, execution_id: str) -> Summary:
        run = self.run(execution_id)
        now = await self.status(execution_id)
        steps = {name: StepSummary(*row) for name, row in run.summary["steps"].items()}
        others = {**run.summary, "steps": steps}
        about = (RUN_ID, now.state, now.terminal_event, now.started_at, now.ended_at)
        return Summary(execution_id, *about, **{"name": "demo", **others})

    async def list(
        self,
        *,
        states: Sequence[str] = (),
        path: str = "",
        before: str = "",
        limit: int = 50,
        name: str = "",
        since: str = "",
        parent: str = "",
        origin: str = "",
    ) -> builtins.list[ListedRun]:
        rows = []
        for execution_id in sorted(self.runs, key=int, reverse=True):
            now = await self.status(execution_id)
            if (states and now.state not in states) or (before and int(execution_id) >= int(before)):
                continue
            if name not in "demo" or parent or (since and since > timestamp(T0)):
                continue
            if origin and int(execution_id) != int(origin) + 1:  # a run is a retry of the one before
                continue
            times = (timestamp(T0), now.started_at, now.ended_at)
            rows.append(ListedRun(execution_id, RUN_ID, "demo", "demo", "1", now.state, "start", *times, None))
        return rows[:limit]

    async def find(self, query: RunQuery) -> RunPage:
        narrowed = {"name": query.name, "since": query.since, "parent": query.parent, "origin": query.origin}
        matching = await self.list(states=query.states, before=query.before, limit=query.limit, **narrowed)
        return RunPage(matching, matching[-1].execution_id if len(matching) == query.limit else None)

    async def activity(self, *, hours: int = 24) -> Activity:
        raise NotFound(f"nothing is counted here, of {hours} hours or others")

    async def failing(self, *, limit: int = 20) -> builtins.list[FailingPlaybook]:
        return [][:limit]

    async def stuck(self, *, limit: int = 20) -> builtins.list[StuckRun]:
        return [][:limit]

    async def leases(self, *, limit: int = 100) -> builtins.list[Lease]:
        return [][:limit]

    async def approvals(self, *, after: str = "", limit: int = 50) -> ApprovalPage:
        return ApprovalPage([][:limit], after or None)

    async def events(
        self, execution_id: str, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> builtins.list[dict[str, Any]]:
        run = self.run(execution_id)
        matching = [event for event in run.events[: run.shown] if event["seq"] > after]
        page = [entry for entry in matching if not types or entry["event_type"] in types][:limit]
        self.handed_out += len(page)
        return page

    async def entity_events(
        self, execution_id: str, entity_type: str, entity_id: str = "", *, after: int = 0, limit: int = 1000
    ) -> builtins.list[dict[str, Any]]:
        page = await self.events(execution_id, after=after, limit=limit)
        return [entry for entry in page if (entry["entity_type"], entry["entity_id"]) == (entity_type, entity_id)]

    async def search(
        self,
        *,
        types: Sequence[str] = (),
        since: str = "",
        until: str = "",
        entity: str = "",
        where: str = "",
        informative: bool = False,
        cursor: str = "",
        limit: int = 100,
    ) -> EventSearchPage:
        raise NotImplementedError

    async def logs(
        self, execution_id: str, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> builtins.list[dict[str, Any]]:
        self.log_filter = where
        matching = [line for line in self.run(execution_id).logs if line["position"] > after]
        if where.step:
            matching = [line for line in matching if line["step"] == where.step]
        if not where.streams:
            matching = [line for line in matching if line["stream"] != "progress"]
        return matching[:limit]

    async def results(self, execution_id: str, *, after: int = 0, limit: int = 1000) -> builtins.list[StoredResult]:
        self.run(execution_id)
        return [entry for entry in self.stored if entry.execution_id == execution_id and entry.seq > after][:limit]

    async def result(self, ref: str) -> StoredResult:
        for entry in self.stored:
            if entry.ref == ref:
                return entry
        raise NotFound(f"there is no stored result {ref}")

    async def content(self, ref: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        await self.result(ref)
        if self.refusal is not None:
            raise self.refusal
        for at in range(start, len(self.body) if end is None else min(end, len(self.body)), 10):
            yield self.body[at : at + 10 if end is None else min(at + 10, end)]

    async def collect(self, *, dry_run: bool = False) -> Collected:
        return Collected(dry_run, 3, 1, 5_000_000, 2, 4)

    async def fork(self, execution_id: str, request: ForkRequest) -> Forked:
        self.run(execution_id)
        origin = Origin(execution_id, request.at or 1, "retry" if request.at is None else "fork", 4, request.step)
        return Forked(execution_id, "run", origin)

    async def replay(self, execution_id: str) -> ReplayCheck:
        return ReplayCheck(execution_id, ok=True, events=len(self.run(execution_id).events), decisions=1, folded=0)

    async def diff(self, execution_id: str, other: str) -> RunsDiff:
        return RunsDiff(execution_id, other, None, [], [], more_values=False, durations=[], net=None)

    async def simulate(self, request: SimulateRequest) -> SimulationReport:
        return SimulationReport(ok=True, verdicts={}, steps=0, runs=[])

    async def export(self, execution_id: str) -> AsyncIterator[bytes]:
        self.run(execution_id)
        yield self.body

    async def import_run(self, file: BinaryIO) -> Imported:
        return Imported("1", "run", len(file.read()), 0)

    async def lineage(self, execution_id: str) -> builtins.list[dict[str, Any]]:
        self.run(execution_id)
        return []

    async def trace(self, execution_id: str, path: str) -> Trace:
        self.run(execution_id)
        return Trace(execution_id, path, TraceNode("result", path, 1, 4))

    async def stats(self, path: str, *, since: str = "", limit: int = 200) -> PlaybookStats:
        return PlaybookStats(path, 0, {}, None, None, None, [], [])

    async def why(self, execution_id: str) -> Why:
        self.run(execution_id)
        waits = [Wait("retry", "waits for attempt 2", "start", timestamp(T0)), Wait("worker", "waits for a worker")]
        return Why(execution_id, "RUNNING", "two steps wait", waits)

    async def state(self, execution_id: str, at: int | None = None) -> StateView:
        run, now = self.run(execution_id), await self.status(execution_id)
        seq = len(run.events) if at is None else min(at, len(run.events))
        last = run.events[seq - 1] if seq else {}
        shown = (last.get("event_type"), last.get("timestamp"), now.state)
        return StateView(execution_id, seq, len(run.events), *shown, [], [], [], {}, run.summary["ctx"], None, None)

    async def cancel(self, execution_id: str, reason: str) -> Status:
        if self.refusal is not None:
            raise self.refusal
        if not self.run(execution_id).ended:
            self.cancelled.append((execution_id, reason))
            self.runs[execution_id] = FakeRun(("execution.cancelled", {}), state="CANCELLED")
        return await self.status(execution_id)

    async def pausing(self, execution_id: str) -> bool:
        return self.run(execution_id).paused

    async def signal(self, execution_id: str, request: SignalRequest) -> SignalAnswer:
        if self.refusal is not None:
            raise self.refusal
        self.signals.append(request)
        run = self.run(execution_id)
        before = run.state if run.ended else "RUNNING"
        problem = f"the execution has ended ({before})" if run.ended and request.signal != "RETRY_RUN" else ""
        if request.signal == "RESUME" and not problem:
            run.paused = False
        if request.signal == "CANCEL" and not problem:
            await self.cancel(execution_id, request.reason)
        now = await self.status(execution_id)
        return SignalAnswer(
            execution_id, request.signal, request.signal_id or "s", not problem, problem, now.state, run.paused
        )

    async def source(self, execution_id: str) -> str:
        return self.run(execution_id).source

    async def graph(self, execution_id: str, form: str = "json") -> Any:
        raise RequestRejected("these runs have no plan")

    async def register(self, request: RegisterRequest) -> CatalogVersion:
        raise RequestRejected(NO_CATALOG)

    async def catalog(
        self, *, prefix: str = "", after: str = "", limit: int = 100, archived: bool = False
    ) -> builtins.list[CatalogEntry]:
        return []

    async def versions(self, path: str, *, before: int = 0, limit: int = 100) -> builtins.list[CatalogVersion]:
        raise NotFound(NO_CATALOG)

    async def registered(self, path: str, version: int = 0) -> CatalogVersion:
        raise NotFound(NO_CATALOG)

    async def difference(self, path: str, older: int, newer: int = 0, other: str = "") -> CatalogDiff:
        raise NotFound(NO_CATALOG)

    async def archive(self, path: str, *, archived: bool = True) -> CatalogEntry:
        raise NotFound(NO_CATALOG)


class FakeEmbedded:
    """What `wiring.embedded` opens."""

    def __init__(self, api: FakeApi) -> None:
        import asyncio

        self.api = api
        self.worked_on: list[str] = []
        self.held = ""
        self.elsewhere = ""
        self.worker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: what the worker dies of
        self.death: Exception | None = None

    def open_tools(self, text: str) -> None:
        """Nothing to open."""

    def keep_plan(self, text: str, plan: Any) -> None:
        """Nothing to keep."""

    async def start_worker(self, execution_id: str = "") -> None:
        self.worked_on.append(execution_id)
        if self.death is not None:
            self.worker.set_exception(self.death)

    async def take_over(self, execution_id: str) -> str:
        return self.held

    def served_by(self, execution_id: str) -> str:
        return self.elsewhere


class FakeHome:
    """Stands in for `arclog.cli.home`'s way to the runs."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.opened: list[bool] = []
        self.held = ""
        self.elsewhere = ""
        self.death: Exception | None = None
        self.embedded: FakeEmbedded | None = None

    @asynccontextmanager
    async def open(self, settings: Any, *, read_only: bool = False) -> AsyncIterator[FakeEmbedded]:
        self.opened.append(read_only)
        self.embedded = FakeEmbedded(self.api)
        self.embedded.held = self.held
        self.embedded.elsewhere = self.elsewhere
        self.embedded.death = self.death
        yield self.embedded


def steps(*names: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of steps that run one after the other."""
    for name in names:
        yield "step.scheduled", {"step": name, "run": 1}
        yield "step.started", {"step": name, "run": 1}
        yield "task.started", {"step": name, "run": 1, "task": f"{name}_task", "task_run": 1, "attempt": 1}
        yield "step.done", {"step": name, "run": 1}


def completed(*names: str, **summary: Any) -> FakeRun:
    rows = dict.fromkeys(names, ("done", 1))
    return FakeRun(("playbook.started", {}), *steps(*names), ("playbook.finished", {}), steps=rows, **summary)


def failed() -> FakeRun:
    error: dict[str, Any] = {
        "kind": "exception",
        "message": "KeyError: 'x\x1b[2J'",
        "code": "KeyError",
        "retryable": False,
    }
    outcome = {"status": "error", "error": error, "py": {"exception": "KeyError", "traceback": "Traceback\n  line 3"}}
    where = {"step": "start", "run": 1}
    run = FakeRun(
        ("playbook.started", {}),
        ("step.scheduled", where),
        ("task.failed", {**where, "task": "boom", "task_run": 1, "attempt": 2, "payload": {"outcome": outcome}}),
        ("step.failed", {**where, "payload": {"error": error}}),
        ("playbook.finished", {"status": "error", "payload": {"error": error}}),
        state="FAILED",
        steps={"start": ("failed", 1)},
        error={**error, "step": "start"},
        cause=Cause(
            error["kind"],
            error["message"],
            error["code"],
            step="start",
            task="boom",
            attempt=2,
            at="5:9",
            file="demo.yaml",
            line=5,
            source="- name: boom",
            traceback="Traceback\n  line 3",
        ),
        next=[f"arclog logs {ID} --step start"],
    )
    run.source = (
        "metadata: {name: demo}\nworkflow:\n  - step: start\n    tool:\n      - name: boom\n        kind: noop\n"
    )
    return run


def refused() -> RequestRejected:
    return RequestRejected("the workload is too large")
