"""The Run Events Contract over HTTP: runs by runId, their records in ascending runSeq. Nothing is appended here."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from msgspec import Struct
from starlette.responses import Response

from arclog.dialects.schemas import SCHEMAS
from arclog.ports.views.runs import REJECTED, RunPage, Runs, RunSignal, RunStatus, SignalDecision, StartRun
from arclog.server.auth.access import OPERATE, VIEW, allows, principal_of, services_of
from arclog.server.bodies import answered, body_of
from arclog.server.openapi.schemas import documented
from arclog.server.problems import problem

router = APIRouter(prefix="/api/runs", tags=["runs"])


class CancelRun(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """cancelRun."""

    reason: str


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


def _page_schema() -> dict[str, object]:
    """A page, whose records are those of the published schema."""
    record = {key: value for key, value in SCHEMAS["run"][1]().items() if key != "$schema"}
    return {
        "type": "object",
        "required": ["events", "nextAfterSeq", "hasMore"],
        "properties": {
            "events": {"type": "array", "items": record},
            "nextAfterSeq": {"type": "integer", "minimum": 0},
            "hasMore": {"type": "boolean"},
        },
    }


def _runs(request: Request) -> Runs:
    return services_of(request).runs(principal_of(request))


@router.post(
    "",
    dependencies=[allows(OPERATE)],
    **documented(
        answer=RunStatus,
        example=_STATUS,
        status=201,
        text="The run is durable.",
        also={200: "A run with this idempotency key already exists."},
        takes=StartRun,
        takes_example={"planId": "flows/orders", "parameters": {"day": "2026-06-04"}, "idempotencyKey": "orders-0604"},
        errors=(404, 409),
    ),
)
async def start(request: Request) -> Response:
    """startRun: by `planId` (and `planVersion`), or by the text of a playbook."""
    status, created = await _runs(request).start(await body_of(request, StartRun))
    return answered(status, 201 if created else 200, {"Location": f"/api/runs/{status.run_id}/status"})


@router.get("/{run_id}/status", dependencies=[allows(VIEW)], **documented(answer=RunStatus, example=_STATUS))
async def status(run_id: str, request: Request) -> Response:
    """getRunStatus: with PENDING, APPROVED, PAUSED and the substatus DRAINING."""
    return answered(await _runs(request).status(run_id))


@router.post(
    "/{run_id}/cancel",
    dependencies=[allows(OPERATE)],
    **documented(
        answer=RunStatus,
        example=msgspec.structs.replace(_STATUS, status="CANCELLED"),
        text="The run is cancelled.",
        takes=CancelRun,
        takes_example=CancelRun("the input was wrong"),
        errors=(404, 409),
    ),
)
async def cancel(run_id: str, request: Request) -> Response:
    """cancelRun: cancel a run immediately. Cancelling a cancelled run again has no effect."""
    body = await body_of(request, CancelRun)
    return answered(await _runs(request).cancel(run_id, body.reason))


@router.post(
    "/{run_id}/signal",
    dependencies=[allows(OPERATE)],
    **documented(
        answer=SignalDecision,
        example=_DECISION,
        text="The signal is recorded and was applied.",
        takes=RunSignal,
        takes_example=RunSignal("PAUSE", "6f1c2a7e-3b0d-4c55-9a41-0d2e8f7b6c13", "maintenance"),
        errors=(404, 409),
    ),
)
async def signal(run_id: str, request: Request) -> Response:
    """signal: recorded once per signalId. A signal that cannot be applied is recorded as well and answered with 409."""
    decision = await _runs(request).signal(run_id, await body_of(request, RunSignal))
    if decision.decision == REJECTED:
        return problem(409, "SignalRejected", decision.message, decision=msgspec.to_builtins(decision))
    return answered(decision)


@router.get(
    "/{run_id}/events",
    dependencies=[allows(VIEW)],
    **documented(answer=_page_schema(), example=RunPage([_RECORD], 3, has_more=True)),
)
async def events(
    run_id: str,
    request: Request,
    after: Annotated[int, Query(alias="afterSeq", ge=0, lt=1 << 62, description="runSeq of the last known record")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """RunEventRecords in ascending runSeq (gaps are legal), after `afterSeq`."""
    return answered(await _runs(request).events(run_id, after=after, limit=limit))
