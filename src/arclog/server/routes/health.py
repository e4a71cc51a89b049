"""Whether the server lives, whether it can work, and how much it does."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from arclog.server.access import public, services_of
from arclog.server.bodies import answered
from arclog.server.problems import problem
from arclog.server.schemas import documented

router = APIRouter(tags=["operations"])

_STATUS = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/health", dependencies=[public()], **documented(answer=_STATUS, example={"status": "ok"}, errors=()))
async def health() -> Response:
    """The process answers."""
    return answered({"status": "ok"})


@router.get("/ready", dependencies=[public()], **documented(answer=_STATUS, example={"status": "ready"}, errors=()))
async def ready(request: Request) -> Response:
    """The store can be used, and the server is not draining."""
    services = services_of(request)
    wrong = "the server is draining" if services.draining() else await services.ready()
    return problem(503, "NotReady", wrong) if wrong else answered({"status": "ready"})


@router.get(
    "/metrics",
    dependencies=[public()],
    **documented(example="arclog_http_requests_open 3.0\n", media="text/plain", errors=()),
)
async def metrics(request: Request) -> Response:
    """Prometheus' text format."""
    services = services_of(request)
    traffic = services.traffic
    own = (
        "# HELP arclog_http_requests_open Requests under way, streams included.\n"
        "# TYPE arclog_http_requests_open gauge\n"
        f"arclog_http_requests_open {traffic.now}\n"
        "# HELP arclog_http_streams_open Clients that follow a run.\n"
        "# TYPE arclog_http_streams_open gauge\n"
        f"arclog_http_streams_open {traffic.streams}\n"
    )
    return Response(own.encode() + await services.metrics(), media_type=_PROMETHEUS)
