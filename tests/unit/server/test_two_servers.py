"""Two servers on one store, joined by a real NATS: what one commits wakes who waits at the other. Nobody here looks by himself:
the time until he would is longer than any test.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from arclog.client import AsyncClient
from arclog.client.connection import Connection
from arclog.client.control import RemoteControl
from arclog.client.link import Link
from arclog.model.settings import Settings
from arclog.ports.api import ExecuteRequest, SignalRequest
from arclog.ports.control import WorkerInfo
from tests.servers.arclog import RunningServer, running
from tests.servers.nats import NatsServer, running_nats

pytest_plugins = ["tests.servers.nats"]

NEVER = 100_000.0
SLOW = """
metadata: {name: slow}
workflow:
  - step: start
    tool: {kind: noop}
"""


@asynccontextmanager
async def pair(home: Path, url: str, **settings: Any) -> AsyncIterator[tuple[RunningServer, RunningServer]]:
    own = uuid.uuid4().hex[:12]
    shared = {
        "bus.url": url,
        "bus.prefix": own,
        "bus.events_subject": f"{own}.events",
        "bus.max_retry_s": 0.1,
        "engine.look_again_s": NEVER,
        "engine.sweep_s": NEVER,
        **settings,
    }
    async with running(home, worker=False, **shared) as a, running(home, worker=False, **shared) as b:
        yield a, b


@asynccontextmanager
async def working_at(server: RunningServer) -> AsyncIterator[RemoteControl]:
    connection = Connection(server.url, Settings({"client.patience_s": 0}))
    try:
        yield RemoteControl(Link(connection))
    finally:
        await connection.close()


async def waits(task: asyncio.Future[Any]) -> bool:
    """It has been sent, and waits at the server."""
    done, _ = await asyncio.wait((task,), timeout=0.3)
    return not done


async def test_a_claim_that_waits_at_one_server_gets_what_is_started_at_the_other(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with pair(tmp_path, nats_server.url) as (a, b), AsyncClient(a.url) as client, working_at(b) as control:
        for _ in range(3):
            worker = WorkerInfo("far", ("noop",))
            claim = asyncio.ensure_future(control.claim(worker, 1, 30.0))
            assert await waits(claim)
            started = await client.execute(ExecuteRequest(SLOW))
            async with asyncio.timeout(20):
                (command,) = await claim
            assert str(command.execution_id) == started.execution_id


@pytest.mark.parametrize("signal", ["CANCEL", "PAUSE"])
async def test_a_signal_at_one_server_reaches_the_worker_at_the_other(
    tmp_path: Path, nats_server: NatsServer, signal: str
) -> None:
    async with pair(tmp_path, nats_server.url) as (a, b), AsyncClient(a.url) as client, working_at(b) as control:
        started = await client.execute(ExecuteRequest(SLOW))
        (command,) = await control.claim(WorkerInfo("far", ("noop",)), 1, 0.0)
        revoked = asyncio.ensure_future(control.revoked("far", 30.0))
        assert await waits(revoked)
        await client.signal(started.execution_id, SignalRequest(signal, reason="enough"))
        async with asyncio.timeout(20):
            (one,) = await revoked
        assert (one.command_id, one.pause) == (command.command_id, signal == "PAUSE")


async def test_who_follows_a_run_at_one_server_sees_what_happens_at_the_other(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with pair(tmp_path, nats_server.url) as (a, b), AsyncClient(a.url) as client, b.client() as http:
        number = (await client.execute(ExecuteRequest(SLOW))).execution_id
        seen: list[str] = []
        async with http.stream("GET", f"/api/executions/{number}/events/stream") as stream, asyncio.timeout(30):
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    seen.append(json.loads(line.removeprefix("data: "))["event_type"])
                    if seen[-1] == "step.scheduled":
                        await client.cancel(number, "enough")
        assert "execution.cancelled" in seen


async def test_who_waits_for_a_runs_end_at_one_server_is_answered_when_it_ends_at_the_other(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with pair(tmp_path, nats_server.url) as (a, b), AsyncClient(a.url) as here, AsyncClient(b.url) as there:
        number = (await here.execute(ExecuteRequest(SLOW))).execution_id
        end = asyncio.ensure_future(there.ended(number, timeout_s=30.0))
        assert await waits(end)
        await here.cancel(number, "enough")
        async with asyncio.timeout(20):
            assert await end


async def test_with_nats_gone_the_next_look_finds_everything(tmp_path: Path) -> None:
    with running_nats() as nats:
        patient = {"engine.look_again_s": 0.2, "engine.sweep_s": 0.2}
        async with (
            pair(tmp_path, nats.url, **patient) as (a, b),
            AsyncClient(a.url) as client,
            working_at(b) as control,
        ):
            for is_there in (True, False, True):
                if is_there:
                    nats.kill()
                    nats.start()
                else:
                    nats.wipe()
                claim = asyncio.ensure_future(control.claim(WorkerInfo("far", ("noop",)), 1, 30.0))
                started = await client.execute(ExecuteRequest(SLOW))
                async with asyncio.timeout(20):
                    (command,) = await claim
                assert str(command.execution_id) == started.execution_id
                revoked = asyncio.ensure_future(control.revoked("far", 30.0))
                await client.cancel(started.execution_id, "enough")
                async with asyncio.timeout(20):
                    assert [one.command_id for one in await revoked] == [command.command_id]


async def test_a_server_starts_without_nats_and_tells_how_the_bus_does(tmp_path: Path) -> None:
    with running_nats() as nats:
        nats.kill()
        async with pair(tmp_path, nats.url) as (a, _), a.client() as http:
            assert (await http.get("/ready")).status_code == 200
            figures = (await http.get("/metrics")).text
            assert "arclog_bus_connected 0.0" in figures
            nats.start()
            async with asyncio.timeout(30):
                while "arclog_bus_connected 1.0" not in figures:
                    figures = (await http.get("/metrics")).text
            async with AsyncClient(a.url) as client:
                await client.execute(ExecuteRequest(SLOW))
            async with asyncio.timeout(30):
                while "arclog_events_published_total 0.0" in figures:
                    figures = (await http.get("/metrics")).text
            assert "arclog_bus_notices_told_total" in figures
            assert "arclog_bus_dropped_total 0.0" in figures
