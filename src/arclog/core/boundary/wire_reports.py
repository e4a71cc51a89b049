"""Reports over `POST /api/events`: one event each, from workers that evaluate neither templates nor policies.

Fields that such an event omits are taken from the command's pipeline. The config of a task that the engine runs and the
decision of a task's policy are computed here, with the functions that arclog's own workers use. After that, the report
is checked and applied like any other.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msgspec.json import encode
from msgspec.structs import replace

from arclog.core.boundary.inputs import Refused, WorkReported
from arclog.core.flow import pipeline as pipelines
from arclog.core.flow.pipeline import Ask, Over, Run
from arclog.core.flow.scopes import task_scope
from arclog.core.flow.waits import frame_of, jitter
from arclog.core.transitions.state import OpenCommand, State, StepRun, path_key, path_of
from arclog.model.commands import Command, LoopWork, NextTask, Pipeline, WireCommand, WireIteration, WireLoop
from arclog.model.errors import ExpressionError
from arclog.model.events import Event
from arclog.model.ids import step_run_id, timestamp
from arclog.model.outcome import OK, TaskError, error, failed
from arclog.plan.program import Program, StepProgram, TaskProgram

if TYPE_CHECKING:
    from arclog.core.transitions.decide import Decision

_TASK_ENDS = frozenset({"task.done", "task.failed"})
_PIPELINE_FAILURES = frozenset({"step.failed", "loop.iteration.failed"})
#: A retry ends the command, however short its delay: the next claim makes the attempt.
_NEVER_UNDER_LEASE_S = -1.0


def completed(decision: Decision, report: WorkReported) -> WorkReported | Refused:
    """Return the report in the form that arclog's own workers send. `check_report` rejects invalid events."""
    command = decision.state.commands.get(report.command_id)
    step_run = None if command is None else decision.state.run_of(command.step, command.run)
    if command is None or step_run is None or command.fence != report.fence or len(report.events) != 1:
        return report
    event = replace(report.events[0])  # a copy: the input is decided again if another writer committed first
    if event.step == command.step:
        event.run = event.run or command.run
    place = _pipeline_at(step_run, event.iteration)
    if place is None:
        return replace(report, events=[event])
    if event.type in _PIPELINE_FAILURES and not event.payload.get("error"):
        problem = pipeline_error(decision.program, decision.state, command, event.iteration)
        problem = problem or error("exception", "the worker reported the failure without an error").as_dict()
        event.payload = {**event.payload, "error": problem}
    step = decision.program.steps[command.step]
    if not event.type.startswith(("task.", "policy.task", "result.")):
        return replace(report, events=[event])
    if event.type == "task.started" and not place.attempt:
        _name_next(event, _move(decision.program, decision.state, step_run, event.iteration, place))
    _name_task(event, place, step)
    work = _Work(decision, command, step_run, step, place, event)
    if event.task in step.index and work.is_engines_start:
        return replace(report, events=work.handed_over())
    if event.type not in _TASK_ENDS or not work.is_open or "outcome" not in event.payload:
        return replace(report, events=[event])
    if misfit := work.misfit() or work.too_large():
        return Refused("malformed", f"{event.type}: {misfit}", event_type=event.type)
    return replace(report, events=work.concluded())


def spoken(report: WorkReported, sent: Event) -> int:
    """Return the index of the event that corresponds to the one that was sent."""
    return next((index for index, event in enumerate(report.events) if event.sent is sent.sent), 0)


def next_task(
    program: Program, state: State, command: OpenCommand, iteration: tuple[int, ...] | None = None
) -> NextTask | None:
    """Return the task that the pipeline of a command, or of one of its iterations, runs now or next.

    Returns None if the pipeline has ended or has not started.
    """
    step_run = state.run_of(command.step, command.run)
    if step_run is None:
        return None
    is_new = iteration is None and step_run.loop is None and not step_run.started
    place = Pipeline() if is_new else _pipeline_at(step_run, iteration)
    move = None if place is None else _move(program, state, step_run, iteration, place)
    if place is None or not isinstance(move, Run):
        return None
    config, problem = None, ""
    try:
        scope = task_scope(place, frame_of(program, state, step_run, iteration), move)
        config = {**move.task.config.evaluate(scope), **move.task.verbatim}
        config |= {name: tree.evaluate(scope) for name, tree in move.task.by_ref.items()}
    except ExpressionError as failure:
        problem = str(failure)
    plan = move.task.plan
    not_before = timestamp(move.due) if move.due else ""
    return NextTask(plan.name, plan.kind, move.attempt, move.repeated, config, problem, plan.timeout_s, not_before)


def pipeline_error(
    program: Program, state: State, command: OpenCommand, iteration: tuple[int, ...] | None = None
) -> dict[str, Any] | None:
    """Return the error of the pipeline of a command, or of one of its iterations; None if it has not failed."""
    step_run = state.run_of(command.step, command.run)
    place = None if step_run is None else _pipeline_at(step_run, iteration)
    if step_run is None or place is None:
        return None
    move = _move(program, state, step_run, iteration, place)
    return move.error if isinstance(move, Over) else None


def wire_command(program: Program, state: State, command: OpenCommand, body: Command) -> WireCommand:
    """Build a claimed command for a worker that evaluates neither templates nor policies."""
    return WireCommand(
        command_id=str(body.command_id),
        fence=body.fence,
        execution_id=str(body.execution_id),
        step=body.step,
        step_run_id=step_run_id(body.step, body.run),
        lease_until=timestamp(body.lease_until),
        args=body.args,
        scope=body.scope,
        started=body.started,
        next=next_task(program, state, command),
        error=pipeline_error(program, state, command),
        loop=None if body.loop is None else _wire_loop(program, state, command, body.loop),
        expansion=body.expansion is not None,
    )


def _wire_loop(program: Program, state: State, command: OpenCommand, loop: LoopWork) -> WireLoop:
    under_way = [
        WireIteration(key, next_task(program, state, command, path), pipeline_error(program, state, command, path))
        for key, path in ((key, path_of(key)) for key in loop.under_way)
    ]
    return WireLoop(loop.first, loop.last, loop.total, "".join(f"{index}." for index in loop.path), under_way)


class _Work:
    """One event of one task, with its step run, pipeline and command."""

    def __init__(
        self,
        decision: Decision,
        command: OpenCommand,
        step_run: StepRun,
        step: StepProgram,
        place: Pipeline,
        event: Event,
    ) -> None:
        self.decision = decision
        self.command = command
        self.step_run = step_run
        self.step = step
        self.place = place
        self.event = event

    @property
    def task(self) -> TaskProgram:
        return self.step.tasks[self.step.index[self.event.task]]

    @property
    def is_open(self) -> bool:
        """Return whether the task run has started and has not ended."""
        place = self.place
        return bool(place.attempt) and self.step.tasks[place.at].plan.name == self.event.task

    @property
    def is_engines_start(self) -> bool:
        starts = self.event.type in ("task.started", "task.attempt.started")
        return starts and self.task.plan.runs_on == "engine" and "config" not in self.event.payload

    def misfit(self) -> str:
        """Return why the outcome does not match the event type, or ''."""
        is_ok = self.event.payload["outcome"].get("status") == OK
        if is_ok == (self.event.type == "task.done"):
            return ""
        return "has an ok outcome" if is_ok else "has an error outcome"

    def too_large(self) -> str:
        limit = self.decision.program.plan.limits.inline_max_bytes
        result = self.event.payload["outcome"].get("result")
        size = len(encode(result)) if isinstance(result, str | list | dict) else 0
        if size <= limit:
            return ""
        return (
            f"its result takes {size} bytes; {limit} stay in the log (results.inline_max_bytes): store it "
            "(POST /api/worker/results) and send its `result_ref`"
        )

    def concluded(self) -> list[Event]:
        """Return the events of the end of an attempt and of the decision of the task's policy."""
        decision, event, place = self.decision, self.event, self.place
        sent: dict[str, Any] = event.payload["outcome"]
        duration = max(0, event.at - place.since) // 1000
        meta = {"duration_ms": duration, **(sent.get("meta") or {}), "attempt": place.attempt}
        record = {**self.task.plan.helper, **sent, "meta": meta}
        move = Run(self.task, place.runs[event.task], place.attempt, 0, repeated=True)
        frame = frame_of(decision.program, decision.state, self.step_run, event.iteration)
        events = pipelines.conclude(
            place,
            move,
            frame,
            record,
            decision.now,
            jitter(decision),
            decision.event_room,
            self._longest_sleep_s(),
        )
        # A retry ends only the attempt; otherwise the end of the task is the event that was sent.
        own = next((end for end in events if end.type in _TASK_ENDS), events[0])
        own.at, own.own_id, own.sent = event.at, event.own_id, event.sent
        return events

    def handed_over(self) -> list[Event]:
        """Return the start of a task that the engine runs, with its config.

        A config that cannot be rendered fails the task.
        """
        event, place = self.event, self.place
        move = Run(self.task, event.task_run, event.attempt or 1, 0, repeated=False)
        frame = frame_of(self.decision.program, self.decision.state, self.step_run, event.iteration)
        problem: TaskError | None = None
        try:
            config = {**self.task.config.evaluate(task_scope(place, frame, move)), **self.task.verbatim}
            problem = self._oversized(config)
        except ExpressionError as failure:
            problem = error("template", str(failure))
        if problem is None:
            event.payload = {**event.payload, "config": config}
            return [event]
        record = {**self.task.plan.helper, **failed(problem).as_record(), "meta": {"attempt": move.attempt}}
        roll, sleep_s = jitter(self.decision), self._longest_sleep_s()
        at, room = self.decision.now, self.decision.event_room
        return [event, *pipelines.conclude(place, move, frame, record, at, roll, room, sleep_s)]

    def _oversized(self, config: dict[str, Any]) -> TaskError | None:
        cap = self.decision.event_room
        size = len(encode(config))
        if size <= cap:
            return None
        message = f"the config of task {self.event.task} takes {size} bytes; an event holds {cap}"
        return error("limit", f"{message} (limits.max_payload_bytes)", code="MAX_PAYLOAD_BYTES")

    def _longest_sleep_s(self) -> float:
        """Return infinity for a command with parallel iterations: it continues with the others during a retry delay."""
        chunk = self.step_run.chunks.get(self.command.chunk)
        if chunk is not None and self.decision.program.side_by_side.get(self.command.step, 1) > 1:
            return math.inf
        return _NEVER_UNDER_LEASE_S


def _pipeline_at(step_run: StepRun, path: tuple[int, ...] | None) -> Pipeline | None:
    if path is None:
        return step_run.pipeline
    iteration = step_run.iterations.get(path_key(path))
    return None if iteration is None else iteration.pipeline


def _move(
    program: Program, state: State, step_run: StepRun, iteration: tuple[int, ...] | None, place: Pipeline
) -> Run | Over:
    """Return the next move of a pipeline. Guards are evaluated without stored data."""
    step, max_runs = program.steps[step_run.step], program.plan.limits.max_task_runs
    move = pipelines.next_move(place, step, max_runs)
    if isinstance(move, Ask):
        return pipelines.guarded_move(place, step, frame_of(program, state, step_run, iteration), max_runs)
    return move


def _name_next(event: Event, move: Run | Over) -> None:
    """Fill in the next task and its counts of rounds."""
    if not isinstance(move, Run):
        return
    event.task = event.task or move.task.plan.name
    if move.rounds and event.task == move.task.plan.name:
        event.payload = {**event.payload, "rounds": move.rounds}


def _name_task(event: Event, place: Pipeline, step: StepProgram) -> None:
    """Fill in the task, its run and its attempt if the sender omitted them."""
    if not event.task and place.at < len(step.tasks):
        event.task = step.tasks[place.at].plan.name
    is_pending = place.attempt > 1 and not place.in_flight
    if event.type == "task.started" and is_pending and step.tasks[place.at].plan.name == event.task:
        event.type = "task.attempt.started"  # the next attempt of a task run that is retried
    runs = place.runs.get(event.task, 0)
    event.task_run = event.task_run or (runs + 1 if event.type == "task.started" else max(runs, 1))
    if event.type.startswith("task.attempt.") or event.type == "policy.task.evaluated":
        event.attempt = event.attempt or place.attempt
