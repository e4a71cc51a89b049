"""Whether the server lives, and whether it can work."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from arclog.server.access import public, services_of
from arclog.server.problems import problem

router = APIRouter(tags=["operations"])


@router.get("/health", dependencies=[public()])
async def health() -> Response:
    """The process answers."""
    return JSONResponse({"status": "ok"})


@router.get("/ready", dependencies=[public()])
async def ready(request: Request) -> Response:
    """The store can be used, and the server is not draining."""
    services = services_of(request)
    wrong = "the server is draining" if services.draining() else await services.ready()
    return problem(503, "NotReady", wrong) if wrong else JSONResponse({"status": "ready"})
