"""What anybody may ask tells nothing of tenants, of runs, or of where things are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arclog.model.errors import StoreUnavailable
from arclog.stores.sqlite import SqliteStore
from tests.integration.server.callers import bearer, make_keys
from tests.integration.server.test_executions import HELLO
from tests.servers.arclog import RunningServer, running

WHERE = "/srv/home/arclog.db and postgres://arclog:hunter2@db"


async def test_a_store_that_cannot_be_used_is_not_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable(f"cannot read {WHERE}")

    keys = await make_keys(tmp_path, [("default", "viewer")])
    async with running(tmp_path) as server, server.client() as client:
        with monkeypatch.context() as patch:
            for name in ("executions", "key", "backlog"):
                patch.setattr(SqliteStore, name, broken)
            ready = await client.get("/ready")
            assert (ready.status_code, ready.json()["title"]) == (503, "NotReady")
            listing = await client.get("/api/executions", headers=bearer(keys["default", "viewer"]))
            assert (listing.status_code, listing.headers["retry-after"]) == (503, "1")
            metrics = await client.get("/metrics")
            for answer in (ready, listing, metrics):
                assert "srv" not in answer.text
                assert "hunter2" not in answer.text
        assert (await client.get("/ready")).status_code == 200
    assert "cannot read /srv/home" in capfd.readouterr().err, "whoever looks after the server is told"


async def test_metrics_name_no_tenant_no_run_and_no_path(tmp_path: Path) -> None:
    keys = await make_keys(tmp_path, [("acme-rockets", "engineer")])
    async with running(tmp_path) as server, server.client() as client:
        caller = bearer(keys["acme-rockets", "engineer"])
        text = HELLO.replace("path: examples/hello", "path: secret-project/launch")
        run = (await client.post("/api/executions", json={"playbook": text}, headers=caller)).json()
        await client.get(f"/api/executions/{run['execution_id']}/head?until=ended&timeout_s=20", headers=caller)
        metrics = (await client.get("/metrics")).text
        assert "arclog_executions_started_total 1.0" in metrics
        for word in ("acme", "rockets", "secret-project", "launch", "hello", run["execution_id"], str(tmp_path)):
            assert word not in metrics


@pytest.mark.parametrize(
    ("role", "may"),
    [("viewer", "viewer operator engineer admin"), ("operator", "operator engineer admin"), ("admin", "admin")],
)
async def test_metrics_may_take_a_role(tmp_path: Path, role: str, may: str) -> None:
    roles = ("viewer", "operator", "engineer", "admin", "worker", "producer")
    keys = await make_keys(tmp_path, [("default", role) for role in roles])
    settings: dict[str, Any] = {"server.metrics_role": role}
    async with running(tmp_path, **settings) as server, server.client() as client:
        assert (await client.get("/metrics")).status_code == 401
        statuses = {
            role: (await client.get("/metrics", headers=bearer(keys["default", role]))).status_code for role in roles
        }
        assert statuses == {role: 200 if role in may.split() else 403 for role in roles}
        assert (await client.get("/health")).status_code == (await client.get("/ready")).status_code == 200


async def test_without_authentication_the_machine_may_see_them(server: RunningServer) -> None:
    async with server.client() as client:
        assert (await client.get("/metrics")).status_code == 200
