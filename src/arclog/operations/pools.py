"""Pools of workers, resources that bear only so much, and the workers themselves."""

from __future__ import annotations

from msgspec import Struct

from arclog.operations.operation import ADMIN, VIEW, ByName, Operation
from arclog.ports.storage.pools import LimitView, NewResource, PoolView, ResourceView, Scale, WorkerView

_TAG = "pools"

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


class OfPool(Struct, frozen=True):
    pool: str


class RemoveLimit(Struct, frozen=True, omit_defaults=True):
    pool: str
    tenant: str = ""


POOLS = Operation(
    name="pools.pools",
    method="GET",
    path="/api/pools",
    access=VIEW,
    tag=_TAG,
    text="Pools with open work, a worker or a limit, by name; '' has the limits of all pools together.",
    answer=Pools,
    example=Pools([_POOL]),
    errors=(),
)
SET_LIMIT = Operation(
    name="pools.set_limit",
    method="PUT",
    path="/api/pools/{pool}/limit",
    access=ADMIN,
    tag=_TAG,
    text="Limit how many commands of a pool (`*`: of all together) are held at a time.",
    params=OfPool,
    takes=NewLimit,
    takes_example=NewLimit(32),
    answer=PoolView,
    example=_POOL,
    errors=(),
    tenant_wide=True,
    repeatable=True,
)
REMOVE_LIMIT = Operation(
    name="pools.remove_limit",
    method="DELETE",
    path="/api/pools/{pool}/limit",
    access=ADMIN,
    tag=_TAG,
    text="Take a limit away: that of all tenants together, of each (`*`), or of one.",
    params=RemoveLimit,
    answer=PoolView,
    example=_POOL,
    tenant_wide=True,
)
SCALE = Operation(
    name="pools.scale",
    method="GET",
    path="/api/pools/{pool}/scale",
    access=VIEW,
    tag=_TAG,
    text="How many workers a pool should have, and what that is made from.",
    params=OfPool,
    answer=Scale,
    example=_SCALE,
    errors=(),
)
RESOURCES = Operation(
    name="pools.resources",
    method="GET",
    path="/api/resources",
    access=VIEW,
    tag=_TAG,
    text="Resources that have a limit, by name.",
    answer=Resources,
    example=Resources([_RESOURCE]),
    errors=(),
)
SET_RESOURCE = Operation(
    name="pools.set_resource",
    method="PUT",
    path="/api/resources/{name}",
    access=ADMIN,
    tag=_TAG,
    text="Say what a resource bears: steps that name it in `spec.resources` wait for it.",
    params=ByName,
    takes=NewResource,
    takes_example=NewResource("10/s", 20, 4),
    answer=ResourceView,
    example=_RESOURCE,
    errors=(),
    tenant_wide=True,
    repeatable=True,
)
REMOVE_RESOURCE: Operation[None] = Operation(
    name="pools.remove_resource",
    method="DELETE",
    path="/api/resources/{name}",
    access=ADMIN,
    tag=_TAG,
    text="Let a resource have no limit.",
    params=ByName,
    status=204,
    outcome="It has no limit any more.",
    tenant_wide=True,
)
WORKERS = Operation(
    name="pools.workers",
    method="GET",
    path="/api/workers",
    access=VIEW,
    tag=_TAG,
    text="Workers as they were last seen, by id.",
    answer=Workers,
    example=Workers([_WORKER]),
    errors=(),
)
DRAIN = Operation(
    name="pools.drain",
    method="POST",
    path="/api/workers/drain",
    access=ADMIN,
    tag=_TAG,
    text="Tell a worker, or all that are in a pool now, to take nothing new, finish, and leave.",
    takes=Drain,
    takes_example=Drain(pool="gpu"),
    answer=Workers,
    example=Workers([_WORKER]),
    status=202,
    outcome="They hear it within seconds.",
    tenant_wide=True,
    repeatable=True,
)
