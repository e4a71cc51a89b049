"""The laws of every event log, for any playbook and after any failure. A violation is an AssertionError."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from arclog.core.boundary.reports import WORKER_TYPES
from arclog.dialects import legacy, lifecycle
from arclog.dialects.names import DIALECTS, reader_of, state_of
from arclog.dialects.rendering import Rendered
from arclog.dialects.run_record import RunSubject
from arclog.model import status
from arclog.model.envelope import Subject, widen
from arclog.model.events import REGISTRY, TERMINAL, Event, is_closing, status_of
from arclog.model.ids import moved
from arclog.ports.storage.store import StoredEvent
from arclog.testing.closed_logs import check_events, check_layers, check_run_records

# ── dialect laws ──────────────────────────────────────────────────────────────────────────────────────────────────────
# The laws of every dialect, for the log of any run that has ended.

SUBJECT = RunSubject("00000000-0000-4000-8000-000000000001", "flows/demo", "3")
_RUN_ENDS = {"RunCompleted", "RunFailed", "RunCancelled"}

Log = Sequence[dict[str, Any]]


def rendered_log(dialect: str, log: Log) -> list[Rendered]:
    """Return the whole log, rendered in a dialect."""
    reader = reader_of(dialect, SUBJECT)
    records = [record for envelope in log for record in reader.render(envelope)]
    return records + reader.held_back()


def check_dialects(log: Log, cursor: int) -> None:
    """Check all laws. A second reader begins at `cursor`."""
    for dialect in DIALECTS:
        records = rendered_log(dialect, log)
        assert all(a.seq <= b.seq for a, b in pairwise(records)), f"{dialect} is out of order"
        check_cursor(dialect, log, cursor)
    for dialect in ("lifecycle", "wire", "legacy"):
        check_layers(dialect, [record.record for record in rendered_log(dialect, log)])
    check_commands(rendered_log("lifecycle", log))
    check_run(rendered_log("run", log))
    back = [lifecycle.canonical(record.record) for record in rendered_log("lifecycle", log)]
    assert [record for record in back if record is not None] == list(log), "lifecycle cannot be undone"
    assert [legacy.canonical(record.record) for record in rendered_log("legacy", log)] == list(log), (
        "legacy cannot be undone"
    )


def check_cursor(dialect: str, log: Log, cursor: int) -> None:
    """A reader that begins after a cursor renders the same records as one from the beginning, with the state and
    without.
    """
    whole = rendered_log(dialect, log)
    first = reader_of(dialect, SUBJECT)
    head = [record.record for envelope in log[:cursor] for record in first.render(envelope)]
    second = reader_of(dialect, SUBJECT, state_of(first))
    tail = [record.record for envelope in log[cursor:] for record in second.render(envelope)]
    assert head + tail + [record.record for record in second.held_back()] == [record.record for record in whole], (
        f"{dialect} with state"
    )
    needs = first.needs
    needed = [record for record in log if needs is None or record["event_type"] in needs or record["seq"] > cursor]
    records = [record.record for record in rendered_log(dialect, needed) if record.seq > cursor]
    assert records == [record.record for record in whole if record.seq > cursor], f"{dialect} without state"


def check_commands(records: Sequence[Rendered]) -> None:
    """Stored and derived facts together are the whole, legal life of each command."""
    lives: dict[str, list[str]] = defaultdict(lambda: [status.PENDING])
    fences: dict[str, list[int]] = defaultdict(list)
    for record in records:
        if record.name.startswith("command.") and not record.record.get("informative"):
            lives[record.record["command_id"]].append(record.record["status"])
        if record.name == "command.claimed":
            fences[record.record["command_id"]].append(record.record["fence"])
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in fences.values()), f"fences: {dict(fences)}"
    over = status.terminal_states("command")
    for command, life in lives.items():
        for before, after in pairwise(life):
            assert status.may("command", before, after), f"command {command}: {life}"
        assert life[-1] in over, f"command {command} is never over: {life}"


def check_run(rendered: Sequence[Rendered]) -> None:
    """Check that there is one beginning, one end and a key for each record, and that attempts of a step are in order."""
    records = [record.record for record in rendered]
    assert len({record["idempotencyKey"] for record in records}) == len(records), "two records share a key"
    kinds = [record["eventType"] for record in records]
    assert kinds.count("RunStarted") <= 1
    assert [kind for kind in kinds if kind in _RUN_ENDS] == kinds[-1:], "not exactly one end, at the end"
    attempts: dict[str, int] = {}
    for record in records:
        if "stepId" in record:
            step, attempt = record["stepId"], record["logicalAttemptId"]
            before = attempts.get(step, 0)
            begins = record["eventType"] == "StepStarted"
            assert attempt == before + begins, f"{step}: {attempt} after {before}"
            attempts[step] = attempt
    check_run_records(records)


# ── laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

_OPENING = ["playbook.execution.requested", "playbook.request.evaluated", "playbook.started", "workflow.started"]
_ENVELOPE = {
    "event_id", "event_type", "event_alias", "timestamp", "persisted_at", "execution_id", "seq", "source", "entity_type",
    "entity_id", "status", "workflow_run_id", "payload",
}  # fmt: skip
_TASK_ENDS = {"task.done", "task.failed"}
#: these always have a duration; the ends of steps have one if the step had begun
_TIMED = _TASK_ENDS | {
    "task.attempt.done", "task.attempt.failed", "loop.done", "loop.iteration.done", "loop.iteration.failed",
    "workflow.finished",
}  # fmt: skip
_STEP_ENDS = {"step.done", "step.failed"}


def check_log(stored: Sequence[StoredEvent], name: str = "test", *, one_process: bool = True) -> None:
    """Check all laws for the log of one run that has ended. Ids rise with seq only while one process at a time writes."""
    events = [stored_event.event for stored_event in stored]
    begun = any(event.type == "playbook.started" for event in events)
    assert [stored_event.seq for stored_event in stored] == list(range(1, len(stored) + 1)), "seq has gaps"
    assert len({stored_event.event_id for stored_event in stored}) == len(stored), "an event id stands twice"
    if one_process:
        assert all(a.event_id < b.event_id for a, b in pairwise(stored)), "event ids do not rise"
    if not begun:
        _never_started(events)
        return
    _lifecycle(events)
    _step_runs(events)
    _tasks(events)
    _tokens(events)
    _causes(stored)
    _reports(events)
    closed(stored, name)


def closed(stored: Sequence[StoredEvent], name: str = "test") -> None:
    """Everything that the log of an ended run opens is closed, exactly once and in order, in the log and in every dialect."""
    check_events([stored_event.event for stored_event in stored])
    log = _envelopes(stored, name)
    for dialect in ("lifecycle", "wire", "legacy"):
        records = rendered_log(dialect, log)
        check_layers(dialect, [record.record for record in records])
        if dialect == "lifecycle":
            check_commands(records)
    check_run_records([record.record for record in rendered_log("run", log)])


def _lifecycle(events: Sequence[Event]) -> None:
    types = [event.type for event in events]
    opening = [kind for kind in types if kind != "signal.received"]  # an approval may be between them
    assert opening[: len(_OPENING)] == _OPENING
    assert [kind for kind in types if kind in TERMINAL] == [types[-2]], (
        "not exactly one terminal event, before the last"
    )
    assert types[-1] == "playbook.processed"
    assert types[-3] == "workflow.finished"
    for kind in (*_OPENING, "workflow.finished", "playbook.processed"):
        assert types.count(kind) == 1, f"{kind} stands {types.count(kind)} times"
    for event in events:
        assert status_of(event) in REGISTRY[event.type].statuses, f"{event.type} has status {event.status}"


def _never_started(events: Sequence[Event]) -> None:
    """A request that was refused, rejected, or cancelled while it waited for an approval or a slot."""
    types = [event.type for event in events if event.type != "signal.received"]
    assert types[0] == _OPENING[0]
    assert types.count("playbook.request.evaluated") <= 1
    assert [kind for kind in types if kind in TERMINAL] == [types[-2]], "not exactly one terminal event"
    assert types[-1] == "playbook.processed"
    assert set(types) <= {*_OPENING[:2], *TERMINAL, "playbook.processed"}, "work of a run that never started"


def _step_runs(events: Sequence[Event]) -> None:
    by_run: dict[tuple[str, int], list[Event]] = {}
    for event in events:
        if event.run:
            by_run.setdefault((event.step, event.run), []).append(event)
    scheduled: dict[str, int] = {}
    for (step, run), own in by_run.items():
        assert run == scheduled.get(step, 0) + 1, f"run {run} of step {step} came after run {scheduled.get(step, 0)}"
        scheduled[step] = run
        _check_step_run(f"step {step} run {run}", own)


def _check_step_run(subject: str, own: list[Event]) -> None:
    # Events of a worker after the end of its step run are informative, without effect.
    beside = ("command.", "signal.", "result.")
    own = [event for event in own if not event.informative and not event.type.startswith(beside)]
    types = [event.type for event in own]
    counts = Counter(types)
    assert types[0] == "step.scheduled", f"{subject} begins with {types[0]}"
    outer = Counter(event.type for event in own if event.iteration is None)
    for kind in ("step.scheduled", "step.started", "loop.started", "loop.done", "next.evaluated"):
        assert outer[kind] <= 1, f"{subject} has {counts[kind]} {kind}"
    ends = [event for event in own if event.type in {"step.done", "step.failed"}]
    assert len(ends) == 1, f"{subject} ends {len(ends)} times"
    # A step run that the end of the run closes is not routed.
    assert counts["next.evaluated"] == (not is_closing(ends[0])), f"{subject} was not routed exactly once"
    if counts["step.started"]:
        assert types[1] == "step.started"
    if counts["next.evaluated"]:
        assert types[-2:] in (["step.done", "next.evaluated"], ["step.failed", "next.evaluated"]), (
            f"{subject} ends {types[-2:]}"
        )
    loops = [kind for kind in types if kind.startswith("loop.")]
    if loops:
        assert types[2] == "loop.started"
        if counts["step.done"]:
            assert types[-3] == "loop.done", f"{subject}: step.done without loop.done before it"
        if counts["step.failed"]:
            assert not outer["loop.done"], f"{subject}: loop.done of a loop that failed"
    _iterations(subject, own, in_loop=bool(loops))


def _iterations(subject: str, own: list[Event], *, in_loop: bool) -> None:
    """Each iteration starts once, holds its tasks and ends once; a sequential loop runs them one by one, in order."""
    scheduled: set[tuple[int, ...]] = set()
    started: set[tuple[int, ...]] = set()
    inside: set[tuple[int, ...]] = set()
    nested = any(len(event.iteration or ()) > 1 for event in own)
    sequential = in_loop and not nested and own[2].payload["mode"] == "sequential"
    for event in own:
        path = event.iteration
        if event.type == "loop.iteration.scheduled":
            assert path is not None
            assert path not in scheduled | started, f"{subject}: iteration {path} scheduled twice or late"
            scheduled.add(path)
        elif event.type == "loop.iteration.started":
            assert path is not None
            assert path not in started, f"{subject}: iteration {path} started twice"
            if sequential:
                assert not inside, f"{subject}: iteration {path} started inside another"
                assert path == (len(started),), f"{subject}: iteration {path}, expected {len(started)}"
            started.add(path)
            inside.add(path)
        elif event.type.startswith("loop.iteration."):
            assert path in inside, f"{subject}: {event.type} of {path} out of place"
            inside.discard(path)
        elif event.task:
            assert (path is not None) == in_loop, f"{subject}: {event.type} at {path}"
            assert path is None or path in inside, f"{subject}: {event.type} outside an iteration"


def _tasks(events: Iterable[Event]) -> None:
    open_tasks: dict[Any, int] = {}
    runs: dict[Any, int] = {}
    ended: set[Any] = set()
    begun: set[Any] = set()
    for event in events:
        if not event.task or event.informative:
            continue
        pipeline = (event.step, event.run, event.iteration)
        key = (*pipeline, event.task, event.task_run)
        if event.type == "task.started":
            label = (*pipeline, event.task)
            assert event.task_run == runs.get(label, 0) + 1, f"{key} started after run {runs.get(label, 0)}"
            runs[label] = event.task_run
            assert not any(other[:3] == pipeline for other in open_tasks), f"{key} started while another task runs"
            open_tasks[key] = 1
        elif event.type == "task.attempt.started":
            if event.attempt > 1:
                assert event.attempt == open_tasks[key] + 1, f"{key}: attempt {event.attempt} after {open_tasks[key]}"
            assert (key, event.attempt) not in begun, f"{key}: attempt {event.attempt} started twice"
            begun.add((key, event.attempt))
            open_tasks[key] = event.attempt
        elif event.type in {"task.attempt.done", "task.attempt.failed"}:
            assert event.attempt == open_tasks[key]
        elif event.type in _TASK_ENDS:
            assert key in open_tasks, f"{event.type} of {key}, which is not open"
            del open_tasks[key]
            assert key not in ended, f"{key} ended twice"
            ended.add(key)
    assert not open_tasks, f"tasks never ended: {open_tasks}"


def _tokens(events: Iterable[Event]) -> None:
    """Tokens are numbered as they are made; that each is taken once is part of `closed`."""
    made = 0
    for event in events:
        new: list[int] = []
        if event.type in {"workflow.started", "signal.received"} and "token" in event.payload:
            new = [event.payload["token"]]
        elif event.type == "next.evaluated":
            new = [choice["token"] for choice in event.payload["selected"]]
        for token in new:
            made += 1
            assert token == made, f"token {token} made after {made - 1} others"


def _causes(stored: Sequence[StoredEvent]) -> None:
    for stored_event in stored:
        if stored_event.event.cause:
            seq = stored_event.seq - stored_event.event.cause
            assert seq >= 1, f"{stored_event.event.type} at {stored_event.seq} is caused by what is not there"
            assert stored[seq - 1].event_id == moved(stored_event.event_id, -stored_event.event.cause), (
                f"cause_id of event {stored_event.seq} names no event"
            )


def _reports(events: Iterable[Event]) -> None:
    issued: dict[int, tuple[str, int]] = {}
    fences: dict[int, int] = {}
    reported: dict[tuple[int, int], int] = {}
    open_report: tuple[str, int] | None = None
    for event in events:
        new = event.type == "command.issued" and event.payload["reason"] in ("resumed", "loop")
        if new or (event.type == "step.scheduled" and event.command_id):
            issued[event.command_id] = (event.step, event.run)
            fences[event.command_id] = 1
        elif event.type == "command.issued":
            fences[event.command_id] += 1
        if event.report:
            assert event.command_id in issued, "a report of a command that was never issued"
            assert issued[event.command_id] == (event.step, event.run), "a report for another command's step run"
            assert event.fence == fences[event.command_id], "a report with an old fence was accepted"
            assert event.worker_id, "a report without its worker"
            stream = (event.command_id, event.fence)
            assert event.report == reported.get(stream, 0) + 1, f"report {event.report} after {reported.get(stream, 0)}"
            reported[stream] = event.report
            open_report = (event.step, event.run)
        elif event.type in WORKER_TYPES and event.payload.get("source") != "server":
            assert open_report == (event.step, event.run), f"{event.type} of {event.step} stands outside a report"
        if event.report or event.type == "command.claimed":
            assert event.fence, "a worker's event without its fence"


def _envelopes(stored: Sequence[StoredEvent], name: str) -> list[dict[str, Any]]:
    log: list[dict[str, Any]] = []
    begun: set[tuple[str, int]] = set()
    for stored_event in stored:
        event = stored_event.event
        if event.type == "step.started":
            begun.add((event.step, event.run))
        full = widen(
            event,
            Subject(stored_event.execution_id, name),
            stored_event.seq,
            stored_event.event_id,
            stored_event.persisted_at,
        )
        missing = _ENVELOPE - full.keys()
        assert not missing, f"{event.type} lacks {missing}"
        assert full["entity_id"], event.type
        entity = REGISTRY[event.type].entity
        if entity in {"step", "loop", "next", "task"}:
            assert full["parent_id"], event.type
            assert full["step_run_id"] == f"step:{event.step}:run:{event.run}"
        if entity == "task" or event.type == "policy.task.evaluated":
            assert full["task_run_id"] == f"task:{event.task}:run:{event.task_run}"
        by_worker = event.type in WORKER_TYPES and event.payload.get("source") != "server"
        assert full["source"] == ("worker" if by_worker else "server"), event.type
        if event.type in _TASK_ENDS:
            outcome = full["payload"]["outcome"]
            assert {"status", "result", "data", "error", "meta"} <= outcome.keys()
        timed = event.type in _TIMED or (event.type in _STEP_ENDS and (event.step, event.run) in begun)
        if timed and not event.informative:
            assert isinstance(full["duration_ms"], int), f"{event.type} has duration_ms {full['duration_ms']!r}"
        if entity == "task" and not event.informative:
            assert full["attempt"] >= 1, event.type
        log.append(full)
    return log
