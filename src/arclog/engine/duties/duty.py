"""A duty: work that one of several servers does at a time, with a lease in the store.

Invariant: `has` is called before each action, and answers from memory only while the lease has certainly not ended. So
a server that was suspended past its lease asks the store first. If it was suspended between the check and the action,
the action is still a compare-and-set, so nothing is changed twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from arclog.model.ids import MICROS
from arclog.ports.clock import Clock
from arclog.ports.storage.duties import DutyBook

log = logging.getLogger("arclog.engine")

#: The end of the lease of a duty that was given up.
GIVEN_UP = 0
#: Returns whether this process should act now.
Has = Callable[[], Awaitable[bool]]


async def always() -> bool:
    """A duty that is always held, for a process that handles only its own run."""
    return True


class Duty:
    """A duty, as one server sees it."""

    def __init__(
        self,
        book: DutyBook,
        clock: Clock,
        name: str,
        owner: str,
        lease_s: float,
        took_over: Callable[[], Awaitable[None]] | None = None,
        lost: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`took_over` is called if another server had the duty and did not give it up: that server is gone, or was
        suspended. `lost` is called if another server took it over from this one.
        """
        self.name = name
        self._took_over = took_over
        self._lost = lost
        self.owner = owner
        self._book = book
        self._clock = clock
        self._lease_us = round(lease_s * MICROS)
        self._pause_s = lease_s / 3
        self._mine = False
        #: end of our lease, by the clock that all servers share
        self._until = 0
        #: when to ask again for a duty that another server has
        self._ask_at = 0.0
        self._given_up = False
        #: another server had the duty and is gone, and `took_over` has not succeeded yet
        self._is_left = False
        self._asking = asyncio.Lock()

    async def has(self) -> bool:
        """Return whether this server has the duty now. Renews the lease once a third of it has passed."""
        if self._given_up:
            return False
        is_owner = self._cached()
        if is_owner is not None:
            return is_owner
        async with self._asking:  # for several callers, the store is asked once
            is_owner = self._cached()
            return await self._ask() if is_owner is None else is_owner

    def _cached(self) -> bool | None:
        """Return the answer if it is known without the store; else None."""
        # If the clock was set back, the lease looks longer than it is in the store.
        left = self._until - self._clock.now()
        if self._mine and self._lease_us * 2 // 3 < left <= self._lease_us:
            return True
        if not self._mine and self._clock.monotonic() < self._ask_at:
            return False
        return None

    async def _ask(self) -> bool:
        now = self._clock.now()
        had, until = self._mine, now + self._lease_us
        # Counted from before the request: however long the store takes, the lease is not assumed to be longer than
        # recorded.
        try:
            self._is_left = self._is_left or (not had and await self._was_left(now))
            mine = await self._book.lease_duty(self.name, self.owner, now, until)
            if mine and self._is_left and self._took_over is not None:
                await self._took_over()
            self._is_left = False
            if had and not mine and self._lost is not None:
                await self._lost()
        except BaseException:
            self._mine = False
            raise
        finally:
            self._ask_at = self._clock.monotonic() + self._pause_s
        if self._given_up:
            return False
        self._mine, self._until = mine, until
        if mine and not had:
            log.debug("acquired duty: %s", self.name)
        elif had and not mine:
            log.warning("lost duty %s to another server: this server did not renew its lease in time", self.name)
        return mine

    async def _was_left(self, now: int) -> bool:
        """Return whether another server had the duty and its lease expired."""
        if self._took_over is None:
            return False
        lease = next((duty for duty in await self._book.duties() if duty.duty == self.name), None)
        return lease is not None and lease.owner != self.owner and GIVEN_UP < lease.until <= now

    async def give_up(self) -> None:
        """Permanently release the duty. Another server can have it at once."""
        self._given_up = True
        await self.release()

    async def release(self) -> None:
        """Release the duty. Another server can have it at once; this one may ask for it again."""
        if self._mine:
            self._mine, self._ask_at = False, 0.0
            await self._book.lease_duty(self.name, self.owner, self._clock.now(), GIVEN_UP)
