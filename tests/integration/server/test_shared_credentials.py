"""Credentials of servers that share a PostgreSQL, and of workers elsewhere: given to one, used by all, opened by the key alone."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from arclog.model.config.settings import Settings
from arclog.secrets.store import LocalStore
from arclog.wiring.worker import remote_worker
from tests.integration.server.callers import bearer, make_keys
from tests.servers.arclog import RunningServer, running
from tests.servers.postgres import Database

SECRET = "s3cret/with+odd=chars"
PLAYBOOK = """
metadata: {name: uses}
keychain: [{name: crm, kind: secret}]
workflow:
  - step: start
    tool: {kind: noop, data: {n: "{{ keychain.crm.value | length }}", text: "{{ keychain.crm.value }}"}}
"""


def new_key(path: Path) -> str:
    path.write_bytes(base64.b64encode(os.urandom(32)) + b"\n")
    path.chmod(0o600)
    return str(path)


async def used(client: httpx2.AsyncClient, **headers: str) -> tuple[str, str]:
    """How a run ended that uses the secret, and what it says of it: its length, or why there is none."""
    started = await client.post("/api/executions", json={"playbook": PLAYBOOK}, headers=headers)
    run = f"/api/executions/{started.json()['execution_id']}"
    stream = await client.get(f"{run}/events/stream", headers=headers)  # to the run's end
    detail = (await client.get(run, headers=headers)).json()
    assert SECRET not in stream.text + str(detail)
    text = detail["error"]["message"] if detail["error"] else str(detail["result"]["n"])
    return detail["state"], text


@asynccontextmanager
async def two(
    folder: Path, database: Database, a: dict[str, Any], b: dict[str, Any]
) -> AsyncIterator[tuple[httpx2.AsyncClient, httpx2.AsyncClient]]:
    """Two servers with homes of their own; B has a worker."""
    url: dict[str, Any] = {"store.url": database.dsn}
    async with (
        running(folder / "a", worker=False, **url, **a) as first,
        running(folder / "b", **url, **b) as second,
        first.client() as at_a,
        second.client() as at_b,
    ):
        yield at_a, at_b


async def test_what_one_server_is_given_every_server_has(tmp_path: Path, postgres: Database) -> None:
    key = {"secrets.key_file": new_key(tmp_path / "one.key")}
    async with two(tmp_path, postgres, key, key) as (a, b):
        kept = await a.put("/api/credentials/crm", json={"value": SECRET})
        assert (kept.status_code, kept.json()["scope"]) == (200, "default")
        assert (await b.get("/api/credentials")).json() == {"credentials": [kept.json()]}
        assert await used(b) == ("COMPLETED", str(len(SECRET)))
        assert await used(a) == ("COMPLETED", str(len(SECRET))), "asked for at A, run at B"
        await b.put("/api/credentials/crm", json={"value": "another one"})
        assert await used(a) == ("COMPLETED", "11")
        assert (await a.delete("/api/credentials/crm")).status_code == 200
        assert (await b.get("/api/credentials")).json() == {"credentials": []}
        state, why = await used(b)
        assert state == "FAILED"
        assert "there is no secret crm in scope default/default/local" in why
        assert (await b.delete("/api/credentials/crm")).status_code == 404
    left = await asyncio.to_thread(lambda: [*tmp_path.glob("*/secrets*")])
    assert left == [], "nothing of it is in a home"


async def test_a_server_with_another_key_or_none_says_so_and_harms_nothing(
    tmp_path: Path, postgres: Database, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "b.key"
    async with two(tmp_path, postgres, {}, {"secrets.key_file": str(own)}) as (a, b):
        assert (await a.put("/api/credentials/crm", json={"value": SECRET})).status_code == 200
        assert "provide it to all servers" in caplog.text
        before = postgres.rows("SELECT * FROM arclog.secrets")
        assert SECRET.encode() not in before[0][-1]
        for message in ("their key is not at", "sealed with another key"):
            state, why = await used(b)
            assert state == "FAILED"
            assert message in why
            assert "secrets.key_file" in why
            for name in ("crm", "other"):
                refused = await b.put(f"/api/credentials/{name}", json={"value": "x1y2"})
                assert (refused.status_code, refused.json()["title"]) == (409, "SecretUnavailable")
                assert message in refused.json()["detail"]
                assert str(tmp_path) not in refused.text
            for client, status in ((a, "ok"), (b, "fail")):
                checks = (await client.get("/api/doctor")).json()["checks"]
                [check] = [check for check in checks if check["name"] == "secrets"]
                assert check["status"] == status
            assert message in check["detail"]
            assert "secrets.key_file" in check["remedy"]
            new_key(own)
        assert postgres.rows("SELECT * FROM arclog.secrets") == before, "nothing is lost"
        own.write_bytes((tmp_path / "a/secrets.key").read_bytes())
        assert await used(b) == ("COMPLETED", str(len(SECRET))), "without a restart"
    new_key(own)
    LocalStore(tmp_path / "b", Settings()).put("old_one", "default", SECRET, "2026-01-01T00:00:00Z")
    caplog.clear()
    with caplog.at_level(logging.ERROR, "arclog.server"):
        place = {"store.url": postgres.dsn, "secrets.key_file": str(own)}
        async with running(tmp_path / "b", worker=False, **place) as server, server.client() as client:
            assert "sealed with another key" in caplog.text
            assert "holds secrets that are not used" in caplog.text
            checks = (await client.get("/api/doctor")).json()["checks"]
            statuses = [(check["status"], check["detail"]) for check in checks if check["name"] == "secrets"]
            assert [status for status, _ in statuses] == ["fail", "warn"]
            assert "old_one" in statuses[1][1]
            assert (await client.delete("/api/credentials/crm")).status_code == 200, "that needs no key"


@asynccontextmanager
async def working(server: RunningServer, token: str = "", **settings: Any) -> AsyncIterator[None]:
    async with remote_worker(Settings(settings), server.url, token, ["default"]) as worker:
        task = asyncio.ensure_future(worker.run())
        yield
        worker.leave()
        await task


async def test_a_worker_elsewhere_opens_what_the_server_keeps_with_the_same_key(tmp_path: Path) -> None:
    home, place = tmp_path / "home", {"home": str(tmp_path / "worker")}
    async with running(home, worker=False) as server, server.client() as client:
        await client.put("/api/credentials/crm", json={"value": SECRET})
        async with working(server, **place, **{"secrets.key_file": new_key(tmp_path / "one.key")}):
            assert "the secrets of the server are sealed with another key" in (await used(client))[1]
        async with working(server, **place):
            assert "their key is not at" in (await used(client))[1]
        async with working(server, **place, **{"secrets.key_file": str(home / "secrets.key")}):
            assert await used(client) == ("COMPLETED", str(len(SECRET)))
            await client.delete("/api/credentials/crm")
            assert "there is no secret crm" in (await used(client))[1]
        LocalStore(tmp_path / "worker", Settings()).put("crm", "default", "its own", "2026-01-01T00:00:00Z")
        await client.put("/api/credentials/crm", json={"value": SECRET})
        async with working(server, **place):
            assert await used(client) == ("COMPLETED", "7"), "a worker's own goes before"


async def test_only_workers_get_what_is_sealed_and_only_of_their_tenant(tmp_path: Path) -> None:
    home = tmp_path / "home"
    callers = [("acme", "engineer"), ("acme", "worker"), ("other", "worker"), ("acme", "viewer")]
    keys = await make_keys(home, callers)
    principal = {caller: bearer(keys[caller]) for caller in callers}
    async with running(home, worker=False) as server, server.client() as client:
        await client.put("/api/credentials/crm", json={"value": SECRET}, headers=principal["acme", "engineer"])

        async def asked(caller: tuple[str, str], scope: str = "acme/p/e", name: str = "crm") -> httpx2.Response:
            body = {"name": name, "scope": scope}
            return await client.post("/api/worker/secret", json=body, headers=principal[caller])

        answer = await asked(("acme", "worker"))
        assert answer.json()["secret"]["info"]["name"] == "crm"
        assert SECRET not in answer.text
        assert (await asked(("acme", "worker"), name="none")).json() == {"secret": None}
        assert (await asked(("other", "worker"))).status_code == 404
        assert (await asked(("other", "worker"), "other/p/e")).json() == {"secret": None}
        assert (await asked(("acme", "viewer"))).status_code == 403
        assert (await asked(("acme", "engineer"))).status_code == 403
        assert (await client.post("/api/worker/secret", json={"name": "crm", "scope": "acme"})).status_code == 401
        for scope in ("acme/\x00", "a" * 1000):
            assert (await asked(("acme", "worker"), scope)).status_code == 422
