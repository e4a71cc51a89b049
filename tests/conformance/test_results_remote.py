"""A result store behind a real server keeps every rule of the port."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from arclog.client.connection import Connection
from arclog.client.results import RemoteResults
from arclog.client.transport import Transport
from arclog.model.config.settings import Settings
from arclog.testing.conformance.results import MakeResults, ResultsContract
from arclog.wiring.embedded import embedded
from tests.servers.workplace import served


class ServerThread:
    """A server beside the test: the suite makes stores without waiting for them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(60)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with embedded(self._settings) as runtime, served(runtime, self._settings) as self.url:
            self._ready.set()
            await self._stop.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)


class TestRemoteResults(ResultsContract):
    @pytest.fixture
    def make_results(self, tmp_path: Path) -> Iterator[MakeResults]:
        self.root = tmp_path / "home" / "results"
        servers: list[ServerThread] = []

        def make(settings: Settings) -> RemoteResults:
            settings = settings.replaced(home=str(tmp_path / "home"), client__patience_s=0.0)
            servers.append(ServerThread(settings))
            connection = Connection(servers[-1].url, settings)
            return _Closing(Transport(connection), "files", settings.integer("results.max_bytes"))

        yield make
        for server in servers:
            server.stop()

    async def age(self, results, sha256: str) -> None:
        (file,) = self.root.glob(f"*/*/{sha256}.zst")
        os.utime(file, (1_000_000, 1_000_000))


class _Closing(RemoteResults):
    """The suite closes stores, which closes their connection here."""

    async def close(self) -> None:
        await self.transport.connection.close()
