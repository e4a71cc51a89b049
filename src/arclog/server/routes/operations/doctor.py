"""The problems of this server and what it stands on."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from arclog import __version__
from arclog.model.errors import NotFound
from arclog.ports import work
from arclog.ports.views.checks import FAIL, OK, Check, Diagnosis
from arclog.server.auth.access import ADMIN, allows, principal_of, services_of
from arclog.server.bodies import answered
from arclog.server.openapi.schemas import documented

router = APIRouter(tags=["operations"])

_EXAMPLE = Diagnosis(
    version=__version__,
    protocol=work.PROTOCOL,
    now=1_767_323_045_000_000,
    checks=[
        Check("timers", OK, "none is overdue"),
        Check(
            "pool gpu",
            FAIL,
            "3 waiting, 0 with workers; the oldest has been waiting for 94 s",
            "no worker takes these commands: start one (arclog worker --server URL --pool gpu)",
        ),
    ],
)


@router.get(
    "/api/doctor",
    dependencies=[allows(ADMIN, tenant_wide=True)],
    **documented(answer=Diagnosis, example=_EXAMPLE, errors=(404,)),
)
async def doctor(request: Request) -> Response:
    """Check store, bus, results, clock and pending work, as `arclog doctor --server` does. Each check may take
    `doctor.check_s`.
    """
    ask = services_of(request).doctor
    if ask is None:
        raise NotFound("health checks are not available on this server")
    return answered(await ask(principal_of(request)))
