"""A real arclog server for tests: uvicorn on a free loopback port, in the test's own loop, stopped cleanly.

`server` is one with a worker, `control_plane` one without; a test that needs other settings, or stops it itself, says
`async with running(home, worker=False, **{"server.drain_s": 1}) as server: …`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from arclog.model.config.settings import Settings


class RunningServer:
    def __init__(self, url: str, settings: Settings, stop: asyncio.Event, task: asyncio.Task[None]) -> None:
        self.url = url
        self.settings = settings
        self.stopping = stop
        self._task = task

    def client(self, **options: Any) -> httpx2.AsyncClient:
        # Without TLS there is nothing to verify, and loading certificates takes 25 ms.
        defaults = {"timeout": 30.0, "trust_env": False, "verify": False}
        return httpx2.AsyncClient(base_url=self.url, **{**defaults, **options})

    async def stop(self) -> None:
        """Tell it to stop, and wait until it has."""
        self.stopping.set()
        await asyncio.shield(self._task)


@asynccontextmanager
async def running(home: Path, *, worker: bool = True, **settings: Any) -> AsyncIterator[RunningServer]:
    from arclog.wiring.serving.server import serve

    values = Settings({"home": str(home), "server.port": 0, **settings})
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    task = asyncio.ensure_future(serve(values, with_worker=worker, started=started, stop=stop))
    await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    server = RunningServer(started.result(), values, stop, task)
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    async with running(tmp_path / "home") as process:
        yield process


@pytest.fixture
async def control_plane(tmp_path: Path) -> AsyncIterator[RunningServer]:
    async with running(tmp_path / "home", worker=False) as process:
        yield process
