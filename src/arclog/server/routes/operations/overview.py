"""What somebody looks at first: how runs ended lately, and what needs attention."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from msgspec import Struct
from starlette.responses import Response

from arclog.ports.views.overview import Activity, Approval, ApprovalPage, Failing, Hour, Lease, Stuck
from arclog.server.auth.access import VIEW, allows, api_of
from arclog.server.bodies import answered
from arclog.server.openapi import examples
from arclog.server.openapi.schemas import documented

router = APIRouter(prefix="/api", tags=["overview"])

#: Each of them costs a fold of its run.
Few = Annotated[int, Query(description="Maximum number of items", ge=1, le=100)]

_WHY = "step resize (run 1) waits for a worker of pool gpu that supports python; no worker of pool gpu has been seen"
_ACTIVITY = Activity("2026-01-01T04:00:00.000000Z", examples.AT, [Hour("2026-01-02T03:00:00.000000Z", 41, 2, 0)])
_FAILING = Failing("examples/hello", "hello", 3, examples.AT, examples.LISTED)
_STUCK = Stuck(examples.LISTED, "resize", "gpu", examples.AT, _WHY)
_LEASE = Lease(examples.LISTED, "resize", 1, (0, 0), "gpu", "gpu-7-1f3a", 1, examples.AT)
_APPROVAL = Approval(examples.LISTED, "ship#1/ask#1", "ship", "ask", "", "Ship order 17?", examples.AT, None)


class FailingPlaybooks(Struct, frozen=True):
    #: the last to fail first
    playbooks: list[Failing]


class StuckRuns(Struct, frozen=True):
    #: the longest waiting first
    runs: list[Stuck]


class Leases(Struct, frozen=True):
    #: the one that ends first at the top
    leases: list[Lease]


@router.get("/activity", dependencies=[allows(VIEW)], **documented(answer=Activity, example=_ACTIVITY, errors=()))
async def activity(
    request: Request,
    hours: Annotated[int, Query(description="Number of hours, including the current one", ge=1, le=8_784)] = 24,
) -> Response:
    """Count ended runs by hour and state. Runs called by other runs are not counted."""
    return answered(await api_of(request).activity(hours=hours))


@router.get(
    "/failing",
    dependencies=[allows(VIEW)],
    **documented(answer=FailingPlaybooks, example=FailingPlaybooks([_FAILING]), errors=()),
)
async def failing(request: Request, limit: Few = 20) -> Response:
    """List playbooks whose latest finished run failed."""
    return answered(FailingPlaybooks(await api_of(request).failing(limit=limit)))


@router.get(
    "/stuck",
    dependencies=[allows(VIEW)],
    **documented(answer=StuckRuns, example=StuckRuns([_STUCK]), errors=()),
)
async def stuck(request: Request, limit: Few = 20) -> Response:
    """List runs with work that no worker takes, one for each pool and set of kinds."""
    return answered(StuckRuns(await api_of(request).stuck(limit=limit)))


@router.get(
    "/leases",
    dependencies=[allows(VIEW)],
    **documented(answer=Leases, example=Leases([_LEASE]), errors=()),
)
async def leases(
    request: Request, limit: Annotated[int, Query(description="Maximum number of items", ge=1, le=1000)] = 100
) -> Response:
    """List commands held by workers, ordered by the end of their leases."""
    return answered(Leases(await api_of(request).leases(limit=limit)))


@router.get(
    "/approvals",
    dependencies=[allows(VIEW)],
    **documented(answer=ApprovalPage, example=ApprovalPage([_APPROVAL], None), errors=()),
)
async def approvals(
    request: Request,
    after: Annotated[str, Query(description="Only runs newer than this one", max_length=32)] = "",
    limit: Few = 50,
) -> Response:
    """List pending approvals. Send `key` as the `step` of the signal APPROVE or REJECT."""
    return answered(await api_of(request).approvals(after=after, limit=limit))
