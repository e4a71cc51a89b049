"""Carries out one command of a simulated run, as a worker would: tasks get their outcomes from the simulation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from arclog.core.flow import pipeline as core
from arclog.core.flow.loops import not_a_list, too_many
from arclog.core.flow.pipeline import Ask, Frame, Over, Run
from arclog.core.flow.reducers import after
from arclog.core.flow.scopes import items_scope, task_scope
from arclog.core.transitions.iterations import are_stored, as_payload, item_at, iterator_of, stored_item
from arclog.core.transitions.state import path_of
from arclog.expr import Stored
from arclog.model.commands import Command, LoopWork, Pipeline
from arclog.model.errors import ExpressionError
from arclog.model.events import Event
from arclog.model.outcome import Outcome, error, failed
from arclog.plan.program import StepProgram, TaskProgram

if TYPE_CHECKING:
    from arclog.history.simulate import Simulation

#: Events of a report, about: a longer one is sent in pieces.
_PIECE = 400


class Unanswered(Exception):
    """A task has no recorded answer."""


class Carrying:
    """Carries one command out, as a worker would."""

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
            self._add(self._event("step.started", self._frame))
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
                self._add(self._ended("step", self._frame, over))
        self._flush()

    def _expand(self, arrival: Mapping[str, Any]) -> None:
        """Say what the items of a loop are that only a worker can read."""
        frame, program = self._frame, self._simulation.program
        try:
            found = self._step.items_at(0).evaluate_items(items_scope(frame, arrival))
            if isinstance(found, Stored):
                found = found.plain()
            problem = not_a_list(self._step.name, found) if not isinstance(found, list | range) else None
            problem = problem or too_many(self._step.name, len(found), program.plan.limits.max_iterations)
        except ExpressionError as failure:
            problem = error("template", str(failure))
        if problem is not None:
            self._add(self._ended("step", frame, Over(problem.as_dict())))
            return
        event = self._event("result.manifest.updated", frame)
        event.payload = {"items": as_payload(found), "total": len(found)}
        self._add(event)

    def _loop(self, loop: LoopWork) -> None:
        fail_fast = self._step.plan.failure_mode == "fail_fast"
        for index, under_way in _iterations(loop):
            frame = replace(self._frame, iteration=(*loop.path, index))
            if under_way is None:
                self._add(self._event("loop.iteration.started", frame))
            pipeline = under_way or self._begun(loop, index)
            try:
                over = self._pipeline(pipeline, frame)
            except Unanswered:
                if loop.at_a_time > 1:
                    continue  # the others do not wait for it
                return
            if over is None:
                return
            self._add(self._ended("loop.iteration", frame, over))
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
        """Run the tasks. None: the engine continues with them."""
        simulation, step = self._simulation, self._step
        most = simulation.program.plan.limits.max_task_runs
        limits = simulation.limits
        while True:
            move: Run | Ask | Over = core.next_move(pipeline, step, most)
            if isinstance(move, Ask):
                move = core.asked(pipeline, step, frame, most)
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
        """The record of an attempt; None: it was handed over to the engine."""
        simulation, task = self._simulation, move.task
        simulation.wait_until(move.due)
        config: dict[str, Any] | None = None
        problem: Outcome | None = None
        if not _reads_keychain(task):
            try:
                config = task.config.evaluate(task_scope(pipeline, frame, move))
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
        core.fold(pipeline, self._step, event)
        self._add(event)

    def _add(self, event: Event) -> None:
        self._piece.append(event)

    def _flush(self) -> bool:
        if not self._piece:
            return True
        piece, self._piece = self._piece, []
        self._n += 1
        return self._simulation.report(self._command, self._n, piece)

    def _event(self, kind: str, frame: Frame) -> Event:
        return Event(kind, self._simulation.now, frame.step, frame.run, frame.iteration)

    def _ended(self, what: str, frame: Frame, over: Over) -> Event:
        event = self._event(f"{what}.{'done' if over.error is None else 'failed'}", frame)
        if over.error is not None:
            event.payload = {"error": over.error}
        return event


def _iterations(loop: LoopWork) -> Iterator[tuple[int, Pipeline | None]]:
    for key, pipeline in loop.under_way.items():
        yield path_of(key)[-1], pipeline
    for index in range(loop.first, loop.last):
        yield index, None


def _reads_keychain(task: TaskProgram) -> bool:
    return any(path[0] == "keychain" for path in task.config.paths)
