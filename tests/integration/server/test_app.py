"""The application as a whole: who may call what, and how errors are answered."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing

import pytest

from arclog.model.config.settings import Settings
from arclog.wiring.serving.processes import listen
from tests.servers.arclog import RunningServer


async def test_health_and_an_unknown_run(server: RunningServer) -> None:
    async with server.client() as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert (await client.get("/ready")).json() == {"status": "ready"}
        answer = await client.get("/api/executions/123/status")
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert (await client.get("/api/executions/x/status")).status_code == 422
        nothing = (await client.get("/api/nothing")).json()
        assert (nothing["title"], nothing["detail"][:38]) == ("NotFound", "there is no route GET /api/nothing; /a")
        wrong = await client.delete("/api/executions")
        assert (wrong.status_code, wrong.json()["title"], "allow" in wrong.headers) == (
            405,
            "MethodNotAllowed",
            True,
        )
        unfit = (await client.get("/api/executions", params={"limit": 0})).json()
        assert "query.limit" in unfit["detail"]


def test_answers_are_not_held_back_by_nagles_algorithm() -> None:
    """asyncio turns it off for sockets that name their protocol; without, every answer took 40 ms."""
    with closing(listen(Settings({"server.port": 0}))) as listener:
        assert listener.proto == socket.IPPROTO_TCP


async def test_a_caller_that_hangs_up_within_its_body_is_no_bug_of_ours(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /api/executions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()
    async with server.client() as client:
        while "requests_open 1" not in (await client.get("/metrics")).text:
            pass
        writer.close()
        while "requests_open 0" not in (await client.get("/metrics")).text:
            pass
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
