"""Two engines on one store, joined by a real PostgreSQL's notices: what one commits wakes who waits at the other, though
nobody would look by himself for a day. (Over NATS: tests/integration/server/test_two_servers.py.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from arclog.buses.postgres import PostgresBus
from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import Minter
from arclog.engine.commits.relay import Relay
from arclog.engine.dispatch.control import EngineControl
from arclog.engine.views.api import EngineApi
from arclog.model.config.settings import Settings
from arclog.ports.control import WorkerInfo
from arclog.ports.views.api import ExecuteRequest, SignalRequest
from arclog.results.memory import MemoryResults
from arclog.stores.memory import MemoryStore
from arclog.tools import noop
from arclog.wiring.clocks import SystemClock
from tests.servers.postgres import Database

DAY = 86_400.0
PLAYBOOK = "metadata: {name: one}\nworkflow: [{step: start, tool: {kind: noop}}]"
WORKER = WorkerInfo("far", ("noop",))


class Server:
    """An engine, and what speaks to it."""

    def __init__(self, store: MemoryStore, settings: Settings, node: int) -> None:
        clock = SystemClock()
        self.engine = Engine(store, clock, settings, Minter(clock, node))
        self.control = EngineControl(self.engine)
        self.api = EngineApi(self.engine, {"noop": noop.KIND.spec}, MemoryResults())
        self.relay = Relay(self.engine, self.control, PostgresBus(settings))

    async def waiting(self, listeners: int) -> None:
        """Until so many wait here: each has looked, and will not look again."""
        while self.engine.hints.listeners < listeners:  # noqa: ASYNC110 - hints tell of what happens, not of who waits
            await asyncio.sleep(0)
        await asyncio.sleep(0)


@pytest.fixture
async def servers(postgres: Database) -> AsyncIterator[tuple[Server, Server]]:
    settings = Settings(
        {"store.url": postgres.dsn, "engine.look_again_s": DAY, "engine.idle_look_s": DAY, "engine.sweep_s": DAY}
    )
    store = MemoryStore(clock=SystemClock(), settings=settings)
    await store.open()
    pair = Server(store, settings, 1), Server(store, settings, 2)
    for server in pair:
        await server.relay.open()
    yield pair
    for server in pair:
        await server.relay.close()
        await server.engine.close()
    await store.close()


async def test_a_claim_at_one_gets_what_is_started_at_the_other(servers: tuple[Server, Server]) -> None:
    a, b = servers
    claim = asyncio.ensure_future(b.control.claim(WORKER, 1, DAY))
    await b.waiting(1)
    started = await a.api.execute(ExecuteRequest(PLAYBOOK))
    async with asyncio.timeout(30):
        (command,) = await claim
    assert str(command.execution_id) == started.execution_id


async def test_an_end_and_a_cancellation_are_known_at_the_other(servers: tuple[Server, Server]) -> None:
    a, b = servers
    number = (await a.api.execute(ExecuteRequest(PLAYBOOK))).execution_id
    (command,) = await b.control.claim(WORKER, 1)
    revoked = asyncio.ensure_future(b.control.revoked("far", DAY))
    ended = asyncio.ensure_future(b.api.ended(number, timeout_s=DAY))
    await b.waiting(1)
    await a.api.signal(number, SignalRequest("CANCEL", reason="enough"))
    async with asyncio.timeout(30):
        assert await ended
        assert [command.command_id for command in await revoked] == [command.command_id]


async def test_what_others_did_is_not_told_again(servers: tuple[Server, Server]) -> None:
    a, b = servers
    number = (await a.api.execute(ExecuteRequest(PLAYBOOK))).execution_id
    await b.control.claim(WORKER, 1)
    sent_before = b.relay.bus.figures().sent
    ended = asyncio.ensure_future(b.api.ended(number, timeout_s=DAY))
    await b.waiting(1)
    await a.api.signal(number, SignalRequest("CANCEL", reason="enough"))
    async with asyncio.timeout(30):
        await ended
        await b.control.revoked("far", DAY)
    assert b.relay.bus.figures().sent == sent_before
