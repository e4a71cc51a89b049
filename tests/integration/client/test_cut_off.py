"""A worker that is cut off from one of two servers asks the other one, while its leases last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from arclog.client.connection import Connection
from arclog.client.control import RemoteControl
from arclog.client.transport import Transport
from arclog.model.config.settings import Settings
from arclog.ports.views.api import ExecuteRequest
from arclog.testing.conformance.control import STEPS, WHOLE, WORKER, reported
from arclog.wiring.embedded import Embedded, embedded
from tests.servers.proxy import Mode, Proxy
from tests.servers.workplace import served

LEASE_S = 2.0
#: Below client.timeout_s: whoever waits for that has lost the lease.
TOO_LONG_S = 20.0


@pytest.fixture
async def embedded_runtime(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with embedded(Settings({"home": str(tmp_path)})) as runtime:
        yield runtime


@pytest.fixture
async def url(embedded_runtime: Embedded) -> AsyncIterator[str]:
    async with served(embedded_runtime, Settings({"leases.seconds": LEASE_S})) as address:
        yield address


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    proxy = Proxy(int(url.rpartition(":")[2]))
    yield proxy
    proxy.close()


@pytest.fixture
async def control(url: str, proxy: Proxy) -> AsyncIterator[RemoteControl]:
    """Of a worker that knows two ways to the server, and takes the first."""
    connection = Connection(f"http://127.0.0.1:{proxy.port},{url}", Settings({"client.patience_s": 0}))
    connection._at = 0
    control = RemoteControl(Transport(connection))
    await control.register(WORKER)
    assert connection.url.endswith(str(proxy.port))
    yield control
    await connection.close()


@pytest.mark.parametrize("mode", [Mode.BLACK_HOLE, Mode.ONLY_THERE, Mode.RESET], ids=lambda mode: mode.value)
async def test_a_heartbeat_finds_the_other_server_before_the_lease_is_over(
    control: RemoteControl, proxy: Proxy, mode: Mode
) -> None:
    proxy.be(mode)
    assert await control.heartbeat("one", []) == []


@pytest.mark.parametrize("mode", [Mode.BLACK_HOLE, Mode.ONLY_THERE], ids=lambda mode: mode.value)
async def test_a_report_finds_the_other_server_and_counts_once(
    embedded_runtime: Embedded, control: RemoteControl, proxy: Proxy, mode: Mode
) -> None:
    run = int((await embedded_runtime.api.execute(ExecuteRequest(playbook=STEPS))).execution_id)
    (command,) = await control.claim(WORKER, 1)
    proxy.be(mode)
    async with asyncio.timeout(TOO_LONG_S):
        await control.report(reported(command, 1, *WHOLE))
    # What was sent by the first way arrives as well, late or long ago.
    proxy.be(Mode.PASS)
    events = [event["event_type"] for event in await embedded_runtime.api.events(str(run))]
    assert events.count("task.done") == 1
