"""What callers were granted and denied."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from arclog.server.access import ADMIN, allows, principal_of, services_of

router = APIRouter(prefix="/api/audit", tags=["access"])


@router.get("", dependencies=[allows(ADMIN)])
async def audit(
    request: Request,
    decision: Literal["", "granted", "denied"] = "",
    before: Annotated[int, Query(ge=0, lt=1 << 62)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Decisions about requests of the caller's tenant, newest first. `next` is the `before` of the next page."""
    found = await services_of(request).audit.page(principal_of(request).tenant, decision, before, limit)
    body = {"entries": found, "next": found[-1].position if len(found) == limit else None}
    return Response(msgspec.json.encode(body), media_type="application/json")
