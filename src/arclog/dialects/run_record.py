"""The records, keys and statuses of the Run Events Contract."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from msgspec import Struct

from arclog.dialects.rendering import Envelope
from arclog.model import ids

RUN_STARTED = "RunStarted"
STEP_STARTED = "StepStarted"
STEP_COMPLETED = "StepCompleted"
STEP_FAILED = "StepFailed"
RUN_PAUSED = "RunPaused"
RUN_RESUMED = "RunResumed"
RUN_COMPLETED = "RunCompleted"
RUN_FAILED = "RunFailed"
RUN_CANCELLED = "RunCancelled"

PENDING = "PENDING"
APPROVED = "APPROVED"
RUNNING = "RUNNING"
PAUSED = "PAUSED"
COMPLETED = "COMPLETED"
FAILED = "FAILED"
CANCELLED = "CANCELLED"
STATUSES = (PENDING, APPROVED, RUNNING, PAUSED, COMPLETED, FAILED, CANCELLED)
#: Substatus of a run that pauses once the work in progress has ended.
DRAINING = "DRAINING"

#: The status after each event. PENDING and APPROVED precede all events.
STATUS_AFTER = {
    RUN_STARTED: RUNNING,
    RUN_PAUSED: PAUSED,
    RUN_RESUMED: RUNNING,
    RUN_COMPLETED: COMPLETED,
    RUN_FAILED: FAILED,
    RUN_CANCELLED: CANCELLED,
}
EVENT_TYPES = (
    RUN_STARTED,
    STEP_STARTED,
    STEP_COMPLETED,
    STEP_FAILED,
    RUN_PAUSED,
    RUN_RESUMED,
    RUN_COMPLETED,
    RUN_FAILED,
    RUN_CANCELLED,
)
#: The place of the stepId in the key of a run-level event.
RUN_LEVEL = "RUN"
#: Keys that the store adds to a written record.
STORE_KEYS = ("persistedAt", "runSeq")


class RunSubject(Struct, frozen=True):
    """The common fields of all records of one run; the envelopes have the tenancy."""

    #: UUID v4
    run_id: str
    #: catalog path
    plan_id: str
    #: catalog version, fixed for the run
    plan_version: str


class Attempts(Struct, frozen=True):
    #: 1 + retries by policy or by RETRY_STEP; for a pause, its ordinal
    logical: int = 1
    #: 1 + lost leases
    engine: int = 1


def idempotency_key(run_id: str, step_id: str | None, logical: int, event_type: str, plan_version: str) -> str:
    """Return the key by the contract's formula. Neither engineAttemptId nor planId is part of it."""
    parts = (run_id, step_id or RUN_LEVEL, str(logical), event_type, plan_version)
    return sha256("|".join(parts).encode()).hexdigest()


def record_of(
    event_type: str,
    envelope: Envelope,
    subject: RunSubject,
    attempts: Attempts,
    payload: dict[str, Any],
    step_id: str | None = None,
) -> dict[str, Any]:
    """Build a RunEventRecord."""
    record = {
        "eventType": event_type,
        "occurredAt": envelope["timestamp"],
        "persistedAt": envelope["persisted_at"],
        "runId": subject.run_id,
        "tenantId": envelope.get("tenant_id", ""),
        "projectId": envelope.get("project_id", ""),
        "environmentId": envelope.get("environment_id", ""),
        "planId": subject.plan_id,
        "planVersion": subject.plan_version,
        "engineAttemptId": attempts.engine,
        "logicalAttemptId": attempts.logical,
        "runSeq": envelope["seq"],
        "idempotencyKey": idempotency_key(subject.run_id, step_id, attempts.logical, event_type, subject.plan_version),
    }
    if step_id is not None:
        record["stepId"] = step_id
    if payload:
        record["payload"] = payload
    return record


def write_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the RunEventWrite of this record: without the fields that the store assigned."""
    return {key: value for key, value in record.items() if key not in STORE_KEYS}


def error_payload(error: dict[str, Any] | None, stack: str | None = None) -> dict[str, Any]:
    """Return the required payload of StepFailed and RunFailed."""
    if not error:
        return {}
    payload = {
        "errorCode": error.get("code") or str(error.get("kind", "internal")).upper(),
        "errorMessage": error.get("message", ""),
        "retryable": bool(error.get("retryable")),
    }
    if stack:
        payload["stack"] = stack
    return payload


def signal_payload(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the required payload of RunPaused and RunResumed."""
    names = {"signal_id": "signalId", "reason": "reason"}
    return {name: payload[key] for key, name in names.items() if payload.get(key)}


def milliseconds_between(began: str, ended: str) -> int | None:
    """Return the time between two timestamps; None if the first is unknown."""
    return ids.milliseconds(ids.micros(began), ids.micros(ended)) if began else None
