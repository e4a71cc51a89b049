"""Runs: asked for, looked at, told what to do."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from arclog.server.access import VIEW, allows, api_of

router = APIRouter(prefix="/api/executions", tags=["executions"])


@router.get("/{execution_id}/status", dependencies=[allows(VIEW)])
async def status(execution_id: str, request: Request) -> Response:
    """Exactly seven fields."""
    return Response(msgspec.json.encode(await api_of(request).status(execution_id)), media_type="application/json")
