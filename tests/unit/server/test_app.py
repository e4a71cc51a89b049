"""The application as a whole: who may call what, and how errors are answered."""

from __future__ import annotations

from tests.servers.arclog import RunningServer


async def test_health_and_an_unknown_run(server: RunningServer) -> None:
    async with server.client() as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert (await client.get("/ready")).json() == {"status": "ready"}
        answer = await client.get("/api/executions/123/status")
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert (await client.get("/api/executions/x/status")).status_code == 422
