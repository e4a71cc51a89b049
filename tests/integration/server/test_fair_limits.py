"""One caller cannot use up what all need: requests, memory, the audit; and others' plans are not for it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import RequestTooLarge, TooManyRequests
from arclog.model.principal import Principal
from arclog.ports.storage.access import AuditEntry
from arclog.server.auth.audit import Denials
from arclog.server.call import decoded
from arclog.server.traffic import Slot, Traffic
from arclog.testing.virtual import FakeClock
from tests.integration.server.callers import bearer, make_keys
from tests.integration.server.test_executions import HELD
from tests.servers.arclog import RunningServer, running

MIB = 1024 * 1024
WORK = "metadata: {name: work}\nworkflow: [{step: start, tool: {kind: noop}}]\n"


def caller(tenant: str, subject: str) -> Principal:
    return Principal(subject, tenant, frozenset({"viewer"}), subject=subject)


def filled(traffic: Traffic, key_name: Principal, most: int = 10_000) -> list[Slot]:
    """Requests of one caller, as many as the server takes."""
    slots: list[Slot] = []
    while len(slots) < most and (slot := traffic.enter()) is not None:
        try:
            slot.take(key_name)
        except TooManyRequests:
            slot.leave()
            break
        slots.append(slot)
    return slots


def traffic_of(**settings: Any) -> Traffic:
    return Traffic(Settings({name.replace("__", "."): value for name, value in settings.items()}))


def test_there_is_room_for_others_whoever_takes_all_he_can() -> None:
    traffic = traffic_of(server__max_concurrent=1000)
    hog = filled(traffic, caller("a", "hog"))
    assert len(hog) == 750
    assert len(filled(traffic, caller("a", "colleague"), 50)) == 50
    hogs = [filled(traffic, caller(tenant, f"hog-{n}")) for tenant in "bcd" for n in range(5)]
    assert len(filled(traffic, caller("e", "newcomer"), 5)) == 5
    for slot in (slot for slots in (hog, *hogs) for slot in slots):
        slot.leave()
    assert len(filled(traffic, caller("a", "hog"))) > 650


def test_urgent_requests_have_places_of_their_own() -> None:
    traffic = traffic_of(server__max_concurrent=10, server__reserved=4)
    while traffic.enter() is not None:
        pass
    urgent = [traffic.enter(urgent=True) for _ in range(5)]
    assert [slot is not None for slot in urgent] == [True] * 4 + [False]


def test_bodies_take_no_more_memory_than_there_is_for_them() -> None:
    traffic = traffic_of(server__max_held_bytes=100 * MIB)
    slots = [slot for slot in (traffic.enter() for _ in range(4)) if slot is not None]
    for slot, key_name in zip(
        slots, (caller("a", "a"), caller("a", "a"), caller("b", "b"), caller("c", "c")), strict=True
    ):
        slot.take(key_name)
    with pytest.raises(RequestTooLarge):
        slots[0].hold(51 * MIB)
    slots[0].hold(40 * MIB)
    with pytest.raises(TooManyRequests):
        slots[1].hold(20 * MIB)
    slots[2].hold(50 * MIB)
    with pytest.raises(TooManyRequests):
        slots[3].hold(20 * MIB)
    slots[0].leave()
    slots[3].hold(20 * MIB)


def test_denials_are_kept_by_the_minute() -> None:
    clock = FakeClock()
    denials = Denials(clock, 3)
    entry = AuditEntry(1, "denied", "", "", "GET", "/x", "", "10.0.0.1", "no key")
    kept = [record for _ in range(100) for record in denials.to_record(entry)]
    assert len(kept) == 3
    clock.advance(61)
    summary, first = denials.to_record(entry)
    assert (summary.reason, first) == ("97 more within a minute, the last of them: no key", entry)
    many = [
        record
        for n in range(10_000)
        for record in denials.to_record(AuditEntry(1, "denied", f"p{n}", "t", "GET", "/x", "", "", ""))
    ]
    assert len(many) <= 3 * 101


class Site:
    def __init__(self, server: RunningServer, keys: dict[tuple[str, str], str]) -> None:
        self.server = server
        self.keys = keys

    def client(self, tenant: str, role: str) -> httpx2.AsyncClient:
        limits = httpx2.Limits(max_connections=200)
        return self.server.client(headers=bearer(self.keys[tenant, role]), limits=limits)

    async def started(self, text: str, tenant: str) -> str:
        async with self.client(tenant, "admin") as client:
            answer = await client.post("/api/executions", json={"playbook": text})
            assert answer.status_code == 201, answer.text
            execution_id: str = answer.json()["execution_id"]
            return execution_id


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    roles = ("admin", "viewer", "operator", "worker")
    keys = await make_keys(tmp_path / "home", [(tenant, role) for tenant in "ab" for role in roles])
    settings: dict[str, Any] = {
        "server.max_concurrent": 24,
        "server.reserved": 2,
        "auth.max_denials": 5,
        "auth.audit_max_entries": 100,
    }
    async with running(tmp_path / "home", worker=False, **settings) as server:
        yield Site(server, keys)


async def test_streams_of_one_key_shut_out_nobody(site: Site) -> None:
    run = await site.started(HELD, "a")
    other = await site.started(HELD, "b")
    async with AsyncExitStack() as stack:
        hog = await stack.enter_async_context(site.client("a", "viewer"))
        answers = []
        for _ in range(40):
            answer = await stack.enter_async_context(hog.stream("GET", f"/api/executions/{run}/events/stream"))
            answers.append(answer.status_code)
        assert answers.count(200) < 24
        assert set(answers) == {200, 429}
        for tenant, role, method, path in (
            ("b", "viewer", "GET", f"/api/executions/{other}"),
            ("b", "admin", "POST", f"/api/executions/{other}/cancel"),
            ("a", "operator", "POST", f"/api/executions/{run}/cancel"),
        ):
            async with site.client(tenant, role) as client:
                answer = await client.request(method, path, json={"reason": "enough"} if method == "POST" else None)
                assert answer.status_code == 200, answer.text
        beat = {"worker_id": "w", "held": []}
        async with site.client("a", "worker") as worker:
            assert (await worker.post("/api/worker/heartbeat", json=beat)).status_code == 200


async def test_a_large_report_of_no_run_is_refused_before_it_is_decoded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def noted(raw: bytes, kind: type[Any]) -> Any:
        seen.append(kind.__name__)
        return decoded(raw, kind)

    monkeypatch.setattr("arclog.server.handlers.workers.decoded", noted)
    bomb = {"worker_id": "w", "execution_id": 12345, "command_id": 6789, "fence": 1, "n": 1, "events": [[]]}
    body = json.dumps(bomb).replace("[[]]", "[[" + "[]," * 500_000 + "[]]]")
    async with site.client("a", "worker") as worker:
        answer = await worker.post("/api/worker/report", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, seen) == (404, ["_ReportHead"])


async def test_a_large_report_is_decoded_event_by_event_beside_the_event_loop(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool]] = []

    def noted(raw: bytes, kind: type[Any]) -> Any:
        seen.append((kind.__name__, threading.current_thread() is threading.main_thread()))
        return decoded(raw, kind)

    monkeypatch.setattr("arclog.server.handlers.workers.decoded", noted)
    await site.started(WORK, "a")
    async with site.client("a", "worker") as worker:
        key_name = {"worker_id": "w", "kinds": ["noop"], "pools": ["default"]}
        answer = await worker.post("/api/worker/claim", json={"worker": key_name, "limit": 1, "wait_s": 20})
        (command,) = answer.json()["commands"]
        report = {"worker_id": "w", **{key: command[key] for key in ("execution_id", "command_id", "fence")}, "n": 1}
        event = {"t": "task.progressed", "@": 1, "p": {"text": "x" * 10_000}}
        large = await worker.post("/api/worker/report", json={**report, "events": [event] * 40})
        assert large.status_code in (200, 409, 422), large.text
        assert seen == [("_ReportHead", True), ("_ReportParts", False), *[("Event", False)] * 40]
        many = await worker.post("/api/worker/report", json={**report, "events": [{"t": "x", "@": 1}] * 20_000})
        assert (many.status_code, "1 to 1000 events" in many.text) == (422, True), many.text
        body = json.dumps({**report, "events": [event]}).encode() + b" " * (32 << 20)
        long = await worker.post("/api/worker/report", content=body, headers={"content-type": "application/json"})
        assert (long.status_code, "server.max_events_bytes" in long.text) == (413, True), long.text


async def test_what_takes_too_much_once_decoded_is_refused(site: Site) -> None:
    body = '{"playbook": [' + "[]," * 2_600_000 + "[]]}"
    async with site.client("a", "admin") as client:
        answer = await client.post("/api/executions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert "server.max_body_values" in answer.text


async def test_reports_are_numbered_from_one(site: Site) -> None:
    await site.started(WORK, "a")
    async with site.client("a", "worker") as worker:
        key_name = {"worker_id": "w", "kinds": ["noop"], "pools": ["default"]}
        answer = await worker.post("/api/worker/claim", json={"worker": key_name, "limit": 1, "wait_s": 20})
        (command,) = answer.json()["commands"]
        report = {"worker_id": "w", **{key: command[key] for key in ("execution_id", "command_id", "fence")}}
        refused = await worker.post("/api/worker/report", json={**report, "n": 0, "events": []})
        assert (refused.status_code, "are numbered from 1" in refused.text) == (422, True), refused.text


async def test_a_plan_is_for_its_own_tenant(site: Site) -> None:
    await site.started(WORK, "a")
    async with site.client("a", "worker") as worker, site.client("b", "worker") as stranger:
        key_name = {"worker_id": "w", "kinds": ["noop"], "pools": ["default"]}
        answer = await worker.post("/api/worker/claim", json={"worker": key_name, "limit": 1, "wait_s": 20})
        plan = answer.json()["commands"][0]["plan"]
        assert (await worker.get(f"/api/worker/plans/{plan}")).status_code == 200
        assert (await stranger.get(f"/api/worker/plans/{plan}")).status_code == 404
        await site.started(WORK, "b")
        assert (await stranger.get(f"/api/worker/plans/{plan}")).status_code == 200


async def test_denied_requests_do_not_fill_the_store(site: Site) -> None:
    async with site.client("a", "viewer") as client:
        answers = await asyncio.gather(*(client.post("/api/executions", json={"playbook": WORK}) for _ in range(15)))
    assert {answer.status_code for answer in answers} <= {403, 429}
    async with site.client("a", "admin") as admin:
        page = (await admin.get("/api/audit", params={"decision": "denied", "limit": 100})).json()
    assert len(page["entries"]) <= 6


async def test_granted_requests_do_not_fill_the_store(site: Site) -> None:
    async with site.client("a", "admin") as admin, site.client("a", "operator") as operator:
        await site.started(WORK, "b")
        await site.started(WORK, "a")
        for number in range(130):
            answer = await operator.post("/api/executions/1/pause", json={"reason": str(number)})
            assert answer.status_code == 404, "granted, though the run is not there"
        page = (await admin.get("/api/audit", params={"decision": "granted", "limit": 1000})).json()["entries"]
    by = Counter(entry["principal"] for entry in page)
    assert by["a-operator"] <= 100, "half of auth.audit_max_entries, and what came since it was counted last"
    assert by["a-admin"] == 1, "what others of the tenant did is still there"


def test_the_memory_of_a_tenants_requests_is_bounded_however_many_keys_it_has() -> None:
    traffic = traffic_of(server__max_held_bytes=400 * MIB)
    for name in ("first", "second"):
        for _ in range(2):
            slot = traffic.enter()
            assert slot is not None
            slot.take(caller("hog", name))
            if traffic.now < 4:
                slot.hold(100 * MIB)
            else:
                with pytest.raises(TooManyRequests):
                    slot.hold(100 * MIB)
    other = traffic.enter()
    assert other is not None
    other.take(caller("other", "somebody"))
    other.hold(100 * MIB)


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_of_too_many_values_is_refused_before_it_is_decoded(tmp_path: Path, chunked: bool) -> None:
    """To decode it would take the event loop half a second, for nothing: no event holds so much."""
    bomb = b'{"playbook": "a", "workload": {"a": [' + b"[]," * 100_000 + b"1]}}"
    text = "# " + '[{,\\"' * 60_000  # no values: they stand in a text
    many = json.dumps({"playbook": f"{WORK}{text}", "workload": {"a": [1] * 60_000}}).encode()

    async def sent(body: bytes) -> AsyncIterator[bytes]:
        yield body

    async with running(tmp_path) as server, server.client() as client:
        for body, status in ((bomb, 413), (many, 201)):
            answer = await client.post(
                "/api/executions",
                content=sent(body) if chunked else body,
                headers={"content-type": "application/json"},
            )
            assert answer.status_code == status, answer.text
            if status == 413:
                assert "server.max_body_values" in answer.text
