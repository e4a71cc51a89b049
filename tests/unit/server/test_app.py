"""The application as a whole: who may call what, and how errors are answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from arclog.model.settings import Settings
from arclog.wiring.server import serve


@pytest.fixture
async def url(tmp_path: Path):
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    settings = Settings({"home": str(tmp_path), "server.port": 0})
    server = asyncio.ensure_future(serve(settings, with_worker=True, started=started))
    done, _ = await asyncio.wait((server, started), return_when=asyncio.FIRST_COMPLETED)
    if server in done:
        await server
    yield started.result()
    server.cancel()
    await asyncio.gather(server, return_exceptions=True)


async def test_health_and_an_unknown_run(url: str) -> None:
    async with httpx2.AsyncClient(base_url=url) as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert (await client.get("/ready")).json() == {"status": "ready"}
        answer = await client.get("/api/executions/123/status")
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert (await client.get("/api/executions/x/status")).status_code == 422
