"""Python and shell tasks under given settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome
from arclog.tools.python import PythonConfig, PythonTool
from arclog.tools.shell import ShellConfig, ShellTool
from tests.unit.sandbox.support import context

Run = Callable[[str], Awaitable[Outcome]]


class Tools:
    """Runs code of a kind under settings."""

    def __init__(self, kind: str, scratch: Path) -> None:
        self.kind = kind
        self.scratch = scratch
        self._open: list[Any] = []

    def start(self, settings: Mapping[str, Any]) -> Run:
        chosen = Settings(settings)
        if self.kind == "python":
            python = PythonTool(chosen, self.scratch)
            self._open.append(python)
            return lambda code: python.run(PythonConfig(code=code), context())
        shell = ShellTool(chosen, self.scratch)
        self._open.append(shell)
        return lambda code: shell.run(ShellConfig(command=code), context())

    async def close(self) -> None:
        for tool in self._open:
            await tool.close()
