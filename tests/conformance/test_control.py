"""Control in one process, as remote workers are let in, and over a real server: the same rules."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from arclog.client.connection import Connection
from arclog.client.control import RemoteControl
from arclog.client.transport import Transport
from arclog.engine.dispatch.scoped_control import ScopedControl
from arclog.model.config.settings import Settings
from arclog.model.principal import Principal
from arclog.ports.boundary import Boundary
from arclog.testing.conformance.control import ControlContract, Ground
from arclog.wiring.embedded import Embedded, embedded
from tests.servers.workplace import served


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Embedded]:
    async with embedded(Settings({"home": str(home)})) as runtime:
        yield runtime


def lapsing(embedded_runtime: Embedded):
    async def lapse(execution_id: int) -> None:
        for record in await embedded_runtime.engine.store.commands(execution_id):
            await embedded_runtime.control.end_lease(record)

    return lapse


class TestEngineControl(ControlContract):
    @pytest.fixture
    async def ground(self, tmp_path: Path) -> AsyncIterator[Ground]:
        async with opened(tmp_path) as runtime:
            yield Ground(runtime.control, runtime.api, lapsing(runtime))


class TestScopedControl(ControlContract):
    @pytest.fixture
    async def ground(self, tmp_path: Path) -> AsyncIterator[Ground]:
        async with opened(tmp_path) as runtime:
            engine = runtime.engine
            worker = Principal("w", "default", frozenset({"worker"}), subject="key")
            boundary = Boundary.of(worker, engine.settings)
            control = ScopedControl(runtime.control, engine.store, engine.clock, boundary)
            yield Ground(control, runtime.api, lapsing(runtime))


class TestRemoteControl(ControlContract):
    @pytest.fixture
    async def ground(self, tmp_path: Path) -> AsyncIterator[Ground]:
        async with opened(tmp_path) as runtime, served(runtime) as url:
            connection = Connection(url, Settings({"client.patience_s": 0}))
            yield Ground(RemoteControl(Transport(connection)), runtime.api, lapsing(runtime))
            await connection.close()
