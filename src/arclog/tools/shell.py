"""Kind `shell`: runs one command. Its output goes to the log as it arrives and, up to a limit, to the result.

No process outlives its command: background children are killed when it ends, even in another session. In the string
form templates are inserted into shell text; in the list form no value can change the command.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from arclog.model.config.kinds import OUTPUTS, KindSpec
from arclog.model.config.settings import Settings
from arclog.model.data.shapes import Field
from arclog.model.errors import shortened
from arclog.model.outcome import ERROR, Outcome, TaskError, error, failed
from arclog.ports.tool import TaskContext, ToolKind, ToolServices
from arclog.sandbox.confinement_settings import confined, confinement_of
from arclog.sandbox.folders import Folders, TaskFolders
from arclog.sandbox.launcher import Launcher
from arclog.sandbox.outputs import OutputFolders, OutputsFailed, output_rules, stored_outputs
from arclog.sandbox.processes import Tree, bounds, ended_by, not_allowed
from arclog.sandbox.protocol import Report
from arclog.sandbox.streams import Lines

_INHERITED = ("PATH", "HOME", "LANG", "TZ")
_LAST_LINE_MAX = 500
#: Remedies for values that are not scalars.
_REMEDIES = {
    type(None): "write `{{ … | default('', true) }}` where the value may be empty",
    list: "write `{{ … | tojson }}` or `{{ … | join(' ') }}`, or the items one by one",
    dict: "write `{{ … | tojson }}`",
}


class ShellConfig(Struct, frozen=True):
    """A shell task. `command`, `env` and `input` accept any scalar as text."""

    command: Any
    env: dict[str, Any] = {}
    cwd: str = ""
    input: Any = ""
    check: bool = True
    parse: Literal["json"] | None = None
    outputs: dict[str, Any] = {}


class _Command(Struct, frozen=True):
    """The command of a shell task, as text."""

    argv: list[str]
    env: dict[str, str]
    input: str
    #: the program's name in messages
    program: str


class _Misfit(Exception):
    """A value that cannot be passed to a program; the message has its place and the remedy."""


class _Output:
    """One output stream: logged line by line, and kept up to a limit."""

    __slots__ = ("_cap", "kept", "lines", "total")

    def __init__(self, stream: str, context: TaskContext, cap: int, log_cap: int) -> None:
        self.lines = Lines(stream, context.log, log_cap, "logs.max_task_bytes")
        self.kept = bytearray()
        self.total = 0
        self._cap = cap

    def feed(self, data: bytes) -> None:
        room = self._cap - len(self.kept)
        if room > 0:
            self.kept += data[:room]
        self.total += len(data)
        self.lines.feed(data)

    @property
    def text(self) -> str:
        return self.kept.decode("utf-8", "replace")

    @property
    def truncated(self) -> bool:
        return self.total > len(self.kept)


class ShellTool:
    """Runs shell tasks."""

    Config: type[Struct] = ShellConfig

    def __init__(self, settings: Settings, scratch: Path) -> None:
        self._cap = settings.integer("shell.max_output_bytes")
        self._log_cap = settings.integer("logs.max_task_bytes")
        self._grace_s = settings.number("tasks.kill_grace_s")
        self._settings = settings
        self._scratch = scratch
        self._folders = Folders(settings, scratch)
        self._confinement = confinement_of(settings, scratch)
        self._output_rules = output_rules(settings, scratch)
        self._launcher = Launcher()
        self._trees: set[Tree] = set()

    async def run(self, config: ShellConfig, context: TaskContext) -> Outcome:
        try:
            command = _command(config)
        except _Misfit as problem:
            return _failed(error("config", str(problem)))
        out = _Output("stdout", context, self._cap, self._log_cap)
        err = _Output("stderr", context, self._cap, self._log_cap)
        folders = self._folders.of_next("shell")
        cwd = folders.workdir / config.cwd
        tree = self._start(command, folders, cwd, context, keeps_folder=bool(config.outputs))
        tree.stdout.listener, tree.stderr.listener = out.feed, err.feed
        self._trees.add(tree)
        tree.closed.add_done_callback(lambda _: self._trees.discard(tree))
        try:
            try:
                report = await asyncio.shield(tree.gone)
            except asyncio.CancelledError:
                await self._stop(tree)
                raise
            finally:
                out.lines.end()
                err.lines.end()
            outcome = self._concluded(config, command, report, folders, context, out, err)
            if config.outputs and outcome.error is None:
                places = OutputFolders(folders, cwd, self._output_rules)
                outcome.files = await stored_outputs(config.outputs, places, context.results)
        except OutputsFailed as problem:
            return Outcome(ERROR, outcome.result, error=problem.problem, helper=outcome.helper)
        else:
            return outcome
        finally:
            if config.outputs:
                tree.release()

    def _concluded(
        self,
        config: ShellConfig,
        command: _Command,
        report: Report,
        folders: TaskFolders,
        context: TaskContext,
        out: _Output,
        err: _Output,
    ) -> Outcome:
        """Return the outcome of a command that has ended."""
        if refused := not_allowed(report, self._settings):
            return _failed(refused)
        if report.crowd:
            return _failed(_too_many(report.crowd, self._settings))
        if report.failed:
            return _failed(_not_started(command, config.cwd or str(folders.workdir), report.failed))
        if report.killed:
            context.log("log", f"{report.killed} background processes of the command were killed")
        for name, output in (("stdout", out), ("stderr", err)):
            if output.truncated:
                context.log(
                    "log",
                    f"{name}: {len(output.kept)} of {output.total} bytes are in the result (shell.max_output_bytes)",
                )
        return _outcome(config, report, out, err)

    async def execution_ended(self, execution_id: str) -> None:
        """Nothing to release for a run."""

    async def close(self) -> None:
        for tree in list(self._trees):
            await tree.finished()
        await self._launcher.close()

    def _start(
        self, command: _Command, folders: TaskFolders, cwd: Path, context: TaskContext, *, keeps_folder: bool
    ) -> Tree:
        folders.make()
        if folders.fresh:
            folders.workdir.mkdir(mode=0o700)
        environment = _environment(command, folders, context)
        # Its guard removes the folder when all processes are dead.
        spec = {
            "argv": command.argv,
            "env": environment,
            "cwd": str(cwd),
            "folder": str(folders.folder),
            "keeps_folder": keeps_folder,
            **bounds(self._settings),
            **confined(self._confinement, folders, read=[str(context.files)] if context.files else []),
        }
        try:
            if not command.input:
                with Path(os.devnull).open("rb") as null:
                    return Tree(self._launcher, spec, null.fileno())
            # A file, not a pipe: the command may read it late, in part or never, and nothing waits for it.
            with tempfile.TemporaryFile(dir=self._scratch) as file:
                file.write(command.input.encode("utf-8", "surrogatepass"))
                file.seek(0)
                return Tree(self._launcher, spec, file.fileno())
        except BaseException:
            shutil.rmtree(folders.folder, ignore_errors=True)
            raise

    async def _stop(self, tree: Tree) -> None:
        """Ask it to stop, wait for the grace period, kill it."""
        try:
            if self._grace_s > 0:
                tree.terminate()
                await asyncio.wait({tree.gone}, timeout=self._grace_s)
        finally:
            await tree.killed()


def _command(config: ShellConfig) -> _Command:
    """Return the command with all its values as text. Raises _Misfit."""
    if config.command is None or config.command in ("", []):
        raise _Misfit("command is empty; write a line for /bin/sh, or a list that starts with the program")
    if isinstance(config.command, list):
        argv = [_text(value, f"command[{index}]") for index, value in enumerate(config.command)]
        program = argv[0]
    else:
        argv, program = ["/bin/sh", "-c", _text(config.command, "command")], "/bin/sh"
    env = {}
    for name, value in config.env.items():
        if not name or "=" in name or "\0" in name:
            raise _Misfit(f"env: {name!r} cannot be the name of a variable")
        env[name] = _text(value, f"env.{name}")
    if "\0" in config.cwd:
        raise _Misfit("cwd contains a NUL byte")
    # Standard input, unlike arguments and variables, may hold NUL bytes.
    return _Command(argv, env, _text(config.input, "input", nul=True), program)


def _text(value: Any, where: str, *, nul: bool = False) -> str:
    """Return a scalar as text; numbers and booleans as in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if not isinstance(value, str):
        raise _Misfit(f"{where} is {_shape_of(value)}, and must be text: {_REMEDIES.get(type(value), '')}")
    if not nul and "\0" in value:
        raise _Misfit(f"{where} contains a NUL byte, which cannot be passed to a program")
    return value


def _shape_of(value: Any) -> str:
    return {type(None): "null", list: "a list", dict: "a map"}.get(type(value), type(value).__name__)


def _environment(command: _Command, folders: TaskFolders, context: TaskContext) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    own = {
        "ARCLOG_EXECUTION_ID": context.execution_id,
        "ARCLOG_STEP": context.step,
        "ARCLOG_TASK": context.task,
        "ARCLOG_ATTEMPT": str(context.attempt),
        "ARCLOG_KEY": context.key,
        "ARCLOG_SCRATCH": str(folders.scratch),
    }
    return {**inherited, **command.env, **own}


def _too_many(count: int, settings: Settings) -> TaskError:
    most = settings.integer("tasks.max_threads")
    message = f"the command had {count} processes at a time; at most {most} are allowed (setting tasks.max_threads)"
    return error("limit", message, code="tasks.max_threads")


def _not_started(command: _Command, cwd: str, failure: str) -> TaskError:
    """Return the error for a failed start. The runner reports it as 'errno Class: text'."""
    number, _, text = failure.partition(" ")
    if not number.isdigit() or number == "0":
        return error("killed", f"the command could not be started: {failure}", code="START")
    return error("config", f"{command.program} could not be started in {cwd}: {text}", code="START")


def _outcome(config: ShellConfig, report: Report, out: _Output, err: _Output) -> Outcome:
    how, code = ended_by(report.status)
    exit_code = os.waitstatus_to_exitcode(report.status) if report.status is not None else None
    result: dict[str, Any] = {"exit_code": exit_code, "stdout": out.text, "stderr": err.text}
    if out.truncated or err.truncated:
        result |= {"truncated": True, "stdout_bytes": out.total, "stderr_bytes": err.total}
    helper = {"sh": {"exit_code": exit_code}}
    if exit_code is None or exit_code < 0:
        problem = error("killed", f"the command was ended by {how}", code=code)
        return Outcome(ERROR, result, error=problem, helper=helper)
    if exit_code and config.check:
        last_line = _last_line(err.text)
        problem = error(
            "exception", f"{how}: {last_line}" if last_line else f"{how}, with no output on stderr", code=code
        )
        return Outcome(ERROR, result, error=problem, helper=helper)
    if config.parse == "json":
        misfit = _parse(result, out)
        if misfit is not None:
            return Outcome(ERROR, result, error=misfit, helper=helper)
    return Outcome(result=result, helper=helper)


def _parse(result: dict[str, Any], out: _Output) -> TaskError | None:
    """Add stdout's JSON to the result. Return the error if it is invalid."""
    if out.truncated:
        return error(
            "limit",
            f"stdout has {out.total} bytes, too many to parse as JSON; {len(out.kept)} are kept "
            "(setting shell.max_output_bytes)",
            code="shell.max_output_bytes",
        )
    try:
        result["json"] = msgspec.json.decode(bytes(out.kept))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        return error("exception", f"stdout is not one JSON document: {problem}", code="NotJSON")
    return None


def _last_line(text: str) -> str:
    lines = text.rstrip().rsplit("\n", 1)
    return shortened(lines[-1].strip(), _LAST_LINE_MAX)


def _failed(problem: TaskError) -> Outcome:
    return failed(problem, sh={"exit_code": None})


def _open(services: ToolServices) -> ShellTool:
    return ShellTool(services.settings, services.scratch)


KIND = ToolKind(
    KindSpec(
        name="shell",
        summary="Runs a command. The result is {exit_code, stdout, stderr}.",
        auth=(),
        fields=(
            Field(
                "command",
                "string|list",
                "A line for /bin/sh, or a list of arguments that is executed directly. Use the list for values from outside.",
                required=True,
                items=Field("argument", "string|number|boolean", template=True),
                template=True,
                also=("cmd", "script", "run"),
            ),
            Field(
                "env",
                "object",
                "Environment variables in addition to PATH, HOME, LANG, TZ and ARCLOG_….",
                template=True,
            ),
            Field(
                "cwd",
                "string",
                "Folder in which the command runs, relative to the working directory of tasks.",
                template=True,
            ),
            Field("input", "string|number|boolean", "Text for the standard input of the command.", template=True),
            Field("check", "boolean", "Whether an exit code other than 0 is an error.", default=True, template=True),
            Field(
                "parse",
                "string",
                "`json`: parse stdout as one JSON document, which becomes `json` in the result.",
                choices=("json",),
            ),
            OUTPUTS,
        ),
        from_file="command",
        helper="sh",
        helper_fields=("exit_code",),
    ),
    _open,
)
