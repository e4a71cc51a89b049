"""Durable timers: which event opens and closes which timer.

Invariant: `state.timers` and the timers in the store are the same set. Only `moved` changes the former, and its result
goes into the transaction that changes the latter. A timer's due time follows from its event alone.

  execution           the time limit of the run (executor.spec.timeout_s)
  timeout:<step#run>  the time limit of a step run (lifecycle.timeout_s, from step.scheduled)
  deadline:<step#run> the deadline of a step run (lifecycle.deadline_s, from playbook.started)
  wait:<key>          the end of a wait
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from arclog.core.transitions.state import State, run_key
from arclog.model.events import Event, is_closing
from arclog.model.ids import MICROS
from arclog.plan.program import Program

EXECUTION = "execution"
TIMEOUT = "timeout:"
DEADLINE = "deadline:"
WAIT = "wait:"

#: A timer's id and its due time; 0 if it is closed.
Move = tuple[str, int]
#: Returns the timers that an event moves.
MovesOf = Callable[[Program, State, Event], Sequence[Move]]


def moved(moves_of: MovesOf, program: Program, state: State, event: Event) -> Sequence[Move]:
    """Open and close the timers of an event, before it takes effect elsewhere.

    `moves_of` is the entry of its type in `MOVES`.
    """
    moves = moves_of(program, state, event)
    for timer_id, due in moves:
        if due:
            state.timers[timer_id] = due
        else:
            state.timers.pop(timer_id, None)
    return moves


def wait_key(event: Event) -> str:
    """Return the key of the wait of an event's task run; unique within the execution."""
    where = "" if event.iteration is None else f"[{'.'.join(map(str, event.iteration))}]"
    return f"{event.step}#{event.run}{where}:{event.task}#{event.task_run}"


def after(moment: int, seconds: float) -> int:
    """Return the moment this many seconds later, never rounded down."""
    return moment + max(1, ceil(seconds * MICROS))


def _execution_started(program: Program, _: State, event: Event) -> Sequence[Move]:
    limit = program.plan.timeout_s
    return () if limit is None else [(EXECUTION, after(event.at, limit))]


def _step_scheduled(program: Program, state: State, event: Event) -> Sequence[Move]:
    plan = program.steps[event.step].plan
    if plan.timeout_s is None and plan.deadline_s is None and "final" not in event.payload:
        return ()
    key = run_key(event.step, event.run)
    moves: list[Move] = []
    if "final" in event.payload:
        # The time limit of the run is over; the final step has its own.
        state.stopped.clear()
        if EXECUTION in state.timers:
            moves.append((EXECUTION, 0))
    if plan.timeout_s is not None:
        moves.append((TIMEOUT + key, after(event.at, plan.timeout_s)))
    if plan.deadline_s is not None:
        moves.append((DEADLINE + key, after(state.started_at or event.at, plan.deadline_s)))
    return moves


def _step_ended(_: Program, state: State, event: Event) -> Sequence[Move]:
    key = run_key(event.step, event.run)
    state.stopped.pop(TIMEOUT + key, None)
    waits: list[str] = []
    if not is_closing(event):  # otherwise its tasks ended before it: skip the scan of thousands of waits
        waits = [WAIT + wait.key for wait in state.waits.values() if wait.step == event.step and wait.run == event.run]
    return [(timer_id, 0) for timer_id in (TIMEOUT + key, DEADLINE + key, *waits) if timer_id in state.timers]


def _wait_began(_: Program, _state: State, event: Event) -> Sequence[Move]:
    until = event.payload.get("until")
    return [(WAIT + event.payload["wait"], until)] if until else ()


def _retry_chosen(_: Program, _state: State, event: Event) -> Sequence[Move]:
    return [(WAIT + wait_key(event), event.payload["due"])] if event.payload.get("suspended") else ()


def _wait_ended(_: Program, state: State, event: Event) -> Sequence[Move]:
    if event.payload.get("source") != "server":
        return ()
    timer_id = WAIT + wait_key(event)
    return [(timer_id, 0)] if timer_id in state.timers else ()


def _resumed(_: Program, state: State, event: Event) -> Sequence[Move]:
    timer_id = WAIT + event.payload.get("wait", "")
    return [(timer_id, 0)] if timer_id in state.timers else ()


def _paused(_: Program, state: State, event: Event) -> Sequence[Move]:
    """Suspend time limits during a pause, but not deadlines and waits."""
    limits = [timer_id for timer_id in state.timers if timer_id == EXECUTION or timer_id.startswith(TIMEOUT)]
    for timer_id in limits:
        state.stopped[timer_id] = max(state.timers[timer_id] - event.at, 1)
    return [(timer_id, 0) for timer_id in limits]


def _unpaused(_: Program, state: State, event: Event) -> Sequence[Move]:
    stopped, state.stopped = state.stopped, {}
    return [(timer_id, event.at + left) for timer_id, left in stopped.items()]


def _fired(_: Program, _state: State, event: Event) -> Sequence[Move]:
    return [(event.payload["timer"], 0)]


#: Event types that only close timers.
CLOSING = frozenset({
    "step.done", "step.failed", "command.issued",
    "task.done", "task.failed", "task.attempt.done", "task.attempt.failed",
})  # fmt: skip
MOVES: dict[str, MovesOf] = {
    "playbook.started": _execution_started,
    "step.scheduled": _step_scheduled,
    "step.done": _step_ended,
    "step.failed": _step_ended,
    "command.completed": _wait_began,
    "command.issued": _resumed,
    "policy.task.evaluated": _retry_chosen,
    "task.done": _wait_ended,
    "task.failed": _wait_ended,
    "task.attempt.done": _wait_ended,
    "task.attempt.failed": _wait_ended,
    "timer.fired": _fired,
    "playbook.paused": _paused,
    "playbook.resumed": _unpaused,
}
