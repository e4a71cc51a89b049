"""Two servers on one store: what is said to one holds at the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.servers.arclog import RunningServer, running

PLAYBOOK = "metadata: {name: hello, path: flows/hello}\nworkflow:\n  - step: s\n    tool: {kind: noop, data: hi}\n"
ASKS = "metadata: {name: asks}\nworkflow:\n  - step: s\n    tool: {kind: approval, prompt: go on?}\n"


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[RunningServer, RunningServer]]:
    async with AsyncExitStack() as stack:
        # No cached answer may hide what the other one did.
        settings: dict[str, Any] = {"auth.cache_s": 0.0, "engine.sweep_s": 0.05}
        a = await stack.enter_async_context(running(tmp_path / "home", worker=False, **settings))
        b = await stack.enter_async_context(running(tmp_path / "home", **settings))
        yield a, b


async def test_runs_signals_catalog_and_keys_of_one_are_the_others(pair: tuple[RunningServer, RunningServer]) -> None:
    a, b = pair
    async with a.client() as at_a, b.client() as at_b:
        body = {"playbook": ASKS, "idempotency_key": "once"}
        started = (await at_a.post("/api/execute", json=body)).json()["execution_id"]
        assert (await at_b.post("/api/execute", json=body)).json()["execution_id"] == started
        # It waits at B's worker; A is asked, A is told, and B's readers see it.
        head = 0
        while "approval" not in (await at_a.get(f"/api/executions/{started}/why")).text:
            answer = await at_a.get(f"/api/executions/{started}/head", params={"after": head, "timeout_s": 5})
            head = answer.json()["head"]
        signal_answer = await at_a.post(
            f"/api/executions/{started}/signal", json={"signal": "APPROVE", "signal_id": "yes"}
        )
        assert signal_answer.json()["accepted"], signal_answer.text
        again = await at_b.post(f"/api/executions/{started}/signal", json={"signal": "APPROVE", "signal_id": "yes"})
        assert again.json()["accepted"], "the same signal at the other one is the same"
        await at_b.get(f"/api/executions/{started}/head", params={"until": "ended", "timeout_s": 20})
        for client in (at_a, at_b):
            assert (await client.get(f"/api/executions/{started}/status")).json()["state"] == "COMPLETED"
            assert (await client.get(f"/api/executions/{started}/events")).json()["next"] > head

        assert (await at_a.post("/api/catalog", json={"playbook": PLAYBOOK})).status_code in (200, 201)
        ran = await at_b.post("/api/execute", json={"path": "flows/hello"})
        assert ran.status_code in (200, 201, 202), ran.text
        schedule = {"name": "nightly", "cron": "0 6 * * *", "path": "flows/hello"}
        assert (await at_a.post("/api/schedules", json=schedule)).status_code in (200, 201)
        assert (await at_b.get("/api/schedules/nightly")).json()["cron"] == "0 6 * * *"

        made = await at_a.post("/api/keys", json={"name": "me", "roles": ["admin"]})
        key = {"authorization": f"Bearer {made.json()['key']}"}
        assert (await at_b.get("/api/executions")).status_code == 401, "from the first key on B asks, too"
        assert (await at_b.get("/api/executions", headers=key)).status_code == 200
        gone = await at_b.delete(f"/api/keys/{made.json()['about']['key_id']}", headers=key)
        assert gone.status_code in (200, 204), gone.text
        assert (await at_a.get("/api/executions", headers=key)).status_code == 401
