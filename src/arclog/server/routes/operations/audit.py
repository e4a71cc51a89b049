"""What callers were granted and denied."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from msgspec import Struct
from starlette.responses import Response

from arclog.ports.storage.access import Audited
from arclog.server.auth.access import ADMIN, allows, principal_of, services_of
from arclog.server.bodies import answered
from arclog.server.openapi.schemas import documented

router = APIRouter(prefix="/api/audit", tags=["access"])


class AuditPage(Struct, frozen=True):
    entries: list[Audited]
    #: the `before` of the next page; None: there is none
    next: int | None


_ENTRY = Audited(
    position=7,
    at="2026-01-02T03:04:05.000000Z",
    decision="denied",
    principal="ci",
    tenant="acme",
    method="POST",
    route="/api/executions/{execution_id}/cancel",
    target="execution_id=318301234567890944",
    address="10.0.0.7",
    reason="ci is not allowed to do this; the role admin or engineer or operator is required",
)


@router.get(
    "",
    dependencies=[allows(ADMIN, tenant_wide=True)],
    **documented(answer=AuditPage, example=AuditPage([_ENTRY], None)),
)
async def audit(
    request: Request,
    decision: Literal["", "granted", "denied"] = "",
    before: Annotated[int, Query(ge=0, lt=1 << 62)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List granted and denied requests of the caller's tenant, newest first. Page with `next` as `before`."""
    found = await services_of(request).audit.page(principal_of(request).tenant, decision, before, limit)
    return answered(AuditPage(found, found[-1].position if len(found) == limit else None))
