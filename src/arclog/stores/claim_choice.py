"""Chooses the commands that a claim takes from those that wait. Every store passes its rows to this module, so that all
stores choose alike.

The rules are those of `arclog.ports.storage.pools`. Waiting commands are passed as lanes: the commands of one pool and
tenant that need the same resources, in order. A lane without capacity is skipped as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from msgspec import Struct, field

from arclog.ports.storage.pools import EACH, Resource, ResourceRecord, tokens


class ClaimRequest(Struct, frozen=True):
    """A claim."""

    worker_id: str
    limit: int
    lease_until: int
    kinds: tuple[str, ...]
    pools: tuple[str, ...]
    execution_id: int
    tenant: str
    #: the project and environment that the claim is limited to ('' means any); () if it is not limited
    within: tuple[str, ...] = ()


class Waiting(NamedTuple):
    """A command that could be claimed. The smallest one is claimed first."""

    order: int
    command_id: int
    execution_id: int


class Lane:
    """Commands of one pool and tenant that need the same resources, in order."""

    __slots__ = ("_rest", "head", "pool", "resources", "tenant")

    def __init__(self, pool: str, tenant: str, resources: tuple[str, ...], waiting: Iterator[Waiting]) -> None:
        self.pool = pool
        self.tenant = tenant
        self.resources = resources
        self._rest = waiting
        self.head = next(waiting, None)

    def advance(self) -> None:
        self.head = next(self._rest, None)


class Room(Struct):
    """The remaining capacity: limits and held commands; resources and their tokens."""

    now: int
    limits: Mapping[tuple[str, str], int] = field(default_factory=dict)
    #: by pool and tenant
    held: Counter[tuple[str, str]] = field(default_factory=Counter)
    resources: dict[str, ResourceRecord] = field(default_factory=dict)
    #: names of resources whose tokens were taken
    spent: set[str] = field(default_factory=set)

    def has(self, lane: Lane) -> bool:
        """Return whether one more command of this lane may be claimed."""
        return all(held < most for held, most in self._bounds(lane.pool, lane.tenant)) and all(
            fits(self.resources[name], self.now) for name in lane.resources if name in self.resources
        )

    def take(self, lane: Lane) -> None:
        self.held[lane.pool, lane.tenant] += 1
        for name in lane.resources:
            if name in self.resources:
                self.resources[name] = taken(self.resources[name], self.now)
                self.spent.add(name)

    def _bounds(self, pool: str, tenant: str) -> Iterator[tuple[int, int]]:
        """Yield (held, maximum) for each limit that applies to a pool and a tenant."""
        if not self.limits:
            return
        for where in (pool, ""):
            everybody = self.limits.get((where, ""))
            if everybody is not None:
                yield self.held_by(where, ""), everybody
            own = self.limits.get((where, tenant), self.limits.get((where, EACH)))
            if own is not None:
                yield self.held_by(where, tenant), own

    def limited_tenants(self) -> list[str]:
        """Return the tenants that a limit names."""
        return sorted({tenant for _, tenant in self.limits if tenant not in ("", EACH)})

    def full(self) -> list[str]:
        """Return the tenants that have reached the limit for each tenant over all pools."""
        most = self.limits.get(("", EACH))
        if most is None:
            return []
        totals: Counter[str] = Counter()
        for (_, tenant), count in self.held.items():
            totals[tenant] += count
        return [tenant for tenant, count in totals.items() if count >= most]

    def held_by(self, pool: str, tenant: str) -> int:
        """Return the number of held commands of a pool and a tenant; '' means any."""
        if pool and tenant:
            return self.held[pool, tenant]
        return sum(n for (p, t), n in self.held.items() if pool in ("", p) and tenant in ("", t))


class Service(Struct):
    """Counts how often each tenant was served in a pool while others waited (start-time fair queuing). A tenant's count
    is never smaller than the pool's current value, so that a tenant without work gains no credit.
    """

    #: by pool
    present: dict[str, int] = field(default_factory=dict)
    #: by pool and tenant; a tenant without an entry has the pool's current value
    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def count(self, pool: str, tenant: str) -> int:
        """Return a tenant's count, at least the pool's current value."""
        return max(self.counts.get((pool, tenant), 0), self.present.get(pool, 0))

    def lead(self, pool: str, tenant: str) -> int:
        """Return how many more commands it was given than the least served tenant."""
        return self.count(pool, tenant) - self.present.get(pool, 0)

    def give(self, pool: str, tenant: str) -> None:
        start = max(self.counts.get((pool, tenant), 0), self.present.get(pool, 0))
        self.counts[pool, tenant] = start + 1
        self.present[pool] = start


def chosen(lanes: Iterable[Lane], limit: int, room: Room, service: Service | None) -> list[Waiting]:
    """Return the commands that a claim takes, in order; updates `room` and `service`. Without `service` there is only
    one tenant and no fair sharing.

    A store need not pass all lanes. `Visit` determines those that suffice.
    """
    taken: list[Waiting] = []
    rank = _head if service is None else _by_share(room, service)
    queues = _queues(lanes, rank)
    bounded = bool(room.limits or room.resources)
    while len(taken) < limit:
        if bounded:
            # A lane without capacity now has none later in this claim, since capacity only shrinks.
            queues = {pool: _with_room(queue, room) for pool, queue in queues.items()}
        firsts = [(_lead(first, service), queue) for queue in queues.values() if (first := _first(queue, rank))]
        if not firsts:
            break
        queue = min(firsts, key=lambda entry: entry[0])[1]
        lane = queue[0][-1]
        if service is not None and any(
            other.tenant != lane.tenant for waiting in queues.values() for *_, other in waiting
        ):
            service.give(lane.pool, lane.tenant)
        room.take(lane)
        taken.extend(() if lane.head is None else (lane.head,))
        lane.advance()
        if lane.head is None:
            heappop(queue)
    return taken


#: The lanes of one pool, the first to be served at the top. Ranks only grow during a claim, so an outdated rank is too
#: small.
_Queue = list[tuple[tuple[int, ...], int, Lane]]


def _queues(lanes: Iterable[Lane], rank: Callable[[Lane], tuple[int, ...]]) -> dict[str, _Queue]:
    queues: dict[str, _Queue] = {}
    for number, lane in enumerate(lanes):
        if lane.head is not None:
            queues.setdefault(lane.pool, []).append((rank(lane), number, lane))
    for queue in queues.values():
        heapify(queue)
    return queues


def _with_room(queue: _Queue, room: Room) -> _Queue:
    able = [entry for entry in queue if room.has(entry[-1])]
    if len(able) < len(queue):
        heapify(able)
    return able


def _first(queue: _Queue, rank: Callable[[Lane], tuple[int, ...]]) -> tuple[tuple[int, ...], Lane] | None:
    """Return the lane at the top, after updating its rank."""
    while queue:
        recorded, number, lane = queue[0]
        now = rank(lane)
        if now == recorded:
            return now, lane
        heapreplace(queue, (now, number, lane))
    return None


def _by_share(room: Room, service: Service) -> Callable[[Lane], tuple[int, ...]]:
    def rank(lane: Lane) -> tuple[int, ...]:
        return (room.held[lane.pool, lane.tenant], service.count(lane.pool, lane.tenant), *_head(lane))

    return rank


def _lead(first: tuple[tuple[int, ...], Lane], service: Service | None) -> tuple[int, ...]:
    """Return a rank that can be compared with those of other pools."""
    rank, lane = first
    if service is None:
        return rank
    held, _, *head = rank
    return (held, service.lead(lane.pool, lane.tenant), *head)


def _head(lane: Lane) -> tuple[int, ...]:
    return lane.head or ()


# -- crowded pools -----------------------------------------------------------------------------------------------------


class Visit(Struct):
    """Determines how many lanes of a crowded pool a claim has to read.

    Among lanes with the same needs, a *turn* is the set of lanes whose tenants hold equally many commands and were
    served equally often. A claim of `limit` commands reads the first `limit + 1` lanes (by their first commands) of
    every turn that it visits. It visits turns in order of held commands, then of service, until `enough` returns True.

    Invariant: `chosen` then takes the same commands as if it had read all lanes:

    - In a turn, more than `limit` lanes come before any lane that was not read, and at most `limit` are taken.
    - A lane is not served while another one waits whose tenant holds fewer commands and was not taken from.
    - A turn that was served more comes later, unless the pool's present reaches it: then both count as equally served.
      Only tenants that hold fewer commands can cause that. So among those that hold the fewest, turns beyond the
      present may be left out.

    One lane more than can be taken is read, to know whether another tenant waits.
    """

    limit: int
    #: the current value of the pool's service
    present: int
    #: number of lanes read so far
    seen: int = 0
    _least: int | None = None
    _held: int = -1

    @property
    def most(self) -> int:
        """Maximum number of lanes to read from one turn."""
        return self.limit + 1

    def enough(self, held: int, served: int) -> bool:
        """Return whether this turn and all later ones can be skipped."""
        if self._least is None:
            self._least = held
        if self.seen > self.limit:
            return held != self._held or (held == self._least and served > self.present)
        return False

    def note(self, held: int, count: int) -> None:
        """Record the number of lanes that were read from a turn."""
        self._held = held
        self.seen += count


# -- tokens ------------------------------------------------------------------------------------------------------------


def fits(record: ResourceRecord, now: int) -> bool:
    most = record.resource.concurrency
    return (most is None or record.held < most) and tokens(record, now) != 0


def taken(record: ResourceRecord, now: int) -> ResourceRecord:
    """Return a resource with one token and one slot less."""
    full_at = max(record.full_at, now) + record.resource.interval
    return ResourceRecord(record.resource, full_at, record.held + 1)


def carried_over(resource: Resource, full_at: int, now: int) -> int:
    """Return `full_at` for changed limits: missing tokens stay missing, but at most all of them."""
    return min(full_at, now + resource.burst * resource.interval)
