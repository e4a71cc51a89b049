"""Kind `shell`: one command, its output live in the log and, up to a cap, in the result.

No process outlives its command: background children are killed when it ends, whatever session they moved to.
In the string form templates are spliced into shell text; the list form is the one that no value can break out of.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from arclog.model.kinds import KindSpec
from arclog.model.outcome import ERROR, Outcome, TaskError, error, failed
from arclog.model.settings import Settings
from arclog.model.shapes import Field
from arclog.ports.tool import TaskContext, ToolKind, ToolServices
from arclog.sandbox.launcher import Launcher
from arclog.sandbox.processes import Tree, ended_by
from arclog.sandbox.protocol import Report
from arclog.sandbox.streams import Lines

_INHERITED = ("PATH", "HOME", "LANG", "TZ")
_LAST_LINE_MAX = 500


class ShellConfig(Struct, frozen=True):
    """A shell task."""

    command: str | list[str]
    env: dict[str, str] = {}
    cwd: str = ""
    input: str = ""
    check: bool = True
    parse: Literal["json"] | None = None


class _Output:
    """One stream: to the log line by line, and kept up to a cap."""

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
        self._scratch = scratch
        self._launcher = Launcher()
        self._trees: set[Tree] = set()

    async def run(self, config: ShellConfig, context: TaskContext) -> Outcome:
        problem = _misfit(config)
        if problem:
            return _failed(error("config", problem))
        out = _Output("stdout", context, self._cap, self._log_cap)
        err = _Output("stderr", context, self._cap, self._log_cap)
        tree = self._start(config, context)
        tree.stdout.listener, tree.stderr.listener = out.feed, err.feed
        self._trees.add(tree)
        tree.closed.add_done_callback(lambda _: self._trees.discard(tree))
        try:
            report = await asyncio.shield(tree.gone)
        except asyncio.CancelledError:
            await self._stop(tree)
            raise
        finally:
            out.lines.end()
            err.lines.end()
        if report.failed:
            return _failed(_not_started(config, report.failed))
        if report.left:
            context.log("log", f"{report.left} background processes of the command were killed")
        for name, output in (("stdout", out), ("stderr", err)):
            if output.truncated:
                context.log(
                    "log",
                    f"{name}: {len(output.kept)} of {output.total} bytes are in the result (shell.max_output_bytes)",
                )
        return _outcome(config, report, out, err)

    async def execution_ended(self, execution_id: str) -> None:
        """Nothing is kept warm for an execution."""

    async def close(self) -> None:
        for tree in list(self._trees):
            await tree.finished()
        await self._launcher.close()

    def _start(self, config: ShellConfig, context: TaskContext) -> Tree:
        argv = ["/bin/sh", "-c", config.command] if isinstance(config.command, str) else config.command
        spec = {"argv": argv, "env": _environment(config, context), "cwd": str(Path.cwd() / config.cwd)}
        if not config.input:
            with Path(os.devnull).open("rb") as null:
                return Tree(self._launcher, spec, null.fileno(), isolated=False)
        # A file rather than a pipe: the command may read it late, in part or never, and nobody has to wait for it.
        self._scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self._scratch) as file:
            file.write(config.input.encode("utf-8", "surrogatepass"))
            file.seek(0)
            return Tree(self._launcher, spec, file.fileno(), isolated=False)

    async def _stop(self, tree: Tree) -> None:
        """Ask, wait for the grace, kill."""
        try:
            if self._grace_s > 0:
                tree.terminate()
                await asyncio.wait({tree.gone}, timeout=self._grace_s)
        finally:
            await tree.killed()


def _misfit(config: ShellConfig) -> str:
    """What is wrong with a config beyond its shape; '' when nothing is."""
    if not config.command:
        return "command is empty; give a line for /bin/sh, or a list with the program first"
    argv = [config.command] if isinstance(config.command, str) else config.command
    for index, text in enumerate(argv):
        if "\0" in text:
            where = "command" if isinstance(config.command, str) else f"command[{index}]"
            return f"{where} holds a NUL byte, which no program can be given"
    for name, value in config.env.items():
        if not name or "=" in name or "\0" in name:
            return f"env: {name!r} cannot be the name of a variable"
        if "\0" in value:
            return f"env.{name} holds a NUL byte, which no program can be given"
    if "\0" in config.cwd:
        return "cwd holds a NUL byte"
    return ""


def _environment(config: ShellConfig, context: TaskContext) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    own = {
        "ARCLOG_EXECUTION_ID": context.execution_id,
        "ARCLOG_STEP": context.step,
        "ARCLOG_TASK": context.task,
        "ARCLOG_ATTEMPT": str(context.attempt),
        "ARCLOG_KEY": context.key,
    }
    return {**inherited, **config.env, **own}


def _not_started(config: ShellConfig, failure: str) -> TaskError:
    """The runner's last word is 'errno Class: text'."""
    number, _, text = failure.partition(" ")
    program = config.command[0] if isinstance(config.command, list) else "/bin/sh"
    if not number.isdigit() or number == "0":
        return error("killed", f"the command could not be started: {failure}", code="START")
    cwd = f" in {config.cwd}" if config.cwd else ""
    return error("config", f"{program} could not be started{cwd}: {text}", code="START")


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
        said = _last_line(err.text)
        problem = error("exception", f"{how}: {said}" if said else f"{how}, and nothing on stderr", code=code)
        return Outcome(ERROR, result, error=problem, helper=helper)
    if config.parse == "json":
        misfit = _parse(result, out)
        if misfit is not None:
            return Outcome(ERROR, result, error=misfit, helper=helper)
    return Outcome(result=result, helper=helper)


def _parse(result: dict[str, Any], out: _Output) -> TaskError | None:
    """Put stdout's JSON into the result, or say why it is none."""
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
    line = lines[-1].strip()
    return line if len(line) <= _LAST_LINE_MAX else line[: _LAST_LINE_MAX - 1] + "…"


def _failed(problem: TaskError) -> Outcome:
    return failed(problem, sh={"exit_code": None})


def _open(services: ToolServices) -> ShellTool:
    return ShellTool(services.settings, services.scratch)


KIND = ToolKind(
    KindSpec(
        name="shell",
        summary="Runs a command; its result is {exit_code, stdout, stderr}.",
        auth=(),
        fields=(
            Field(
                "command",
                "string|list",
                "A line for /bin/sh, or a list that is run as it stands: the safe form for values from outside.",
                required=True,
                items=Field("argument", "string", template=True),
                template=True,
                also=("cmd", "script", "run"),
            ),
            Field("env", "object", "Variables beside PATH, HOME, LANG, TZ and ARCLOG_….", template=True),
            Field("cwd", "string", "Where it runs; by default where the worker runs.", template=True),
            Field("input", "string", "What it reads from its standard input.", template=True),
            Field("check", "boolean", "An exit code other than 0 is an error.", default=True, template=True),
            Field(
                "parse",
                "string",
                "`json`: stdout is one JSON document; the result has it as `json`.",
                choices=("json",),
            ),
        ),
        helper="sh",
        helper_fields=("exit_code",),
    ),
    _open,
)
