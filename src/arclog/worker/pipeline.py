"""Carries out one command: runs the tasks that `core.pipeline` names and reports what came of them.

Law: every fact goes through `_emit`, which folds it here and queues it for the server, so both sides hold the same
pipeline. An effectful task's end is acknowledged before the next effectful task starts.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from msgspec.json import encode

from arclog.core import pipeline as core
from arclog.core.apply import with_ctx
from arclog.core.pipeline import Frame, Over, Run
from arclog.core.scopes import task_key, task_scope
from arclog.model.commands import Command, LoopWork, Pipeline
from arclog.model.errors import ExpressionError
from arclog.model.events import Event
from arclog.model.outcome import Outcome, error, failed
from arclog.model.settings import Settings
from arclog.plan.program import Program, StepProgram
from arclog.ports.clock import Clock
from arclog.ports.tool import TaskContext
from arclog.worker.inputs import snapshot
from arclog.worker.logs import LogSink
from arclog.worker.stream import ReportStream
from arclog.worker.toolbox import Toolbox

MICROS = 1_000_000
#: Room that an event's envelope takes beside its outcome.
_ENVELOPE_BYTES = 2048


class PausedHere(Exception):
    """The run is to pause, and the command stands between two tasks."""


class CommandRun:
    """One command on its way to its end."""

    def __init__(
        self,
        command: Command,
        program: Program,
        toolbox: Toolbox,
        stream: ReportStream,
        logs: LogSink,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self.command = command
        self.program = program
        self.step: StepProgram = program.steps[command.step]
        self.toolbox = toolbox
        self.stream = stream
        self.logs = logs
        self.clock = clock
        self.max_set_bytes = settings.integer("limits.max_ctx_bytes")
        self.max_inputs_bytes = settings.integer("events.inputs_max_bytes")
        self.frame = Frame(
            execution_id=str(command.execution_id),
            args=command.args,
            captured=command.captured,
            step=command.step,
            run=command.run,
            emit=self.step.emit,
        )

    async def run(self) -> None:
        """Run to the end, or to where a pause stops it; the last events are left in the stream for the final flush."""
        command = self.command
        if not command.started:
            self._add(self._event("step.started"))
        if command.loop is not None:
            await self._loop(command.loop)
            return
        over = await self._pipeline(command.pipeline or Pipeline())
        self._add(self._ended("step", over))

    async def _loop(self, loop: LoopWork) -> None:
        iterator = self.step.loop.iterator
        fail_fast = self.step.plan.failure_mode == "fail_fast"
        pipeline = self.command.pipeline
        for offset, item in enumerate(loop.items):
            index = loop.first + offset
            self.frame.iteration = (index,)
            if pipeline is None:
                self._pause_here()
                self._add(self._event("loop.iteration.started"))
                pipeline = Pipeline(iter={iterator: item, "index": index, "total": loop.total})
            over = await self._pipeline(pipeline)
            self._add(self._ended("loop.iteration", over))
            if pipeline.ctx:
                self.frame.captured = with_ctx(self.frame.captured, pipeline.ctx)
            pipeline = None
            if over.error is not None and (fail_fast or over.error.get("kind") == "conflict"):
                return
            if index + 1 < loop.total and self.stream.should_flush:
                await self.stream.flush()

    async def _pipeline(self, pipeline: Pipeline) -> Over:
        max_runs = self.program.plan.limits.max_task_runs
        while True:
            move = core.next_move(pipeline, self.step, max_runs)
            if isinstance(move, Over):
                return move
            self._pause_here()
            record = await self._attempt(pipeline, move)
            now = self.clock.now()
            for event in core.conclude(pipeline, move, self.frame, record, now, random.random(), self.max_set_bytes):
                self._emit(pipeline, event)
            if move.task.plan.effectful:
                self.stream.unacknowledged_effect = True
            if self.stream.should_flush:
                await self.stream.flush()

    async def _attempt(self, pipeline: Pipeline, move: Run) -> dict[str, Any]:
        """Run one attempt and give its outcome record."""
        await self._wait_until(move.due)
        plan = move.task.plan
        problem: Outcome | None = None
        config: dict[str, Any] = {}
        try:
            config = move.task.config.evaluate(task_scope(pipeline, self.frame, move))
        except ExpressionError as failure:
            problem = failed(error("template", str(failure)))
        if move.repeated:
            if plan.at_most_once:
                message = f"task {plan.name} was under way when its worker was lost; at_most_once forbids to repeat it"
                problem = failed(error("killed", message, retryable=False))
        else:
            inputs = snapshot(config, self.max_inputs_bytes)
            for event in core.started(move, self.frame, self.clock.now(), inputs):
                self._emit(pipeline, event)
        if plan.at_most_once or (plan.effectful and self.stream.unacknowledged_effect):
            await self.stream.flush()
        begun = self.clock.monotonic()
        outcome = problem or await self._run_tool(move, {**config, **move.task.verbatim}, pipeline)
        duration_ms = round((self.clock.monotonic() - begun) * 1000, 3)
        return self._record(move, outcome, duration_ms)

    async def _run_tool(self, move: Run, config: dict[str, Any], pipeline: Pipeline) -> Outcome:
        plan, frame = move.task.plan, self.frame
        captured = frame.captured
        context = TaskContext(
            execution_id=frame.execution_id,
            step=frame.step,
            task=plan.name,
            run=move.task_run,
            attempt=move.attempt,
            key=task_key(frame, move),
            workload=captured.workload,
            ctx={**captured.ctx, **pipeline.ctx},
            timeout_s=plan.timeout_s,
            log=self.logs.for_attempt(frame, move),
            scope=self.command.scope,
            spec=plan.spec,
        )
        self.stream.flush_soon()
        try:
            return await self.toolbox.run(plan.kind, config, context)
        except Exception as bug:  # noqa: BLE001 - a tool must not raise; if it does, the run says so and goes on
            return failed(error("internal", f"the {plan.kind} tool broke: {type(bug).__name__}: {bug}"))

    def _record(self, move: Run, outcome: Outcome, duration_ms: float) -> dict[str, Any]:
        plan = move.task.plan
        record = outcome.as_record()
        for name, fields in plan.helper.items():
            record.setdefault(name, fields)
        record["meta"] = {**outcome.meta, "attempt": move.attempt, "duration_ms": duration_ms}
        cap = self.program.plan.limits.max_payload_bytes - _ENVELOPE_BYTES
        if outcome.result is not None or outcome.helper:
            size = len(encode(record))
            if size > cap:
                message = (
                    f"the outcome of task {plan.name} takes {size} bytes; "
                    f"an event holds {cap} (limits.max_payload_bytes)"
                )
                too_large = failed(error("limit", message, code="MAX_PAYLOAD_BYTES")).as_record()
                return {**too_large, **plan.helper, "meta": record["meta"]}
        return record

    async def _wait_until(self, due: int) -> None:
        """Sleep under the lease until a retry is due; never early, also when the clock was set back meanwhile."""
        while (left := due - self.clock.now()) > 0:
            await self.stream.flush()
            self._pause_here()
            asleep = asyncio.ensure_future(self.clock.sleep(left / MICROS))
            pausing = asyncio.ensure_future(self.stream.pausing.wait())
            try:
                await asyncio.wait((asleep, pausing), return_when=asyncio.FIRST_COMPLETED)
            finally:
                asleep.cancel()
                pausing.cancel()
            self._pause_here()

    def _pause_here(self) -> None:
        """Called at every task boundary: between tasks, attempts and iterations."""
        if self.stream.pausing.is_set():
            raise PausedHere

    def _ended(self, what: str, over: Over) -> Event:
        if over.error is None:
            return self._event(f"{what}.done")
        event = self._event(f"{what}.failed")
        event.payload = {"error": over.error}
        return event

    def _event(self, kind: str) -> Event:
        frame = self.frame
        return Event(type=kind, at=self.clock.now(), step=frame.step, run=frame.run, iteration=frame.iteration)

    def _emit(self, pipeline: Pipeline, event: Event) -> None:
        core.fold(pipeline, self.step, event)
        self._add(event)

    def _add(self, event: Event) -> None:
        self.stream.add(event)
