"""Compares a simulated run with the recorded one: whether and where their paths differ, and how they ended.

Step runs are compared by name and number; those that wait for a call without a recorded answer are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct

from arclog.history.simulate import Simulated
from arclog.history.step_runs import BOUNDARIES, Key, Log, RecordedRun
from arclog.model.events import TERMINAL, Event

_place = attrgetter("type", "step", "run", "iteration", "informative")
#: Verdicts, the most severe first.
PATH, UNANSWERED, RESULT, SAME = "path", "unanswered", "result", "same"


class PathDifference(Struct, frozen=True):
    """The first step run in which the simulated run takes another path."""

    #: '' if only the ends differ
    step: str
    run: int
    #: step | end_of_step | items | routing | end
    what: str
    cause: str
    #: seq of the recorded event that shows it; 0 if the log has none
    seq: int
    recorded: Any = None
    simulated: Any = None


class End(Struct, frozen=True):
    """The end of a run."""

    #: COMPLETED FAILED CANCELLED, or OPEN
    state: str
    result: Any = None
    error: dict[str, Any] | None = None


class Compared(Struct, frozen=True):
    verdict: str
    parting: PathDifference | None
    recorded: End
    simulated: End


def compared(events: Sequence[Event], simulated: Simulated, renamed: Mapping[str, str]) -> Compared:
    """Compare a simulated run with the log that it was simulated from."""
    mine, theirs = end_of(events), end_of(simulated.events)
    recorded_path, simulated_path = _boundaries(events), _boundaries(simulated.events)
    if not _are_equal(recorded_path, simulated_path):
        open_runs = {(call.step, call.run) for call in simulated.unanswered}
        parting = _path(events, Log(recorded_path), Log(simulated_path), renamed, open_runs)
        if parting is not None:
            return Compared(PATH, parting, mine, theirs)
    if simulated.unanswered or theirs.state == "OPEN":
        return Compared(SAME if mine.state == "OPEN" and not simulated.unanswered else UNANSWERED, None, mine, theirs)
    if mine.state != theirs.state:
        cause = f"the recorded run is {mine.state}, the simulated one {theirs.state}"
        parting = PathDifference("", 0, "end", cause, len(events), mine.error, theirs.error)
        return Compared(PATH, parting, mine, theirs)
    if mine.result != theirs.result or _message(mine.error) != _message(theirs.error):
        return Compared(RESULT, None, mine, theirs)
    return Compared(SAME, None, mine, theirs)


def end_of(events: Sequence[Event]) -> End:
    for event in reversed(events):
        if event.type not in TERMINAL:
            continue
        if event.type == "execution.cancelled":
            return End("CANCELLED")
        payload = event.payload
        if "error" in payload:
            return End("FAILED", None, payload["error"])
        ref = payload.get("result_ref")
        return End("COMPLETED", payload.get("result") if ref is None else {"sha256": ref["meta"]["sha256"]})
    return End("OPEN")


def _boundaries(events: Sequence[Event]) -> list[Event]:
    """Return the events of a log that affect the path. Most events belong to tasks and do not."""
    return [event for event in events if event.type in BOUNDARIES]


def _are_equal(recorded: Sequence[Event], simulated: Sequence[Event]) -> bool:
    """Return whether two paths are equal event by event, apart from args and tokens. Most simulated runs take the same
    path, and this is cheaper than a comparison of step runs.
    """
    if list(map(_place, recorded)) != list(map(_place, simulated)):
        return False
    return all(
        event.payload == other.payload or event.type == "step.scheduled"
        for event, other in zip(recorded, simulated, strict=True)
    )


def _path(
    events: Sequence[Event], mine: Log, theirs: Log, renamed: Mapping[str, str], open_runs: set[Key]
) -> PathDifference | None:
    recorded_keys: set[Key] = set()
    missing: PathDifference | None = None
    for (name, number), run in mine.runs.items():
        key = (renamed.get(name, name), number)
        recorded_keys.add(key)
        other = theirs.runs.get(key)
        if other is None:
            if missing is None:
                seq = _seq(events, mine.events[run.scheduled])
                missing = PathDifference(*key, "step", f"step {name} (run {number}) would not have run", seq)
        elif key not in open_runs and other.end is not None and run.is_over:
            parting = _step(events, run, other, key, renamed)
            if parting is not None:
                return parting
    if missing is not None and not open_runs:
        return missing
    for key in theirs.runs:
        if key not in recorded_keys:
            return PathDifference(*key, "step", f"step {key[0]} (run {key[1]}) would have run", 0)
    return None


def _step(
    events: Sequence[Event], run: RecordedRun, other: RecordedRun, key: Key, renamed: Mapping[str, str]
) -> PathDifference | None:
    step = key[0]
    if run.has_failed != other.has_failed:
        words = [f"{'fail' if failed else 'succeed'}ed" for failed in (run.has_failed, other.has_failed)]
        cause = f"step {step} {words[0]}; it would have {words[1]}"
        sides = [None if step_run.end is None else step_run.end.payload.get("error") for step_run in (run, other)]
        return PathDifference(*key, "end_of_step", cause, _seq(events, run.end), *sides)
    if run.failed_items != other.failed_items:
        cause = f"{run.failed_items} items of step {step} failed; {other.failed_items} would fail"
        return PathDifference(*key, "items", cause, _seq(events, run.end), run.failed_items, other.failed_items)
    taken = [renamed.get(str(choice.get("step")), str(choice.get("step"))) for choice in run.selected]
    would = [str(choice.get("step")) for choice in other.selected]
    if taken != would:
        cause = f"after step {step} the run went to {_list(taken)}; it would go to {_list(would)}"
        return PathDifference(*key, "routing", cause, _seq(events, run.routed), taken, would)
    return None


def _list(steps: list[str]) -> str:
    return " and ".join(steps) or "no step"


def _seq(events: Sequence[Event], event: Event | None) -> int:
    return next((index + 1 for index, candidate in enumerate(events) if candidate is event), 0)


def _message(error: dict[str, Any] | None) -> Any:
    return None if error is None else (error.get("kind"), error.get("message"))
