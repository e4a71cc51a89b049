"""A duty: work that one of several servers does at a time, by a lease in the store.

Law: `has` is called before each action, and answers from memory only while the lease has certainly not ended. A server that
was suspended past its lease therefore asks the store first. If it was suspended between the check and the action, the action
is still a compare-and-set, so nothing is changed twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from arclog.model.ids import MICROS
from arclog.ports.clock import Clock
from arclog.ports.storage.duties import DutyBook

log = logging.getLogger("arclog.engine")

#: When the lease of a duty ends that was given up.
GIVEN_UP = 0
#: Whether this process is to act now.
Has = Callable[[], Awaitable[bool]]


async def always() -> bool:
    """A duty that is always held, for a process that handles only its own run."""
    return True


class Duty:
    """One of them, as one server sees it."""

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
        """`took_over` is called when it was another server's that did not give it up: that server is gone, or was stopped.
        `lost` is called when another server took it over from this one.
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
        #: when our lease ends, by the clock that all servers share
        self._until = 0
        #: when it is worth while to ask again for what another server has
        self._ask_at = 0.0
        self._given_up = False
        self._asking = asyncio.Lock()

    async def has(self) -> bool:
        """Whether this server has the duty now. Renews the lease once a third of it is gone."""
        if self._given_up:
            return False
        known = self._known()
        if known is not None:
            return known
        async with self._asking:  # several ask: the store is asked once
            known = self._known()
            return await self._ask() if known is None else known

    def _known(self) -> bool | None:
        """The answer, if it is known without the store; else None."""
        # A clock that was set back makes the lease look longer than the store has it.
        left = self._until - self._clock.now()
        if self._mine and self._lease_us * 2 // 3 < left <= self._lease_us:
            return True
        if not self._mine and self._clock.monotonic() < self._ask_at:
            return False
        return None

    async def _ask(self) -> bool:
        now = self._clock.now()
        had, until = self._mine, now + self._lease_us
        # Counted from before the question: however long the store takes, we believe in no more than it has noted.
        try:
            was_left = not had and await self._was_left(now)
            mine = await self._book.lease_duty(self.name, self.owner, now, until)
            if mine and was_left and self._took_over is not None:
                await self._took_over()
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
        """Whether another server had it whose lease ran out."""
        if self._took_over is None:
            return False
        known = next((duty for duty in await self._book.duties() if duty.duty == self.name), None)
        return known is not None and known.owner != self.owner and GIVEN_UP < known.until <= now

    async def give_up(self) -> None:
        """Let another server have it at once, for good."""
        self._given_up = True
        await self.let_go()

    async def let_go(self) -> None:
        """Let another server have it at once; this one may ask for it again."""
        if self._mine:
            self._mine, self._ask_at = False, 0.0
            await self._book.lease_duty(self.name, self.owner, self._clock.now(), GIVEN_UP)
