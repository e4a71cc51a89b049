"""Pools of workers: limits on claims, resources with a rate, and the registered workers.

Rules that every store keeps (`arclog.testing.conformance.store` checks them) when `Store.claim` chooses:
- Tenants share a pool. While several wait, the next command belongs to the tenant that holds the fewest there; among
  those, to the one that was granted the fewest (a tenant that returns starts at the pool's current count, so none saves
  up); among those, to the first by `NewCommand.order`. Within a tenant, the smallest order comes first, then the
  smallest id.
- Nothing is claimed above a limit. Lowering a limit below the number of held commands withdraws none.
- A command that names resources takes a token and a place of each, or is not claimed. Tokens follow the store's clock.
  A resource without a record has no limit.
- A command that waits for room does not delay commands that have room.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

#: Tenant of a limit that applies to every tenant separately.
EACH = "*"
#: Maximum of `ahead`.
MOST_AHEAD = 10_000


class Limit(Struct, frozen=True):
    """The maximum number of commands held at a time.

    The limit of a named tenant takes precedence over that of each tenant.
    """

    #: '' for all pools together
    pool: str
    #: '' for all tenants together; '*' for every tenant separately
    tenant: str
    #: 0 for none at all
    concurrency: int


class Resource(Struct, frozen=True):
    """An external resource with a limit; each command that names it takes a token."""

    name: str
    #: microseconds between two tokens; 0 for no rate
    interval: int = 0
    #: maximum number of saved tokens
    burst: int = 1
    #: maximum number of commands that hold it at a time; None for any number
    concurrency: int | None = None


class ResourceRecord(Struct, frozen=True):
    resource: Resource
    #: when all of its tokens are available again, microseconds since 1970
    full_at: int = 0
    #: number of commands that hold it
    held: int = 0


def tokens(record: ResourceRecord, now: int) -> int | None:
    """Return the available tokens; None if no rate is set.

    Uses the generic cell rate algorithm, whose state is one time.
    """
    resource = record.resource
    if not resource.interval:
        return None
    owed = max(record.full_at - now, 0)
    return max((resource.burst * resource.interval - owed) // resource.interval, 0)


def next_token(record: ResourceRecord) -> int:
    """Return when a token is available, microseconds since 1970; possibly in the past."""
    resource = record.resource
    return record.full_at - (resource.burst - 1) * resource.interval if resource.interval else 0


class Share(Struct, frozen=True):
    """The open commands of one tenant in one pool."""

    pool: str
    tenant: str
    issued: int = 0
    claimed: int = 0
    #: the smallest (oldest) id of the waiting commands; 0 if none waits
    oldest: int = 0


class QueueHead(Struct, frozen=True):
    """The next command of a lane: the commands of one tenant, pool, set of kinds and set of resources."""

    pool: str
    kinds: tuple[str, ...]
    command_id: int
    execution_id: int
    step: str


class Contest(Struct, frozen=True):
    """A summary of the commands that wait in a pool."""

    #: at most two of the waiting tenants: none, the only one, or two of several
    tenants: tuple[str, ...] = ()
    #: whether a limit is set for this pool, or for all pools
    limited: bool = False


class WorkerRecord(Struct, frozen=True):
    """A worker as it was last seen."""

    worker_id: str
    #: empty for every pool
    pools: tuple[str, ...]
    kinds: tuple[str, ...]
    #: '' or the only tenant that it serves
    tenant: str
    host: str
    version: str
    slots: int
    busy: int
    #: average microseconds per command; 0 if unknown
    pace: int
    #: microseconds since 1970
    seen_at: int
    #: whether it can be drained
    leaves: bool = False
    #: whether it is draining
    draining: bool = False


class PoolBook(Protocol):
    async def set_limit(self, limit: Limit) -> None:
        """Store a limit, replacing the one with its pool and tenant."""

    async def remove_limit(self, pool: str, tenant: str) -> bool:
        """Remove a limit. Returns whether it existed."""

    async def limits(self) -> list[Limit]:
        """Return all limits, by pool and tenant."""

    async def set_resource(self, resource: Resource) -> None:
        """Store a resource, replacing the one with its name. Used tokens stay used, up to the new burst."""

    async def remove_resource(self, name: str) -> bool:
        """Remove a resource. Returns whether it existed."""

    async def resources(self) -> list[ResourceRecord]:
        """Return all resources, by name."""

    async def shares(self) -> list[Share]:
        """Return the open commands by pool and tenant, without those that are held back (`held`)."""

    async def queue_heads(self, tenant: str, limit: int = 100) -> list[QueueHead]:
        """Return the next command of each lane of a tenant that has issued ones, by pool and kinds."""

    async def contest(self, pool: str) -> Contest:
        """Summarize the commands that wait in a pool. Called often, so it must be cheap."""

    async def ahead(self, execution_id: int, command_id: int) -> int:
        """Return the number of issued commands of the same pool and tenant before this one, at most `MOST_AHEAD`."""

    async def see_worker(self, worker: WorkerRecord, forget: int) -> bool:
        """Record a worker's sign of life.

        Returns whether it should drain. Workers not seen since `forget` (microseconds) are forgotten.
        """

    async def workers(self) -> Sequence[WorkerRecord]:
        """Return all known workers, by id."""

    async def drain_worker(self, worker_id: str) -> bool:
        """Mark a worker as draining, for as long as it is known. Returns whether it is known."""


# -- port of CLI and HTTP ----------------------------------------------------------------------------------------------


class LimitView(Struct, frozen=True):
    #: '' for all tenants together; '*' for every tenant separately
    tenant: str
    concurrency: int


class PoolView(Struct, frozen=True):
    """A pool that has open work, a worker or a limit."""

    #: '' for the limits of all pools together
    name: str
    #: number of commands that wait for a worker, and the waiting time of the oldest
    waiting: int
    oldest_s: float
    #: number of commands that workers hold
    busy: int
    #: number of workers seen recently, and their total slots
    workers: int
    slots: int
    limits: builtins.list[LimitView]


class Scale(Struct, frozen=True):
    """The figures of a pool for an autoscaler."""

    pool: str
    backlog: int
    oldest_s: float
    busy: int
    workers: int
    slots: int
    #: average slots of the workers seen recently
    slots_per_worker: float
    #: average time of a command, as far as it was observed
    service_s: float
    #: recommended number of workers
    wanted_workers: int


class NewResource(Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a resource: a rate, a concurrency, or both."""

    #: maximum rate of starts, e.g. 10/s, 100/m, 5/h; '' for any
    rate: str = ""
    #: maximum number of starts at once after a pause
    burst: int = 1
    #: maximum number of commands that hold it at a time; None for any number
    concurrency: int | None = None


class ResourceView(Struct, frozen=True):
    name: str
    rate: str
    burst: int
    concurrency: int | None
    #: number of commands that hold it now
    held: int
    #: number of commands that the rate allows to start now; None for any number
    tokens: int | None
    #: seconds until the next token; 0 if there is one
    next_token_s: float


class WorkerView(Struct, frozen=True):
    worker_id: str
    #: working | draining | silent
    state: str
    #: empty for every pool
    pools: tuple[str, ...]
    kinds: tuple[str, ...]
    slots: int
    busy: int
    host: str
    version: str
    #: RFC 3339
    seen_at: str


class PoolApi(Protocol):
    """Management of pools, resources and workers.

    Everyone can read, without the data of other tenants. The other methods are for operators of the installation
    (NotAllowed for others).
    """

    async def pools(self) -> builtins.list[PoolView]:
        """Return the pools, by name."""

    async def set_limit(self, pool: str, tenant: str, concurrency: int) -> PoolView:
        """Limit the number of held commands: '' is all pools, '' all tenants, '*' each tenant.

        Raises RequestRejected.
        """

    async def remove_limit(self, pool: str, tenant: str) -> PoolView:
        """Remove a limit. Raises NotFound if there is none."""

    async def scale(self, pool: str) -> Scale:
        """Return the recommended number of workers of a pool; 0 for an unknown pool."""

    async def resources(self) -> builtins.list[ResourceView]:
        """Return the resources, by name."""

    async def set_resource(self, name: str, new: NewResource) -> ResourceView:
        """Set the limits of a resource. Raises RequestRejected."""

    async def remove_resource(self, name: str) -> None:
        """Remove the limits of a resource. Raises NotFound if it had none."""

    async def workers(self) -> builtins.list[WorkerView]:
        """Return the workers that were seen in the last `workers.keep_s`, by id."""

    async def drain(self, worker_id: str = "", pool: str = "") -> builtins.list[WorkerView]:
        """Drain a worker, or all current workers of a pool: they claim no more commands, finish and stop.

        Raises NotFound for an unknown worker, RequestRejected for one inside a server.
        """
