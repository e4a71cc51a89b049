"""A real server and a real tool for every test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome
from arclog.ports.tool import ToolKind, ToolServices
from arclog.results.memory import MemoryResults
from arclog.testing.tools import Recorder, task_context
from arclog.tools.http.kind import KIND
from arclog.worker.toolbox import Toolbox
from tests.servers.web import Web


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as server:
        yield server


class Task:
    """Runs http tasks as a worker would."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._boxes: list[Toolbox] = []
        self._box: Toolbox | None = None
        self.results = MemoryResults()
        self.recorder = Recorder()
        self.settings: dict[str, Any] = {"http.allow_networks": "loopback"}

    def set(self, **settings: Any) -> None:
        self.settings.update({name.replace("__", "."): value for name, value in settings.items()})
        self._box = None

    @property
    def box(self) -> Toolbox:
        if self._box is None:
            kinds: dict[str, ToolKind] = {"http": KIND}
            self._box = Toolbox(kinds, ToolServices(Settings(self.settings), self._folder))
            self._boxes.append(self._box)
        return self._box

    async def __call__(self, url: str, *, context: dict[str, Any] | None = None, **config: Any) -> Outcome:
        around = task_context(self.recorder, results=self.results, **(context or {}))
        return await self.box.run("http", {"url": url, **config}, around)

    def content(self, outcome: Outcome) -> bytes:
        """What an outcome stored."""
        return self.results.kept["default", outcome.stored.sha256].body

    async def close(self) -> None:
        for box in self._boxes:
            await box.close()


@pytest.fixture
async def task(tmp_path: Path) -> AsyncIterator[Task]:
    made = Task(tmp_path)
    yield made
    await made.close()


Fetch = Callable[..., Awaitable[Outcome]]
