"""Pools of workers, resources that bear only so much, and the workers themselves."""

from __future__ import annotations

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from arclog.model.errors import NotFound
from arclog.ports.storage.pools import (
    LimitView,
    NewResource,
    PoolApi,
    PoolView,
    ResourceView,
    Scale,
    WorkerView,
)
from arclog.server.auth.access import ADMIN, VIEW, allows, principal_of, services_of
from arclog.server.bodies import answered, body_of
from arclog.server.openapi.schemas import documented

router = APIRouter(prefix="/api", tags=["pools"])

#: All pools together, in a path.
ALL = "*"

_POOL = PoolView("gpu", 12, 3.5, 8, 2, 16, [LimitView("", 32), LimitView("*", 16)])
_SCALE = Scale("gpu", 12, 3.5, 8, 2, 16, 8.0, 0.25, 2)
_RESOURCE = ResourceView("billing-api", "10/s", 20, 4, 1, 12, 0.0)
_WORKER = WorkerView(
    "remote_host-4242-a1b2c3@acme/9x2k",
    "working",
    ("gpu",),
    ("http", "noop", "python"),
    8,
    3,
    "host",
    "1.0.0",
    "2026-03-01T12:00:00.000000Z",
)


class Pools(Struct, frozen=True):
    pools: list[PoolView]


class NewLimit(Struct, frozen=True, forbid_unknown_fields=True):
    #: commands that may be held at a time; 0: none
    concurrency: int
    #: '': all tenants together; '*': each tenant by itself
    tenant: str = ""


class Resources(Struct, frozen=True):
    resources: list[ResourceView]


class Workers(Struct, frozen=True):
    workers: list[WorkerView]


class Drain(Struct, frozen=True, forbid_unknown_fields=True):
    """One of them."""

    worker_id: str = ""
    #: all workers that are in it now
    pool: str = ""


def _pools(request: Request) -> PoolApi:
    found = services_of(request).pools
    if found is None:
        raise NotFound("pools are not available on this server")
    return found(principal_of(request))


def _name(pool: str) -> str:
    return "" if pool == ALL else pool


@router.get("/pools", dependencies=[allows(VIEW)], **documented(answer=Pools, example=Pools([_POOL]), errors=()))
async def pools(request: Request) -> Response:
    """List pools that have open work, workers or a limit, by name; '' has the limits of all pools together."""
    return answered(Pools(await _pools(request).pools()))


@router.put(
    "/pools/{pool}/limit",
    dependencies=[allows(ADMIN, tenant_wide=True)],
    **documented(answer=PoolView, example=_POOL, takes=NewLimit, takes_example=NewLimit(32), errors=()),
)
async def set_limit(pool: str, request: Request) -> Response:
    """Limit the number of concurrent commands of a pool (`*`: of all pools together)."""
    new = await body_of(request, NewLimit)
    return answered(await _pools(request).set_limit(_name(pool), new.tenant, new.concurrency))


@router.delete(
    "/pools/{pool}/limit", dependencies=[allows(ADMIN, tenant_wide=True)], **documented(answer=PoolView, example=_POOL)
)
async def remove_limit(pool: str, request: Request, tenant: str = "") -> Response:
    """Remove a limit: of all tenants together, of each tenant (`*`), or of one tenant."""
    return answered(await _pools(request).remove_limit(_name(pool), tenant))


@router.get("/pools/{pool}/scale", dependencies=[allows(VIEW)], **documented(answer=Scale, example=_SCALE, errors=()))
async def scale(pool: str, request: Request) -> Response:
    """Get the recommended number of workers of a pool and the figures behind it."""
    return answered(await _pools(request).scale(pool))


@router.get(
    "/resources", dependencies=[allows(VIEW)], **documented(answer=Resources, example=Resources([_RESOURCE]), errors=())
)
async def resources(request: Request) -> Response:
    """List resources that have a limit, by name."""
    return answered(Resources(await _pools(request).resources()))


@router.put(
    "/resources/{name}",
    dependencies=[allows(ADMIN, tenant_wide=True)],
    **documented(
        answer=ResourceView,
        example=_RESOURCE,
        takes=NewResource,
        takes_example=NewResource("10/s", 20, 4),
        errors=(),
    ),
)
async def set_resource(name: str, request: Request) -> Response:
    """Set the limits of a resource. Steps that name it in `spec.resources` wait for it."""
    return answered(await _pools(request).set_resource(name, await body_of(request, NewResource)))


@router.delete(
    "/resources/{name}",
    dependencies=[allows(ADMIN, tenant_wide=True)],
    **documented(status=204, text="It no longer has a limit."),
)
async def remove_resource(name: str, request: Request) -> Response:
    """Remove the limits of a resource."""
    await _pools(request).remove_resource(name)
    return Response(status_code=204)


@router.get(
    "/workers", dependencies=[allows(VIEW)], **documented(answer=Workers, example=Workers([_WORKER]), errors=())
)
async def workers(request: Request) -> Response:
    """List workers with their last known state, by id."""
    return answered(Workers(await _pools(request).workers()))


@router.post(
    "/workers/drain",
    dependencies=[allows(ADMIN, tenant_wide=True)],
    **documented(
        answer=Workers,
        example=Workers([_WORKER]),
        status=202,
        text="The workers are notified within seconds.",
        takes=Drain,
        takes_example=Drain(pool="gpu"),
    ),
)
async def drain(request: Request) -> Response:
    """Drain a worker, or all current workers of a pool: they take no new commands, finish their tasks and stop."""
    asked = await body_of(request, Drain)
    return answered(Workers(await _pools(request).drain(asked.worker_id, asked.pool)), 202)
