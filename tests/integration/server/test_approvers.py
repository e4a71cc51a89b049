"""Who may decide about an approval: those that its playbook names, by every way in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.integration.server.callers import bearer, make_keys
from tests.integration.server.test_executions import waits_for_approval
from tests.servers.arclog import RunningServer, running

ROLES = ("operator", "engineer", "admin")
REASON = {"reason": "looked at"}


def gated(approvers: str) -> str:
    return f"""
metadata: {{name: gated}}
workflow:
  - step: gate
    tool: {{kind: approval, approvers: {approvers}}}
"""


class Site:
    def __init__(self, server: RunningServer, keys: dict[tuple[str, str], str]) -> None:
        self._server = server
        self._keys = keys

    @asynccontextmanager
    async def caller(self, role: str) -> AsyncIterator[httpx2.AsyncClient]:
        async with self._server.client(headers=bearer(self._keys["acme", role])) as client:
            yield client

    async def waiting(self, approvers: str) -> tuple[str, str]:
        """A run that waits for its approvers, by its two ids."""
        async with self.caller("engineer") as engineer:
            answer = await engineer.post("/api/execute", json={"playbook": gated(approvers)})
            assert answer.status_code == 201, answer.text
            await waits_for_approval(engineer, answer.json()["execution_id"])
            return answer.json()["execution_id"], answer.json()["run_id"]

    async def status_of(self, role: str, path: str, body: object) -> int:
        async with self.caller(role) as client:
            answer = await client.post(path, json=body)
            if answer.status_code == 403:
                assert "its approvers are" in answer.text
            return answer.status_code


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    keys = await make_keys(tmp_path / "home", [("acme", role) for role in ROLES])
    async with running(tmp_path / "home", worker=True) as server:
        yield Site(server, keys)


@pytest.mark.parametrize(
    ("approvers", "refused", "accepted"),
    [
        ("[admin]", ["operator", "engineer"], "admin"),
        ("[engineer]", ["operator"], "engineer"),
        ("[operator]", [], "engineer"),
        ("[alice]", ["operator", "engineer"], "admin"),
        ("[alice, acme-operator]", ["engineer"], "operator"),
        ("[]", [], "operator"),
    ],
)
async def test_only_approvers_decide(site: Site, approvers: str, refused: list[str], accepted: str) -> None:
    execution_id, run_id = await site.waiting(approvers)
    run_path = f"/api/executions/{execution_id}"
    for role in refused:
        assert await site.status_of(role, f"{run_path}/approve", REASON) == 403
        assert await site.status_of(role, f"{run_path}/reject", REASON) == 403
        assert await site.status_of(role, f"{run_path}/signal", {"signal": "APPROVE"}) == 403
        assert (
            await site.status_of(role, f"{run_path}/signal", {"signal": "APPROVE", "step": "gate", "by": "alice"})
            == 403
        )
        signal = {"signalId": "6f1c2a7e-3b0d-4c55-9a41-0d2e8f7b6c13", "type": "APPROVE"}
        assert await site.status_of(role, f"/api/runs/{run_id}/signal", signal) == 403
        if role == "engineer":
            assert await site.status_of(role, f"{run_path}/skip", {"step": "gate", **REASON}) == 403
    async with site.caller("admin") as admin:
        events = (await admin.get(f"{run_path}/events")).json()["events"]
        assert [event for event in events if event["event_type"] == "signal.received"] == []
    assert await site.status_of(accepted, f"{run_path}/approve", REASON) == 200
