"""Whether the server lives, whether it can work, and how much it does."""

from __future__ import annotations

import logging

from fastapi import APIRouter, Request
from starlette.responses import Response

from arclog.server.auth.access import ADMIN, OPERATE, VIEW, admitted, public, services_of
from arclog.server.bodies import answered
from arclog.server.openapi.schemas import documented
from arclog.server.problems import problem

router = APIRouter(tags=["operations"])

log = logging.getLogger("arclog.server")

_SEEN_BY = {"viewer": VIEW, "operator": OPERATE, "admin": ADMIN}
_STATUS = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/health", dependencies=[public()], **documented(answer=_STATUS, example={"status": "ok"}, errors=()))
async def health() -> Response:
    """Check that the process is alive."""
    return answered({"status": "ok"})


@router.get("/ready", dependencies=[public()], **documented(answer=_STATUS, example={"status": "ready"}, errors=()))
async def ready(request: Request) -> Response:
    """Check that the server can take requests: the store is available and the server is not draining."""
    services = services_of(request)
    if services.draining():
        return problem(503, "NotReady", "the server is draining")
    wrong = await services.ready()
    if wrong:
        # Anybody may ask: where the store is, and what is wrong with it, stands in the server's own log.
        log.warning("not ready: %s", wrong)
        return problem(503, "NotReady", "the store is not available; see the server's log")
    return answered({"status": "ready"})


@router.get(
    "/metrics",
    dependencies=[public()],
    **documented(example="arclog_http_requests_open 3.0\n", media="text/plain", errors=()),
)
async def metrics(request: Request) -> Response:
    """Get metrics in Prometheus text format. Public, unless `server.metrics_role` requires a role."""
    services = services_of(request)
    role = services.settings.text("server.metrics_role")
    if role != "public":
        await admitted(request, _SEEN_BY[role])
    return Response(await services.metrics(), media_type=_PROMETHEUS)
