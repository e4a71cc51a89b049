"""Kind `python`: runs user code in a warm, isolated process, never in the worker's own.

The sandbox limits the resources of a task and removes its leftovers; confinement limits its access.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from arclog.model.config.kinds import OUTPUTS, KindSpec
from arclog.model.config.settings import Settings
from arclog.model.data.shapes import Field
from arclog.model.errors import ArclogError
from arclog.model.outcome import ERROR, Outcome, TaskError, error, failed
from arclog.ports.results import Content, ResultWriter, StoredFile
from arclog.ports.tool import TaskContext, ToolKind, ToolServices
from arclog.sandbox.cell import Cell, Limits, Reply, Task
from arclog.sandbox.confinement_settings import confinement_of
from arclog.sandbox.folders import Folders, TaskFolders
from arclog.sandbox.outputs import OutputFolders, OutputRules, OutputsFailed, output_rules, stored_outputs
from arclog.sandbox.pool import Pool
from arclog.sandbox.processes import bounds, ended_by, not_allowed
from arclog.sandbox.protocol import Report

if TYPE_CHECKING:
    from arclog.sandbox.environments import Environment, Environments
    from arclog.sandbox.installers import Installer

# ── stacks ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The stack of a stopped python task: the output of `faulthandler` in the form of a traceback.

_FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')
_MOST_THREADS = 5


def as_traceback(dumped: str, name: str, code: str) -> str:
    """Return the stack of each thread, starting with the task's own code, the innermost call last; '' if no thread runs
    the task's code. `name` is the file name under which the task's `code` was compiled.
    """
    lines = code.splitlines()
    shown: list[str] = []
    for thread in _threads(dumped):
        frames = thread[::-1]
        first = next((index for index, frame in enumerate(frames) if frame[0] == name), None)
        if first is None:
            continue
        head = "Stack when it was stopped (most recent call last):" if not shown else "Another thread:"
        shown += [head, *(line for frame in frames[first:] for line in _shown(frame, name, lines))]
    return "\n".join(shown) + "\n" if shown else ""


def _threads(dumped: str) -> list[list[tuple[str, str, str]]]:
    """Return the frames of each thread, the current thread first."""
    threads: list[tuple[bool, list[tuple[str, str, str]]]] = []
    for line in dumped.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            threads.append((line.startswith("Current"), []))
        elif threads and (match := _FRAME.match(line)):
            threads[-1][1].append((match[1], match[2], match[3]))
    ordered = sorted(threads, key=lambda thread: not thread[0])
    return [frames for _, frames in ordered[:_MOST_THREADS]]


def _shown(frame: tuple[str, str, str], name: str, lines: Sequence[str]) -> list[str]:
    file, line, function = frame
    shown = [f'  File "{file}", line {line}, in {function}']
    if file == name and line.isdigit() and 0 < int(line) <= len(lines):
        shown.append(f"    {lines[int(line) - 1].strip()}")
    return shown


# ── python ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_HELPER_FIELDS = ("exception", "traceback")


class PythonConfig(Struct, frozen=True):
    """A python task."""

    code: str
    args: dict[str, Any] = {}
    libs: dict[str, str] = {}
    requirements: list[str] = []
    #: modules of the playbook's folder: name → {path, source}
    modules: dict[str, dict[str, str]] = {}
    outputs: dict[str, Any] = {}


class _NotStored(Exception):
    """The result store refused an item; the message has the reason."""


class _Listener:
    """Handles the messages of a running task. Items of its result go to the result store as they arrive."""

    def __init__(self, context: TaskContext, config: PythonConfig, rules: OutputRules) -> None:
        self.log = context.log
        self._context = context
        self._code = config.code
        self._outputs = config.outputs
        self._rules = rules
        #: the stored files, and the error if they could not be stored
        self.files: dict[str, StoredFile] = {}
        self.problem: TaskError | None = None
        self.progress = context.progress
        self._results = context.results
        self._writer: ResultWriter | None = None

    def stopped(self, stack: str) -> None:
        """Keep the stack of the task, for the outcome of a time-out."""
        traceback = as_traceback(stack, code_name(self._context), self._code)
        if traceback:
            self._context.stopped["py"] = {"exception": None, "traceback": traceback}

    async def items(self, body: bytes) -> None:
        try:
            if self._writer is None:
                self._writer = self._results.writer(listed=True)
            await self._writer.add(msgspec.json.decode(body))
        except (ArclogError, OSError, msgspec.DecodeError) as problem:
            raise _NotStored(str(problem)) from problem

    async def outputs(self, folders: TaskFolders) -> None:
        """Store the files, before the folders are cleared."""
        try:
            places = OutputFolders(folders, folders.workdir, self._rules)
            self.files = await stored_outputs(self._outputs, places, self._results)
        except OutputsFailed as problem:
            self.problem = problem.problem

    async def stored(self) -> Content | None:
        """Return the stored items, or None if there were none."""
        try:
            return None if self._writer is None else await self._writer.commit()
        except (ArclogError, OSError) as problem:
            raise _NotStored(str(problem)) from problem

    async def close(self) -> None:
        if self._writer is not None:
            await self._writer.abandon()


class PythonTool:
    """Runs python tasks in a pool of processes."""

    Config: type[Struct] = PythonConfig

    def __init__(self, settings: Settings, scratch: Path, *, installer: Installer | None = None) -> None:
        self._limits = Limits(
            max_memory_bytes=settings.integer("python.max_memory_bytes"),
            max_processes=settings.integer("python.max_processes"),
            max_file_bytes=settings.integer("python.max_file_bytes"),
            max_result_bytes=settings.integer("python.max_result_bytes"),
            max_log_bytes=settings.integer("logs.max_task_bytes"),
            **bounds(settings),
        )
        folders = Folders(settings, scratch)
        scratch.mkdir(parents=True, exist_ok=True)
        confinement = self._confinement = confinement_of(settings, scratch)
        self._pool = Pool(folders, self._limits, settings.integer("python.warm_processes"), confinement)
        self._pool.start()
        self._output_rules = output_rules(settings, scratch)
        self._settings = settings
        self._installer = installer
        self._environments: Environments | None = None

    async def run(self, config: PythonConfig, context: TaskContext) -> Outcome:
        try:
            task = _task(config, context)
        except (TypeError, ValueError) as problem:
            return _failed(error("config", f"the args of a python task must be JSON: {problem}"))
        if not config.requirements:
            return await self._run(config, task, context, None)
        return await self._run_with(config, task, context)

    async def _run_with(self, config: PythonConfig, task: Task, context: TaskContext) -> Outcome:
        """Run the task in an environment with its requirements."""
        from arclog.sandbox.environments import Environments
        from arclog.sandbox.installation import EnvironmentFailed

        if self._environments is None:
            folder = environments_folder(self._settings).absolute()
            self._environments = Environments(
                self._settings, folder, self._pool.launcher, self._confinement, self._installer
            )
        try:
            environment = await self._environments.get(config.requirements, context.log)
        except EnvironmentFailed as failure:
            return _failed(failure.problem)
        try:
            return await self._run(config, task, context, environment)
        finally:
            environment.release()

    async def _run(
        self, config: PythonConfig, task: Task, context: TaskContext, environment: Environment | None
    ) -> Outcome:
        listener = _Listener(context, config, self._output_rules)
        try:
            answer, cell = await self._pool.run(context.execution_id, task, listener, environment, context.files)
            if isinstance(answer, Report):
                return _failed(self._death(answer, cell))
            if answer.ok and answer.items:
                helper = {"py": dict.fromkeys(_HELPER_FIELDS)}
                outcome = Outcome(stored=await listener.stored(), helper=helper)
            else:
                outcome = self._outcome(answer)
            return _with_files(outcome, config, listener)
        except _NotStored as problem:
            return _failed(error("result", f"the items of the task could not be stored: {problem}"))
        finally:
            await listener.close()

    async def execution_ended(self, execution_id: str) -> None:
        await self._pool.execution_ended(execution_id)

    async def close(self) -> None:
        await self._pool.close()

    def _outcome(self, reply: Reply) -> Outcome:
        if not reply.ok:
            hint = self._confinement.hint(*reply.refused) if self._confinement and reply.refused else ""
            message = f"{reply.message}; {hint}" if hint else reply.message
            return _failed(error(reply.kind, message, code=reply.code), reply.py)
        try:
            result = msgspec.json.decode(reply.result)
        except (msgspec.DecodeError, RecursionError) as problem:
            return _failed(error("exception", f"result: {problem}", code="NotJSON"))
        return Outcome(result=result, helper={"py": dict.fromkeys(_HELPER_FIELDS)})

    def _death(self, report: Report, cell: Cell) -> TaskError:
        """Return the error for a process that died without a reply."""
        limits = self._limits
        if refused := not_allowed(report, self._settings):
            return refused
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


def _with_files(outcome: Outcome, config: PythonConfig, listener: _Listener) -> Outcome:
    """Add the task's files to the outcome; an error if one of them could not be stored."""
    if not config.outputs or outcome.error is not None:
        return outcome
    problem = listener.problem
    if problem is None and config.outputs.keys() != listener.files.keys():
        problem = error("killed", "the python process did not return its files", code="OUTPUTS")
    if problem is not None:
        return Outcome(ERROR, outcome.result, stored=outcome.stored, error=problem, helper=outcome.helper)
    outcome.files = listener.files
    return outcome


def environments_folder(settings: Settings) -> Path:
    """Return the folder of the environments of packages."""
    return Path(settings.text("python.environments") or Path(settings.text("home")) / "environments")


def code_name(context: TaskContext) -> str:
    """Return the file name of the task's code in tracebacks."""
    return f"<{context.step}.{context.task}>"


def _task(config: PythonConfig, context: TaskContext) -> Task:
    header = {
        "name": code_name(context),
        "code": config.code,
        "args": config.args,
        "libs": config.libs,
        "modules": config.modules,
        "outputs": bool(config.outputs),
        "inline_max_bytes": context.results.inline_max_bytes,
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
        summary="Runs Python code in an isolated process with limits. The value of the code is the task's data.",
        auth=(),
        fields=(
            Field(
                "code",
                "string",
                "Python code that defines `main(**args)` or assigns `result`.",
                required=True,
                also=("script", "source"),
            ),
            Field(
                "args",
                "object",
                "Values for the code: available as global variables, as `input_data`, and as arguments of `main`.",
                template=True,
            ),
            Field("libs", "object", "Modules to import, as {alias: module}."),
            Field(
                "requirements",
                "list",
                "Packages to install, in pip's notation, such as `rich==13.9.4`. The task can import only these and the standard library.",
                items=Field("requirement", "string"),
            ),
            OUTPUTS,
        ),
        helper="py",
        helper_fields=_HELPER_FIELDS,
        verbatim=("code", "requirements", "modules"),
        from_file="code",
        takes_modules=True,
        needs=("workload", "ctx"),
    ),
    _open,
)
