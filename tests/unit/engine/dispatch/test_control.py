"""The regular look at runs of held commands, and the loading of claimed runs: how often the store is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import Minter
from arclog.engine.dispatch.control import EngineControl
from arclog.engine.views.api import EngineApi
from arclog.model.config.settings import Settings
from arclog.ports.control import WorkerInfo
from arclog.ports.storage.store import Append, Appended, ExecutionRecord
from arclog.ports.views.api import ExecuteRequest
from arclog.results.memory import MemoryResults
from arclog.stores.memory import MemoryStore
from arclog.testing.conformance.control import WHOLE, reported
from arclog.tools import noop
from arclog.wiring.clocks import SystemClock

PLAYBOOK = "metadata: {name: one}\nworkflow: [{step: start, tool: {kind: noop}}]"
WORKER = WorkerInfo("here", ("noop",))


class Server:
    def __init__(self, store: MemoryStore, node: int) -> None:
        clock = SystemClock()
        self.engine = Engine(store, clock, Settings({}), Minter(clock, node))
        self.control = EngineControl(self.engine)
        self.api = EngineApi(self.engine, {"noop": noop.KIND.spec}, MemoryResults())


class Reads:
    """Delays the reads of executions until `go`, and counts those that wait."""

    def __init__(self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting = 0
        self.go = asyncio.Event()
        self._execution = store.execution
        monkeypatch.setattr(store, "execution", self._delayed)

    async def _delayed(self, execution_id: int) -> ExecutionRecord | None:
        record = await self._execution(execution_id)
        self.waiting += 1
        await self.go.wait()
        return record

    async def until(self, count: int) -> None:
        while self.waiting < count:  # noqa: ASYNC110 - nothing tells of a read that waits
            await asyncio.sleep(0)


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore(clock=SystemClock(), settings=Settings({}))
    await made.open()
    yield made
    await made.close()


async def claimed(server: Server, runs: int) -> list[Any]:
    for _ in range(runs):
        await server.api.execute(ExecuteRequest(PLAYBOOK))
    return await server.control.claim(WORKER, runs)


async def test_watched_runs_are_read_together(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(store, 1)
    await claimed(server, 20)
    reads = Reads(store, monkeypatch)
    watching = asyncio.ensure_future(server.control.watch())
    await reads.until(20)
    reads.go.set()
    await watching
    await server.engine.close()


async def test_a_run_that_ends_while_it_is_read_is_not_loaded_again(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(store, 1)
    [command] = await claimed(server, 1)
    reads = Reads(store, monkeypatch)
    watching = asyncio.ensure_future(server.control.watch())
    await reads.until(1)
    await server.control.report(reported(command, 1, *WHOLE, worker=WORKER))
    reads.go.set()
    await watching
    assert reads.waiting == 1
    await server.engine.close()


async def test_claimed_runs_of_another_server_are_read_together(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, another = Server(store, 1), Server(store, 2)
    for _ in range(20):
        await first.api.execute(ExecuteRequest(PLAYBOOK))
    reads = Reads(store, monkeypatch)
    claiming = asyncio.ensure_future(another.control.claim(WORKER, 20))
    await reads.until(20)
    reads.go.set()
    assert len(await claiming) == 20
    for server in (first, another):
        await server.engine.close()


class Iterations:
    """Counts the iterations of the event loop, and notes in which of them appends begin."""

    def __init__(self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_appends: list[int] = []
        self._now = 0
        self._append = store.append
        monkeypatch.setattr(store, "append", self._noted)
        self._next = asyncio.get_running_loop().call_soon(self._count)

    def _count(self) -> None:
        self._now += 1
        self._next = asyncio.get_running_loop().call_soon(self._count)

    async def _noted(self, append: Append) -> Appended:
        self.of_appends.append(self._now)
        await asyncio.sleep(0)  # a database takes at least that long
        return await self._append(append)

    def stop(self) -> None:
        self._next.cancel()


async def appended(server: Server, commands: list[Any], iterations: Iterations) -> int:
    """Report that commands are done, at the same moment. Returns in how many iterations that was appended."""
    await asyncio.gather(
        *(server.control.report(reported(command, 1, *WHOLE, worker=WORKER, wants=1)) for command in commands)
    )
    iterations.stop()
    await server.engine.close()
    return len(set(iterations.of_appends))


async def test_reports_that_arrive_together_can_share_a_commit(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(store, 1)
    commands = await claimed(server, 4)
    assert await appended(server, commands, Iterations(store, monkeypatch)) == 1
