"""Compares two runs: where they first diverge and why, which steps and arcs only one of them took, and which values
differ.

Step runs are compared by name and number, not by the order of events, since parallel steps end in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple, replace

from arclog.core.transitions.state import State
from arclog.history.step_runs import Log, RecordedRun
from arclog.model.errors import Position
from arclog.model.events import Event, is_closing, status_of
from arclog.model.outcome import data_of
from arclog.plan.net import Plan

#: Maximum number of different values that are listed.
MOST_VALUES = 1000
_MISSING: Any = object()


class Divergence(Struct, frozen=True):
    """The first step run in which two runs differ."""

    #: its step and number; '' if they diverge before the first one
    step: str
    run: int
    #: request | step | args | task | item | outcome | routing | end
    what: str
    cause: str
    #: seq of the events that show it; 0 if the run has none
    a_seq: int
    b_seq: int
    a: Any = None
    b: Any = None


class StepDiff(Struct, frozen=True):
    """A step that ran differently in the two runs."""

    step: str
    #: number of runs, and the status of the latest one; '' if the step did not run
    a_runs: int
    b_runs: int
    a_status: str
    b_status: str
    #: targets of outgoing arcs that fired in one run only
    a_arcs: list[str]
    b_arcs: list[str]


class ValueDiff(Struct, frozen=True):
    path: str
    a: Any
    b: Any


class DurationDiff(Struct, frozen=True):
    """The total duration of all runs of a step, in milliseconds; None if it did not end."""

    step: str
    a_ms: int | None
    b_ms: int | None


class NetDiff(Struct, frozen=True):
    """The changes from one plan to another."""

    steps_added: list[str]
    steps_removed: list[str]
    steps_changed: list[str]
    arcs_added: list[str]
    arcs_removed: list[str]


class Side:
    """One of the two runs."""

    def __init__(self, plan: Plan, state: State, events: Sequence[Event]) -> None:
        self.plan = plan
        self.state = state
        self.log = Log(events)


class RunDiff(Struct, frozen=True):
    divergence: Divergence | None
    steps: list[StepDiff]
    values: list[ValueDiff]
    #: whether more values differ than are listed
    more_values: bool
    durations: list[DurationDiff]
    #: None if both ran the same plan
    net: NetDiff | None


def compare(a: Side, b: Side) -> RunDiff:
    values: list[ValueDiff] = []
    more = False
    for value in _values(a, b):
        if len(values) == MOST_VALUES:
            more = True
            break
        values.append(value)
    return RunDiff(_divergence(a, b), _steps(a, b), values, more, _durations(a, b), net_diff(a.plan, b.plan))


# -- divergence
# ------------------------------------------------------------------------------------------------------------


def _divergence(a: Side, b: Side) -> Divergence | None:
    request_difference = _request(a, b)
    if request_difference is not None:
        return request_difference
    for key, run in a.log.runs.items():
        other = b.log.runs.get(key)
        if other is None:
            cause = f"step {key[0]} (run {key[1]}) ran in the first run only"
            return Divergence(*key, "step", cause, run.scheduled + 1, 0)
        divergence = _parts(a.log.events, run, b.log.events, other)
        if divergence is not None:
            return divergence
    for key, run in b.log.runs.items():
        if key not in a.log.runs:
            cause = f"step {key[0]} (run {key[1]}) ran in the second run only"
            return Divergence(*key, "step", cause, 0, run.scheduled + 1)
    return _end(a, b)


def _request(a: Side, b: Side) -> Divergence | None:
    mine, theirs = a.state.workload, b.state.workload
    if mine == theirs:
        return None
    path, left, right = next(_paths("workload", mine, theirs))
    return Divergence("", 0, "request", f"{path} differs", 1, 1, left, right)


def _parts(mine: Sequence[Event], run: RecordedRun, theirs: Sequence[Event], other: RecordedRun) -> Divergence | None:
    """Return the divergence between two runs of the same step, or None."""
    step, number = run.key
    mine_scheduled, theirs_scheduled = mine[run.scheduled].payload, theirs[other.scheduled].payload
    for name in ("args", "items", "total"):
        if mine_scheduled.get(name) != theirs_scheduled.get(name):
            path, left, right = next(_paths(name, mine_scheduled.get(name), theirs_scheduled.get(name)))
            cause = f"step {step} began with another {path}"
            return Divergence(step, number, "args", cause, run.scheduled + 1, other.scheduled + 1, left, right)
    divergence = _tasks(mine, run, theirs, other)
    if divergence is not None:
        return divergence
    if _arcs(run) != _arcs(other):
        seqs = _seq_of(mine, run, run.routed), _seq_of(theirs, other, other.routed)
        taken = [" and ".join(_arcs(side)) or "no step" for side in (run, other)]
        cause = f"after step {step} the first run went to {taken[0]} and the second to {taken[1]}"
        return Divergence(step, number, "routing", cause, *seqs, _whens(run), _whens(other))
    return None


def _tasks(mine: Sequence[Event], run: RecordedRun, theirs: Sequence[Event], other: RecordedRun) -> Divergence | None:
    """Return the first task or item that ended differently, in item and task order.

    An item that was cut short, for example because another one failed, is a consequence; it is returned only if nothing
    else differs.
    """
    mine_outcomes, theirs_outcomes = _outcomes(mine, run), _outcomes(theirs, other)
    ends = _item_ends(mine, run), _item_ends(theirs, other)
    step, number = run.key
    consequence: Divergence | None = None
    for place in sorted(
        {*mine_outcomes, *theirs_outcomes},
        key=lambda place: (place[0], _first_seq(place, mine_outcomes, theirs_outcomes)),
    ):
        left, right = mine_outcomes.get(place), theirs_outcomes.get(place)
        path, task, _ = place
        if left is not None and right is not None and _outcome(left[1]) == _outcome(right[1]):
            continue
        where = f"task {task} of step {step}" + (f", item {'.'.join(map(str, path))}," if path else "")
        seqs = (0 if left is None else left[0] + 1, 0 if right is None else right[0] + 1)
        shown = [None if side is None else _outcome(side[1]) for side in (left, right)]
        if left is None or right is None:
            which = "first" if right is None else "second"
            divergence = Divergence(step, number, "task", f"{where} ran in the {which} run only", *seqs, *shown)
        else:
            below, first, second = next(_paths("outcome", *shown))
            divergence = Divergence(step, number, "outcome", f"{where} had another {below}", *seqs, first, second)
        if not path or all(_ended_by_itself(path, side) for side in ends):
            return divergence
        consequence = consequence or divergence
    return _items(run.key, *ends) or consequence


def _items(key: tuple[str, int], mine_ends: ItemEnds, theirs_ends: ItemEnds) -> Divergence | None:
    """Return the first item that failed in one run only although its tasks had the same outcomes: a rule decided
    differently.
    """
    for path in sorted(mine_ends.keys() & theirs_ends.keys()):
        (at, left), (other_at, right) = mine_ends[path], theirs_ends[path]
        if left.type != right.type and not is_closing(left) and not is_closing(right):
            which = "first" if left.type == "loop.iteration.failed" else "second"
            cause = f"item {'.'.join(map(str, path))} of step {key[0]} failed in the {which} run only"
            errors = left.payload.get("error"), right.payload.get("error")
            return Divergence(*key, "item", cause, at + 1, other_at + 1, *errors)
    return None


def _end(a: Side, b: Side) -> Divergence | None:
    mine = (a.state.status, a.state.result, a.state.error)
    theirs = (b.state.status, b.state.result, b.state.error)
    if mine == theirs:
        return None
    cause = f"the first run is {a.state.status}, the second {b.state.status}"
    if a.state.status == b.state.status:
        cause = "their results differ" if a.state.result != b.state.result else "their errors differ"
    return Divergence("", 0, "end", cause, a.state.head, b.state.head, mine[1] or mine[2], theirs[1] or theirs[2])


Place = tuple[tuple[int, ...], str, int]


def _outcomes(events: Sequence[Event], run: RecordedRun) -> dict[Place, tuple[int, Event]]:
    outcomes: dict[Place, tuple[int, Event]] = {}
    for index in run.events:
        event = events[index]
        if event.type in ("task.done", "task.failed"):
            outcomes[event.iteration or (), event.task, event.task_run] = (index, event)
    return outcomes


#: by item: the index of the event that ended it, and that event
ItemEnds = dict[tuple[int, ...], tuple[int, Event]]


def _item_ends(events: Sequence[Event], run: RecordedRun) -> ItemEnds:
    ended = ("loop.iteration.done", "loop.iteration.failed")
    return {events[at].iteration or (): (at, events[at]) for at in run.events if events[at].type in ended}


def _ended_by_itself(path: tuple[int, ...], ends: ItemEnds) -> bool:
    return path in ends and not is_closing(ends[path][1])


def _first_seq(place: Place, *sides: Mapping[Place, tuple[int, Event]]) -> int:
    return next(side[place][0] for side in sides if place in side)


def _outcome(event: Event) -> dict[str, Any]:
    """Return the outcome of a task, without parts that differ in every run."""
    record = event.payload.get("outcome") or {}
    return {"status": status_of(event), "data": _data(record), "error": record.get("error")}


def _data(record: Mapping[str, Any]) -> Any:
    """Return the data of an outcome. A result stored outside the log is identified by its content."""
    ref = record.get("result_ref")
    if isinstance(ref, Mapping):
        return {"sha256": (ref.get("meta") or {}).get("sha256")}
    return data_of(dict(record))


def _arcs(run: RecordedRun) -> list[str]:
    return [str(choice.get("step")) for choice in run.selected]


def _whens(run: RecordedRun) -> list[Any]:
    return [] if run.routed is None else run.routed.payload.get("matched") or []


def _seq_of(events: Sequence[Event], run: RecordedRun, event: Event | None) -> int:
    return next((index + 1 for index in run.events if events[index] is event), 0)


# -- differences
# -----------------------------------------------------------------------------------------------------------


def _steps(a: Side, b: Side) -> list[StepDiff]:
    steps: list[StepDiff] = []
    for step in dict.fromkeys((*a.state.runs, *b.state.runs)):
        mine, theirs = _fired(a.log, step), _fired(b.log, step)
        counts = a.state.runs.get(step, 0), b.state.runs.get(step, 0)
        ends = a.state.latest.get(step, ""), b.state.latest.get(step, "")
        if counts[0] != counts[1] or ends[0] != ends[1] or mine != theirs:
            steps.append(StepDiff(step, *counts, *ends, sorted(mine - theirs), sorted(theirs - mine)))
    return steps


def _fired(log: Log, step: str) -> set[str]:
    return {arc for run in log.runs.values() if run.key[0] == step for arc in _arcs(run)}


def _values(a: Side, b: Side) -> Iterator[ValueDiff]:
    pairs = [("workload", a.state.workload, b.state.workload), ("ctx", a.state.ctx, b.state.ctx)]
    steps = dict.fromkeys((*a.state.results, *b.state.results))
    pairs += [(step, *(_step_value(side.state.results.get(step)) for side in (a, b))) for step in steps]
    pairs.append(("result", a.state.result, b.state.result))
    for name, mine, theirs in pairs:
        for path, left, right in _paths(name, mine, theirs):
            yield ValueDiff(path, left, right)


def _step_value(record: Any) -> Any:
    if record is None:
        return None
    value: dict[str, Any] = {"data": _data(record)}
    if "results" in record:
        value["results"] = record["results"]
    if record.get("error"):
        value["error"] = record["error"]
    return value


def _paths(name: str, a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the paths at which two values differ, with both values. A missing value is None."""
    if a is _MISSING or b is _MISSING or type(a) is not type(b) or not isinstance(a, dict | list):
        if a is _MISSING or b is _MISSING or a != b:
            yield name, None if a is _MISSING else a, None if b is _MISSING else b
        return
    if a == b:
        return
    if isinstance(a, dict):
        for key in dict.fromkeys((*a, *b)):
            yield from _paths(f"{name}.{key}", a.get(key, _MISSING), b.get(key, _MISSING))
        return
    for index in range(max(len(a), len(b))):
        left = a[index] if index < len(a) else _MISSING
        other = b[index] if index < len(b) else _MISSING
        yield from _paths(f"{name}[{index}]", left, other)


def _durations(a: Side, b: Side) -> list[DurationDiff]:
    mine, theirs = _took(a.log), _took(b.log)
    return [DurationDiff(step, mine.get(step), theirs.get(step)) for step in dict.fromkeys((*mine, *theirs))]


def _took(log: Log) -> dict[str, int]:
    durations: dict[str, int] = {}
    for run in log.runs.values():
        if run.end is not None and run.end.duration_ms is not None:
            durations[run.key[0]] = durations.get(run.key[0], 0) + round(run.end.duration_ms)
    return durations


def net_diff(a: Plan, b: Plan) -> NetDiff | None:
    """Return the changes from one plan to another; None if no run could notice them."""
    mine, theirs = ({step.name: step for step in plan.steps} for plan in (a, b))
    arcs = [{_arc(arc) for step in plan.steps for arc in step.arcs} for plan in (a, b)]
    changed = [name for name in mine if name in theirs and _content(mine[name]) != _content(theirs[name])]
    difference = NetDiff(
        [name for name in theirs if name not in mine],
        [name for name in mine if name not in theirs],
        changed,
        sorted(arcs[1] - arcs[0]),
        sorted(arcs[0] - arcs[1]),
    )
    return difference if any(astuple(difference)) else None


def changed_steps(a: Plan, b: Plan) -> set[str]:
    """Return the steps of `b` that `a` does not have, or has with other content or arcs."""
    mine = {step.name: _unplaced(step) for step in a.steps}
    return {step.name for step in b.steps if mine.get(step.name) != _unplaced(step)}


#: Parts of a plan that `net_diff` compares, that follow from it, or that are positions in a file.
_NOT_SETTINGS = frozenset({"steps", "entry", "places", "transitions", "net", "spots", "format"})


def changed_settings(a: Plan, b: Plan) -> list[str]:
    """The parts of two plans besides steps and arcs that differ: workload, result, ctx, timeout_s …"""
    fields = [field for field in a.__struct_fields__ if field not in _NOT_SETTINGS]
    return [field for field in fields if _unplaced(getattr(a, field)) != _unplaced(getattr(b, field))]


def _arc(arc: Any) -> str:
    when = "" if arc.when is None else f" when {arc.when}"
    return f"{arc.source} → {arc.target}{when}"


def _content(step: Any) -> Any:
    """Return a step without its position in the file and without its arcs."""
    return _unplaced(replace(step, arcs=()))


def _unplaced(value: Any) -> Any:
    if isinstance(value, Position):
        return None
    if isinstance(value, Struct):
        fields = [field for field in value.__struct_fields__ if field != "origin"]
        return {field: _unplaced(getattr(value, field)) for field in fields}
    if isinstance(value, dict):
        return {key: _unplaced(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_unplaced(below) for below in value]
    return value
