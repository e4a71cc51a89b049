"""What the tasks of a recorded run came to, by call: the answers that a simulation gives instead of running tools.

A call is named by step, run, item, task, task run and attempt. A call that a changed playbook makes in another place is
answered by a recorded call of the same task and item that had the same inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.json import encode

from arclog.model.events import Event, is_closing
from arclog.plan.program import Program, TaskProgram

_ENDS = frozenset({"task.done", "task.failed", "task.attempt.done", "task.attempt.failed"})
_BOUNDARIES = frozenset({"step.done", "step.failed", "loop.iteration.done", "loop.iteration.failed"})

#: step, run, item, task, task run
Place = tuple[str, int, tuple[int, ...], str, int]


class Answer(Struct):
    """The recorded end of one attempt."""

    #: its outcome record; None: the server ended the task, because of a time limit or the end of the run
    record: dict[str, Any] | None
    #: index of the event that has it
    index: int


class RecordedCall(Struct):
    """One task run of a log."""

    place: Place
    #: as task.started has them; None: it had none, or its start is not in the log
    inputs: Any = None
    attempts: dict[int, Answer] = {}
    #: another call was answered with it
    used: bool = False


class Answers:
    """The answers of one log."""

    def __init__(self, events: Sequence[Event], program: Program, renamed: Mapping[str, str]) -> None:
        """`program` is the one that was recorded, `renamed` gives steps their new names."""
        self._events = events
        self._program = program
        self._calls: dict[Place, RecordedCall] = {}
        #: calls of a task, in the order of the log
        self._alike: dict[tuple[str, tuple[int, ...], str], list[RecordedCall]] = {}
        #: calls that are answered by one of another place
        self._moved: dict[Place, RecordedCall] = {}
        #: index of the end of each step run and iteration
        self._ends: dict[tuple[str, int, tuple[int, ...]], int] = {}
        #: old name of each step
        self._old = {new: old for old, new in renamed.items()}
        for index, event in enumerate(events):
            if not event.run or event.informative:
                continue
            step = renamed.get(event.step, event.step)
            if event.task:
                self._take(index, event, step)
            elif event.type in _BOUNDARIES:
                self._ends[step, event.run, event.iteration or ()] = index

    def _take(self, index: int, event: Event, step: str) -> None:
        starts = event.type == "task.started"
        if not starts and event.type not in _ENDS:
            return
        path = event.iteration or ()
        place = (step, event.run, path, event.task, event.task_run)
        call = self._calls.get(place)
        if call is None:
            call = self._calls[place] = RecordedCall(place, attempts={})
            self._alike.setdefault((step, path, event.task), []).append(call)
        if starts:
            call.inputs = event.payload.get("inputs")
            return
        record = event.payload.get("outcome") or {}
        attempt = (record.get("meta") or {}).get("attempt") or event.attempt or 1
        known = call.attempts.get(attempt)
        if is_closing(event) or record.get("status") is None:
            if known is None:
                call.attempts[attempt] = Answer(None, index)
        else:
            call.attempts[attempt] = Answer(record, index)

    def order(self, step: str, run: int, path: tuple[int, ...] = ()) -> int:
        """Where the end of a step run, or of an iteration, is in the log; 0: it has none."""
        return self._ends.get((step, run, path), 0)

    def at(self, index: int) -> int:
        """When an event happened."""
        return self._events[index].at

    def find(self, place: Place, attempt: int, inputs: Any) -> tuple[RecordedCall | None, Answer | None]:
        """The recorded call that a call is, and its answer; `inputs` as task.started would have them."""
        call = self._moved.get(place)
        if call is None:
            call = self._calls.get(place)
            if call is not None and call.used:
                call = None
        if call is not None and attempt in call.attempts:
            return call, call.attempts[attempt]
        if attempt > 1:
            return call, None
        for other in self._alike.get((place[0], place[2], place[3]), ()):
            if other.used or other.place == place or attempt not in other.attempts:
                continue
            if inputs is not None and other.inputs == inputs:
                other.used = True
                self._moved[place] = other
                return other, other.attempts[attempt]
        return call, None

    def task_of(self, place: Place) -> TaskProgram | None:
        """The task as it was when it ran."""
        step = self._program.steps.get(self._old.get(place[0], place[0]))
        return None if step is None or place[3] not in step.index else step.tasks[step.index[place[3]]]


def same_inputs(recorded: Any, config: dict[str, Any]) -> bool:
    """Whether a rendered config is the one that a log has, whole or by its digest."""
    if isinstance(recorded, Mapping) and recorded.get("truncated") is True and "sha256" in recorded:
        return bool(recorded["sha256"] == hashlib.sha256(encode(config)).hexdigest())
    return (recorded or {}) == config or encode(recorded or {}) == encode(config)
