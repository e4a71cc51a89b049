"""Checks whether a fork or retry is valid: whether recorded events fit a changed playbook.

Events fit if each of them has a place in the new net: its step, its task, the arc of each token, the type of each ctx
value. The verdict lists everything without a place, and the latest event from which a fork would fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from arclog.core.transitions.apply import apply
from arclog.core.transitions.items import apply_all
from arclog.core.transitions.state import State
from arclog.model.config.reducers import misfit, unfit
from arclog.model.errors import InvariantBroken, NewerLog
from arclog.model.events import Event
from arclog.plan.net import ArcPlan
from arclog.plan.program import Program

#: Maximum number of problems in a verdict.
MOST_PROBLEMS = 20
#: The index of an arc that does not exist.
NO_ARC = -1
_WRITES_CTX = frozenset({"step.done", "step.failed", "loop.done", "signal.received"})
#: Exceptions that `apply` raises if the net has no place for an event.
_MISFITS = (KeyError, IndexError, InvariantBroken, TypeError, AttributeError, StopIteration)


class Misfit(Struct, frozen=True):
    """A recorded fact that has no place in the net."""

    #: step | task | loop | token | ctx | event
    what: str
    #: the name of the step, task or ctx key
    name: str
    #: seq of the event in the old run
    seq: int
    message: str


class Verdict(Struct, frozen=True):
    """The reasons why the recorded events do not fit."""

    problems: list[Misfit]
    #: the latest event of the old run from which a fork would fit; 0 if there is none
    fits_at: int


class Arcs:
    """Maps the arcs of the old net to the new one."""

    def __init__(self, old: Program, new: Program, steps: Mapping[str, str]) -> None:
        self._old = old
        self._new = new
        self._steps = steps
        self._same = old.digest == new.digest
        self._indexes: dict[tuple[str, int], int] = {}

    def index(self, step: str, choice: Mapping[str, Any]) -> int:
        """Return the new index of an old arc, or NO_ARC if it does not exist any more."""
        number = int(choice["arc"])
        if self._same:
            return number
        index = self._indexes.get((step, number))
        if index is None:
            index = self._indexes[step, number] = self._find(step, number)
        return index

    def _find(self, step: str, number: int) -> int:
        old = self._old.steps[step].plan.arcs[number]
        target = self._steps.get(old.target, old.target)
        source = self._new.steps.get(self._steps.get(step, step))
        arcs = [] if source is None else [(at, arc) for at, arc in enumerate(source.plan.arcs) if arc.target == target]
        same = [at for at, arc in arcs if arc.when == old.when]
        return (same or [at for at, _ in arcs] or [NO_ARC])[0]

    def place(self, place: str) -> str:
        """Return the place in the new net for a place of the old one."""
        kind, _, rest = place.partition(":")
        step, _, number = rest.rpartition(":")
        if self._same or kind != "arc" or step not in self._old.steps:
            return place
        return f"arc:{self._steps.get(step, step)}:{self.index(step, {'arc': int(number)})}"

    def arc(self, step: str, index: int) -> ArcPlan | None:
        """Return an arc of the new net, or None if there is none."""
        program = self._new.steps.get(step)
        return None if program is None or not 0 <= index < len(program.plan.arcs) else program.plan.arcs[index]


def check_fit(
    program: Program, execution_id: int, events: Sequence[Event], sources: Sequence[int], *, changed: bool
) -> tuple[State, dict[str, int], Verdict | None]:
    """Fold the recorded events and check that they fit the net. Return the state, its timers, and None or the verdict.
    `sources` are the indexes of the events in the old log.
    """
    state = State(execution_id=execution_id)
    if not changed:
        timers = apply_all(program, state, events)
        return state, {name: due for name, due in timers.items() if due}, None
    timers = {}
    problems: list[Misfit] = []
    for event, source in zip(events, sources, strict=True):
        problems += _misfits(program, event, source + 1)
        if problems:
            continue  # the state is not computed any further, but other misfits are still listed
        try:
            timers.update(apply(program, state, event))
        except NewerLog:
            raise
        except _MISFITS as problem:
            problems.append(Misfit("event", event.type, source + 1, f"{event.type} of step {event.step}: {problem}"))
            continue
        if event.type in _WRITES_CTX:
            problems += _unfit_values(program, state, source + 1)
    if not problems:
        return state, {name: due for name, due in timers.items() if due}, None
    first = min(problem.seq for problem in problems)
    return state, {}, Verdict(problems[:MOST_PROBLEMS], _before(first, sources))


def _before(seq: int, sources: Sequence[int]) -> int:
    """Return the last event before `seq` at which a fork is possible; 0 if the run had not started by then."""
    started = next((source + 1 for source in sources if source >= 0), 0)
    return seq - 1 if seq - 1 >= started > 0 else 0


def _misfits(program: Program, event: Event, seq: int) -> list[Misfit]:
    if not event.step:
        return []
    step = program.steps.get(event.step)
    if step is None:
        if event.type != "step.scheduled":
            return []
        return [Misfit("step", event.step, seq, f"step {event.step} (run {event.run}) is not in the playbook")]
    if event.type == "task.started" and event.task not in step.index:
        return [Misfit("task", event.task, seq, f"step {event.step} has no task {event.task}")]
    if event.type == "step.scheduled":
        looped = "total" in event.payload or "expand" in event.payload
        if looped != (step.plan.loop is not None):
            problem = "ran as a loop and is not a loop now" if looped else "is a loop and did not run as one"
            return [Misfit("loop", event.step, seq, f"step {event.step} {problem} in the playbook")]
    if event.type == "policy.task.evaluated" and "set_ctx" in event.payload:
        reducers = program.names.reducers
        return [
            Misfit("ctx", key, seq, f"ctx.{key} has the reducer {reducers[key]}, which does not take {wrong}")
            for key, value in event.payload["set_ctx"].items()
            if key in reducers and (wrong := misfit(reducers[key], value))
        ]
    if event.type == "next.evaluated":
        return [
            Misfit(
                "token",
                str(choice.get("step", "")),
                seq,
                f"the token that step {event.step} (run {event.run}) gave to step {choice.get('step', '')} has no arc",
            )
            for choice in event.payload.get("selected") or ()
            if choice["arc"] == NO_ARC
        ]
    return []


def _unfit_values(program: Program, state: State, seq: int) -> list[Misfit]:
    misfits: list[Misfit] = []
    for key, reducer in program.names.reducers.items():
        if key in state.ctx and (wrong := unfit(reducer, state.ctx[key])):
            message = f"ctx.{key} has the reducer {reducer}, which cannot go on from {wrong}"
            misfits.append(Misfit("ctx", key, seq, message))
    return misfits
