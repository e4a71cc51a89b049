"""Workers over HTTP and a server whose results are elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from arclog.client.connection import Connection
from arclog.client.results import RemoteResults
from arclog.client.transport import Transport
from arclog.model.config.settings import Settings
from arclog.model.errors import ResultStoreAway, ResultUnavailable
from arclog.testing.conformance.results import listed, read, stored
from tests.servers.arclog import running
from tests.servers.nats import NatsServer

TENANT = "default"
ITEMS = [{"id": number} for number in range(1000)]


async def test_a_worker_stores_and_reads_through_its_server(tmp_path: Path, nats_server: NatsServer) -> None:
    elsewhere = {"results.url": "nats", "bus.url": nats_server.url, "results.bucket": f"s-{os.urandom(4).hex()}"}
    async with running(tmp_path / "home", worker=False, **elsewhere) as server:
        connection = Connection(server.url, Settings())
        results = RemoteResults(Transport(connection), "nats", 1 << 30)
        body = os.urandom(2_000_000)
        assert await read(results, (await stored(results, body, TENANT)).sha256, tenant=TENANT) == body
        sha256 = (await listed(results, ITEMS, TENANT)).sha256
        assert await results.items(TENANT, sha256, 990, 995) == ITEMS[990:995]
        assert await results.remove(TENANT, sha256)
        with pytest.raises(ResultUnavailable, match="is missing"):
            await results.items(TENANT, sha256, 0, 1)
        await connection.close()
    assert not (tmp_path / "home" / "results").exists()


async def test_a_store_that_is_away_is_told_as_that(tmp_path: Path) -> None:
    elsewhere = {"results.url": "nats", "bus.url": "nats://someone:s3cr3t@127.0.0.1:1", "results.patience_s": 0.1}
    async with running(tmp_path / "home", worker=False, **elsewhere) as server:
        connection = Connection(server.url, Settings({"client.patience_s": 0.0}))
        results = RemoteResults(Transport(connection), "nats", 1 << 30)
        with pytest.raises(ResultStoreAway, match=r"NATS nats://127\.0\.0\.1:1 cannot be reached") as raised:
            await stored(results, b"x", TENANT)
        assert "s3cr3t" not in str(raised.value)
        with pytest.raises(ResultStoreAway):
            await results.find(TENANT, "0" * 64)
        await connection.close()
