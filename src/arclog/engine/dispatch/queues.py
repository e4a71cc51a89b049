"""Which pools have waiting commands, as far as this process knows. A report may bring its worker the next command of the
same run, past the queue: that is efficient while no other command waits, and unfair while one does.

Law: nothing here is authoritative. What this process offered itself is known at once; what other processes did is found by
querying the store, once for a number of commands that passed the queue. An error here only means that a command goes through
the queue, or that a few pass it.
"""

from __future__ import annotations

import logging
import math

from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError
from arclog.model.ids import MICROS, minted_at_ms
from arclog.ports.clock import Clock
from arclog.ports.storage.pools import ResourceRecord, next_token
from arclog.ports.storage.store import Store

log = logging.getLogger("arclog.engine")

_MOST_POOLS = 10_000
#: While none is known, somebody may have set one since this long ago: for a claim that was woken by an offer and got
#: nothing, and for one that only looked by itself.
_RESOURCES_S = 1.0
_IDLE_RESOURCES_S = 30.0


class _Pool:
    """The known state of one pool."""

    __slots__ = ("limited", "passed", "tenants")

    def __init__(self) -> None:
        #: tenants that wait
        self.tenants: set[str] = set()
        self.limited = False
        #: commands that passed the queue, or could have, since the last query
        self.passed = 0


class Queues:
    """The known backlog of pools."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._aging_ms = round(settings.number("pools.aging_s") * 1000)
        self._in_a_row = settings.integer("pools.grants_in_a_row")
        self._pools: dict[str, _Pool] = {}
        self._to_look_at: set[str] = set()
        #: made here so far
        self.offers = 0
        #: that have a rate or a bound, and when that was looked at
        self._resources: list[ResourceRecord] = []
        self._resources_at = -math.inf

    def order(self, command_id: int, priority: int) -> int:
        """The rank of a command: when it was issued, minus the value of its priority. Waiting raises all commands alike, so
        the order of two commands never changes.
        """
        return minted_at_ms(command_id) - priority * self._aging_ms

    def offered(self, pool: str, tenant: str) -> None:
        self.offers += 1
        self._of(pool).tenants.add(tenant)

    def may_pass(self, pool: str, tenant: str) -> bool:
        """Whether a command may be granted to a worker ahead of the waiting ones."""
        known = self._of(pool)
        known.passed += 1
        if known.passed >= self._in_a_row:
            known.passed = 0
            self._to_look_at.add(pool)
            if known.tenants:
                return False  # once in a while in any case: what waits may have a higher priority
        return not known.limited and known.tenants <= {tenant}

    def emptied(self, pools: tuple[str, ...], offers: int) -> None:
        """A worker of these pools (none: of all) found less than it could have taken, when there were so many offers."""
        if offers == self.offers:
            for pool in pools or tuple(self._pools):
                self._of(pool).tenants.clear()

    @property
    def is_due(self) -> bool:
        return bool(self._to_look_at)

    @property
    def bounded(self) -> bool:
        """Some limit is set, as far as is known: what ends makes room."""
        return bool(self._resources) or any(known.limited for known in self._pools.values())

    def limits_changed(self) -> None:
        self._to_look_at.update(self._pools)
        self._resources_at = -math.inf

    async def until_token(self, clock: Clock, *, woken: bool) -> float:
        """Seconds until the next token of a resource that has none now. `woken`: commands were offered, and none could be claimed."""
        now = clock.monotonic()
        age = now - self._resources_at
        if self._resources or age >= (_RESOURCES_S if woken else _IDLE_RESOURCES_S):
            self._resources_at = now
            self._resources = await self._store.resources()
        at = await self._store.time() if self._resources else 0
        waits = [next_token(resource) - at for resource in self._resources]
        return min((wait / MICROS for wait in waits if wait > 0), default=math.inf)

    async def look(self) -> None:
        """Read what other processes did. If the store cannot be read now, a later call tries again."""
        while self._to_look_at:
            pool = self._to_look_at.pop()
            try:
                contest = await self._store.contest(pool)
            except ArclogError as problem:
                log.info("pool %s: %s", pool, problem)
                return
            known = self._of(pool)
            known.tenants, known.limited = set(contest.tenants), contest.limited

    def _of(self, pool: str) -> _Pool:
        queue = self._pools.get(pool)
        if queue is None:
            if len(self._pools) >= _MOST_POOLS:
                self._pools.clear()  # playbooks may name any number; what is forgotten is found again
            queue = self._pools[pool] = _Pool()
        return queue
