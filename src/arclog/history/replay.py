"""The replay check: fold a log again, repeat every decision in it, and compare.

A log that the current code would write in the same way has no difference. The check stops at the first difference,
because later events were decided on a state that the current code does not reach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from arclog.core.boundary.inputs import (
    Abort,
    ChildEnded,
    Continue,
    Forked,
    GaveUp,
    GivenBack,
    Input,
    LeaseEnded,
    ParentNotified,
    Reclaimed,
    Request,
    Signal,
    TakeSlot,
    TimerFired,
    WorkReported,
)
from arclog.core.boundary.reports import WORKER_TYPES
from arclog.core.transitions.apply import apply, newer_log
from arclog.core.transitions.decide import Decision
from arclog.core.transitions.items import apply_all, item_end
from arclog.core.transitions.state import State
from arclog.core.transitions.timers import wait_key
from arclog.expr import Meter
from arclog.history.step_runs import first_newer
from arclog.model.errors import NewerLog
from arclog.model.events import Event, is_closing
from arclog.model.ids import moved
from arclog.model.outcome import TaskError
from arclog.plan.program import Program

# Reconstructs the inputs of decisions from the log.
#
# A log holds decisions, not inputs. The first event of a decision shows its input: the events of a report have its number,
# signals and timers have their own events, and any other decision was made because the engine continued by itself.
# `input_at` returns None if an input cannot be reconstructed; the events of that decision are folded but not decided again.


#: Events that always begin a decision.
_HEADS = frozenset({"signal.received", "timer.fired", "command.claimed", "playbook.execution.requested"})
#: The first event of a loop item.
_ITEM = "loop.iteration.started"
_TASK_ENDS = frozenset({"task.done", "task.failed"})
_ATTEMPT_ENDS = frozenset({"task.attempt.done", "task.attempt.failed"})
#: The limit of signals that a run keeps. The log shows which signals were refused, so the limit is not applied again.
_ANY_NUMBER = 1 << 60


class RecordedInput:
    """An input that was reconstructed from the log."""

    __slots__ = ("input", "items", "now")

    def __init__(self, recorded: Input, now: int, items: dict[int, int] | None = None) -> None:
        self.input = recorded
        #: of a report: the start and the end of items in one piece
        self.items = items
        #: the engine's clock when it was decided
        self.now = now


def input_at(events: Sequence[Event], at: int, state: State) -> RecordedInput | None:
    """Return the input that led to the event at index `at` and to those after it. `state` is the state before that event."""
    event = events[at]
    if event.report:
        return _report(events, at)
    if event.informative:
        return _given_up(events, at, state) if event.type == "command.failed" and event.fence else None
    reader = _RECORDED_INPUTS.get(event.type)
    if reader is not None:
        recorded = reader(events, at, state)
        if recorded is not None:
            return RecordedInput(recorded, event.at)
        if event.type in _HEADS:
            return None
    if event.type in WORKER_TYPES and event.payload.get("source") == "server":
        child = _child(events, at, state)
        if child is not None:
            return RecordedInput(child, event.at)
        if event.type in _TASK_ENDS | _ATTEMPT_ENDS and wait_key(event) in state.waits:
            return None
    if state.open and _ends_the_run(event):
        return _abort(events, at)
    return RecordedInput(Continue(), event.at)


# -- reports ----------------------------------------------------------------------------------------------------------


def _report(events: Sequence[Event], at: int) -> RecordedInput | None:
    """Return the whole report. Its events are mixed with those of the decisions that they led to."""
    first = events[at]
    if first.sent or first.own_id:
        return None  # it came over the wire, and the server completed it
    step, run = first.step, first.run
    own: list[Event] = []
    items: dict[int, int] = {}
    now = 0
    behind = at
    for index in range(at, len(events)):
        if index < behind:
            continue  # it belongs to an item that was taken as a whole
        event = events[index]
        if event is first or (event.type == _ITEM and event.run == run and event.step == step and not event.report):
            behind = item_end(events, index)
            if behind > index:
                items[len(own)] = len(own) + behind - index
                own += events[index:behind]
                continue
        if event is first:
            own.append(event)
            continue
        if (
            event.type in WORKER_TYPES
            and event.run == run
            and event.step == step
            and not event.report
            and not event.informative
            and not event.own_id
            and not event.sent
            and "source" not in event.payload
        ):
            own.append(event)  # the common case
            continue
        kind = event.type
        if event.report or kind in _HEADS or event.sent or event.own_id:
            break
        if kind not in WORKER_TYPES or event.payload.get("source") == "server":
            if event.informative:
                break
            now = now or event.at
            continue
        if event.step != step or event.run != run:
            break
        if event.informative:
            event.informative = False  # the decision marks late events again
        own.append(event)
    report = WorkReported(first.command_id, first.fence, first.report, first.worker_id, own)
    return RecordedInput(report, now or own[-1].at, items)


# -- inputs with an event of their own ----------------------------------------------------------------------------------


def _requested(events: Sequence[Event], at: int, _: State) -> Input | None:
    payload = events[at].payload
    behind = events[at + 1] if at + 1 < len(events) else None
    problem = None
    if behind is not None and behind.type == "playbook.request.evaluated" and "error" in behind.payload:
        problem = _problem(behind.payload["error"])
    return Request(
        payload["path"],
        int(payload["version"]),
        payload.get("workload") or {},
        payload.get("scope", ""),
        problem=problem,
        parent=payload.get("parent"),
        depth=payload.get("depth", 0),
        files=payload.get("files") or {},
        original_run_id=payload.get("original_run_id", ""),
        origin=payload.get("origin"),
        priority=payload.get("priority"),
        file=payload.get("file", ""),
    )


def _signalled(events: Sequence[Event], at: int, state: State) -> Input:
    payload = events[at].payload
    idle: tuple[int, ...] = tuple(payload.get("held") or ())
    if payload["signal"] == "RETRY_STEP":
        taken_back = _taken_back(events, at)
        idle = tuple(command for command in state.commands if command not in taken_back)
    refused = "error" in payload
    return Signal(
        payload["signal"],
        payload["signal_id"],
        payload.get("reason", ""),
        payload.get("by", ""),
        payload.get("step", ""),
        payload.get("data"),
        idle=idle,
        most_kept=len(state.kept_signals) if refused else _ANY_NUMBER,
    )


def _taken_back(events: Sequence[Event], at: int) -> set[int]:
    taken_back: set[int] = set()
    for event in events[at + 1 :]:
        if event.report or event.type in _HEADS:
            break
        if event.type == "command.issued" and event.payload.get("reason") == "retry":
            taken_back.add(event.command_id)
    return taken_back


def _fired(events: Sequence[Event], at: int, _: State) -> Input:
    return TimerFired(events[at].payload["timer"])


def _reclaimed(events: Sequence[Event], at: int, _: State) -> Input:
    event = events[at]
    return Reclaimed(event.command_id, event.fence, event.worker_id)


def _offered_again(events: Sequence[Event], at: int, state: State) -> Input | None:
    event = events[at]
    command = state.commands.get(event.command_id)
    if command is None:
        return None  # a new command, for which the engine had no capacity before
    payload = event.payload
    worker = payload.get("worker_id", "")
    if payload["reason"] == "lease_lost":
        return LeaseEnded(command.id, command.fence, worker, command.losses + 2)
    return GivenBack(command.id, command.fence, worker)


def _command_failed(events: Sequence[Event], at: int, state: State) -> Input | None:
    event = events[at]
    command = state.commands.get(event.command_id)
    if command is None:
        return None
    if event.payload.get("source") == "server":
        return LeaseEnded(command.id, command.fence, "", command.losses + 1)
    return GaveUp(command.id, command.fence, event.worker_id, command.losses + 2, replace(event))


def _given_up(events: Sequence[Event], at: int, state: State) -> RecordedInput | None:
    """A worker gave up its command, which is offered again or fails because that happened too often."""
    event = events[at]
    command = state.commands.get(event.command_id)
    behind = events[at + 1] if at + 1 < len(events) else None
    if command is None or behind is None or behind.command_id != command.id or event.fence != command.fence:
        return None
    most = command.losses + (2 if behind.type == "command.issued" else 1)
    gave_up = GaveUp(command.id, command.fence, event.worker_id, most, replace(event, informative=False))
    return RecordedInput(gave_up, behind.at)


def _evaluated(_: Sequence[Event], __: int, state: State) -> Input | None:
    return TakeSlot() if state.pending_for == "slot" else None


def _processed(_: Sequence[Event], __: int, state: State) -> Input | None:
    return ParentNotified() if state.terminal is not None else None


def _child(events: Sequence[Event], at: int, state: State) -> Input | None:
    """A child run ended, and so did the task that waited for it. The end of the task has the whole outcome."""
    event = events[at]
    if event.type not in _TASK_ENDS and event.type not in _ATTEMPT_ENDS:
        return None
    key = wait_key(event)
    wait = state.waits.get(key)
    if wait is None or not wait.child or is_closing(event):
        return None
    for end in events[at : at + 2]:
        if end.type in _TASK_ENDS and wait_key(end) == key:
            return ChildEnded(key, wait.child, end.payload["outcome"])
    return None


def _ends_the_run(event: Event) -> bool:
    return event.type in ("command.cancelled", "workflow.finished", "playbook.finished") or is_closing(event)


def _abort(events: Sequence[Event], at: int) -> RecordedInput | None:
    """The engine could not continue with the run."""
    for event in events[at:]:
        if event.type == "playbook.finished" and "error" in event.payload:
            problem = _problem(event.payload["error"])
            return None if problem is None else RecordedInput(Abort(problem), events[at].at)
    return None


def _problem(fields: dict[str, Any]) -> TaskError | None:
    declared = {name: fields[name] for name in TaskError.__struct_fields__ if name in fields}
    return TaskError(**declared) if len(declared) == len(fields) else None


def shared_events(first: Event) -> int:
    """Return the number of events that a fork or retry took from another run; 0 for any other run."""
    origin = first.payload.get("origin")
    return int(origin["events"]) if origin else 0


_RECORDED_INPUTS: dict[str, Any] = {
    "playbook.execution.requested": _requested,
    "signal.received": _signalled,
    "timer.fired": _fired,
    "command.claimed": _reclaimed,
    "command.issued": _offered_again,
    "command.failed": _command_failed,
    "playbook.request.evaluated": _evaluated,
    "playbook.started": _evaluated,
    "playbook.processed": _processed,
}


_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(Event).decode
_TIMED = frozenset({"step.done", "step.failed", "loop.iteration.done", "loop.iteration.failed"})


class Difference(Struct, frozen=True):
    """The first place where the current code decides differently."""

    #: seq of the recorded event, or of the event that would follow the end of the log
    seq: int
    #: what differs: the fields of the two events, 'type' when they are different events, or 'problem'
    fields: list[str]
    #: the event in the log; None if the log has none there
    recorded: dict[str, Any] | None
    #: the event that is decided now; None if there is none
    decided: dict[str, Any] | None
    #: why there is none
    problem: str = ""


class Checked(Struct, frozen=True):
    """The result of a replay check."""

    #: number of events that were checked
    events: int
    #: number of decisions that were repeated
    decisions: int
    #: number of events that were only folded, because their input cannot be reconstructed from the log
    folded: int
    difference: Difference | None


def check(
    program: Program,
    execution_id: int,
    events: Sequence[Event],
    event_ids: Sequence[int],
    meter: Callable[[], Meter | None] = lambda: None,
    give_way: Callable[[], None] = lambda: None,
) -> Checked:
    """Replay the whole log of an execution. The events must not be used afterwards. `meter` limits the cost of the templates
    of a decision, and `give_way` is called between decisions. A log that a newer release wrote is not replayed: the
    difference says so.
    """
    newer = first_newer(events)
    if newer >= 0:
        return Checked(0, 0, 0, _nothing(events, newer, str(newer_log(execution_id, newer + 1, events[newer]))))
    state = State(execution_id=execution_id)
    at = decisions = folded = 0
    total = len(events)
    recorded: RecordedInput | None
    while at < total:
        give_way()
        if at == 0 and (shared := shared_events(events[0])):
            apply_all(program, state, events[:shared])
            at = folded = shared
            recorded = RecordedInput(Forked(), events[at].at if at < total else 0)
        else:
            recorded = input_at(events, at, state)
        if recorded is None:
            apply(program, state, events[at])
            at += 1
            folded += 1
            continue
        result = _decided(program, state, recorded, events, at, event_ids, meter())
        if isinstance(result, Difference):
            return Checked(at, decisions, folded, result)
        decisions += 1
        at += result
    return Checked(total, decisions, folded, None)


def _decided(
    program: Program,
    state: State,
    replayed: RecordedInput,
    events: Sequence[Event],
    at: int,
    event_ids: Sequence[int],
    meter: Meter | None,
) -> int | Difference:
    """Repeat a decision. Return the number of recorded events that it accounts for, or the difference."""
    reported = replayed.input.events if isinstance(replayed.input, WorkReported) else ()
    took = [event.duration_ms for event in reported]
    base = event_ids[at] if at < len(event_ids) else moved(event_ids[-1], 1)
    try:
        txn = Decision(program, state, replayed.now, base, meter).run(replayed.input, replayed.items)
    except NewerLog:
        raise
    except Exception as problem:  # noqa: BLE001 - whatever today's code does with an old log is what was asked for
        return _nothing(events, at, f"{type(problem).__name__}: {problem}")
    decided = txn.events
    if not decided and isinstance(replayed.input, Forked) and txn.refused is None:
        return 0  # all reused work waits for workers
    if not decided and at < len(events):
        return _nothing(events, at, "nothing follows here" if txn.refused is None else txn.refused.message)
    end = at + len(decided)
    if events[at:end] != decided:
        for index, event in enumerate(decided, at):
            if index >= len(events):
                return Difference(index + 1, ["type"], None, _shown(event))
            if event is not events[index] and (fields := differing(events[index], event)):
                return Difference(index + 1, fields, _shown(events[index]), _shown(event))
    if [event.duration_ms for event in reported] != took:
        for event, before in zip(reported, took, strict=True):
            if event.duration_ms != before and event.type in _TIMED:
                index = next(index for index in range(at, end) if events[index] is event)
                recorded = {**_shown(event), "duration_ms": before}
                return Difference(index + 1, ["duration_ms"], recorded, _shown(event))
    return len(decided)


def _nothing(events: Sequence[Event], at: int, problem: str) -> Difference:
    recorded = _shown(events[at]) if at < len(events) else None
    return Difference(at + 1, ["problem"], recorded, None, problem)


def differing(recorded: Event, decided: Event) -> list[str]:
    """Return the fields in which two events differ after both were encoded as JSON, as in a log."""
    if recorded == decided:
        return []
    decided = _DECODE(_ENCODE(decided))
    if recorded.type != decided.type:
        return ["type"]
    return [name for name in Event.__struct_fields__ if getattr(recorded, name) != getattr(decided, name)]


def _shown(event: Event) -> dict[str, Any]:
    """Return the fields of an event by their full names, without those that have default values."""
    plain = {name: getattr(event, name) for name in Event.__struct_fields__}
    empty: tuple[Any, ...] = (None, "", 0, False, {})
    return {name: value for name, value in plain.items() if value not in empty or name == "type"}
