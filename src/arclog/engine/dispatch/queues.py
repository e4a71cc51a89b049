"""The pools that have waiting commands, as far as this process knows. A report may bring its worker the next command of
the same run, past the queue: that is efficient while no other command waits, and unfair while one does.

Nothing here is authoritative. Offers of this process are known at once; those of other processes are found by querying
the store, once for a number of commands that passed the queue. An error here only means that a command goes through the
queue, or that a few pass it.
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
#: While no resource is known, one may have been set since the last query. These are the intervals of that query: for a
#: claim that was woken by an offer and got nothing, and for one that queried on its own.
_RESOURCES_S = 1.0
_IDLE_RESOURCES_S = 30.0


class _Pool:
    """The known state of one pool."""

    __slots__ = ("limited", "passed", "tenants")

    def __init__(self) -> None:
        #: tenants with waiting commands
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
        #: number of offers made here so far
        self.offers = 0
        #: resources with a rate or a limit, and the time of their last query
        self._resources: list[ResourceRecord] = []
        self._resources_at = -math.inf

    def order(self, command_id: int, priority: int) -> int:
        """Return the rank of a command: its issue time, minus the value of its priority. Waiting raises all commands
        alike, so the order of two commands never changes.
        """
        return minted_at_ms(command_id) - priority * self._aging_ms

    def offered(self, pool: str, tenant: str) -> None:
        self.offers += 1
        self._of(pool).tenants.add(tenant)

    def may_pass(self, pool: str, tenant: str) -> bool:
        """Return whether a command may be granted to a worker ahead of the waiting ones."""
        known = self._of(pool)
        known.passed += 1
        if known.passed >= self._in_a_row:
            known.passed = 0
            self._to_look_at.add(pool)
            if known.tenants:
                return False  # at regular intervals in any case, since a waiting command may have a higher priority
        return not known.limited and known.tenants <= {tenant}

    def emptied(self, pools: tuple[str, ...], offers: int) -> None:
        """Record that a worker of these pools (empty means all) found fewer commands than it could take. `offers` is
        the number of offers at that time.
        """
        if offers == self.offers:
            for pool in pools or tuple(self._pools):
                self._of(pool).tenants.clear()

    @property
    def is_due(self) -> bool:
        return bool(self._to_look_at)

    @property
    def bounded(self) -> bool:
        """Whether a limit is set, as far as is known, so that the end of a command makes room."""
        return bool(self._resources) or any(known.limited for known in self._pools.values())

    def limits_changed(self) -> None:
        self._to_look_at.update(self._pools)
        self._resources_at = -math.inf

    async def until_token(self, clock: Clock, *, woken: bool) -> float:
        """Return the seconds until the next token of an exhausted resource. `woken` means that commands were offered,
        but none could be claimed.
        """
        now = clock.monotonic()
        age = now - self._resources_at
        if self._resources or age >= (_RESOURCES_S if woken else _IDLE_RESOURCES_S):
            self._resources_at = now
            self._resources = await self._store.resources()
        at = await self._store.time() if self._resources else 0
        waits = [next_token(resource) - at for resource in self._resources]
        return min((wait / MICROS for wait in waits if wait > 0), default=math.inf)

    async def look(self) -> None:
        """Read the changes of other processes. If the store cannot be read now, a later call tries again."""
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
                self._pools.clear()  # playbooks may name any number of pools; a forgotten one is found again
            queue = self._pools[pool] = _Pool()
        return queue
