"""Executes one command of a simulated run as a worker would; the outcomes of tasks come from the simulation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from arclog.core.flow import pipeline as core
from arclog.core.flow.loops import not_a_list, too_many
from arclog.core.flow.pipeline import Ask, Frame, Over, Run
from arclog.core.flow.reducers import after
from arclog.core.flow.scopes import items_scope, task_scope
from arclog.core.transitions.iterations import are_stored, as_payload, item_at, iterator_of, stored_item
from arclog.core.transitions.state import path_of
from arclog.expr import Stored
from arclog.history.step_runs import renamed_tasks
from arclog.model.commands import Command, LoopWork, Pipeline
from arclog.model.errors import ExpressionError
from arclog.model.events import Event, is_closing
from arclog.model.outcome import Outcome, error, failed
from arclog.plan.program import Program, StepProgram, TaskProgram

if TYPE_CHECKING:
    from arclog.history.simulate import Simulation


# The outcomes of the tasks of a recorded run, by call. A simulation uses these answers instead of running tools.
#
# A call is named by step, run, item, task, task run and attempt. A call that a changed playbook makes in another place is
# answered by a recorded call of the same task and item that had the same inputs.


_ENDS = frozenset({"task.done", "task.failed", "task.attempt.done", "task.attempt.failed"})
_BOUNDARIES = frozenset({"step.done", "step.failed", "loop.iteration.done", "loop.iteration.failed"})
_USED = _ENDS | _BOUNDARIES | {"task.started"}

#: step, run, item, task, task run
Place = tuple[str, int, tuple[int, ...], str, int]


class Answer(Struct):
    """The recorded end of one attempt."""

    #: its outcome record; None if the server ended the task because of a time limit or the end of the run
    record: dict[str, Any] | None
    #: index of the event that has it
    index: int


class RecordedCall(Struct):
    """One task run of a log."""

    place: Place
    #: the inputs in task.started; None if it had none, or if its start is not in the log
    inputs: Any = None
    attempts: dict[int, Answer] = {}
    #: whether it has answered a call already
    used: bool = False


class Answers:
    """The answers of one log."""

    def __init__(self, events: Sequence[Event], program: Program, renamed: Mapping[str, str], new: Program) -> None:
        """`program` is the recorded one, `new` that of the changed playbook; `renamed` gives steps their new names."""
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
        self._old = {new_step: old_step for old_step, new_step in renamed.items()}
        tasks = renamed_tasks(renamed, new)
        #: (step, task) → the old name of the task, where it has a new one
        self._old_tasks = {(renamed[step], new_task): old_task for step, (old_task, new_task) in tasks.items()}
        for index, event in enumerate(events):
            kind = event.type
            if kind not in _USED or event.informative:
                continue
            step = renamed.get(event.step, event.step) if renamed else event.step
            if kind in _BOUNDARIES:
                self._ends[step, event.run, event.iteration or ()] = index
                continue
            task = event.task
            if tasks:
                old_task, new_task = tasks.get(event.step, ("", ""))
                task = new_task if task == old_task else task
            self._take(index, event, step, task)

    def _take(self, index: int, event: Event, step: str, task: str) -> None:
        starts = event.type == "task.started"
        path = event.iteration or ()
        place = (step, event.run, path, task, event.task_run)
        call = self._calls.get(place)
        if call is None:
            call = self._calls[place] = RecordedCall(place, attempts={})
            self._alike.setdefault((step, path, task), []).append(call)
        if starts:
            call.inputs = event.payload.get("inputs")
            return
        record = event.payload.get("outcome") or {}
        attempt = (record.get("meta") or {}).get("attempt") or event.attempt or 1
        answer = call.attempts.get(attempt)
        if is_closing(event) or record.get("status") is None:
            if answer is None:
                call.attempts[attempt] = Answer(None, index)
        else:
            call.attempts[attempt] = Answer(record, index)

    def order(self, step: str, run: int, path: tuple[int, ...] = ()) -> int:
        """Return the index of the end of a step run or an iteration; 0 if it has none."""
        return self._ends.get((step, run, path), 0)

    def at(self, index: int) -> int:
        """Return the time of an event."""
        return self._events[index].at

    def find(self, place: Place, attempt: int, inputs: Any) -> tuple[RecordedCall | None, Answer | None]:
        """Return the recorded call for a call, and its answer. `inputs` are in the form of task.started."""
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
        task = self._old_tasks.get((place[0], place[3]), place[3])
        return None if step is None or task not in step.index else step.tasks[step.index[task]]


def same_inputs(recorded: Any, config: dict[str, Any]) -> bool:
    """Return whether a rendered config equals the recorded one, as a whole or by its digest."""
    if isinstance(recorded, Mapping) and recorded.get("truncated") is True and "sha256" in recorded:
        return bool(recorded["sha256"] == hashlib.sha256(encode(config)).hexdigest())
    return (recorded or {}) == config or encode(recorded or {}) == encode(config)


#: Approximate number of events of a report. A longer report is sent in parts.
_PIECE = 400


class Unanswered(Exception):
    """A task has no recorded answer."""


class Carrying:
    """Executes one command as a worker would."""

    def __init__(self, simulation: Simulation, command: Command, step: StepProgram) -> None:
        self._simulation = simulation
        self._command = command
        self._step = step
        self._piece: list[Event] = []
        self._n = 0
        self._frame = Frame(
            execution_id=str(command.execution_id),
            args=command.args,
            captured=command.captured,
            step=command.step,
            run=command.run,
            names=step.names,
            emit=step.emit,
            event_room=simulation.program.event_room,
            read=simulation.reader,
        )

    def run(self) -> None:
        command = self._command
        if not command.started:
            self._piece.append(self._event("step.started", self._frame))
        if command.expansion is not None:
            self._expand(command.expansion.event)
        elif command.loop is not None:
            self._loop(command.loop)
        else:
            try:
                over = self._pipeline(command.pipeline or Pipeline(), self._frame)
            except Unanswered:
                over = None
            if over is not None:
                self._piece.append(self._ended("step", self._frame, over))
        self._flush()

    def _expand(self, arrival: Mapping[str, Any]) -> None:
        """Report the items of a loop that only a worker can read."""
        frame, program = self._frame, self._simulation.program
        try:
            items = self._step.items_at(0).evaluate_items(items_scope(frame, arrival))
            if isinstance(items, Stored):
                items = items.plain()
            problem = not_a_list(self._step.name, items) if not isinstance(items, list | range) else None
            problem = problem or too_many(self._step.name, len(items), program.plan.limits.max_iterations)
        except ExpressionError as failure:
            problem = error("template", str(failure))
        if problem is not None:
            self._piece.append(self._ended("step", frame, Over(problem.as_dict())))
            return
        event = self._event("result.manifest.updated", frame)
        event.payload = {"items": as_payload(items), "total": len(items)}
        self._piece.append(event)

    def _loop(self, loop: LoopWork) -> None:
        fail_fast = self._step.plan.failure_mode == "fail_fast"
        for index, under_way in _iterations(loop):
            frame = replace(self._frame, iteration=(*loop.path, index))
            if under_way is None:
                self._piece.append(self._event("loop.iteration.started", frame))
            pipeline = under_way or self._begun(loop, index)
            try:
                over = self._pipeline(pipeline, frame)
            except Unanswered:
                if loop.at_a_time > 1:
                    continue  # the others do not wait for it
                return
            if over is None:
                return
            self._piece.append(self._ended("loop.iteration", frame, over))
            if over.error is not None and fail_fast:
                return
            if loop.carries_ctx and pipeline.ctx:
                self._frame.captured = after(self._simulation.program, self._frame.captured, pipeline.ctx)
            if len(self._piece) >= _PIECE and not self._flush():
                return

    def _begun(self, loop: LoopWork, index: int) -> Pipeline:
        names: dict[str, Any] = {"index": index, "total": loop.total}
        stored: dict[str, Any] = {}
        iterator = iterator_of(self._step)
        if are_stored(loop.items):
            stored[iterator] = stored_item(loop.items, index - loop.first)
        else:
            names[iterator] = item_at(loop.items, index - loop.first)
        if loop.parent is not None:
            names["parent"] = loop.parent
        return Pipeline(iter=names, stored=stored)

    def _pipeline(self, pipeline: Pipeline, frame: Frame) -> Over | None:
        """Run the tasks. Return None if the engine continues with them."""
        simulation, step = self._simulation, self._step
        most = simulation.program.plan.limits.max_task_runs
        limits = simulation.limits
        while True:
            move: Run | Ask | Over = core.next_move(pipeline, step, most)
            if isinstance(move, Ask):
                move = core.guarded_move(pipeline, step, frame, most)
            if isinstance(move, Over):
                return move
            record = self._attempt(pipeline, move, frame)
            if record is None:
                return None
            events = core.conclude(
                pipeline,
                move,
                frame,
                record,
                simulation.now,
                0.5,
                limits.max_ctx_bytes,
                limits.longest_sleep_s,
                stores_iter=True,
            )
            for event in events:
                self._emit(pipeline, event)
            if events[-1].payload.get("suspended"):
                return None
            if len(self._piece) >= _PIECE and not self._flush():
                raise Unanswered  # it was withdrawn meanwhile

    def _attempt(self, pipeline: Pipeline, move: Run, frame: Frame) -> dict[str, Any] | None:
        """Return the record of an attempt; None if it was handed over to the engine."""
        simulation, task = self._simulation, move.task
        simulation.wait_until(move.due)
        config: dict[str, Any] | None = None
        problem: Outcome | None = None
        if not task.reads_keychain:
            try:
                # Without templates, it needs no names.
                config = task.config.evaluate({} if task.config.constant else task_scope(pipeline, frame, move))
            except ExpressionError as failure:
                problem = failed(error("template", str(failure)))
        place = (frame.step, frame.run, frame.iteration or (), task.plan.name, move.task_run)
        if not move.repeated:
            handed = None
            if task.plan.runs_on == "engine" and problem is None:
                handed = {**(config or {}), **task.verbatim}
            for event in core.started(move, frame, simulation.now, config, handed):
                self._emit(pipeline, event)
            if handed is not None:
                return None
        return simulation.outcome(place, move, self._step, config, problem)

    # -- reporting --------------------------------------------------------------------------------------------------------

    def _emit(self, pipeline: Pipeline, event: Event) -> None:
        core.FOLD[event.type](pipeline, self._step, event)
        self._piece.append(event)

    def _flush(self) -> bool:
        if not self._piece:
            return True
        piece, self._piece = self._piece, []
        self._n += 1
        return self._simulation.report(self._command, self._n, piece)

    def _event(self, kind: str, frame: Frame) -> Event:
        return Event(kind, self._simulation.now, frame.step, frame.run, frame.iteration)

    def _ended(self, ending: str, frame: Frame, over: Over) -> Event:
        event = self._event(f"{ending}.{'done' if over.error is None else 'failed'}", frame)
        if over.error is not None:
            event.payload = {"error": over.error}
        return event


def _iterations(loop: LoopWork) -> Iterator[tuple[int, Pipeline | None]]:
    for key, pipeline in loop.under_way.items():
        yield path_of(key)[-1], pipeline
    for index in range(loop.first, loop.last):
        yield index, None
