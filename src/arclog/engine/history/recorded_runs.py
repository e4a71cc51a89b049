"""Recorded runs of one engine: checks them against the current code, and continues them in new runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict

from arclog.core.boundary.inputs import Request
from arclog.core.transitions.items import apply_all
from arclog.core.transitions.state import State
from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import new_uuid
from arclog.engine.history.bulk import aside, few_collections
from arclog.engine.runs.starting import Going
from arclog.history import diff, fork_check, replay, reused_steps, stats
from arclog.history.reused_events import FirstEvents, FirstEventsBuilder, Head
from arclog.history.reused_events import Origin as Beginning
from arclog.history.step_runs import Log, check_release
from arclog.model.data.json_data import deep_merge
from arclog.model.errors import Conflict, DoesNotFit, NotFound, RequestRejected
from arclog.model.events import Event
from arclog.model.inputs import FORGOTTEN_SECRETS, secret_names
from arclog.plan.program import Program
from arclog.ports.storage.store import (
    ExecutionFilter,
    ExecutionRecord,
    NewExecution,
    NoSlot,
    RunOrigin,
    StoredEvent,
    is_imported,
)
from arclog.ports.views.api import Forked, ForkRequest, Origin, PlaybookStats, ReplayCheck, ReplayDifference, RunsDiff

_EVENT, _EVENT_ID = attrgetter("event"), attrgetter("event_id")
_PAGE = 10_000
_LONGEST_KEY = 200
#: Maximum number of ends of step runs that are counted for one run.
_ENDS = 10_000


async def read_log(engine: Engine, execution_id: int, last: int) -> list[StoredEvent]:
    """Return the log of a run up to an event."""
    events: list[StoredEvent] = []
    while len(events) < last:
        page = await engine.store.events(execution_id, after=len(events), limit=min(_PAGE, last - len(events)))
        if not page:
            break
        events += page
    return events


async def checked(engine: Engine, record: ExecutionRecord) -> ReplayCheck:
    """Repeat every decision in the log of a run."""
    with few_collections(record.head):
        result = await _replayed(engine, record)
    different = result.difference
    return ReplayCheck(
        execution_id=str(record.execution_id),
        ok=different is None,
        events=result.events,
        decisions=result.decisions,
        folded=result.folded,
        difference=None if different is None else ReplayDifference(**asdict(different)),
    )


async def _replayed(engine: Engine, record: ExecutionRecord) -> replay.Checked:
    program = await engine.live.program(record.new.plan)
    stored = await read_log(engine, record.execution_id, record.head)
    events, event_ids = list(map(_EVENT, stored)), list(map(_EVENT_ID, stored))
    del stored
    turns = engine.deciding.turns

    def check(*limits: Any) -> replay.Checked:
        checked = replay.check(program, record.execution_id, events, event_ids, *limits)
        events.clear()  # in the thread: a collection after its end would examine them all
        return checked

    if turns is None:
        return await aside(len(events), check, engine.deciding.meter)
    # The templates of the run cost the same again, so they are evaluated in turns, as in the run itself.
    meter = engine.deciding.sliced_meter(turns)
    return await turns.run(record.new.scope.tenant, lambda: check(meter, turns.give_way))


async def compared(engine: Engine, a: ExecutionRecord, b: ExecutionRecord) -> RunsDiff:
    """Compare two runs."""
    sides: list[diff.Side] = []
    with few_collections(a.head + b.head):
        for record in (a, b):
            program = await engine.live.program(record.new.plan)
            events = list(map(_EVENT, await read_log(engine, record.execution_id, record.head)))
            sides.append(await aside(len(events), _side, program, record.execution_id, events))
        differences = to_builtins(await aside(a.head + b.head, diff.compare, *sides))
    return RunsDiff(str(a.execution_id), str(b.execution_id), **differences)


def _side(program: Program, execution_id: int, events: list[Event]) -> diff.Side:
    state = State(execution_id=execution_id)
    apply_all(program, state, events)
    return diff.Side(program.plan, state, events)


async def stats_of(engine: Engine, path: str, which: ExecutionFilter, limit: int) -> PlaybookStats:
    """Return statistics of the latest runs of a playbook."""
    records = await engine.store.executions(which, limit=limit)
    if not records:
        raise NotFound(f"there is no run of {path[:200]!r}; `arclog list` shows the playbooks of runs")
    facts: list[stats.RunFacts] = []
    for record in records:
        ends = await engine.store.events(record.execution_id, limit=_ENDS, types=("step.done", "step.failed"))
        now = record.now
        took = None if now.ended_at is None or now.started_at is None else (now.ended_at - now.started_at) // 1000
        facts.append(
            stats.RunFacts(
                str(record.execution_id), now.state, record.new.created_at, took, [end.event for end in ends]
            )
        )
    return PlaybookStats(path, **to_builtins(stats.stats(facts)))


async def fork(engine: Engine, record: ExecutionRecord, request: ForkRequest, going: Going | None) -> Forked:
    """Start a run that continues from the recorded events of `record`. `going` is the playbook; None means the run's
    own.
    """
    _check(record, request)
    key = f"fork:{record.new.run_id}:{request.idempotency_key}" if request.idempotency_key else ""
    if key and (existing := await engine.store.by_idempotency_key(record.new.scope, key)) is not None:
        return await _forked_before(engine, existing)
    last = record.head if request.at is None else request.at
    with few_collections(last):
        return await _forked(engine, record, request, going, key, last)


async def _forked(
    engine: Engine, record: ExecutionRecord, request: ForkRequest, going: Going | None, key: str, last: int
) -> Forked:
    events = list(map(_EVENT, await read_log(engine, record.execution_id, last)))
    check_release(record.execution_id, events)
    log = Log(events)
    old = await engine.live.program(record.new.plan)
    program = old if going is None else going.program
    check_map(request.map, old.steps, program.steps)
    chosen = reused_steps.for_fork(log) if request.at is not None else reused_steps.for_retry(log, request.step)
    head = _head(record, events[0], request, going)
    await _check_start(engine, record, program, head, changed=going is not None or bool(request.workload))
    arcs = fork_check.Arcs(old, program, request.map)
    origin = Beginning(
        record.execution_id, record.new.run_id, last, "retry" if request.at is None else "fork", request.step
    )
    new = NewExecution(
        run_id=new_uuid(),
        name=program.plan.name,
        path=head.path,
        version=head.version,
        plan=program.digest,
        scope=record.new.scope,
        created_at=engine.clock.now(),
        idempotency_key=key,
        origin=RunOrigin(record.execution_id, last, origin.how),
    )
    removed = await _removed_results(engine, record.execution_id)

    def begin(execution_id: int, base_id: int, now: int) -> tuple[State, list[Event], dict[str, int]]:
        first = FirstEventsBuilder(chosen, origin, program, arcs, request.map).build(head, execution_id, base_id, now)
        _check_results(first, removed)
        changed = program.digest != old.digest
        state, timers, verdict = fork_check.check_fit(
            program, execution_id, first.events, first.sources, changed=changed
        )
        if verdict is not None:
            raise DoesNotFit(_explained(verdict, record.execution_id))
        return state, first.events, timers

    try:
        execution_id = await engine.fork(program, new, begin, 2 * len(events))
    except NoSlot:  # another run has taken it
        raise _no_slot(program.plan.concurrency) from None
    except Conflict:  # a concurrent request with the same key was faster
        existing = await engine.store.by_idempotency_key(record.new.scope, key) if key else None
        if existing is None:
            raise
        return await _forked_before(engine, existing)
    first = (await engine.store.events(execution_id, limit=1))[0]
    return Forked(str(execution_id), new.run_id, Origin.of(first.event.payload["origin"]))


async def _forked_before(engine: Engine, record: ExecutionRecord) -> Forked:
    first = (await engine.store.events(record.execution_id, limit=1))[0]
    return Forked(str(record.execution_id), record.new.run_id, Origin.of(first.event.payload["origin"]), created=False)


def check_map(renamed: Mapping[str, str], old: Collection[str], new: Collection[str]) -> None:
    """Raise RequestRejected if one of the playbooks does not have a step that `map` names."""
    for names, steps, which in (
        (renamed.keys(), old, "the run's playbook"),
        (renamed.values(), new, "the new playbook"),
    ):
        if unknown := sorted(name for name in names if name not in steps):
            listed = ", ".join(list(steps)[:20])
            raise RequestRejected(
                f"`map` names steps that {which} does not have: {', '.join(unknown)}; it has {listed}"
            )


def _check(record: ExecutionRecord, request: ForkRequest) -> None:
    if len(request.idempotency_key) > _LONGEST_KEY:
        raise RequestRejected(f"an idempotency key has at most {_LONGEST_KEY} characters")
    asked = (request.at is not None) + bool(request.step) + request.failed
    if asked != 1:
        raise RequestRejected("set exactly one of `at` (an event), `from` (a step) and `failed`")
    if request.at is None:
        if record.now.terminal_event is None:
            remedy = "retry it once it has, or cancel it first"
            if is_imported(record.new):
                remedy = f"it was exported in this state; fork it after event {record.head}"
            raise Conflict(f"run {record.execution_id} has not ended ({record.now.state}); {remedy}")
    elif not 1 <= request.at <= record.head:
        raise RequestRejected(f"run {record.execution_id} has events 1 to {record.head}, not {request.at}")


def _head(record: ExecutionRecord, first: Event, request: ForkRequest, going: Going | None) -> Head:
    asked = first.payload
    workload = deep_merge(asked.get("workload") or {}, dict(request.workload))
    scope = record.new.scope.label if "scope" in asked else ""
    if going is None:
        files = asked.get("files") or {}
        return Head(record.new.path, record.new.version, workload, files, asked.get("file", ""), scope)
    return Head(going.path, going.version, workload, dict(going.files), going.file, scope)


async def _check_start(engine: Engine, record: ExecutionRecord, program: Program, head: Head, *, changed: bool) -> None:
    """Check the requirements of a start: a valid approval, a free slot, the secrets of its keychain."""
    plan, scope = program.plan, record.new.scope
    if names := secret_names(plan.inputs):
        raise RequestRejected(f"{', '.join(names)}: {FORGOTTEN_SECRETS}")
    if plan.approval and changed:
        raise RequestRejected(
            "a run of this playbook must be approved before it starts (executor.spec.policy.approval), and that "
            "approval does not cover the change; start a new run instead"
        )
    if plan.concurrency is not None:
        which = ExecutionFilter(states=("RUNNING",), path=head.path, tenant=scope.tenant)
        running = await engine.store.executions(which, limit=plan.concurrency)
        if len(running) >= plan.concurrency:
            raise _no_slot(plan.concurrency)
    problem = await engine.problems_of(program, Request(head.path, head.version, head.workload, scope.label))
    if problem:
        raise RequestRejected(problem)


def _no_slot(slots: int | None) -> Conflict:
    return Conflict(
        f"{slots} at a time of this playbook may run (executor.spec.concurrency); try again when one has ended"
    )


async def _removed_results(engine: Engine, execution_id: int) -> set[tuple[str, str]]:
    """Return the stored results of a run that gc has removed."""
    removed: set[tuple[str, str]] = set()
    after = 0
    while page := await engine.store.results(execution_id, after=after):
        removed |= {(result.name, result.sha256) for result in page if result.removed_at is not None}
        after = page[-1].seq
    return removed


def _check_results(first: FirstEvents, removed: set[tuple[str, str]]) -> None:
    gone = sorted(name for name, _ in first.results & removed)
    if gone:
        more = f" and {len(gone) - 5} more" if len(gone) > 5 else ""
        raise RequestRejected(
            f"stored results that the new run needs were removed: {', '.join(gone[:5])}{more}; "
            "start from an earlier step"
        )


def _explained(verdict: fork_check.Verdict, execution_id: int) -> str:
    lines = [f"event {problem.seq}: {problem.message}" for problem in verdict.problems]
    latest = (
        f"it fits up to event {verdict.fits_at}: arclog fork {execution_id} --at {verdict.fits_at} --playbook …"
        if verdict.fits_at
        else "it fits at no event of the run"
    )
    return f"the recorded state of run {execution_id} does not fit this playbook: {'; '.join(lines)}; {latest}"
