"""The Run Events Contract: runs by runId, and their records in ascending runSeq. It cannot append records."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from arclog.operations.events import published
from arclog.operations.operation import OPERATE, VIEW, Operation
from arclog.ports.views.runs import RunPage, RunSignal, RunStatus, SignalDecision, StartRun

_TAG = "runs"


class CancelRun(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The request of cancelRun."""

    reason: str


class OfRun(Struct, frozen=True):
    run_id: str


class ListRunEvents(Struct, frozen=True, omit_defaults=True, rename={"after": "afterSeq"}):
    run_id: str
    after: Annotated[int, Meta(ge=0, lt=1 << 62, description="runSeq of the last known record")] = 0
    limit: Annotated[int, Meta(description="Maximum number of items", ge=1, le=1000)] = 100


_RUN = "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a"
_STATUS = RunStatus(
    _RUN, "320816801799016448", "default", "default", "local", "flows/orders", "2", "RUNNING", None,
    "2026-06-04T10:00:00.000000Z", None, None,
)  # fmt: skip
_DECISION = SignalDecision(_RUN, "pause-1", "PAUSE", "ACCEPTED", "", "RUNNING", "DRAINING")
_RECORD = {
    "eventType": "RunStarted", "occurredAt": "2026-06-04T10:00:00.000000Z", "persistedAt": "2026-06-04T10:00:00.001000Z",
    "runId": _RUN, "tenantId": "default", "projectId": "default", "environmentId": "local", "planId": "flows/orders",
    "planVersion": "2", "engineAttemptId": 1, "logicalAttemptId": 1, "runSeq": 3,
    "idempotencyKey": "6920a8464c179b6fa8e3a92d7400b9f6feb62735c6f585192da0ae480c75a977",
}  # fmt: skip


def _page_schema() -> dict[str, Any]:
    """Return the schema of a page, whose records have the published schema."""
    return {
        "type": "object",
        "required": ["events", "nextAfterSeq", "hasMore"],
        "properties": {
            "events": {"type": "array", "items": published("run")},
            "nextAfterSeq": {"type": "integer", "minimum": 0},
            "hasMore": {"type": "boolean"},
        },
    }


START = Operation(
    name="runs.start",
    method="POST",
    path="/api/runs",
    access=OPERATE,
    tag=_TAG,
    text="startRun: start a run of a registered playbook (`planId` and optionally `planVersion`), or of the text of a playbook.",
    takes=StartRun,
    takes_example={"planId": "flows/orders", "parameters": {"day": "2026-06-04"}, "idempotencyKey": "orders-0604"},
    answer=RunStatus,
    example=_STATUS,
    status=201,
    outcome="The run is recorded and will start.",
    also={200: "A run with this idempotency key already exists."},
    errors=(404, 409),
)
STATUS = Operation(
    name="runs.status",
    method="GET",
    path="/api/runs/{run_id}/status",
    access=VIEW,
    tag=_TAG,
    text="getRunStatus: get the status of a run, including PENDING, APPROVED and PAUSED, and the substatus DRAINING.",
    params=OfRun,
    answer=RunStatus,
    example=_STATUS,
)
CANCEL = Operation(
    name="runs.cancel",
    method="POST",
    path="/api/runs/{run_id}/cancel",
    access=OPERATE,
    tag=_TAG,
    text="cancelRun: cancel a run immediately. Cancelling a cancelled run again has no effect.",
    params=OfRun,
    takes=CancelRun,
    takes_example=CancelRun("the input was wrong"),
    answer=RunStatus,
    example=msgspec.structs.replace(_STATUS, status="CANCELLED"),
    outcome="The run is cancelled.",
    errors=(404, 409),
    urgent=True,
)
SIGNAL = Operation(
    name="runs.signal",
    method="POST",
    path="/api/runs/{run_id}/signal",
    access=OPERATE,
    tag=_TAG,
    text="signal: send a signal to a run. A signalId is recorded once. A signal that cannot be applied is recorded, too, and\nanswered with 409.",
    params=OfRun,
    takes=RunSignal,
    takes_example=RunSignal("PAUSE", "6f1c2a7e-3b0d-4c55-9a41-0d2e8f7b6c13", "maintenance"),
    answer=SignalDecision,
    example=_DECISION,
    outcome="The signal was recorded and applied.",
    errors=(404, 409),
    urgent=True,
)
EVENTS = Operation(
    name="runs.events",
    method="GET",
    path="/api/runs/{run_id}/events",
    access=VIEW,
    tag=_TAG,
    text="List the RunEventRecords of a run after `afterSeq`, in ascending runSeq. Numbers may have gaps.",
    params=ListRunEvents,
    answer=RunPage,
    schema=_page_schema,
    example=RunPage([_RECORD], 3, has_more=True),
)
