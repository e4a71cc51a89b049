"""Events from outside and runs under the contract, with keys: who may, and who sees what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import httpx2
import pytest

from tests.integration.server.callers import bearer, make_keys
from tests.servers.arclog import running

WAITS = "metadata: {name: waits, path: flows/waits}\nworkflow:\n  - step: start\n    tool: {kind: noop}\n"
ROLES = ("viewer", "operator", "engineer", "admin", "worker", "producer")


class World:
    def __init__(self, client: httpx2.AsyncClient, keys: dict[tuple[str, str], str]) -> None:
        self.client = client
        self.keys = keys
        self.run: dict[str, Any] = {}

    async def ask(self, method: str, path: str, role: str, tenant: str = "acme", **more: Any) -> httpx2.Response:
        headers = bearer(self.keys[tenant, role])
        return await self.client.request(method, path, headers=headers, **more)

    async def send(self, role: str, tenant: str = "acme", **event: Any) -> httpx2.Response:
        body = {"execution_id": self.run["executionId"], "step": "start", **event}
        return await self.ask("POST", "/api/events", role, tenant, json=body)

    async def signal(self, role: str, kind: str, signal_id: str, **more: Any) -> httpx2.Response:
        body = {"type": kind, "signalId": str(uuid5(NAMESPACE_OID, signal_id)), "reason": "why not", **more}
        return await self.ask("POST", f"/api/runs/{self.run['runId']}/signal", role, json=body)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    home = tmp_path / "home"
    keys = await make_keys(home, [(tenant, role) for tenant in ("acme", "globex") for role in ROLES])
    async with running(home, worker=False) as server, server.client() as client:
        world = World(client, keys)
        answer = await world.ask("POST", "/api/runs", "engineer", json={"playbook": WAITS, "idempotencyKey": "k"})
        assert answer.status_code == 201, answer.text
        world.run = answer.json()
        yield world


async def test_who_may_send_events(world: World) -> None:
    statuses = {role: (await world.send(role, event_type="call.done")).status_code for role in ROLES}
    # A worker speaks for a command, which it must name; others have nothing to say here.
    assert statuses == {"viewer": 403, "operator": 403, "engineer": 403, "admin": 200, "worker": 422, "producer": 200}
    for role, status in (("worker", 403), ("producer", 200), ("admin", 200)):
        assert (await world.send(role, event_type="playbook.finished")).status_code == status
    assert (await world.send("worker", event_type="step_completed")).status_code == 403


async def test_a_run_of_another_tenant_takes_no_events(world: World) -> None:
    for role in ("producer", "admin"):
        answer = await world.send(role, "globex", event_type="call.done", event_id=5)
        assert answer.status_code == 404
        batch = {"events": [{"execution_id": world.run["executionId"], "event_type": "batch.completed"}]}
        items = (await world.ask("POST", "/api/events/batch", role, "globex", json=batch)).json()["results"]
        assert [item["status"] for item in items] == [404]
    held = {"command_id": 5, "fence": 1, "worker_id": "w"}
    assert (await world.send("worker", "globex", event_type="step.enter", **held)).status_code == 404
    assert (await world.send("producer", event_type="call.done", event_id=5)).json()["duplicate"] is False


async def test_a_key_and_a_plan_are_the_tenants_own(world: World) -> None:
    again = await world.ask("POST", "/api/runs", "operator", json={"planId": "flows/waits", "idempotencyKey": "k"})
    assert (again.status_code, again.json()["runId"]) == (200, world.run["runId"])
    other = await world.ask("POST", "/api/runs", "operator", "globex", json={"planId": "flows/waits"})
    assert other.status_code == 404
    body = {"playbook": WAITS, "idempotencyKey": "k"}
    theirs = await world.ask("POST", "/api/runs", "engineer", "globex", json=body)
    assert (theirs.status_code, theirs.json()["tenantId"]) == (201, "globex")
    assert theirs.json()["runId"] != world.run["runId"]


async def test_only_who_builds_brings_a_playbook_along(world: World) -> None:
    answer = await world.ask("POST", "/api/runs", "operator", json={"playbook": WAITS})
    assert answer.status_code == 403
    assert (await world.ask("POST", "/api/runs", "viewer", json={"planId": "flows/waits"})).status_code == 403


async def test_signals_take_their_roles_and_say_who_gave_them(world: World) -> None:
    for role, kind, code in (
        ("viewer", "PAUSE", 403),
        ("producer", "PAUSE", 403),
        ("operator", "SKIP_STEP", 403),
        ("operator", "EMERGENCY_STOP", 403),
        ("engineer", "EMERGENCY_STOP", 403),
        ("operator", "PAUSE", 200),
        ("admin", "EMERGENCY_STOP", 200),
    ):
        answer = await world.signal(role, kind, f"{role}-{kind}", stepId="start" if kind == "SKIP_STEP" else "")
        assert answer.status_code == code, (role, kind, answer.text)
    path = f"/api/executions/{world.run['executionId']}/events?type=signal.received"
    log = (await world.ask("GET", path, "viewer")).json()["events"]
    signals = [(event["payload"]["signal"], event["payload"]["by"]) for event in log]
    assert signals == [("PAUSE", "acme-operator"), ("EMERGENCY_STOP", "acme-admin")]
    status = (await world.ask("GET", f"/api/runs/{world.run['runId']}/status", "viewer")).json()
    assert status["status"] == "CANCELLED"


async def test_every_record_names_the_tenant(world: World) -> None:
    path = f"/api/runs/{world.run['runId']}/events"
    records = (await world.ask("GET", path, "viewer")).json()["events"]
    assert {record["tenantId"] for record in records} == {"acme"}
    for role in ("viewer", "admin"):
        assert (await world.ask("GET", path, role, "globex")).status_code == 404
