"""`python` and `shell` for golden logs: the same kinds, run at once and in this process, so that virtual time can hold.

What the real ones do with processes, limits and streams has its own tests; the end-to-end tests run every example with
them. Here it is the events that count.
"""

from __future__ import annotations

import asyncio
import inspect
import subprocess
from pathlib import Path
from typing import Any

from msgspec import Struct

from arclog.model.outcome import Outcome, error, failed
from arclog.ports.tool import TaskContext, ToolKind, ToolServices
from arclog.tools import python, shell


class _Inline:
    async def execution_ended(self, execution_id: str) -> None:
        """Nothing is kept warm."""

    async def close(self) -> None:
        """Nothing is held."""


class _Told(dict[str, Any]):
    """The `context` of python code."""

    def __init__(self, context: TaskContext) -> None:
        names = ("execution_id", "step", "task", "attempt", "workload", "ctx")
        super().__init__({name: getattr(context, name) for name in names})
        self.progress = context.progress

    def __getattr__(self, name: str) -> Any:
        return self[name]


class InlinePython(_Inline):
    Config: type[Struct] = python.PythonConfig

    async def run(self, config: python.PythonConfig, context: TaskContext) -> Outcome:
        nothing = dict.fromkeys(("exception", "traceback"))
        space: dict[str, Any] = {**config.args, "input_data": config.args, "context": _Told(context)}
        try:
            exec(config.code, space)
            main = space.get("main")
            result = main(**config.args) if callable(main) else space.get("result")
        except Exception as problem:
            name = type(problem).__name__
            return failed(error("exception", f"{name}: {problem}", code=name), py={**nothing, "exception": name})
        return Outcome(result=list(result) if inspect.isgenerator(result) else result, helper={"py": nothing})


class InlineShell(_Inline):
    Config: type[Struct] = shell.ShellConfig

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    async def run(self, config: shell.ShellConfig, context: TaskContext) -> Outcome:
        if config.command[0] == "sleep":
            await asyncio.sleep(float(config.command[1]))
        words = config.command if isinstance(config.command, list) else ["/bin/sh", "-c", config.command]
        done = subprocess.run(  # noqa: ASYNC221 - at once, whatever the loop's clock says
            words, capture_output=True, text=True, input=config.input, env=config.env, cwd=self._scratch, check=False
        )
        result: dict[str, Any] = {"exit_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
        helper = {"sh": {"exit_code": done.returncode}}
        if done.returncode and config.check:
            return Outcome("error", result, error=error("exception", f"exit code {done.returncode}"), helper=helper)
        return Outcome(result=result, helper=helper)


def _open_python(_: ToolServices) -> InlinePython:
    return InlinePython()


def _open_shell(services: ToolServices) -> InlineShell:
    return InlineShell(services.scratch)


KINDS = {
    "python": ToolKind(python.KIND.spec, _open_python),
    "shell": ToolKind(shell.KIND.spec, _open_shell),
}
