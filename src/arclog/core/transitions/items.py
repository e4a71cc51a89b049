"""Loop items in one piece: if all events of an item stand together, they are recognized and applied at once.

Invariant: the effect is the same as that of `apply` for each of the events. Long logs consist of such items, and this
takes a fraction of the time. All other items (failed, retried, waiting, with a policy, of a nested loop) are left to
`apply`.
"""

from __future__ import annotations

from collections.abc import Sequence

from arclog.core.flow.waits import FOLDED_KEYS
from arclog.core.transitions.apply import apply
from arclog.core.transitions.iterations import count_ended
from arclog.core.transitions.state import State
from arclog.model.events import Event
from arclog.plan.program import Program

#: Payload keys of task events that have further effects.
_EFFECTIVE_KEYS = FOLDED_KEYS | {"rounds"}


def apply_all(program: Program, state: State, events: Sequence[Event]) -> dict[str, int]:
    """Apply events in order. Returns the timers that they moved: when each is due, or 0 if it is closed."""
    timers: dict[str, int] = {}
    at, total = 0, len(events)
    while at < total:
        event = events[at]
        if event.type == "loop.iteration.started":
            end = item_end(events, at)
            if end > at and apply_item(program, state, events, at, end):
                at = end
                continue
        moves = apply(program, state, event)
        if moves:
            timers.update(moves)
        at += 1
    return timers


def item_end(events: Sequence[Event], at: int) -> int:
    """Return the index after the item in one piece that starts at index `at`; `at` if there is none.

    Its events are loop.iteration.started, then task.started and task.done for each task, then loop.iteration.done, as a
    worker reports them. Only the first one may have the fields of a report.
    """
    first = events[at]
    path = first.iteration
    if (
        first.type != "loop.iteration.started"
        or path is None
        or len(path) != 1
        or first.payload
        or first.informative
        or first.cause
        or first.own_id
        or first.sent
        or first.version != 1
    ):
        return at
    step, run = first.step, first.run
    is_open = False
    for index in range(at + 1, len(events)):
        event = events[index]
        if (
            event.iteration != path
            or event.run != run
            or event.step != step
            or event.informative
            or event.report
            or event.command_id
            or event.fence
            or event.worker_id
            or event.cause
            or event.own_id
            or event.sent
            or event.version != 1
        ):
            return at
        kind, payload = event.type, event.payload
        if is_open:
            if kind != "task.done" or "outcome" not in payload or not _EFFECTIVE_KEYS.isdisjoint(payload):
                return at
            is_open = False
        elif kind == "task.started":
            if payload and not _EFFECTIVE_KEYS.isdisjoint(payload):
                return at
            is_open = True
        else:
            return index + 1 if kind == "loop.iteration.done" and index > at + 1 and not payload else at
    return at


def apply_item(program: Program, state: State, events: Sequence[Event], at: int, end: int) -> bool:
    """Apply the events of an item in one piece: those from `at` to before `end`, which `item_end` returned.

    Returns False, and leaves the state unchanged, if they must be applied separately.
    """
    first = events[at]
    path = first.iteration
    step_run = state.open.get(f"{first.step}#{first.run}")  # `run_key`, inlined for speed
    if step_run is None or path is None:
        return False
    step, loop, index = program.steps[first.step], step_run.loops.get(""), path[0]
    if loop is None or index >= loop.total or len(step.loops) != 1:
        return False
    if step_run.iterations and str(index) in step_run.iterations:
        return False
    for chunk in step_run.chunks.values():
        if chunk.first <= index < chunk.last:
            break
    else:
        return False
    record = events[end - 2].payload["outcome"]
    if not isinstance(record, dict):
        return False
    for task in range(at + 1, end - 1):
        if events[task].task not in step.index:
            return False
    state.head += end - at
    if first.report:
        command = state.commands.get(first.command_id)
        if command is not None:
            command.report = first.report
    loop.ok += 1
    chunk.next = index + 1
    count_ended(program, state, step_run, loop, chunk, path, events[end - 1].at - first.at, record)
    return True
