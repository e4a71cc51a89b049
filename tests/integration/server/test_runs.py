"""`/api/runs`: the Run Events Contract over a real server and real logs."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import httpx2
import jsonschema
import pytest

from arclog.dialects.run_record import idempotency_key
from tests.servers.arclog import RunningServer, running

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "run_idempotency_vectors.json").read_text("utf-8"))
UNKNOWN = "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a"


def uuid_of(name: str) -> str:
    return str(uuid5(NAMESPACE_OID, name))


PLAIN = """
metadata: {name: plain, path: flows/plain}
workflow:
  - step: start
    tool: {kind: python, code: "result = {'n': 3}"}
    next: {arcs: [{step: after}]}
  - step: after
    tool: {kind: noop}
"""
FAILS = """
metadata: {name: fails}
workflow:
  - step: start
    tool:
      - name: t
        kind: python
        code: "raise ValueError('no such order')"
        spec:
          policy:
            rules:
              - when: "{{ outcome.status == 'error' }}"
                then: {do: retry, attempts: 2, delay: 0}
"""
WAITS = """
metadata: {name: waits}
workflow:
  - step: start
    tool: {kind: wait, signal: go}
"""
APPROVED = """
metadata: {name: approved}
executor: {spec: {policy: {approval: required}}}
workflow:
  - step: start
    tool: {kind: noop}
"""
AGAIN = """
metadata: {name: again}
workflow:
  - step: start
    tool:
      - name: t
        kind: noop
        spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {n: "{{ (ctx.n | default(0)) + 1 }}"}}}}]}}
    next: {arcs: [{step: start, when: "{{ ctx.n < 3 }}"}]}
"""


class Client:
    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http

    async def start(self, playbook: str = "", **more: Any) -> dict[str, Any]:
        body = {"playbook": playbook, **more} if playbook else more
        answer = await self.http.post("/api/runs", json=body)
        assert answer.status_code in (200, 201), answer.text
        started: dict[str, Any] = answer.json()
        return started

    async def status(self, run_id: str) -> dict[str, Any]:
        answer = await self.http.get(f"/api/runs/{run_id}/status")
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def signal(self, run_id: str, kind: str, name: str, **more: Any) -> httpx2.Response:
        body = {"type": kind, "signalId": uuid_of(name), **more}
        return await self.http.post(f"/api/runs/{run_id}/signal", json=body)

    async def records(self, run_id: str, **query: Any) -> list[dict[str, Any]]:
        answer = await self.http.get(f"/api/runs/{run_id}/events", params=query)
        assert answer.status_code == 200, answer.text
        events: list[dict[str, Any]] = answer.json()["events"]
        return events

    async def until(self, run_id: str, event_type: str) -> list[dict[str, Any]]:
        """Its records, once one of this type is there. Follows the cursor, as a projector does."""
        events: list[dict[str, Any]] = []
        after = 0
        async with asyncio.timeout(60):
            while not any(event["eventType"] == event_type for event in events):
                page = (await self.http.get(f"/api/runs/{run_id}/events", params={"afterSeq": after})).json()
                events += page["events"]
                after = page["nextAfterSeq"]
        return events


@pytest.fixture
async def client(server: RunningServer):
    async with server.client() as http:
        yield Client(http)


@pytest.fixture
async def idle(control_plane: RunningServer):
    """Without a worker: what starts stays where it is."""
    async with control_plane.client() as http:
        yield Client(http)


async def test_a_run_is_started_and_told_in_the_contracts_records(client: Client) -> None:
    run = await client.start(PLAIN, parameters={"a": 1})
    assert (run["planId"], run["planVersion"], run["substatus"]) == ("flows/plain", "1", None)
    records = await client.until(run["runId"], "RunCompleted")
    assert [(record["eventType"], record.get("stepId")) for record in records] == [
        ("RunStarted", None),
        ("StepStarted", "start"),
        ("StepCompleted", "start"),
        ("StepStarted", "after"),
        ("StepCompleted", "after"),
        ("RunCompleted", None),
    ]
    seqs = [record["runSeq"] for record in records]
    assert seqs == sorted(set(seqs))
    assert records[2]["payload"]["result"] == {"n": 3}
    assert records[2]["payload"]["durationMs"] >= 0
    status = await client.status(run["runId"])
    assert (status["status"], status["executionId"]) == ("COMPLETED", run["executionId"])
    assert status["endedAt"] == records[-1]["occurredAt"]


async def test_every_record_has_the_key_of_the_formula_and_fits_the_published_schema(client: Client) -> None:
    schema = (await client.http.get("/api/schemas/run")).json()
    write = (await client.http.get("/api/schemas/run-write")).json()
    assert (await client.http.get("/api/schemas/none")).status_code == 404
    for playbook, last in ((PLAIN, "RunCompleted"), (FAILS, "RunFailed")):
        run = await client.start(playbook)
        records = await client.until(run["runId"], last)
        for record in records:
            jsonschema.validate(record, schema)
            jsonschema.validate({key: record[key] for key in record if key not in ("runSeq", "persistedAt")}, write)
            parts = [
                record["runId"],
                record.get("stepId", "RUN"),
                str(record["logicalAttemptId"]),
                record["eventType"],
                "1",
            ]
            assert record["idempotencyKey"] == sha256("|".join(parts).encode()).hexdigest()
            assert record["tenantId"], record["projectId"]
        assert len({record["idempotencyKey"] for record in records}) == len(records)
    for vector in VECTORS["vectors"]:
        step = None if vector["stepIdNormalized"] == "RUN" else vector["stepIdNormalized"]
        key = idempotency_key(
            vector["runId"], step, vector["logicalAttemptId"], vector["eventType"], vector["planVersion"]
        )
        assert key == vector["sha256"]


async def test_a_retry_is_an_attempt_of_its_own_and_errors_say_what_they_must(client: Client) -> None:
    run = await client.start(FAILS)
    records = await client.until(run["runId"], "RunFailed")
    steps = [(record["eventType"], record["logicalAttemptId"]) for record in records if "stepId" in record]
    assert steps == [("StepStarted", 1), ("StepFailed", 1), ("StepStarted", 2), ("StepFailed", 2)]
    failures = [record["payload"] for record in records if record["eventType"] in ("StepFailed", "RunFailed")]
    for payload in failures:
        assert payload["errorCode"]
        assert "no such order" in payload["errorMessage"]
        assert isinstance(payload["retryable"], bool)
        assert "ValueError" in payload["stack"]
    assert failures[-1]["step"] == "start"
    assert (await client.status(run["runId"]))["error"]


async def test_a_step_that_is_entered_again_has_a_name_of_its_own(client: Client) -> None:
    run = await client.start(AGAIN)
    records = await client.until(run["runId"], "RunCompleted")
    names = [
        (record["stepId"], record["payload"]["step"]) for record in records if record["eventType"] == "StepCompleted"
    ]
    assert names == [("start", "start"), ("start#2", "start"), ("start#3", "start")]


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_pages_of_any_size_tell_the_same_records(client: Client, limit: int) -> None:
    run = await client.start(FAILS)
    whole = await client.until(run["runId"], "RunFailed")
    paged: list[dict[str, Any]] = []
    page: dict[str, Any] = {"nextAfterSeq": 0, "hasMore": True}
    while page["hasMore"]:
        query = {"afterSeq": page["nextAfterSeq"], "limit": limit}
        page = (await client.http.get(f"/api/runs/{run['runId']}/events", params=query)).json()
        assert len(page["events"]) <= limit
        paged += page["events"]
    assert paged == whole
    for start in range(whole[-1]["runSeq"] + 2):  # a cursor that nobody was given
        expected = [record for record in whole if record["runSeq"] > start]
        assert await client.records(run["runId"], afterSeq=start, limit=1000) == expected


async def test_a_cursor_ahead_of_the_log_misses_nothing(idle: Client) -> None:
    run = await idle.start(WAITS)
    path = f"/api/runs/{run['runId']}/events"
    ahead = (await idle.http.get(path, params={"afterSeq": 6})).json()
    assert (ahead["events"], ahead["hasMore"]) == ([], False)
    await idle.http.post(f"/api/runs/{run['runId']}/cancel", json={"reason": "enough"})
    records = await idle.records(run["runId"], afterSeq=6)
    assert [event["eventType"] for event in records] == ["RunCancelled"]
    assert records == [record for record in await idle.records(run["runId"]) if record["runSeq"] > 6]


async def test_records_cannot_be_appended(idle: Client) -> None:
    run = await idle.start(WAITS)
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = await idle.http.request(method, f"/api/runs/{run['runId']}/events", json={})
        assert (answer.status_code, answer.headers["content-type"]) == (405, "application/problem+json")


async def test_a_plan_runs_by_its_path_and_pinned_version(idle: Client) -> None:
    first = await idle.start(PLAIN)
    second = await idle.start(PLAIN.replace("'n': 3", "'n': 4"))
    assert (first["planVersion"], second["planVersion"]) == ("1", "2")
    newest = await idle.start(planId="flows/plain")
    pinned = await idle.start(planId="flows/plain", planVersion="1")
    assert (newest["planVersion"], pinned["planVersion"]) == ("2", "1")
    for bad, code in (
        ({"planId": "flows/none"}, 404),
        ({"planId": "flows/plain", "planVersion": "9"}, 404),
        ({"planId": "flows/plain", "planVersion": "0"}, 422),
        ({"planId": "flows/plain", "planVersion": "x"}, 422),
        ({"planId": "flows/plain", "playbook": PLAIN}, 422),
        ({}, 422),
        ({"playbook": "workflow: 3"}, 422),
        ({"planId": "flows/plain", "parameters": []}, 422),
    ):
        assert (await idle.http.post("/api/runs", json=bad)).status_code == code, bad


async def test_the_same_key_is_the_same_run(idle: Client) -> None:
    answers = await asyncio.gather(
        *(idle.http.post("/api/runs", json={"playbook": WAITS, "idempotencyKey": "k"}) for _ in range(8))
    )
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({answer.json()["runId"] for answer in answers}) == 1
    other = await idle.http.post("/api/runs", json={"playbook": PLAIN, "idempotencyKey": "k"})
    assert other.status_code == 409


async def test_a_run_waits_for_approval(idle: Client) -> None:
    run = await idle.start(APPROVED)
    assert (run["status"], run["startedAt"]) == ("PENDING", None)
    assert await idle.records(run["runId"]) == []
    early = await idle.signal(run["runId"], "PAUSE", "too early")
    assert (early.status_code, early.json()["decision"]["decision"]) == (409, "REJECTED")
    answer = await idle.signal(run["runId"], "APPROVE", "yes")
    assert (answer.json()["decision"], answer.json()["status"]) == ("ACCEPTED", "RUNNING")
    assert [record["eventType"] for record in await idle.records(run["runId"])] == ["RunStarted"]


async def test_approved_is_what_waits_for_its_slot_only(idle: Client) -> None:
    playbook = APPROVED.replace("spec: {policy", "spec: {concurrency: {max: 1}, policy")
    first, second = await idle.start(playbook), await idle.start(playbook)
    await idle.signal(first["runId"], "APPROVE", "1")
    async with asyncio.timeout(30):
        while (await idle.status(first["runId"]))["status"] != "RUNNING":
            pass
    answer = await idle.signal(second["runId"], "APPROVE", "1")
    assert answer.json()["status"] == "APPROVED"
    assert (await idle.status(second["runId"]))["status"] == "APPROVED"


async def test_a_rejected_run_fails(idle: Client) -> None:
    run = await idle.start(APPROVED)
    without = await idle.signal(run["runId"], "REJECT", "1")
    assert (without.status_code, "reason" in without.json()["detail"]) == (409, True)
    assert (await idle.signal(run["runId"], "REJECT", "2", reason="no budget")).json()["status"] == "FAILED"


async def test_a_pause_drains_first(tmp_path: Path) -> None:
    async with running(tmp_path / "home", worker=False) as server, server.client() as http:
        client = Client(http)
        run = await client.start(PLAIN)
        from arclog.model.config.settings import Settings
        from arclog.ports.control import WorkerInfo
        from arclog.wiring.embedded import embedded

        async with embedded(Settings({"home": str(tmp_path / "home")})) as worker:
            (command,) = await worker.control.claim(WorkerInfo("w", ("python", "noop")), 1)
            paused = (await client.signal(run["runId"], "PAUSE", "p-1", reason="maintenance")).json()
            assert (paused["status"], paused["substatus"]) == ("RUNNING", "DRAINING")
            status = await client.status(run["runId"])
            assert (status["status"], status["substatus"]) == ("RUNNING", "DRAINING")
            assert [record["eventType"] for record in await client.records(run["runId"])] == ["RunStarted"]
            await worker.control.give_back("w", command.execution_id, command.command_id, command.fence)
        status = await client.status(run["runId"])
        assert (status["status"], status["substatus"]) == ("PAUSED", None)
        again = await client.signal(run["runId"], "PAUSE", "p-1", reason="maintenance")
        assert (again.status_code, again.json()["status"]) == (200, "PAUSED")
        resumed = await client.signal(run["runId"], "RESUME", "r-1", reason="done")
        assert resumed.json()["status"] == "RUNNING"
        records = [(record["eventType"], record.get("payload")) for record in await client.records(run["runId"])]
        assert records[1:] == [
            ("RunPaused", {"signalId": uuid_of("p-1"), "reason": "maintenance"}),
            ("RunResumed", {"signalId": uuid_of("r-1"), "reason": "done"}),
        ]


async def test_a_signal_id_gets_one_decision(idle: Client) -> None:
    run = await idle.start(WAITS)
    first = await idle.signal(run["runId"], "RESUME", "s-1")
    again = await idle.signal(run["runId"], "RESUME", "s-1")
    assert (first.status_code, first.json()) == (409, again.json())
    other = await idle.signal(run["runId"], "PAUSE", "s-1")
    assert (other.status_code, uuid_of("s-1") in other.json()["detail"]) == (409, True)
    for bad in (
        {"type": "PAUSE"},
        {"type": "PAUSE", "signalId": ""},
        {"type": "PAUSE", "signalId": "pause-1"},
        {"type": "PAUSE", "signalId": uuid_of("x").replace("-", "")},
        {"signalId": uuid_of("x")},
        {"type": "a b", "signalId": uuid_of("x")},
    ):
        answer = await idle.http.post(f"/api/runs/{run['runId']}/signal", json=bad)
        assert answer.status_code == 422, bad


async def test_cancel_is_final_and_can_be_said_twice(idle: Client) -> None:
    run = await idle.start(WAITS)
    path = f"/api/runs/{run['runId']}/cancel"
    assert (await idle.http.post(path, json={"reason": " "})).status_code == 422
    assert (await idle.http.post(path, json={})).status_code == 422
    for _ in range(2):
        answer = await idle.http.post(path, json={"reason": "wrong input"})
        assert (answer.status_code, answer.json()["status"]) == (200, "CANCELLED")
    last = (await idle.records(run["runId"]))[-1]
    assert (last["eventType"], last["payload"]) == ("RunCancelled", {"reason": "wrong input"})
    assert (await idle.signal(run["runId"], "RESUME", "late")).status_code == 409


async def test_a_run_that_ended_is_run_again_as_another(idle: Client) -> None:
    run = await idle.start(WAITS)
    assert (await idle.signal(run["runId"], "RETRY_RUN", "r")).status_code == 409
    await idle.http.post(f"/api/runs/{run['runId']}/cancel", json={"reason": "enough"})
    answers = [await idle.signal(run["runId"], "RETRY_RUN", "again") for _ in range(2)]
    started = {answer.json()["startedRunId"] for answer in answers}
    assert len(started) == 1
    assert (await idle.status(started.pop()))["status"] == "RUNNING"


@pytest.mark.parametrize("run_id", ["x", "380512699550793728", UNKNOWN.upper(), UNKNOWN + "0", "%2e%2e"])
async def test_what_is_no_run_id_is_refused(idle: Client, run_id: str) -> None:
    assert (await idle.http.get(f"/api/runs/{run_id}/status")).status_code == 422


async def test_a_run_that_is_not_there(idle: Client) -> None:
    for method, path, body in (
        ("GET", "status", None),
        ("GET", "events", None),
        ("POST", "cancel", {"reason": "x"}),
        ("POST", "signal", {"type": "PAUSE", "signalId": uuid_of("1")}),
    ):
        answer = await idle.http.request(method, f"/api/runs/{UNKNOWN}/{path}", json=body)
        assert answer.status_code == 404


@pytest.mark.parametrize(
    "query", ["afterSeq=-1", "afterSeq=x", "limit=0", "limit=1001", "afterSeq=99999999999999999999"]
)
async def test_a_page_that_cannot_be_is_refused(idle: Client, query: str) -> None:
    run = await idle.start(WAITS)
    assert (await idle.http.get(f"/api/runs/{run['runId']}/events?{query}")).status_code == 422
