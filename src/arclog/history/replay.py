"""The replay check: fold a log again, decide again whatever was decided in it, and compare.

Law: a log that the code of today would write again has no difference. The check stops at the first one: what follows it
was decided on a state that the code of today does not come to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from arclog.core.boundary.inputs import Forked, WorkReported
from arclog.core.transitions.apply import apply
from arclog.core.transitions.decide import Decision
from arclog.core.transitions.state import State
from arclog.expr import Meter
from arclog.history.recorded import Given, input_at, shared_events
from arclog.model.errors import NewerLog
from arclog.model.events import Event
from arclog.model.ids import moved
from arclog.plan.program import Program

_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(Event).decode
_TIMED = frozenset({"step.done", "step.failed", "loop.iteration.done", "loop.iteration.failed"})


class Difference(Struct, frozen=True):
    """The first place where the code of today decides otherwise."""

    #: of the recorded event; behind the log's end, of the event that would be there
    seq: int
    #: what differs: the fields of the two events, 'type' when they are different events, or 'problem'
    fields: list[str]
    #: the event in the log; None: the log has none there
    recorded: dict[str, Any] | None
    #: the event that is decided today; None: there is none
    decided: dict[str, Any] | None
    #: why there is none
    problem: str = ""


class Checked(Struct, frozen=True):
    """What a replay check found."""

    #: events that were looked at
    events: int
    #: decisions that were made again
    decisions: int
    #: events that were only folded: their input cannot be told from the log
    folded: int
    difference: Difference | None


def check(
    program: Program,
    execution_id: int,
    events: Sequence[Event],
    event_ids: Sequence[int],
    meter: Callable[[], Meter | None] = lambda: None,
) -> Checked:
    """Replay the whole log of an execution. The events must not be used afterwards; `meter` bounds what the templates of a
    decision cost. Raises NewerLog.
    """
    state = State(execution_id=execution_id)
    at = decisions = folded = 0
    total = len(events)
    given: Given | None
    while at < total:
        if at == 0 and (shared := shared_events(events[0])):
            for event in events[:shared]:
                apply(program, state, event)
            at = folded = shared
            given = Given(Forked(), events[at].at if at < total else 0)
        else:
            given = input_at(events, at, state)
        if given is None:
            apply(program, state, events[at])
            at += 1
            folded += 1
            continue
        found = _decided(program, state, given, events, at, event_ids, meter())
        if isinstance(found, Difference):
            return Checked(at, decisions, folded, found)
        decisions += 1
        at += found
    return Checked(total, decisions, folded, None)


def _decided(
    program: Program,
    state: State,
    given: Given,
    events: Sequence[Event],
    at: int,
    event_ids: Sequence[int],
    meter: Meter | None,
) -> int | Difference:
    """Decide once more; how many events of the log that accounts for."""
    reported = given.input.events if isinstance(given.input, WorkReported) else ()
    took = [event.duration_ms for event in reported]
    base = event_ids[at] if at < len(event_ids) else moved(event_ids[-1], 1)
    try:
        txn = Decision(program, state, given.now, base, meter).run(given.input)
    except NewerLog:
        raise
    except Exception as problem:  # noqa: BLE001 - whatever today's code does with an old log is what was asked for
        return _nothing(events, at, f"{type(problem).__name__}: {problem}")
    decided = txn.events
    if not decided and isinstance(given.input, Forked) and txn.refused is None:
        return 0  # all that was taken over waits for workers
    if not decided and at < len(events):
        return _nothing(events, at, "nothing follows here" if txn.refused is None else txn.refused.message)
    end = at + len(decided)
    if events[at:end] != decided:
        for index, event in enumerate(decided, at):
            if index >= len(events):
                return Difference(index + 1, ["type"], None, _shown(event))
            if event is not events[index] and (fields := differing(events[index], event)):
                return Difference(index + 1, fields, _shown(events[index]), _shown(event))
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
    """The fields in which two events differ once both have been through JSON, as a log has."""
    if recorded == decided:
        return []
    decided = _DECODE(_ENCODE(decided))
    if recorded.type != decided.type:
        return ["type"]
    return [name for name in Event.__struct_fields__ if getattr(recorded, name) != getattr(decided, name)]


def _shown(event: Event) -> dict[str, Any]:
    """An event with its full names, without what it leaves out."""
    plain = {name: getattr(event, name) for name in Event.__struct_fields__}
    empty: tuple[Any, ...] = (None, "", 0, False, {})
    return {name: value for name, value in plain.items() if value not in empty or name == "type"}
