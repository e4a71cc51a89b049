"""The Run Events Contract over real logs: keys, attempts, pauses, payloads, statuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from arclog.dialects import run
from arclog.dialects import run_record as contract
from arclog.dialects.names import MEANINGS
from arclog.dialects.run import RunReader
from arclog.dialects.wire_incoming import parse_event
from arclog.model.events import REGISTRY
from arclog.testing.laws import check_run
from tests.unit.dialects.support import NAMES, SUBJECT, log_of, records, rendered_log

REF = {"kind": "data", "store": "files", "ref": "noetl://execution/1/result/x/y"}
VECTORS = json.loads((Path(__file__).parents[2] / "data" / "run_idempotency_vectors.json").read_text("utf-8"))[
    "vectors"
]


def briefly(name: str) -> list[tuple[Any, ...]]:
    return [
        (record["eventType"], record.get("stepId"), record["logicalAttemptId"], record["engineAttemptId"])
        for record in records("run", name)
    ]


def payloads(name: str, event_type: str) -> list[dict[str, Any]]:
    return [record.get("payload", {}) for record in records("run", name) if record["eventType"] == event_type]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda one: f"{one['eventType']}-{one['planVersion']}")
def test_idempotency_keys_are_those_of_the_vectors(vector: dict[str, Any]) -> None:
    step = None if vector["stepIdNormalized"] == "RUN" else vector["stepIdNormalized"]
    key = contract.idempotency_key(
        vector["runId"], step, vector["logicalAttemptId"], vector["eventType"], vector["planVersion"]
    )
    assert key == vector["sha256"]


@pytest.mark.parametrize("name", NAMES)
def test_a_run_begins_and_ends_once_and_each_record_has_its_key(name: str) -> None:
    check_run(rendered_log("run", log_of(name)))


@pytest.mark.parametrize("name", NAMES)
def test_records_have_the_contracts_fields(name: str) -> None:
    for event in rendered_log("run", log_of(name)):
        record = event.record
        assert record["runSeq"] == event.source["seq"]
        assert (record["occurredAt"], record["persistedAt"]) == (
            event.source["timestamp"],
            event.source["persisted_at"],
        )
        assert (record["runId"], record["planId"], record["planVersion"]) == (SUBJECT.run_id, "flows/demo", "3")
        assert (record["tenantId"], record["projectId"], record["environmentId"]) == ("tenant", "project", "test")
        assert ("stepId" in record) == record["eventType"].startswith("Step")
        assert contract.write_of(record).keys() == record.keys() - {"persistedAt", "runSeq"}


def test_the_table_names_every_event_of_the_contract() -> None:
    assert {row.name for row in run.TABLE} == set(contract.EVENT_TYPES)
    assert all(row.canonical in run.NEEDS for row in run.TABLE)
    assert all(row.canonical in REGISTRY and row.name in MEANINGS for row in run.TABLE)


def test_retries_are_failed_and_started_attempts() -> None:
    assert briefly("retry") == [
        ("RunStarted", None, 1, 1),
        ("StepStarted", "start", 1, 1),
        ("StepFailed", "start", 1, 1),
        ("StepStarted", "start", 2, 1),
        ("StepFailed", "start", 2, 1),
        ("StepStarted", "start", 3, 1),
        ("StepFailed", "start", 3, 1),
        ("StepStarted", "start", 4, 1),
        ("StepFailed", "start", 4, 1),
        ("RunFailed", None, 1, 1),
    ]
    assert [payload["retryable"] for payload in payloads("retry", "StepFailed")][:3] == [True] * 3


def test_a_step_that_ends_while_a_retry_is_waited_for_fails_as_the_next_attempt() -> None:
    assert [record[:3] for record in briefly("slow_retry") if record[0] == "StepFailed"] == [
        ("StepFailed", "start", 1),
        ("StepFailed", "start", 2),
    ]


def test_a_step_that_an_arc_enters_again_has_a_step_id_of_its_own() -> None:
    steps = [record[1] for record in briefly("cycle") if record[0] == "StepStarted"]
    assert steps == ["start", "start#2", "start#3"]
    assert all(payload["step"] == "start" for payload in payloads("cycle", "StepStarted"))


def test_a_step_that_a_signal_fires_again_is_its_next_attempt() -> None:
    own = [record[:3] for record in briefly("fired_again") if record[1] == "bad"]
    assert own == [
        ("StepStarted", "bad", 1),
        ("StepFailed", "bad", 1),
        ("StepStarted", "bad", 2),
        ("StepCompleted", "bad", 2),
    ]


def test_an_attempt_that_a_signal_restarts_is_the_next_one() -> None:
    own = [record[:3] for record in briefly("restarted") if record[1] == "start"]
    assert own == [
        ("StepStarted", "start", 1),
        ("StepFailed", "start", 1),
        ("StepStarted", "start", 2),
        ("StepCompleted", "start", 2),
    ]


def test_lost_leases_count_as_engine_attempts_alone() -> None:
    assert briefly("lost_lease")[-2:] == [("StepCompleted", "start", 1, 2), ("RunCompleted", None, 1, 2)]


def test_a_loop_step_is_one_pair_with_its_iterations_counted() -> None:
    own = [record for record in records("run", "parallel_loop_lost") if record.get("stepId") == "start"]
    assert [event["eventType"] for event in own] == ["StepStarted", "StepCompleted"]
    assert own[-1]["payload"]["iterations"] == {"total": 12, "ok": 12, "failed": 0}
    (failed,) = payloads("loop_fail_fast", "StepFailed")
    assert failed["iterations"] == {"total": 3, "ok": 1, "failed": 1}


def test_each_pause_has_its_ordinal() -> None:
    pauses = [record for record in briefly("paused_twice") if record[0] in ("RunPaused", "RunResumed")]
    assert pauses == [
        ("RunPaused", None, 1, 1),
        ("RunResumed", None, 1, 1),
        ("RunPaused", None, 2, 1),
        ("RunResumed", None, 2, 1),
    ]
    (first, _) = payloads("paused_twice", "RunPaused")
    assert first["reason"] == "because"
    assert str(UUID(first["signalId"])) == first["signalId"], "whatever the signal's own id was"
    assert first["signalId"] != payloads("paused_twice", "RunPaused")[1]["signalId"]


def test_a_pause_that_was_withdrawn_leaves_no_event() -> None:
    assert [record for record in briefly("withdrawn_pause") if record[0] in ("RunPaused", "RunResumed")] == []


def test_payloads_have_what_the_contract_asks_for() -> None:
    (done,) = payloads("lost_lease", "StepCompleted")
    assert (done["result"], done["durationMs"]) == (3, 35000)
    assert type(done["durationMs"]) is int
    (failed,) = payloads("unhandled_failure", "RunFailed")
    assert failed["errorCode"]
    assert failed["errorMessage"]
    assert failed["retryable"] in (True, False)
    (cancelled,) = payloads("cancelled", "RunCancelled")
    assert cancelled["reason"] == "because"
    (skipped,) = payloads("skipped", "StepCompleted")
    assert skipped["skipped"] is True


def test_a_failure_brings_its_stack() -> None:
    log = [dict(record) for record in log_of("unhandled_failure")]
    failed = next(record for record in log if record["event_type"] == "task.failed")
    outcome = {**failed["payload"]["outcome"], "py": {"exception": "KeyError", "traceback": "Traceback …"}}
    failed["payload"] = {"outcome": outcome}
    rendered = {
        record.name: record.record.get("payload", {})
        for record in rendered_log("run", log)
        if record.record.get("stepId") != "slow"
    }
    assert rendered["StepFailed"]["stack"] == rendered["RunFailed"]["stack"] == "Traceback …"


@pytest.mark.parametrize("name", ["error_in_step_args", "error_in_loop"])
def test_a_step_that_fails_before_anybody_begins_it_is_told_as_started_and_failed(name: str) -> None:
    log = log_of(name)
    failed = next(record for record in log if record["event_type"] == "step.failed")
    assert not any(
        record["event_type"] == "step.started" and record["step_run_id"] == failed["step_run_id"] for record in log
    ), "it never began"
    rendered = [record.name for record in rendered_log("run", log) if record.seq == failed["seq"]]
    assert rendered == ["StepStarted", "StepFailed"]


def test_steps_that_are_open_when_the_run_ends_are_cancelled() -> None:
    (failed,) = payloads("cancelled", "StepFailed")
    assert (failed["errorCode"], failed["retryable"]) == ("CANCELLED", False)
    assert failed["errorMessage"] == "the run was cancelled: because"
    kinds = [
        record.record["payload"]["errorCode"]
        for record in rendered_log("run", log_of("unhandled_failure"))
        if record.name == "StepFailed"
    ]
    assert kinds == ["EXCEPTION", "CANCELLED"]


def with_ref(payload: dict[str, Any], *, in_outcome: bool) -> dict[str, Any]:
    if in_outcome:
        return {**payload, "outcome": {**payload["outcome"], "result_ref": REF}}
    return {**payload, "result_ref": REF}


@pytest.mark.parametrize("in_outcome", [True, False])
def test_a_result_that_is_stored_elsewhere_is_told_by_its_reference(in_outcome: bool) -> None:
    log = [dict(record) for record in log_of("chain")]
    for record in log:
        if record["event_type"] == "task.done":
            record["payload"] = with_ref(record["payload"], in_outcome=in_outcome)
    done = [record.record["payload"] for record in rendered_log("run", log) if record.name == "StepCompleted"]
    assert all(record["resultRef"] == REF and "result" not in record for record in done)
    calls = [record.record for record in rendered_log("wire", log) if record.name == "call.done"]
    for call in calls:
        assert (call["result_kind"], call["result_uri"]) == ("ref", REF["ref"])
        assert call["result"] == {"status": "COMPLETED", "reference": {"uri": REF["ref"]}}
        assert "result" not in parse_event(call, "worker", 0).event.payload


def test_an_error_code_is_the_code_or_the_kind() -> None:
    error = {"kind": "timeout", "message": "late", "code": None, "retryable": True}
    assert contract.error_payload(error)["errorCode"] == "TIMEOUT"
    assert contract.error_payload({**error, "code": "E42"})["errorCode"] == "E42"


# -- status -----------------------------------------------------------------------------------------------------------


def statuses(name: str) -> list[tuple[str, str | None]]:
    reader = RunReader(SUBJECT)
    seen: list[tuple[str, str | None]] = [(reader.state.status, reader.state.substatus)]
    for envelope in log_of(name):
        reader.render(envelope)
        now = (reader.state.status, reader.state.substatus)
        if now != seen[-1]:
            seen.append(now)
    return seen


def test_a_run_waits_for_its_approval_as_pending() -> None:
    assert statuses("approved") == [("PENDING", None), ("APPROVED", None), ("RUNNING", None), ("COMPLETED", None)]
    reader = RunReader(SUBJECT)
    for envelope in log_of("approved"):
        if envelope["event_type"] == "signal.received":
            assert reader.state.status == "PENDING"
        reader.render(envelope)


def test_a_pause_drains_first_and_is_paused_only_when_applied() -> None:
    assert statuses("paused_twice")[2:7] == [
        ("RUNNING", None),
        ("RUNNING", "DRAINING"),
        ("PAUSED", None),
        ("RUNNING", None),
        ("RUNNING", "DRAINING"),
    ]


def test_a_resume_while_draining_withdraws_the_pause() -> None:
    assert statuses("withdrawn_pause")[2:] == [
        ("RUNNING", None),
        ("RUNNING", "DRAINING"),
        ("RUNNING", None),
        ("COMPLETED", None),
    ]


@pytest.mark.parametrize(("name", "last"), [("cancelled", "CANCELLED"), ("retry", "FAILED"), ("chain", "COMPLETED")])
def test_a_run_ends_in_the_status_of_its_last_event(name: str, last: str) -> None:
    assert statuses(name)[-1] == (last, None)


def test_only_the_contracts_events_change_the_status() -> None:
    assert contract.STATUS_AFTER == {
        "RunStarted": "RUNNING",
        "RunPaused": "PAUSED",
        "RunResumed": "RUNNING",
        "RunCompleted": "COMPLETED",
        "RunFailed": "FAILED",
        "RunCancelled": "CANCELLED",
    }
    assert set(contract.STATUS_AFTER.values()) | {"PENDING", "APPROVED"} == set(contract.STATUSES)
