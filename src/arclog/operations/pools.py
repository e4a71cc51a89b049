"""Pools of workers, limits of resources, and the workers themselves."""

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
    #: maximum number of commands that workers hold at a time; 0: none may be claimed
    concurrency: int
    #: '' for all tenants together, '*' for each tenant separately
    tenant: str = ""


class Resources(Struct, frozen=True):
    resources: list[ResourceView]


class Workers(Struct, frozen=True):
    workers: list[WorkerView]


class Drain(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker or a pool to drain: exactly one of the two."""

    worker_id: str = ""
    #: all current workers of this pool
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
    text="List pools that have open commands, workers or a limit, ordered by name. The pool with an empty name has the limits\nof all pools together.",
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
    text="Limit the number of concurrent commands of a pool (`*`: of all pools together).",
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
    text="Remove a limit of a pool: the limit of all tenants together, or with `tenant` that of each tenant (`*`) or of one.",
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
    text="Get the recommended number of workers of a pool and the figures behind it.",
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
    text="List resources that have a limit, ordered by name.",
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
    text="Set the limits of a resource. They apply to steps that name it in `spec.resources`.",
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
    text="Remove the limits of a resource.",
    params=ByName,
    status=204,
    outcome="The resource has no limits.",
    tenant_wide=True,
)
WORKERS = Operation(
    name="pools.workers",
    method="GET",
    path="/api/workers",
    access=VIEW,
    tag=_TAG,
    text="List workers with their last known state, ordered by id.",
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
    text="Drain a worker, or all current workers of a pool: they take no new commands, finish their tasks and stop.",
    takes=Drain,
    takes_example=Drain(pool="gpu"),
    answer=Workers,
    example=Workers([_WORKER]),
    status=202,
    outcome="The workers are notified within seconds.",
    tenant_wide=True,
    repeatable=True,
)
