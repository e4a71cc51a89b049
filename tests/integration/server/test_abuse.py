"""A caller with a key, and ill will: it can spoil nothing for others, and learns nothing that is not for it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec.structs import replace

from arclog.engine.views.api import EngineApi
from arclog.model.events import Event
from arclog.ports.views.api import StoredResult
from tests.integration.server.callers import bearer, make_keys
from tests.integration.server.test_executions import HELD
from tests.servers.arclog import RunningServer, running

WORK = """
metadata: {name: work}
workflow: [{step: start, tool: {kind: noop}}]
"""
ROLES = ("admin", "operator", "viewer", "worker")


class Site:
    def __init__(self, server: RunningServer, client: httpx2.AsyncClient, keys: dict[tuple[str, str], str]) -> None:
        self.server = server
        self.client = client
        self._keys = keys

    def who(self, tenant: str, role: str) -> dict[str, str]:
        return bearer(self._keys[tenant, role])

    async def started(self, text: str, tenant: str = "a") -> str:
        answer = await self.client.post("/api/executions", json={"playbook": text}, headers=self.who(tenant, "admin"))
        execution_id: str = answer.json()["execution_id"]
        return execution_id

    async def post(self, call: str, body: Any, tenant: str = "a") -> httpx2.Response:
        return await self.client.post(f"/api/worker/{call}", json=body, headers=self.who(tenant, "worker"))

    async def claimed(self, worker_id: str = "w", tenant: str = "a") -> dict[str, Any]:
        worker = {"worker_id": worker_id, "kinds": ["noop"], "pools": ["default"]}
        answer = await self.post("claim", {"worker": worker, "limit": 1, "wait_s": 20}, tenant)
        (command,) = answer.json()["commands"]
        claimed_command: dict[str, Any] = command
        return claimed_command


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    keys = await make_keys(tmp_path / "home", [(tenant, role) for tenant in "ab" for role in ROLES])
    async with running(tmp_path / "home", worker=False) as server, server.client() as client:
        yield Site(server, client, keys)


def line(execution_id: str, **changes: Any) -> dict[str, Any]:
    plain = {"execution_id": int(execution_id), "at": 1, "step": "start", "run": 1, "task": "start_task"}
    return {**plain, "task_run": 1, "attempt": 1, "stream": "stdout", "text": "x", **changes}


WRONG_LINES: tuple[dict[str, Any], ...] = (
    {"stream": "weird"},
    {"at": 1 << 62},
    {"at": -1},
    {"attempt": 1 << 63},
    {"run": -1},
    {"iteration": [1 << 64]},
    {"step": "s" * 1000},
)


async def test_a_log_line_that_could_not_be_told_is_refused(site: Site) -> None:
    run = await site.started(HELD)
    for wrong in WRONG_LINES:
        answer = await site.post("logs", {"lines": [line(run), line(run, **wrong)]})
        assert answer.status_code == 422, wrong
    assert (await site.post("logs", {"lines": [line(run)]})).status_code == 200
    read = await site.client.get(f"/api/executions/{run}/logs", headers=site.who("a", "viewer"))
    assert [line["text"] for line in read.json()["lines"]] == ["x"]


async def test_a_worker_has_its_own_tenants_runs_alone(site: Site) -> None:
    theirs = await site.started(WORK, "b")
    mine = await site.claimed(tenant="b")
    where = {"execution_id": int(theirs), "command_id": mine["command_id"], "fence": mine["fence"]}
    events = msgspec.to_builtins([Event("step.started", 1, "start", 1)])
    before = (await site.client.get(f"/api/executions/{theirs}/events", headers=site.who("b", "viewer"))).json()
    for tenant, worker_id, code in (("a", "w", 404), ("b", "other", 409)):
        answer = await site.post("report", {"worker_id": worker_id, **where, "n": 1, "events": events}, tenant)
        assert answer.status_code == code, answer.text
        assert (await site.post("give-back", {"worker_id": worker_id, **where}, tenant)).status_code == code
        lost = await site.post("heartbeat", {"worker_id": worker_id, "held": [[where["command_id"], 1]]}, tenant)
        assert lost.json()["commands"] == [where["command_id"]], "it is not this worker's"
    assert (await site.post("logs", {"lines": [line(theirs)]})).status_code == 404
    loop = {"execution_id": int(theirs), "step": "start", "run": 1, "after": 0, "limit": 10}
    assert (await site.post("loop-results", loop)).status_code == 404
    after = (await site.client.get(f"/api/executions/{theirs}/events", headers=site.who("b", "viewer"))).json()
    assert after == before
    claim = {"worker": {"worker_id": "w", "kinds": ["noop"], "pools": [], "tenant": "b"}, "limit": 10}
    await site.started(WORK, "b")
    assert (await site.post("claim", claim)).json() == {}, "whatever tenant it names"


async def test_content_of_another_tenant_is_not_reached_by_any_name(site: Site) -> None:
    body = b'"secret of b"'
    digest = hashlib.sha256(body).hexdigest()
    url = "/api/worker/results"
    put = {"tenant": "b", "sha256": digest}
    assert (await site.client.post(url, params=put, content=body, headers=site.who("b", "worker"))).status_code == 200
    for tenant, name in (
        ("b", digest),
        ("a", digest),
        ("a", f"../../b/{digest[:2]}/{digest}"),
        ("a", f"../results/b/{digest[:2]}/{digest}"),
        ("a/../b", digest),
        ("a", digest.upper()),
        ("a", "\x00" * 64),
        ("../b", digest),
    ):
        for ask in ("", "/about", "/items"):
            params: dict[str, Any] = {"tenant": tenant, "sha256": name, "first": 0, "last": 9}
            answer = await site.client.get(f"{url}{ask}", params=params, headers=site.who("a", "worker"))
            assert answer.status_code in (404, 422) or answer.text == "null"
            assert "secret" not in answer.text
        removed = await site.client.delete(
            url, params={"tenant": tenant, "sha256": name}, headers=site.who("a", "admin")
        )
        assert removed.status_code in (404, 422) or removed.json() == {"removed": 0}
    read = await site.client.get(url, params=put, headers=site.who("b", "worker"))
    assert read.content == body


async def test_what_others_are_writing_is_not_tidied_away(site: Site, tmp_path: Path) -> None:
    """Leftovers have no tenant: whoever asks, only what nobody can be writing any more goes."""
    new = tmp_path / "home" / "results" / ".new"
    new.mkdir(parents=True)
    (new / "1-abandoned").write_bytes(b"half")
    os.utime(new / "1-abandoned", (1, 1))
    (new / "1-under-way").write_bytes(b"half")
    admin = site.who("a", "admin")
    params = {"older_than": (1 << 63) - 1}
    answer = await site.client.delete("/api/worker/results/leftovers", params=params, headers=admin)
    assert answer.json() == {"removed": 1}
    assert [file.name for file in new.iterdir()] == ["1-under-way"]


async def test_a_content_type_is_one_header_at_most(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content types come from other servers and from workers: they are told as they are, or not at all."""
    text = "metadata: {name: x}\nworkflow: [{step: start, tool: {kind: python, code: 'result = \"x\" * 100_000'}}]"
    original = EngineApi.result
    content_type = ""

    async def renamed(self: EngineApi, ref: str) -> StoredResult:
        """What a worker may have reported."""
        return replace(await original(self, ref), content_type=content_type)

    monkeypatch.setattr(EngineApi, "result", renamed)
    async with server.client() as client:
        run = (await client.post("/api/executions", json={"playbook": text})).json()["execution_id"]
        await client.get(f"/api/executions/{run}/head", params={"until": "ended", "timeout_s": 30})
        (stored,) = (await client.get(f"/api/executions/{run}/results")).json()["results"]
        for content_type in ("text/html\r\nSet-Cookie: a=b\r\n\r\n<script>", "\x00", "ü" * 9, "", "a" * 300):
            answer = await client.get("/api/result/resolve", params={"ref": stored["ref"]})
            assert answer.status_code == 200, content_type
            assert answer.headers["content-type"] == "application/octet-stream"
            assert "set-cookie" not in answer.headers
            assert len(answer.content) >= 100_000
        content_type = 'text/csv; charset="utf-8"'
        answer = await client.get("/api/result/resolve", params={"ref": stored["ref"]})
        assert answer.headers["content-type"] == content_type


async def test_a_worker_that_says_too_much_is_refused_at_once(site: Site) -> None:
    plain = {"worker_id": "w", "kinds": ["noop"], "pools": ["default"]}
    for worker in (
        {**plain, "pools": [f"p{number}" for number in range(2000)]},
        {**plain, "kinds": ["k" * 1000]},
        {**plain, "worker_id": "w" * 1000},
        {**plain, "worker_id": "w@b/key-1"},
        {**plain, "worker_id": ""},
    ):
        assert (await site.post("claim", {"worker": worker, "limit": 1})).status_code == 422
    for worker_id in ("", "w" * 1_000_000, "a b", "w@b/key-1", "\x00"):
        assert (await site.post("heartbeat", {"worker_id": worker_id, "held": []})).status_code == 422
        assert (await site.post("revoked", {"worker_id": worker_id})).status_code == 422
        away = {"worker_id": worker_id, "execution_id": 1, "command_id": 1, "fence": 1}
        assert (await site.post("give-back", away)).status_code == 422
        assert (await site.post("report", {**away, "n": 1, "events": []})).status_code == 422
    held = [[number, 1] for number in range(20_000)]
    assert (await site.post("heartbeat", {"worker_id": "w", "held": held})).status_code == 422


async def test_a_credentials_place_is_one_name_each(site: Site) -> None:
    admin = site.who("a", "admin")
    for name in ("a/b", "..", "\x00", " ", "x" * 1000, "é"):
        for place in ({"project": name}, {"project": "p", "environment": name}):
            body = {"value": "v" * 9, **place}
            answer = await site.client.put("/api/credentials/x", json=body, headers=admin)
            assert (answer.status_code, "cannot be the name" in answer.json()["detail"]) == (422, True), place
    foreign = {"value": "v" * 9, "tenant": "b"}
    assert (await site.client.put("/api/credentials/x", json=foreign, headers=admin)).status_code == 404
    assert (await site.client.get("/api/credentials", headers=site.who("b", "viewer"))).json() == {"credentials": []}


async def test_where_the_server_keeps_things_is_told_to_nobody(site: Site, tmp_path: Path) -> None:
    who = site.who("a", "worker")
    params: dict[str, Any] = {"tenant": "a", "sha256": "0" * 64, "first": 0, "last": 1}
    for path in ("/api/worker/results", "/api/worker/results/items"):
        answer = await site.client.get(path, params=params, headers=who)
        assert answer.status_code == 404
        assert str(tmp_path) not in answer.text
    large = await site.post("heartbeat", {"worker_id": "w", "held": [[1 << 64, 1]]})
    assert large.status_code == 422
    assert str(tmp_path) not in large.text


async def test_all_that_can_be_said_to_one_run_at_once(site: Site) -> None:
    """Whoever wins, the log is one story: one end at most, pauses and resumptions in turn, every answer true."""
    run = await site.started(HELD)
    admin = site.who("a", "admin")

    async def say(what: str, number: int) -> httpx2.Response:
        body = {"reason": f"{what} {number}", "signal_id": f"{what}-{number // 2}"}  # every id comes twice
        if what == "retry":
            body["step"] = "start"
        return await site.client.post(f"/api/executions/{run}/{what}", json=body, headers=admin)

    signals = [(signal, number) for number in range(12) for signal in ("pause", "resume", "retry", "approve", "reject")]
    signals[30:30] = [("cancel", 0), ("cancel", 1)]
    answers = await asyncio.gather(*(say(*request) for request in signals))
    codes = Counter(answer.status_code for answer in answers)
    assert set(codes) <= {200, 409}, codes
    by_id: dict[str, set[bool]] = {}
    for (signal, number), answer in zip(signals, answers, strict=True):
        by_id.setdefault(f"{signal}-{number // 2}", set()).add(answer.status_code == 200)
    assert all(len(answers_of_id) == 1 for answers_of_id in by_id.values()), "the same id is answered as before"
    events = (await site.client.get(f"/api/executions/{run}/events", headers=admin)).json()["events"]
    types = [event["event_type"] for event in events]
    assert sum(name in ("playbook.finished", "execution.cancelled") for name in types) == 1
    turns = [name for name in types if name in ("playbook.paused", "playbook.resumed")]
    assert turns[::2] == ["playbook.paused"] * len(turns[::2])
    assert turns[1::2] == ["playbook.resumed"] * len(turns[1::2])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    again = await asyncio.gather(*(say("cancel", number) for number in range(2)))
    assert {answer.status_code for answer in again} == {answers[30].status_code}
