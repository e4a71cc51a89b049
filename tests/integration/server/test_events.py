"""`POST /api/events` and `/api/events/batch` over a real server. The seed's ten wire tests have the names that it gives them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from arclog.dialects.names import reader_of
from arclog.dialects.run_record import RunSubject
from arclog.model.config.settings import Settings
from arclog.ports.control import WorkerInfo
from arclog.ports.views.api import ExecuteRequest
from arclog.wiring.embedded import Embedded, embedded
from tests.servers.arclog import running

#: waits until somebody says so: a run with nothing to do meanwhile
WAITS = """
metadata: {name: waits}
workflow:
  - step: start
    tool: {kind: wait, signal: go}
"""
OTHER = "320816801799016999"


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


class Wire:
    """A run, and a client that says things about it."""

    def __init__(self, client: httpx2.AsyncClient, home: Path, execution_id: str) -> None:
        self.client = client
        self.home = home
        self.id = execution_id

    async def post(self, **event: Any) -> httpx2.Response:
        return await self.client.post("/api/events", json={"execution_id": self.id, **event})

    async def batch(self, *events: Any, **more: Any) -> dict[str, Any]:
        answer = await self.client.post(
            "/api/events/batch", json={"execution_id": self.id, "events": list(events), **more}
        )
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def log(self, after: int = 0) -> list[dict[str, Any]]:
        async with embedded(Settings({"home": str(self.home)}), read_only=True) as runtime:
            return await runtime.api.events(self.id, after=after)

    async def last(self) -> dict[str, Any]:
        return (await self.log())[-1]

    async def state(self) -> str:
        state: str = (await self.client.get(f"/api/executions/{self.id}/status")).json()["state"]
        return state


async def start(home: Path, playbook: str = WAITS) -> str:
    """A run, begun before the server opens the store."""
    async with embedded(Settings({"home": str(home)})) as runtime:
        return (await runtime.api.execute(ExecuteRequest(playbook))).execution_id


@pytest.fixture
async def wire(home: Path) -> AsyncIterator[Wire]:
    execution_id = await start(home)
    async with running(home, worker=False) as server, server.client() as client:
        yield Wire(client, home, execution_id)


# -- the seed's wire tests --------------------------------------------------------------------------------------------


async def test_event_request_accepts_integer_execution_id(wire: Wire) -> None:
    answer = await wire.post(execution_id=int(wire.id), event_type="batch.completed")
    assert (answer.status_code, answer.json()["execution_id"]) == (200, wire.id)


async def test_event_request_accepts_string_execution_id(wire: Wire) -> None:
    answer = await wire.post(execution_id=wire.id, event_type="batch.completed")
    assert (answer.status_code, answer.json()["execution_id"]) == (200, wire.id)


async def test_event_request_accepts_integer_event_id(wire: Wire) -> None:
    answer = await wire.post(event_id=int(OTHER), event_type="batch.completed")
    assert (answer.status_code, answer.json()["event_id"]) == (200, OTHER)
    assert (await wire.last())["event_id"] == OTHER


async def test_event_request_event_id_null_is_none(wire: Wire) -> None:
    first, second = [await wire.post(event_id=None, event_type="batch.completed") for _ in range(2)]
    assert first.status_code == second.status_code == 200
    stored = await wire.log()
    assert [event["event_id"] for event in stored[-2:]] == [first.json()["event_id"], second.json()["event_id"]]
    assert first.json()["event_id"] != second.json()["event_id"]


async def test_batch_event_request_accepts_integer_execution_id(wire: Wire) -> None:
    answer = await wire.batch({"event_type": "batch.completed"}, execution_id=int(wire.id))
    assert (answer["accepted"], answer["results"][0]["event"]["execution_id"]) == (1, wire.id)


@pytest.mark.parametrize("garbage", [[1], {"id": 1}, 1.5, True, "", " 12", "1e3", "0x10", -4, 0, 1 << 63, "१२"])
async def test_event_request_rejects_garbage_execution_id(wire: Wire, garbage: object) -> None:
    before = await wire.log()
    for body in ({"execution_id": garbage}, {"event_id": garbage}):
        answer = await wire.post(event_type="batch.completed", **body)
        assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
        assert next(iter(body)) in answer.json()["detail"]
    assert await wire.log() == before


async def test_ee4_executor_event_converts_into_event_request(wire: Wire) -> None:
    """The executor's shape: integer ids, `context`, `created_at` in UTC; what the server alone says takes its default."""
    answer = await wire.post(
        execution_id=int(wire.id), event_id=int(OTHER), event_type="call.done", step="start", status="COMPLETED",
        context={"rows": 3}, worker_id="w-1", meta={"attempt": 2}, created_at="2026-06-04T10:00:00Z",
    )  # fmt: skip
    assert answer.json()["warnings"] == []
    event = await wire.last()
    assert (event["event_type"], event["step"], event["status"], event["attempt"]) == (
        "task.done",
        "start",
        "success",
        2,
    )
    assert (event["timestamp"], event["worker_id"]) == ("2026-06-04T10:00:00.000000Z", "w-1")
    assert event["payload"]["rows"] == 3
    assert event["informative"] is True


async def test_ee4_event_request_converts_into_executor_event(wire: Wire) -> None:
    """What was told can be posted again and is the same event."""
    sent = {
        "event_id": OTHER, "event_type": "step.exit", "step": "start", "status": "COMPLETED", "payload": {"a": [1, {}]},
        "worker_id": "w-1", "created_at": "2026-06-04T10:00:00Z", "meta": {"task": "t", "command_id": "5"},
    }  # fmt: skip
    first = await wire.post(**sent)
    reader = reader_of("wire", RunSubject("", "", ""))
    records = [rendered.record for event in await wire.log() for rendered in reader.render(event)] + [
        rendered.record for rendered in reader.held_back()
    ]
    mine = next(record for record in records if record["event_id"] == OTHER)
    assert {key: mine[key] for key in ("event_type", "step", "status", "worker_id")} == {
        key: sent[key] for key in ("event_type", "step", "status", "worker_id")
    }
    again = await wire.post(**mine)
    assert again.status_code == 200, again.text
    assert (again.status_code, again.json()["duplicate"], again.json()["seq"]) == (200, True, first.json()["seq"])


async def test_ee4_try_from_event_request_fills_defaults_for_missing_status_and_created_at(wire: Wire) -> None:
    for name, status in (("step.enter", "in_progress"), ("call.error", "error"), ("step.exit", "success")):
        assert (await wire.post(event_type=name, step="start")).status_code == 200
        event = await wire.last()
        assert event["status"] == status
        assert event["timestamp"] <= event["persisted_at"]


async def test_ee4_try_from_event_request_rejects_non_numeric_execution_id(wire: Wire) -> None:
    answer = await wire.post(execution_id="run-12", event_type="batch.completed")
    assert answer.status_code == 422


# -- once -------------------------------------------------------------------------------------------------------------


async def test_the_same_event_again_is_answered_with_its_first_seq(wire: Wire) -> None:
    sent = {"event_id": OTHER, "event_type": "call.done", "step": "start", "payload": {"a": 1}}
    first = (await wire.post(**sent)).json()
    assert (first["duplicate"], first["informative"]) == (False, True)
    await wire.post(event_type="batch.completed")
    again = await wire.post(**{**sent, "name": "call.done", "created_at": "2026-01-01T00:00:00Z", "meta": {"x": 1}})
    assert (again.status_code, again.json()) == (200, {**first, "duplicate": True})
    other = await wire.post(**{**sent, "payload": {"a": 2}})
    assert other.status_code == 409
    assert OTHER in other.json()["detail"]
    assert [event["event_id"] for event in await wire.log()].count(OTHER) == 1


async def test_an_id_of_one_of_our_own_events_is_refused(wire: Wire) -> None:
    """In the log an id is one event's: who takes ours, by chance or by intent, hears so."""
    before = await wire.log()
    for event in before:
        answer = await wire.post(event_type="batch.completed", event_id=event["event_id"])
        assert answer.status_code == 409
        assert f"accepted as seq {event['seq']} with other content" in answer.json()["detail"]
    items = await wire.batch(
        {"event_type": "batch.completed", "event_id": before[0]["event_id"]}, {"event_type": "batch.completed"}
    )
    assert [item["status"] for item in items["results"]] == [409, 200]
    assert len(await wire.log()) == len(before) + 1


async def test_an_id_is_the_executions_own(home: Path) -> None:
    first, two = await start(home), await start(home)
    async with running(home, worker=False) as server, server.client() as client:
        for execution_id, payload in ((first, 1), (two, 2)):
            wire = Wire(client, home, execution_id)
            answer = await wire.post(event_id=OTHER, event_type="batch.completed", payload=payload)
            assert (answer.status_code, answer.json()["duplicate"]) == (200, False)


async def test_of_many_senders_of_one_event_one_writes(wire: Wire) -> None:
    before = len(await wire.log())
    answers = await asyncio.gather(
        *(wire.post(event_id=OTHER, event_type="batch.completed", payload={"n": n % 2}) for n in range(40))
    )
    good = [answer.json() for answer in answers if answer.status_code == 200]
    assert sorted(answer.status_code for answer in answers) == [200] * 20 + [409] * 20
    assert len({answer_body["seq"] for answer_body in good}) == 1
    assert [answer_body["duplicate"] for answer_body in good].count(False) == 1
    assert len(await wire.log()) == before + 1


async def test_two_servers_on_one_store_take_an_event_once(home: Path) -> None:
    execution_id = await start(home)
    async with (
        running(home, worker=False) as a,
        running(home, worker=False) as b,
        a.client() as first_client,
        b.client() as two,
    ):
        wires = [Wire(client, home, execution_id) for client in (first_client, two)]
        before = len(await wires[0].log())
        ids = [str(int(OTHER) + n // 2) for n in range(60)]
        sent = [wires[n % 2].post(event_id=event_id, event_type="batch.completed") for n, event_id in enumerate(ids)]
        answers = [first_client.json() for first_client in await asyncio.gather(*sent)]
        assert len({(answer["event_id"], answer["seq"]) for answer in answers}) == 30
        assert len(await wires[0].log()) == before + 30


# -- batches ----------------------------------------------------------------------------------------------------------


async def test_each_item_of_a_batch_has_its_own_answer_in_order(wire: Wire) -> None:
    await wire.post(event_id=5, event_type="batch.completed", payload={"a": 1}, worker_id="handed down")
    answer = await wire.batch(
        {"event_type": "call.done", "step": "start", "event_id": 6},
        {"event_type": "call.done"},
        {"event_type": "playbook.finished"},
        {"event_type": "batch.completed", "event_id": 5, "payload": {"a": 2}},
        {"event_type": "batch.completed", "event_id": 5, "payload": {"a": 1}},
        {"event_type": "no.such", "step": "start"},
        {"event_type": "batch.completed", "execution_id": OTHER},
        {"event_type": "call.done", "step": "start", "event_id": "6"},
        {"event_type": "call.error", "step": "start", "event_id": 6},
        7,
        {"event_type": "batch.completed", "worker_id": "mine"},
        worker_id="handed down",
    )
    assert [result["status"] for result in answer["results"]] == [200, 422, 200, 409, 200, 422, 404, 200, 409, 422, 200]
    assert [result["index"] for result in answer["results"]] == list(range(11))
    assert (answer["accepted"], answer["refused"]) == (5, 6)
    taken = [result["event"] for result in answer["results"] if result["status"] == 200]
    assert [item["duplicate"] for item in taken] == [False, False, True, True, False]
    assert taken[3]["seq"] == taken[0]["seq"] == taken[1]["seq"] - 1 == taken[4]["seq"] - 2
    written = (await wire.log())[-3:]
    assert [item["worker_id"] for item in written] == ["handed down", "handed down", "mine"]
    assert [item["seq"] for item in written] == [taken[0]["seq"], taken[1]["seq"], taken[4]["seq"]]


async def test_a_batch_for_several_runs(home: Path) -> None:
    ids = [await start(home) for _ in range(3)]
    async with running(home, worker=False) as server, server.client() as client:
        events = [{"execution_id": ids[n % 3], "event_type": "batch.completed", "payload": n} for n in range(9)]
        answer = await client.post("/api/events/batch", json={"events": events})
        taken = [result["event"] for result in answer.json()["results"]]
        assert [run["execution_id"] for run in taken] == [ids[n % 3] for n in range(9)]
        for event_id in ids:
            values = [event["payload"]["value"] for event in (await Wire(client, home, event_id).log())[-3:]]
            assert values == sorted(values)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"events": {}}', b'{"events": [], "execution_id": "x"}', b"{", b"\xff"]
)
async def test_what_is_no_batch_is_refused_whole(wire: Wire, body: bytes) -> None:
    answer = await wire.client.post("/api/events/batch", content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


async def test_a_batch_and_a_run_take_so_many_events(home: Path) -> None:
    execution_id = await start(home)
    async with (
        running(home, worker=False, **{"ingest.max_batch_events": 3, "ingest.max_events": 4}) as server,
        server.client() as client,
    ):
        wire = Wire(client, home, execution_id)
        item = {"event_type": "batch.completed"}
        large = {"execution_id": execution_id, "events": [item] * 4}
        assert (await client.post("/api/events/batch", json=large)).status_code == 422
        assert (await wire.batch(item, item, {**item, "event_id": 5}))["accepted"] == 3
        full = await wire.batch(item, {**item, "event_id": 5}, item)
        assert [result["status"] for result in full["results"]] == [422, 200, 422]
        assert "ingest.max_events" in full["results"][0]["detail"]
        assert (await wire.post(**item)).status_code == 200
        assert (await wire.post(**item)).status_code == 422
        assert await wire.state() == "RUNNING"


@pytest.mark.parametrize("number", ["9" * 30, "9" * 5000, "-1e-400", "1e999", "0." + "1" * 5000])
async def test_numbers_of_any_size_are_kept_or_refused(wire: Wire, number: str) -> None:
    body = f'{{"execution_id": {wire.id}, "event_type": "batch.completed", "meta": {{"n": {number}}}, "payload": {number}}}'
    answer = await wire.client.post("/api/events", content=body)
    assert answer.status_code in (200, 422), answer.text
    if answer.status_code == 200:
        assert (await wire.last())["payload"]["value"] == (
            float(number) if "." in number or "e" in number else int(number)
        )
    assert await wire.state() == "RUNNING"


async def test_an_event_holds_so_much(wire: Wire) -> None:
    answer = await wire.post(event_type="batch.completed", payload={"text": "x" * 300_000})
    assert answer.status_code == 422
    assert "limits.max_payload_bytes" in answer.json()["detail"]
    mixed = await wire.batch(
        {"event_type": "batch.completed", "payload": "x" * 300_000, "event_id": 3},
        {"event_type": "batch.completed", "event_id": 3},
    )
    assert [result["status"] for result in mixed["results"]] == [422, 200]
    whole = await wire.client.post("/api/events", content=b" " * (8 * 1024 * 1024 + 1))
    assert whole.status_code == 413


# -- who may say what -------------------------------------------------------------------------------------------------


#: what ends, pauses or routes a run when the server says it, in the spellings that producers use
SERVERS_OWN = [
    ("playbook.finished", "playbook.finished"), ("playbook.completed", "playbook.finished"),
    ("playbook_failed", "playbook.finished"), ("PlaybookCompleted", "playbook.finished"),
    ("RunCompleted", "playbook.finished"), ("playbook_paused", "playbook.paused"), ("RunPaused", "playbook.paused"),
    ("execution.cancelled", "execution.cancelled"), ("EXECUTION_CANCELLED", "execution.cancelled"),
    ("RunCancelled", "execution.cancelled"), ("workflow.finished", "workflow.finished"),
    ("workflow.completed", "workflow.finished"), ("step.scheduled", "step.scheduled"), ("next.evaluated", "next.evaluated"),
    ("policy.admit.evaluated", "policy.admit.evaluated"), ("playbook.started", "playbook.started"),
    ("signal.received", "signal.received"), ("timer.fired", "timer.fired"), ("command.cancelled", "command.cancelled"),
    ("command.issued", "command.issued"), ("command_claimed", "command.claimed"), ("case.handled", "policy.task.evaluated"),
    ("sink.flushed", "task.done"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), SERVERS_OWN)
async def test_a_producer_may_use_every_name_and_changes_nothing(wire: Wire, name: str, kind: str) -> None:
    before = (await wire.client.get(f"/api/executions/{wire.id}")).json()
    status = (await wire.client.get(f"/api/executions/{wire.id}/status")).json()
    answer = await wire.post(event_type=name, step="start", payload={"source": "server", "error": None})
    assert (answer.status_code, answer.json()["event_type"], answer.json()["informative"]) == (200, kind, True)
    event = await wire.last()
    assert (event["event_type"], event["source"], event["informative"]) == (kind, "producer", True)
    assert event["meta"]["producer"] == "anybody on this machine"
    assert event["payload"]["source"] == "server", "what a producer's payload says is its own"
    assert (await wire.client.get(f"/api/executions/{wire.id}")).json() == before
    assert (await wire.client.get(f"/api/executions/{wire.id}/status")).json() == status
    for dialect in ("canonical", "lifecycle", "wire", "legacy", "run"):
        page = (await wire.client.get(f"/api/executions/{wire.id}/events", params={"dialect": dialect})).json()
        mine = [record for record in page["events"] if record.get("event_id") == event["event_id"]]
        assert [record["source"] for record in mine] == ([] if dialect == "run" else ["producer"]), dialect
        assert all(record["informative"] for record in mine)
    run = before["run_id"]
    assert (await wire.client.get(f"/api/runs/{run}/status")).json()["status"] == "RUNNING"


async def test_old_names_are_understood_and_kept(wire: Wire) -> None:
    await wire.post(name="step_completed", node_name="start", context={"a": 1})
    event = await wire.last()
    assert (event["event_type"], event["informative"]) == ("step.done", True)
    assert event["payload"] == {"a": 1}
    assert event["meta"]["legacy_type"] == "step_completed"
    await wire.post(event_type="playbook_completed")
    assert (await wire.last())["event_type"] == "playbook.finished"
    assert await wire.state() == "RUNNING"


async def test_an_unknown_name_is_refused_with_the_nearest_one(wire: Wire) -> None:
    answer = await wire.post(event_type="step.exits", step="start")
    assert answer.status_code == 422
    assert "did you mean step.exit?" in answer.json()["detail"]


async def test_a_run_that_is_not_there(wire: Wire) -> None:
    assert (await wire.post(execution_id=OTHER, event_type="batch.completed")).status_code == 404


async def test_only_the_server_says_how_an_event_counts(wire: Wire) -> None:
    answer = (await wire.post(event_type="step.exit", step="start", actionable=True, informative=False, odd=1)).json()
    assert answer["informative"] is True
    assert len(answer["warnings"]) == 3
    assert await wire.state() == "RUNNING"


async def test_a_late_result_is_recorded_after_the_end(wire: Wire) -> None:
    async with embedded(Settings({"home": str(wire.home)})) as runtime:
        await runtime.api.cancel(wire.id, "enough")
    before = await wire.log()
    for n in range(2):
        answer = await wire.post(event_type="call.done", step="start", payload={"n": n})
        assert (answer.status_code, answer.json()["informative"]) == (200, True)
        assert answer.json()["seq"] == len(before) + n + 1
    assert await wire.state() == "CANCELLED"


# -- workers ----------------------------------------------------------------------------------------------------------

TWO_STEPS = """
metadata: {name: two}
workflow:
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: after, when: "{{ outcome.data.rows > 2 }}"}]}
  - step: after
    tool: {kind: noop}
"""


class Worker(Wire):
    """A worker that claimed a command by the workers' own protocol and speaks on the wire."""

    def __init__(self, wire: Wire, embedded_runtime: Embedded) -> None:
        super().__init__(wire.client, wire.home, wire.id)
        self.embedded_runtime = embedded_runtime
        self.held: dict[str, Any] = {}

    async def claim(self) -> None:
        (command,) = await self.embedded_runtime.control.claim(WorkerInfo("w-1", ("noop",)), 1)
        self.held = {"command_id": str(command.command_id), "fence": command.fence, "worker_id": "w-1"}
        self.held["step"] = command.step

    async def send(self, name: str, **more: Any) -> httpx2.Response:
        return await self.post(event_type=name, **{**self.held, **more})


@pytest.fixture
async def worker(home: Path) -> AsyncIterator[Worker]:
    execution_id = await start(home, TWO_STEPS)
    async with (
        running(home, worker=False) as server,
        server.client() as client,
        embedded(Settings({"home": str(home)})) as runtime,
    ):
        worker = Worker(Wire(client, home, execution_id), runtime)
        await worker.claim()
        yield worker


async def test_a_worker_runs_a_step_on_the_wire(worker: Worker) -> None:
    outcome = {"status": "ok", "result": {"rows": 3}}
    answers = [
        await worker.send("step.enter", event_id=11),
        await worker.send("task.started", task="start_task"),
        await worker.send("call.done", task="start_task", payload={"outcome": outcome}),
        await worker.send("step.exit", status="COMPLETED", event_id=12),
    ]
    assert [answer.status_code for answer in answers] == [200] * 4, [reply.text for reply in answers]
    assert [reply.json()["informative"] for reply in answers] == [False] * 4
    log = await worker.log()
    by_seq = {event["seq"]: event for event in log}
    assert [by_seq[reply.json()["seq"]]["event_id"] for reply in answers] == [
        reply.json()["event_id"] for reply in answers
    ]
    # The arc read what the worker said, and the next step was scheduled in the same commit.
    assert [event["event_type"] for event in log if event["seq"] > answers[-1].json()["seq"]] == [
        "next.evaluated",
        "step.scheduled",
    ]
    again = await worker.send("step.exit", status="COMPLETED", event_id=12)
    assert (again.json()["duplicate"], again.json()["seq"]) == (True, answers[-1].json()["seq"])
    assert await worker.log() == log


async def test_what_a_worker_says_of_its_command_is_recorded(worker: Worker) -> None:
    for name in ("command.started", "command.completed"):
        answer = await worker.send(name)
        assert (answer.status_code, answer.json()["informative"]) == (200, True)
    assert (await worker.send("command.completed", fence=2)).status_code == 409
    assert (await worker.send("step.enter")).json()["informative"] is False
    assert await worker.state() == "RUNNING"


async def test_a_bad_template_in_routing_ends_the_run_with_the_trigger_as_cause(worker: Worker) -> None:
    await worker.send("step.enter")
    await worker.send("task.started", task="start_task")
    await worker.send("call.done", task="start_task", payload={"outcome": {"status": "ok", "result": {}}})
    trigger = (await worker.send("step.exit", status="COMPLETED")).json()
    assert await worker.state() == "FAILED"
    log = await worker.log()
    ends = next(event for event in log if event["event_type"] == "playbook.finished")
    assert (ends["status"], ends["payload"]["error"]["kind"]) == ("error", "template")
    by_id = {event["event_id"]: event for event in log}
    cause = ends
    while "cause_id" in cause:
        cause = by_id[cause["cause_id"]]
    assert cause["event_id"] == trigger["event_id"]
    records = [record for event in log for record in reader_of("wire", RunSubject("", "", "")).render(event)]
    terminal = next(rendered.record for rendered in records if rendered.name == "playbook.failed")
    assert "rows" in terminal["result"]["context"]["error"]["message"]


@pytest.mark.parametrize("change", [{"fence": 2}, {"worker_id": "w-2"}, {"command_id": "77"}])
async def test_who_does_not_hold_the_command_is_refused(worker: Worker, change: dict[str, Any]) -> None:
    before = await worker.log()
    answer = await worker.send("step.enter", **change)
    assert answer.status_code == 409
    assert await worker.log() == before


async def test_the_right_fence_on_a_cancelled_command_is_recorded(worker: Worker) -> None:
    await worker.send("step.enter")
    await worker.embedded_runtime.api.cancel(worker.id, "enough")
    late = await worker.send("step.exit", status="COMPLETED", event_id=13)
    assert (late.status_code, late.json()["informative"]) == (200, True)
    again = await worker.send("step.exit", status="COMPLETED", event_id=13)
    assert (again.json()["duplicate"], again.json()["seq"]) == (True, late.json()["seq"])
    assert (await worker.send("step.exit", status="COMPLETED", fence=2)).status_code == 409
    assert await worker.state() == "CANCELLED"


async def test_a_report_holds_so_much(worker: Worker) -> None:
    answer = await worker.send("step.enter", payload={"text": "x" * 300_000})
    assert (answer.status_code, "limits.max_payload_bytes" in answer.text) == (422, True)
    assert (await worker.send("step.enter")).status_code == 200


async def test_what_does_not_fit_its_place_is_refused(worker: Worker) -> None:
    before = await worker.log()
    for name, more in (
        ("step.exit", {}),
        ("call.done", {"task": "start_task", "payload": {"outcome": {"status": "ok"}}}),
    ):
        answer = await worker.send(name, **more)
        assert answer.status_code == 422
        assert "comes before step.started" in answer.json()["detail"]
    assert (await worker.send("step.enter", step="after")).status_code == 422
    assert (await worker.send("step_started")).status_code == 403
    assert (await worker.send("step.scheduled")).status_code == 403
    left = (await worker.log())[len(before) :]
    assert [(event["event_type"], event["payload"]["refused"]) for event in left] == [
        ("command.refused", "step.done"),
        ("command.refused", "task.done"),
        ("command.refused", "step.started"),
    ]
    assert {(event_left["informative"], event_left["source"], event_left["entity_id"]) for event_left in left} == {
        (True, "server", worker.held["command_id"])
    }
    assert "comes before step.started" in left[0]["payload"]["reason"]


async def test_nobody_is_told_of_an_end_that_a_producer_made_up(home: Path) -> None:
    """Neither webhooks nor streams nor the server's log take its word for it."""
    playbook = WAITS.replace(
        "workflow:",
        "keychain: [{name: k, kind: env, var: HOME}]\nexecutor:\n  spec:\n    webhooks: "
        '[{url: "http://127.0.0.1:9/x", secret: k, on: [completed, failed, cancelled]}]\nworkflow:',
    )
    execution_id = await start(home, playbook)
    async with running(home, worker=False) as server, server.client() as client:
        wire = Wire(client, home, execution_id)
        for name in ("playbook_completed", "playbook.processed", "execution.cancelled", "signal.received"):
            answer = await wire.post(event_type=name)
            assert answer.status_code == 200, answer.text
        path = f"/api/executions/{execution_id}/events/stream"
        with pytest.raises(httpx2.ReadTimeout):  # it follows a run that goes on
            await client.get(path, timeout=0.5)
        async with embedded(Settings({"home": str(home)}), read_only=True) as runtime:
            assert await runtime.engine.store.deliveries(int(execution_id)) == []
        metrics = (await client.get("/metrics")).text
        assert 'arclog_executions_ended_total{state="COMPLETED"}' not in metrics
        assert await wire.state() == "RUNNING"


# -- reading ----------------------------------------------------------------------------------------------------------


async def test_events_of_an_entity_in_any_dialect(worker: Worker) -> None:
    for name in ("step.enter", "task.started", "call.done", "step.exit"):
        assert (await worker.send(name, payload={"rows": 3} if name == "call.done" else {})).status_code == 200
    path = f"/api/executions/{worker.id}/events"

    async def names(**params: Any) -> list[str]:
        page = (await worker.client.get(path, params=params)).json()
        return [event["event_type"] for event in page["events"]]

    step = {"entity_type": "step", "entity_id": "start"}
    assert await names(**step) == ["step.scheduled", "step.started", "step.done"]
    assert await names(**step, dialect="lifecycle") == ["step.scheduled", "step.enter", "step.exit"]
    assert await names(**step, type="step.exit") == ["step.done"]
    assert await names(entity_type="task", entity_id="start_task") == ["task.started", "task.done"]
    assert await names(entity_type="next") == ["next.evaluated"]
    assert await names(entity_type="step", type="task.done") == []
    command = {"entity_type": "command", "entity_id": worker.held["command_id"], "dialect": "lifecycle"}
    assert await names(**command) == ["command.issued", "command.claimed", "command.started", "command.completed"]
    assert await names(**{**command, "dialect": "wire"}) == await names(**command)
    assert (await worker.client.get(path, params={"entity_type": "steps"})).status_code == 422
    assert (await worker.client.get(path, params={"entity_id": "start"})).status_code == 422


async def test_events_are_found_across_runs(home: Path) -> None:
    ids = [await start(home) for _ in range(3)]
    async with running(home, worker=False) as server, server.client() as client:

        async def found(**params: Any) -> list[tuple[str, str]]:
            places: list[tuple[str, str]] = []
            more = True
            while more:
                page = (await client.get("/api/events", params={"limit": 2, **params})).json()
                places += [(event["execution_id"], event["event_type"]) for event in page["events"]]
                more, params["cursor"] = page["more"], page["next"]
            return places

        for name in ("playbook.started", "playbook.initialized", "RunStarted", "playbook_started"):
            assert await found(type=name) == [(event_id, "playbook.started") for event_id in ids]
        await Wire(client, home, ids[1]).post(event_type="playbook_completed")
        assert await found(type="playbook.completed") == []
        assert await found(type="playbook.completed", informative=True) == [(ids[1], "playbook.finished")]
        assert await found(type="playbook.failed", informative=True) == []
        assert await found(type="step.scheduled", since="2100-01-01T00:00:00Z") == []
        for odd in (
            {"type": "no.such"},
            {"since": "x"},
            {"until": "2026"},
            {"cursor": "y"},
            {"limit": 0},
            {"limit": 5000},
        ):
            assert (await client.get("/api/events", params=odd)).status_code == 422, odd
