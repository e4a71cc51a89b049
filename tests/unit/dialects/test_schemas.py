"""Published schemas are valid, describe what really comes, and refuse what does not."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from arclog.dialects import run_record as contract
from arclog.dialects.schemas import SCHEMAS
from arclog.dialects.wire import WORKER
from arclog.dialects.wire_incoming import parse_event
from arclog.model.errors import RequestRejected
from arclog.model.events import REGISTRY
from arclog.playbook.json_schema import json_schema
from arclog.testing.harness import SPECS
from tests.unit.dialects.support import NAMES, log_of, records

VALIDATORS = {name: Draft202012Validator(draw()) for name, (_, draw) in SCHEMAS.items()}


def problems(schema: str, value: Any) -> list[str]:
    return [f"{error.json_path}: {error.message[:200]}" for error in VALIDATORS[schema].iter_errors(value)]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one(name: str) -> None:
    schema = SCHEMAS[name][1]()
    Draft202012Validator.check_schema(schema)
    assert schema["title"]


def test_the_playbooks_schema_is_one() -> None:
    Draft202012Validator.check_schema(json_schema(SPECS))


@pytest.mark.parametrize("name", NAMES)
def test_real_logs_fit_the_schema_of_every_dialect(name: str) -> None:
    for event in log_of(name):
        assert problems("events", event) == []
    for dialect in ("lifecycle", "run", "wire"):
        for record in records(dialect, name):
            assert problems(dialect, record) == [], record
    for record in records("run", name):
        assert problems("run-write", contract.write_of(record)) == []
    for record in records("wire", name):
        if not record["meta"].get("derived"):
            assert problems("wire-request", record) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_payload_key_of_a_real_log_is_described(name: str) -> None:
    for record in log_of(name):
        names = {field.name for field in REGISTRY[record["event_type"]].payload}
        assert record["payload"].keys() <= names, record["event_type"]


def broken(record: dict[str, Any], **change: Any) -> dict[str, Any]:
    return {**record, **change}


def test_the_schemas_refuse_what_is_not_an_event() -> None:
    event = dict(next(record for record in log_of("chain") if record["event_type"] == "task.done"))
    assert problems("events", event) == []
    for change in (
        {"event_type": "task.finished"},
        {"event_type": "task.failed"},
        {"status": "ok"},
        {"status": "error"},
        {"event_id": 5},
        {"execution_id": "x"},
        {"seq": 0},
        {"entity_type": "step"},
        {"attempt": 0},
        {"payload": {"outcome": {"status": "fine"}}},
        {"payload": None},
    ):
        assert problems("events", broken(event, **change)), change
    for missing in ("event_id", "event_type", "timestamp", "execution_id", "payload"):
        assert problems("events", {key: value for key, value in event.items() if key != missing}), missing


def test_the_schemas_refuse_what_is_not_a_run_record() -> None:
    rendered = records("run", "chain")
    started, step = rendered[0], rendered[1]
    assert problems("run", broken(started, stepId="start"))
    assert problems("run", {key: value for key, value in step.items() if key != "stepId"})
    assert problems("run", broken(step, eventType="onStepStarted"))
    assert problems("run", broken(step, idempotencyKey="ABC"))
    assert problems("run", contract.write_of(step))
    assert problems("run-write", step)


def test_the_lifecycle_schema_knows_the_states() -> None:
    call = next(record for record in records("lifecycle", "jump") if record["event_type"] == "call.done")
    assert problems("lifecycle", broken(call, payload={"state": "ERROR"}))
    assert problems("lifecycle", broken(call, event_type="task.done"))


BODY = {"execution_id": 5, "event_type": "task.done", "step": "s"}


@pytest.mark.parametrize(
    "change",
    [{}, {"execution_id": "5"}, {"event_id": None}, {"status": "completed"}, {"payload": [1]}, {"iteration": "1.2"},
     {"result_kind": "refs", "event_ids": [1]}, {"meta": {"fence": 2}}, {"unknown": 1}],
)  # fmt: skip
def test_the_requests_schema_takes_what_is_taken(change: dict[str, Any]) -> None:
    parse_event({**BODY, **change}, WORKER, 0)
    assert problems("wire-request", {**BODY, **change}) == []
    assert problems("wire-batch", {"execution_id": 5, "events": [{**BODY, **change}]}) == []


@pytest.mark.parametrize(
    "change",
    [{"execution_id": 1.5}, {"execution_id": []}, {"execution_id": True}, {"event_id": "x"}, {"status": "done"},
     {"result_kind": "blob"}, {"attempt": 0}, {"meta": []}, {"event_type": None}],
)  # fmt: skip
def test_the_requests_schema_refuses_what_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RequestRejected):
        parse_event({**BODY, **change}, WORKER, 0)
    assert problems("wire-request", {**BODY, **change})


def test_the_status_has_exactly_seven_fields() -> None:
    status = {
        "execution_id": "5",
        "state": "COMPLETED",
        "current_step": "end",
        "started_at": "2026-01-01T00:00:00Z",
        "ended_at": None,
        "terminal_event": "playbook.completed",
        "completion_inferred": False,
    }
    assert problems("status", status) == []
    assert problems("status", {**status, "variables": {}})
    assert problems("status", {**status, "state": "PAUSED"})
    assert problems("status", {**status, "terminal_event": "playbook.finished"})
    assert problems("status", {**status, "completion_inferred": True})
    for name in status:
        assert problems("status", {key: value for key, value in status.items() if key != name})
