"""Executes one command: runs the tasks that `core.flow.pipeline` chooses and reports their outcomes.

Invariant: every event goes through `_emit`, which folds it here and queues it for the server, so both sides have the
same pipeline. The end of an effectful task is acknowledged before the next effectful task starts.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from arclog.core.flow import pipeline as core
from arclog.core.flow.pipeline import Ask, Frame, Over, Run, asserted
from arclog.core.flow.reducers import after
from arclog.core.flow.scopes import ctx_of, task_key
from arclog.core.transitions.iterations import iterator_of
from arclog.core.transitions.state import path_of
from arclog.expr import Stored
from arclog.model.commands import TOO_LONG, Command, LoopWork, Pipeline
from arclog.model.config.settings import Settings
from arclog.model.data.digest import sha256
from arclog.model.errors import ExpressionError, ResultUnavailable
from arclog.model.events import Event
from arclog.model.outcome import Outcome, error, failed, result_error
from arclog.plan.program import Program, StepProgram
from arclog.ports.clock import Clock
from arclog.ports.control import Control
from arclog.ports.results import Results
from arclog.ports.secrets import Secrets
from arclog.ports.tool import TaskContext
from arclog.worker.evaluation import Evaluating, names_files, shown, template_error
from arclog.worker.keychain import AttemptSecrets, CommandSecrets
from arclog.worker.logs import LogSink
from arclog.worker.loop_items import Expanding, Items
from arclog.worker.loop_results import LoopResults, Ordered
from arclog.worker.reading import ReadLately, StoredReader, SyncReader
from arclog.worker.storing import Storing, TaskResults
from arclog.worker.stream import ReportStream
from arclog.worker.toolbox import Toolbox

if TYPE_CHECKING:
    from arclog.worker.local_files import LocalFiles


class Limits(Struct, frozen=True):
    """Settings that every command needs, read once."""

    max_set_bytes: int
    longest_sleep_s: float
    max_inputs_bytes: int
    extracted_max_bytes: int
    read_max_bytes: int

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        return cls(
            max_set_bytes=settings.integer("limits.max_ctx_bytes"),
            longest_sleep_s=settings.number("tasks.sleep_under_lease_s"),
            max_inputs_bytes=settings.integer("events.inputs_max_bytes"),
            extracted_max_bytes=settings.integer("results.extracted_max_bytes"),
            read_max_bytes=settings.integer("results.read_max_bytes"),
        )


class Surroundings(Struct, frozen=True):
    toolbox: Toolbox
    results: Results
    #: None if no keychain can be resolved here
    secrets: Secrets | None
    logs: LogSink
    clock: Clock
    limits: Limits
    control: Control
    sync_reader: SyncReader
    kept: ReadLately
    ordered: Ordered


MICROS = 1_000_000


class PausedHere(Exception):
    """The run is pausing, and the command is between two tasks."""


class _IterationOver(Struct, frozen=True):
    """The end of an iteration, and its changes to ctx."""

    error: dict[str, Any] | None
    ctx: dict[str, Any]


class CommandRun:
    """The execution of one command."""

    def __init__(
        self,
        command: Command,
        program: Program,
        stream: ReportStream,
        around: Surroundings,
    ) -> None:
        limits = around.limits
        self.command = command
        self.program = program
        self.step: StepProgram = program.steps[command.step]
        self.stream = stream
        self.around = around
        self.clock = around.clock
        self.fail_fast = self.step.plan.failure_mode == "fail_fast"
        self.iterator = iterator_of(self.step)
        self.max_set_bytes = limits.max_set_bytes
        self.longest_sleep_s = limits.longest_sleep_s
        if command.loop is not None and command.loop.at_a_time > 1:
            # The command continues with its other iterations during a retry delay: no single iteration ends it.
            self.longest_sleep_s = math.inf
        tenant = command.scope.partition("/")[0]
        self.event_room = program.event_room
        # An event must also hold the config of a task that the engine runs.
        self.max_inputs_bytes = min(limits.max_inputs_bytes, self.event_room // 2)
        self.results = TaskResults(around.results, tenant, program.plan.limits.inline_max_bytes)
        self.reader = StoredReader(
            around.results,
            tenant,
            around.sync_reader,
            around.kept,
            LoopResults(around.control, around.results, tenant, around.ordered),
            limits.read_max_bytes,
        )
        self.storing = Storing(
            self.reader,
            around.results.name,
            program.demand[command.step],
            program.plan.limits,
            limits.extracted_max_bytes,
        )
        self.evaluating = Evaluating(around.sync_reader, self.storing, self.results)
        self.secrets = CommandSecrets(around.secrets, program.plan.keychain, command.scope, command.execution_id)
        self.frame = Frame(
            execution_id=str(command.execution_id),
            args=command.args,
            captured=command.captured,
            step=command.step,
            run=command.run,
            names=self.step.names,
            emit=self.step.emit,
            event_room=self.event_room,
            read=self.reader,
        )

    async def run(self) -> None:
        """Run to the end, to a task that waits, or to a pause. The last events are left in the stream."""
        command = self.command
        if not command.started:
            self._add(self._event("step.started", self.frame))
        if command.expansion is not None:
            expanding = Expanding(
                self.step,
                self.program.plan.limits,
                self.around.sync_reader,
                self.reader,
                self.storing,
                self.results,
            )
            for event in await expanding.events(command.expansion, self.frame, self.clock.now()):
                self._add(event)
            return
        if command.loop is None:
            over = await self._pipeline(command.pipeline or Pipeline(), self.frame)
            if over is not None:
                self._add(self._ended("step", self.frame, over))
        elif command.loop.at_a_time > 1:
            await self._side_by_side(command.loop)
        else:
            await self._in_order(command.loop)

    async def _in_order(self, loop: LoopWork) -> None:
        items = Items(loop, self.reader)
        for index, pipeline in self._iterations(loop):
            frame = self._frame_of(loop, index)
            over = await self._iteration(loop, items, index, pipeline, frame)
            if over is None:
                return
            if over.error is not None and self.fail_fast:
                return
            if loop.carries_ctx and over.ctx:
                self.frame.captured = after(self.program, self.frame.captured, over.ctx)
            if index + 1 < loop.last and self.stream.should_flush:
                await self.stream.flush()

    async def _side_by_side(self, loop: LoopWork) -> None:
        """Run several iterations at a time. If the step fails fast, the first failure stops the others."""
        items = Items(loop, self.reader)
        todo = self._iterations(loop)
        running: set[asyncio.Task[_IterationOver | None]] = set()
        paused: PausedHere | None = None
        try:
            while True:
                room = 0 if paused else loop.at_a_time - len(running)
                for index, pipeline in itertools.islice(todo, room):
                    frame = self._frame_of(loop, index)
                    running.add(asyncio.create_task(self._iteration(loop, items, index, pipeline, frame)))
                if not running:
                    break
                ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    problem = task.exception()
                    if isinstance(problem, PausedHere):
                        paused = problem
                    elif problem is not None:
                        raise problem
                    elif self.fail_fast and (over := task.result()) is not None and over.error is not None:
                        return
                if self.stream.should_flush:
                    await self.stream.flush()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        if paused is not None:
            raise paused

    def _iterations(self, loop: LoopWork) -> Iterator[tuple[int, Pipeline | None]]:
        """Return the iterations to continue, then those that have not started."""
        for key, pipeline in loop.under_way.items():
            yield path_of(key)[-1], pipeline
        for index in range(loop.first, loop.last):
            yield index, None

    async def _iteration(
        self, loop: LoopWork, items: Items, index: int, pipeline: Pipeline | None, frame: Frame
    ) -> _IterationOver | None:
        """Run one iteration. Returns None if the engine continues it and this command has ended."""
        if pipeline is None:
            self._pause_here()
            self._add(self._event("loop.iteration.started", frame))
            try:
                item = await items.at(index)
            except ResultUnavailable as problem:
                unread = Over(result_error(problem).as_dict())
                self._add(self._ended("loop.iteration", frame, unread))
                return _IterationOver(unread.error, {})
            names = {self.iterator: item, "index": index, "total": loop.total}
            if loop.parent is not None:
                names["parent"] = loop.parent
            pipeline = Pipeline(iter=names)
            if isinstance(item, Stored):  # a loop result that is itself stored
                del names[self.iterator]
                pipeline.stored[self.iterator] = dict(item.ref)
        over = await self._pipeline(pipeline, frame)
        if over is None:
            return None
        self._add(self._ended("loop.iteration", frame, over))
        return _IterationOver(over.error, pipeline.ctx)

    def _frame_of(self, loop: LoopWork, index: int) -> Frame:
        return replace(self.frame, iteration=(*loop.path, index))

    async def _pipeline(self, pipeline: Pipeline, frame: Frame) -> Over | None:
        """Run the tasks. Returns None if the engine continues and this command has ended."""
        max_runs = self.program.plan.limits.max_task_runs
        while True:
            move = core.next_move(pipeline, self.step, max_runs)
            if isinstance(move, Ask):
                move = await self.evaluating.guards(pipeline, self.step, frame, max_runs)
            if isinstance(move, Over):
                return move
            self._pause_here()
            record = await self._attempt(pipeline, move, frame)
            if record is None:
                return None
            now, roll = self.clock.now(), random.random()
            events = await self.evaluating.conclude(
                pipeline, move, frame, record, now, roll, self.max_set_bytes, self.longest_sleep_s
            )
            for event in events:
                self._emit(pipeline, event)
            if events[-1].payload.get("suspended"):
                return None
            if move.task.plan.effectful:
                self.stream.unacknowledged_effect = True
            if self.stream.should_flush:
                await self.stream.flush()

    async def _attempt(self, pipeline: Pipeline, move: Run, frame: Frame) -> dict[str, Any] | None:
        """Run one attempt. Returns its outcome record, or None if the engine continues it."""
        if move.due:
            await self._wait_until(move.due)
        plan = move.task.plan
        toolbox = self.around.toolbox
        # Tasks that run no tool, or only pass values on, see references: a path is useless after the attempt.
        if plan.runs_on != "worker" or not names_files(pipeline, frame) or toolbox.is_at_once(plan.kind):
            return await self._attempted(pipeline, move, frame, None)
        from arclog.worker.local_files import LocalFiles  # only tasks with files need it

        files = LocalFiles(
            self.reader, self.results, self.around.sync_reader, toolbox.scratch, toolbox.no_path(plan.kind)
        )
        try:
            return await self._attempted(pipeline, move, frame, files)
        finally:
            files.remove()

    async def _attempted(
        self, pipeline: Pipeline, move: Run, frame: Frame, files: LocalFiles | None
    ) -> dict[str, Any] | None:
        plan = move.task.plan
        secrets = await self.secrets.open(move.task) if self.secrets.has_entries else AttemptSecrets(self.secrets)
        problem = secrets.problem
        config: dict[str, Any] = {}
        by_ref: dict[str, Any] = {}
        if problem is None:
            try:
                config, by_ref = await self.evaluating.config(pipeline, move, frame, secrets.scope, files)
                if "auth" in config:
                    problem = await secrets.authorize(config)
            except ExpressionError as failure:
                problem = failed(template_error(failure))
        if move.repeated:
            if plan.at_most_once:
                message = f"task {plan.name} was running when its worker was lost; at_most_once forbids repeating it"
                problem = failed(error("killed", message, retryable=False))
        else:
            inputs = inputs_snapshot(secrets.value({**config, **shown(by_ref)}), self.max_inputs_bytes)
            handed = None
            if plan.runs_on == "engine":
                problem = problem or self._too_large(plan.name, config)
                handed = secrets.value({**config, **move.task.verbatim}) if problem is None else None
            for event in core.started(move, frame, self.clock.now(), inputs, handed):
                self._emit(pipeline, event)
            if handed is not None:
                return None
        if plan.at_most_once or (plan.effectful and self.stream.unacknowledged_effect):
            await self.stream.flush()
        if plan.effectful and problem is None:
            await self.stream.prove()
        begun = self.clock.monotonic()
        config = {**config, **by_ref, **move.task.verbatim}
        folder = None if files is None else files.folder
        outcome = problem or await self._run_tool(move, frame, config, pipeline, secrets, folder)
        if self.secrets.has_entries:
            outcome = await secrets.conclude(outcome)
        duration_ms = round((self.clock.monotonic() - begun) * 1000)
        return await self._record(move, frame, outcome, duration_ms)

    async def _run_tool(
        self,
        move: Run,
        frame: Frame,
        config: dict[str, Any],
        pipeline: Pipeline,
        secrets: AttemptSecrets,
        files: Path | None,
    ) -> Outcome:
        plan = move.task.plan
        if plan.runs_on == "pipeline":
            return asserted(config)
        captured = frame.captured
        log, progress = self.around.logs.of_attempt(frame, move)
        context = TaskContext(
            execution_id=frame.execution_id,
            step=frame.step,
            task=plan.name,
            run=move.task_run,
            attempt=move.attempt,
            key=task_key(frame, move),
            workload=captured.workload,
            ctx=dict(ctx_of(pipeline, frame)),
            timeout_s=plan.timeout_s,
            log=secrets.log(log),
            progress=secrets.progress(progress),
            results=secrets.results(self.results),
            auth=secrets.auth,
            scope=self.command.scope,
            spec=plan.spec,
            files=files,
        )
        toolbox = self.around.toolbox
        if not toolbox.is_at_once(plan.kind):
            self.stream.flush_soon()
        try:
            return await toolbox.run(plan.kind, config, context)
        except asyncio.CancelledError as stop:
            if TOO_LONG in stop.args:
                for helper in context.stopped.values():
                    context.log("log", str(helper.get("traceback") or ""))
            raise
        except Exception as bug:  # noqa: BLE001 - a tool must not raise; if it does, the run says so and goes on
            return failed(error("internal", f"the {plan.kind} tool broke: {type(bug).__name__}: {bug}"))
        finally:
            progress.end()

    async def _record(self, move: Run, frame: Frame, outcome: Outcome, duration_ms: int) -> dict[str, Any]:
        """Return the record of an outcome. Large parts are stored, with an event for each."""
        record, events = await self.storing.outcome(move, frame, outcome, self.results, self.clock)
        for event in events:
            self._add(event)
        for name, fields in move.task.plan.helper.items():
            record.setdefault(name, fields)
        record["meta"] = {**outcome.meta, "attempt": move.attempt, "duration_ms": duration_ms}
        return record

    def _too_large(self, task: str, config: dict[str, Any]) -> Outcome | None:
        """Return an error outcome if the config of a task that the engine runs does not fit in an event."""
        cap = self.event_room - self.max_inputs_bytes
        size = len(encode(config))
        if size <= cap:
            return None
        message = f"the config of task {task} takes {size} bytes; an event holds {cap} (limits.max_payload_bytes)"
        return failed(error("limit", message, code="MAX_PAYLOAD_BYTES"))

    async def _wait_until(self, due: int) -> None:
        """Wait, holding the lease, until a retry is due.

        Never returns early, even if the clock is set back meanwhile.
        """
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
        """Raise PausedHere if a pause is requested. Called between tasks, attempts and iterations."""
        if self.stream.pausing.is_set():
            raise PausedHere

    def _ended(self, prefix: str, frame: Frame, over: Over) -> Event:
        if over.error is None:
            return self._event(f"{prefix}.done", frame)
        event = self._event(f"{prefix}.failed", frame)
        event.payload = {"error": over.error}
        return event

    def _event(self, kind: str, frame: Frame) -> Event:
        return Event(type=kind, at=self.clock.now(), step=frame.step, run=frame.run, iteration=frame.iteration)

    def _emit(self, pipeline: Pipeline, event: Event) -> None:
        core.fold(pipeline, self.step, event)
        self._add(event)

    def _add(self, event: Event) -> None:
        self.stream.add(event)


_PREVIEW = 512


def inputs_snapshot(config: dict[str, Any], max_bytes: int) -> Any:
    """Return the snapshot of a task's rendered inputs for task.started.

    A large config is replaced by a preview with its size and digest.
    """
    if not config:
        return None
    body = encode(config)
    if len(body) <= max_bytes:
        return config
    preview = body[:_PREVIEW].decode("utf-8", "ignore")
    return {"preview": preview, "bytes": len(body), "sha256": sha256(body), "truncated": True}
