"""Document 002, the Run Events Contract: records, keys, sequence numbers, statuses and attempts of real runs."""

from __future__ import annotations

import asyncio
import inspect
import re
from hashlib import sha256
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator

from arclog.dialects.run_record import EVENT_TYPES, STATUSES
from arclog.dialects.schemas import SCHEMAS
from arclog.model.events import Event
from arclog.model.ids import micros
from arclog.testing.harness import World
from tests.seeds.support import Ran, Record, once, signal

TWO_TASKS = """
metadata: {name: two, path: flows/two}
workflow:
  - {step: start, tool: [{name: a, kind: act, takes: 10}, {name: b, kind: act, takes: 10, returns: 7}]}
"""
RETRIES = """
metadata: {name: retries}
workflow:
  - step: start
    tool:
      kind: act
      fail_attempts: 9
      error: timeout
      takes: 1
      spec: {policy: {rules: [{when: "{{ outcome.error.retryable }}", then: {do: retry, attempts: 2, delay: 5}}]}}
"""
AGAIN = """
metadata: {name: again}
workflow:
  - step: bad
    spec: {policy: {failure: {mode: best_effort}}}
    tool: {kind: act, fail_attempts: "{{ 0 if ctx.fixed | default(false) else 1 }}"}
  - {step: start, tool: {kind: noop}, next: {spec: {mode: inclusive}, arcs: [{step: bad}, {step: slow}]}}
  - {step: slow, tool: {kind: act, takes: 100}}
"""
RUN_LEVEL = {"RunStarted", "RunPaused", "RunResumed", "RunCompleted", "RunFailed", "RunCancelled"}


async def pause_and_resume(world: World) -> None:
    await asyncio.sleep(5)
    await signal(world, "PAUSE", "pause-1", reason="maintenance")
    await asyncio.sleep(50)
    await signal(world, "RESUME", "resume-1", reason="repaired")


async def cancel(world: World) -> None:
    await asyncio.sleep(5)
    await world.current_life.api.cancel(str(world.execution_id), "enough")


async def lose_the_worker(world: World) -> None:
    await asyncio.sleep(15)
    await world.crash()
    life = world.begin_life()
    await world.free(life)
    life.start_sweeper()
    life.start_worker("worker-b")


async def retry_the_step(world: World) -> None:
    await asyncio.sleep(10)
    await signal(world, "UPDATE_PARAMS", data={"fixed": True})
    await signal(world, "RETRY_STEP", step="bad")


RUNS: dict[str, tuple[str, Any]] = {
    "completed": (TWO_TASKS, None),
    "paused": (TWO_TASKS, pause_and_resume),
    "failed": (RETRIES, None),
    "cancelled": (TWO_TASKS, cancel),
    "lost": (TWO_TASKS, lose_the_worker),
    "again": (AGAIN, retry_the_step),
}


def run_of(name: str) -> Ran:
    return once(*RUNS[name])


def records(name: str) -> list[Record]:
    return run_of(name).in_dialect("run")


def of(name: str, event_type: str) -> list[Record]:
    return [record for record in records(name) if record["eventType"] == event_type]


def every_record() -> list[Record]:
    return [record for name in RUNS for record in records(name)]


# -- 1: names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event_type", "run", "canonical"),
    [
        ("RunStarted", "completed", "playbook.started"),
        ("StepStarted", "completed", "step.started"),
        ("StepCompleted", "completed", "step.done"),
        ("StepFailed", "failed", "step.failed"),
        ("RunPaused", "paused", "playbook.paused"),
        ("RunResumed", "paused", "playbook.resumed"),
        ("RunCompleted", "completed", "playbook.finished"),
        ("RunFailed", "failed", "playbook.finished"),
        ("RunCancelled", "cancelled", "execution.cancelled"),
    ],
)
def test_each_lifecycle_event_is_emitted(event_type: str, run: str, canonical: str) -> None:
    stored = {event["seq"]: event["event_type"] for event in run_of(run).log}
    assert stored[of(run, event_type)[-1]["runSeq"]] == canonical


def test_names_are_pascal_case_without_on() -> None:
    assert len(EVENT_TYPES) == 9
    assert all(re.fullmatch(r"(Run|Step)[A-Z][a-z]+", name) for name in EVENT_TYPES)
    assert {record["eventType"] for record in every_record()} == set(EVENT_TYPES)


# -- 2: fields and keys -----------------------------------------------------------------------------------------------


def test_a_step_id_is_there_for_steps_alone() -> None:
    for record in every_record():
        assert ("stepId" in record) == (record["eventType"] not in RUN_LEVEL)


def test_every_record_has_the_required_fields() -> None:
    for record in every_record():
        for key in ("runId", "planId", "planVersion", "tenantId", "projectId", "environmentId", "idempotencyKey"):
            assert isinstance(record[key], str)
            assert record[key]
        for key in ("engineAttemptId", "logicalAttemptId", "runSeq"):
            assert isinstance(record[key], int)
            assert record[key] >= 1


def test_the_key_is_the_hash_of_run_step_attempt_type_and_plan_version() -> None:
    for record in every_record():
        step = record.get("stepId", "RUN")
        parts = (record["runId"], step, str(record["logicalAttemptId"]), record["eventType"], record["planVersion"])
        assert record["idempotencyKey"] == sha256("|".join(parts).encode()).hexdigest()


def test_no_two_records_of_a_run_share_a_key() -> None:
    for name in RUNS:
        keys = [record["idempotencyKey"] for record in records(name)]
        assert len(set(keys)) == len(keys)


def test_an_event_is_written_without_a_sequence_number() -> None:
    assert not {"seq", "run_seq", "runSeq"} & set(inspect.signature(Event).parameters)


def test_sequence_numbers_rise_with_gaps_and_order_the_run() -> None:
    for name in RUNS:
        numbers = [record["runSeq"] for record in records(name)]
        assert all(before < after for before, after in pairwise(numbers))
    assert [record["runSeq"] for record in records("completed")] != list(range(1, len(records("completed")) + 1))


# -- 3: statuses ------------------------------------------------------------------------------------------------------


def test_there_are_seven_statuses() -> None:
    assert STATUSES == ("PENDING", "APPROVED", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED")


def test_a_run_fails_when_its_step_has_used_all_attempts() -> None:
    assert [record["eventType"] for record in records("failed")] == [
        "RunStarted", "StepStarted", "StepFailed", "StepStarted", "StepFailed", "RunFailed",
    ]  # fmt: skip


# -- 4: schemas -------------------------------------------------------------------------------------------------------


def test_the_times_are_those_of_engine_and_store() -> None:
    for name in RUNS:
        stored = {event["seq"]: event for event in run_of(name).log}
        for record in records(name):
            event = stored[record["runSeq"]]
            assert (record["occurredAt"], record["persistedAt"]) == (event["timestamp"], event["persisted_at"])
            assert record["occurredAt"].endswith("Z")
            assert micros(record["occurredAt"]) <= micros(record["persistedAt"])


def test_the_stores_times_rise_with_the_sequence() -> None:
    for name in RUNS:
        times = [micros(record["persistedAt"]) for record in records(name)]
        assert all(before <= after for before, after in pairwise(times))


@pytest.mark.parametrize(
    ("schema", "more"),
    [("run-write", set()), ("run", {"runSeq", "persistedAt"})],
    ids=["RunEventWrite", "RunEventRecord"],
)
def test_the_published_schemas_require_the_contracts_fields(schema: str, more: set[str]) -> None:
    published = SCHEMAS[schema][1]()
    required = {
        "eventType", "occurredAt", "runId", "tenantId", "projectId", "environmentId", "planId", "planVersion",
        "engineAttemptId", "logicalAttemptId", "idempotencyKey",
    }  # fmt: skip
    assert set(published["required"]) == required | more
    assert set(published["properties"]) >= required | more | {"stepId", "payload"}
    validator = Draft202012Validator(published)
    for record in every_record():
        body = record if more else {key: record[key] for key in record if key not in ("runSeq", "persistedAt")}
        assert not list(validator.iter_errors(body))
        for key in required | more:
            assert list(validator.iter_errors({name: body[name] for name in body if name != key})), key


def test_a_failure_has_code_message_and_whether_a_retry_may_help() -> None:
    for record in (*of("failed", "StepFailed"), *of("failed", "RunFailed")):
        payload = record["payload"]
        assert (payload["errorCode"], payload["retryable"]) == ("TIMEOUT", True)
        assert "fails as scripted" in payload["errorMessage"]


def test_a_completed_step_has_its_result_and_its_duration() -> None:
    (completed,) = of("completed", "StepCompleted")
    assert completed["payload"]["result"] == 7
    assert completed["payload"]["durationMs"] == 20_000


def test_a_pause_names_its_signal_and_reason() -> None:
    (paused,) = of("paused", "RunPaused")
    (resumed,) = of("paused", "RunResumed")
    assert (paused["payload"]["reason"], resumed["payload"]["reason"]) == ("maintenance", "repaired")
    ids = [record["payload"]["signalId"] for record in (paused, resumed)]
    assert [str(UUID(event_id)) for event_id in ids] == ids


# -- 5: attempts ------------------------------------------------------------------------------------------------------


def attempts(name: str) -> list[tuple[str, int, int]]:
    return [
        (record["eventType"], record["logicalAttemptId"], record["engineAttemptId"])
        for record in records(name)
        if "stepId" in record
    ]


def test_a_worker_that_is_lost_counts_as_an_engine_attempt() -> None:
    assert attempts("lost") == [("StepStarted", 1, 1), ("StepCompleted", 1, 2)]


def test_a_retry_by_policy_counts_as_a_logical_attempt() -> None:
    assert attempts("failed") == [
        ("StepStarted", 1, 1),
        ("StepFailed", 1, 1),
        ("StepStarted", 2, 1),
        ("StepFailed", 2, 1),
    ]


def test_a_retry_by_signal_counts_as_a_logical_attempt() -> None:
    own = [
        (record["eventType"], record["logicalAttemptId"])
        for record in records("again")
        if record.get("stepId") == "bad"
    ]
    assert own == [("StepStarted", 1), ("StepFailed", 1), ("StepStarted", 2), ("StepCompleted", 2)]


def test_both_attempts_stand_on_every_record_and_only_the_logical_one_is_in_the_key() -> None:
    (completed,) = of("lost", "StepCompleted")
    assert completed["engineAttemptId"] == 2
    (plain,) = of("completed", "StepCompleted")
    assert plain["engineAttemptId"] == 1
    # The two runs have the same id and plan version: a lost worker does not change the key.
    assert completed["idempotencyKey"] == plain["idempotencyKey"]
