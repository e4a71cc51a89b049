"""Kind `python`: user code in a warm, isolated, killable process, never in ours.

It is code execution: the sandbox bounds what a task can use up and what it leaves behind, not what it may reach.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from arclog.model.kinds import KindSpec
from arclog.model.outcome import Outcome, TaskError, error, failed
from arclog.model.settings import Settings
from arclog.model.shapes import Field
from arclog.ports.tool import TaskContext, ToolKind, ToolServices
from arclog.sandbox.cell import Cell, Limits, Reply, Task
from arclog.sandbox.pool import Pool
from arclog.sandbox.processes import ended_by
from arclog.sandbox.protocol import Report

_HELPER_FIELDS = ("exception", "traceback")


class PythonConfig(Struct, frozen=True):
    """A python task."""

    code: str
    args: dict[str, Any] = {}
    libs: dict[str, str] = {}


class PythonTool:
    """Runs python tasks in a pool of processes."""

    Config: type[Struct] = PythonConfig

    def __init__(self, settings: Settings, scratch: Path, *, isolated: bool = True) -> None:
        self._limits = Limits(
            max_memory_bytes=settings.integer("python.max_memory_bytes"),
            max_processes=settings.integer("python.max_processes"),
            max_file_bytes=settings.integer("python.max_file_bytes"),
            max_result_bytes=settings.integer("python.max_result_bytes"),
            max_log_bytes=settings.integer("logs.max_task_bytes"),
        )
        self._pool = Pool(scratch, self._limits, settings.integer("python.warm_processes"), isolated=isolated)
        self._pool.start()

    async def run(self, config: PythonConfig, context: TaskContext) -> Outcome:
        try:
            task = _task(config, context)
        except (TypeError, ValueError) as problem:
            return _failed(error("config", f"the args of a python task must be JSON: {problem}"))
        answer, cell = await self._pool.run(context.execution_id, task, context.log)
        if isinstance(answer, Report):
            return _failed(self._death(answer, cell))
        return self._outcome(answer)

    async def execution_ended(self, execution_id: str) -> None:
        await self._pool.execution_ended(execution_id)

    async def close(self) -> None:
        await self._pool.close()

    def _outcome(self, reply: Reply) -> Outcome:
        if not reply.ok:
            return _failed(error(reply.kind, reply.message, code=reply.code), reply.py)
        try:
            result = msgspec.json.decode(reply.result)
        except (msgspec.DecodeError, RecursionError) as problem:
            return _failed(error("exception", f"result: {problem}", code="NotJSON"))
        return Outcome(result=result, helper={"py": dict.fromkeys(_HELPER_FIELDS)})

    def _death(self, report: Report, cell: Cell) -> TaskError:
        """Why there was no reply."""
        limits = self._limits
        if report.crowd:
            return error(
                "limit",
                f"the task had {report.crowd} processes at a time; at most {limits.max_processes} are allowed "
                "(setting python.max_processes)",
                code="python.max_processes",
            )
        if cell.oversized:
            return error(
                "limit",
                f"the result has {cell.oversized} bytes; at most {limits.max_result_bytes} are allowed "
                "(setting python.max_result_bytes)",
                code="python.max_result_bytes",
            )
        if report.failed:
            return error("killed", f"the python process could not be started: {report.failed}", code="START")
        how, code = ended_by(report.status)
        return error("killed", f"the python process ended before the task did: {how}", code=code)


def _task(config: PythonConfig, context: TaskContext) -> Task:
    header = {
        "name": f"<{context.step}.{context.task}>",
        "code": config.code,
        "args": config.args,
        "libs": config.libs,
        "context": {
            "execution_id": context.execution_id,
            "step": context.step,
            "task": context.task,
            "attempt": context.attempt,
            "key": context.key,
        },
    }
    encode = msgspec.json.encode
    return Task(encode(header), encode(dict(context.ctx)), encode(dict(context.workload)))


def _failed(problem: TaskError, py: dict[str, Any] | None = None) -> Outcome:
    return failed(problem, py={**dict.fromkeys(_HELPER_FIELDS), **(py or {})})


def _open(services: ToolServices) -> PythonTool:
    return PythonTool(services.settings, services.scratch)


KIND = ToolKind(
    KindSpec(
        name="python",
        summary="Runs Python code in an isolated process with limits; its value is the task's data.",
        auth=(),
        fields=(
            Field("code", "string", "Python that defines main(**args) or assigns `result`.", required=True),
            Field("args", "object", "Values for the code: globals, `input_data`, and main's arguments.", template=True),
            Field("libs", "object", "Modules to import, as {alias: module}."),
        ),
        helper="py",
        helper_fields=_HELPER_FIELDS,
        verbatim=("code",),
        needs=("workload", "ctx"),
    ),
    _open,
)
