"""Pools of workers: limits on what is claimed from them, resources with a rate, and the registered workers.

Rules that every store keeps (`arclog.testing.conformance.store` proves them), all of them as `Store.claim` chooses:
- Tenants share a pool. While several wait, the next command belongs to the tenant that holds the fewest there; among those, to
  the one that was granted the fewest (a tenant that returns starts at the pool's current count, so none saves up); among those,
  to the first by `NewCommand.order`. Within a tenant, the smallest order comes first, then the smallest id.
- Nothing is claimed past a limit. Lowering a limit below what is held withdraws no command.
- A command that names resources takes a token of each and a place at each, or is not claimed. Tokens come by the store's
  clock. A resource without a record has no limit.
- A command that waits for room does not delay commands that have room.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

#: As the tenant of a limit: every tenant separately.
EACH = "*"
#: `ahead` counts no further.
MOST_AHEAD = 10_000


class Limit(Struct, frozen=True):
    """At most so many commands are held at a time. The one that names a tenant goes before that of each tenant."""

    #: '': all pools together
    pool: str
    #: '': all tenants together; '*': every tenant separately
    tenant: str
    #: 0: none at all
    concurrency: int


class Resource(Struct, frozen=True):
    """An external resource with a limit; each command that names it takes a token."""

    name: str
    #: microseconds between two tokens; 0: no rate
    interval: int = 0
    #: tokens that are there when none was taken for a while
    burst: int = 1
    #: commands that may hold it at a time; None: any number
    concurrency: int | None = None


class ResourceRecord(Struct, frozen=True):
    resource: Resource
    #: when all of its tokens would be back, microseconds since 1970
    full_at: int = 0
    #: commands that hold it
    held: int = 0


def tokens(record: ResourceRecord, now: int) -> int | None:
    """The available tokens, by the generic cell rate algorithm, whose state is one time; None: no rate is set."""
    resource = record.resource
    if not resource.interval:
        return None
    owed = max(record.full_at - now, 0)
    return max((resource.burst * resource.interval - owed) // resource.interval, 0)


def next_token(record: ResourceRecord) -> int:
    """When there is a token, microseconds since 1970; it may have been long ago."""
    resource = record.resource
    return record.full_at - (resource.burst - 1) * resource.interval if resource.interval else 0


class Share(Struct, frozen=True):
    """Open commands of one tenant in one pool."""

    pool: str
    tenant: str
    issued: int = 0
    claimed: int = 0
    #: the smallest (oldest) id of those that wait; 0 when none does
    oldest: int = 0


class QueueHead(Struct, frozen=True):
    """The command that is next in its lane: those of one tenant, pool, set of kinds and set of resources."""

    pool: str
    kinds: tuple[str, ...]
    command_id: int
    execution_id: int
    step: str


class Contest(Struct, frozen=True):
    """A summary of the commands that wait in a pool."""

    #: at most two of the tenants that wait: none, the only one, or two of several
    tenants: tuple[str, ...] = ()
    #: a limit is set in this pool, or in all of them
    limited: bool = False


class WorkerRecord(Struct, frozen=True):
    """A worker as it was last seen."""

    worker_id: str
    #: none: every pool
    pools: tuple[str, ...]
    kinds: tuple[str, ...]
    #: '' or the only tenant that it serves
    tenant: str
    host: str
    version: str
    slots: int
    busy: int
    #: microseconds that one of its commands takes on average; 0: not known yet
    pace: int
    #: microseconds since 1970
    seen_at: int
    #: whether it can be drained
    leaves: bool = False
    #: whether it is draining
    draining: bool = False


class PoolBook(Protocol):
    async def set_limit(self, limit: Limit) -> None:
        """Keep a limit in the place of the one with its pool and tenant."""

    async def remove_limit(self, pool: str, tenant: str) -> bool:
        """Forget it; whether it was there."""

    async def limits(self) -> list[Limit]:
        """All of them, by pool and tenant."""

    async def set_resource(self, resource: Resource) -> None:
        """Keep a resource in the place of the one with its name. Tokens that are owed stay owed, up to the new burst."""

    async def remove_resource(self, name: str) -> bool:
        """Forget it; whether it was there."""

    async def resources(self) -> list[ResourceRecord]:
        """All of them, by name."""

    async def shares(self) -> list[Share]:
        """Open commands by pool and tenant; held ones (`held`) do not count."""

    async def queue_heads(self, tenant: str, limit: int = 100) -> list[QueueHead]:
        """The next command of each lane of a tenant that has issued ones, by pool and kinds."""

    async def contest(self, pool: str) -> Contest:
        """Summarize the commands that wait in a pool. Called often, so it must be cheap."""

    async def ahead(self, execution_id: int, command_id: int) -> int:
        """Issued commands of the same pool and tenant that come before this one, `MOST_AHEAD` at most."""

    async def see_worker(self, worker: WorkerRecord, forget: int) -> bool:
        """Note a sign of life; whether it shall leave. Those not seen since `forget` (microseconds) are forgotten."""

    async def workers(self) -> Sequence[WorkerRecord]:
        """All that are known, by id."""

    async def drain_worker(self, worker_id: str) -> bool:
        """Note that it shall leave, for as long as it is known; whether it is."""


# -- port of CLI and HTTP ----------------------------------------------------------------------------------------------


class LimitView(Struct, frozen=True):
    #: '': all tenants together; '*': every tenant separately
    tenant: str
    concurrency: int


class PoolView(Struct, frozen=True):
    """A pool: one that has open work, a worker or a limit."""

    #: '' has the limits of all pools together
    name: str
    #: commands that wait for a worker, and how long the oldest of them has
    waiting: int
    oldest_s: float
    #: commands that workers hold
    busy: int
    #: workers seen lately, and what they can hold together
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
    #: of one worker: what those that were seen lately have on average
    slots_per_worker: float
    #: that a command takes on average, as far as it was seen
    service_s: float
    #: recommended number of workers
    wanted_workers: int


class NewResource(Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a resource: a rate, a concurrency, or both."""

    #: commands that may begin, e.g. 10/s, 100/m, 5/h; '': any number
    rate: str = ""
    #: commands that may begin at once when none did for a while
    burst: int = 1
    #: commands that may hold it at a time; None: any number
    concurrency: int | None = None


class ResourceView(Struct, frozen=True):
    name: str
    rate: str
    burst: int
    concurrency: int | None
    #: commands that hold it now
    held: int
    #: commands that could begin now, as far as the rate goes; None: any number
    tokens: int | None
    #: until there is a token; 0 when there is one
    next_token_s: float


class WorkerView(Struct, frozen=True):
    worker_id: str
    #: working | draining | silent
    state: str
    #: none: every pool
    pools: tuple[str, ...]
    kinds: tuple[str, ...]
    slots: int
    busy: int
    host: str
    version: str
    #: RFC 3339
    seen_at: str


class PoolApi(Protocol):
    """Everyone can read, without the data of other tenants. The other methods are for operators of the
    installation (NotAllowed for others).
    """

    async def pools(self) -> builtins.list[PoolView]:
        """By name."""

    async def set_limit(self, pool: str, tenant: str, concurrency: int) -> PoolView:
        """Limit what is held at a time: '' is all pools, '' all tenants, '*' each tenant. Raises RequestRejected."""

    async def remove_limit(self, pool: str, tenant: str) -> PoolView:
        """Take a limit away. NotFound when there is none."""

    async def scale(self, pool: str) -> Scale:
        """The recommended number of workers of a pool; 0 for an unknown pool."""

    async def resources(self) -> builtins.list[ResourceView]:
        """By name."""

    async def set_resource(self, name: str, new: NewResource) -> ResourceView:
        """Set the limits of a resource. Raises RequestRejected."""

    async def remove_resource(self, name: str) -> None:
        """Let it have no limit any more. NotFound when it had none."""

    async def workers(self) -> builtins.list[WorkerView]:
        """By id: those that were seen in the last `workers.keep_s`."""

    async def drain(self, worker_id: str = "", pool: str = "") -> builtins.list[WorkerView]:
        """Drain a worker, or all current workers of a pool: they claim no more commands, finish and stop. NotFound for an
        unknown worker, RequestRejected for one inside a server.
        """
