"""The store's clock, as a server sees it: several servers measure leases and timers by this one, whatever their own say.

Law: it is never ahead of the store's, so nothing fires early and no lease is taken too soon; it is behind by less than the
store took to answer. Between two looks it continues with the machine's own pace, counting the time that the machine slept.
It does not go back, unless the store's own clock was set back: then it follows, and says so.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from arclog.model.errors import ArclogError
from arclog.model.ids import MICROS
from arclog.ports.clock import Clock
from arclog.wiring.clocks.machine import elapsed_s

log = logging.getLogger("arclog.engine")

#: A difference above this is not a drift: somebody set a clock, or the machine stood still.
_JUMP_US = 1 * MICROS
#: An answer that took longer tells too little; the next look is soon enough.
_SLOW_S = 0.5


class StoreClock:
    """Implements `ports.clock.Clock`."""

    def __init__(
        self, store_time: Callable[[], Awaitable[int]], own: Clock, elapsed: Callable[[], float] = elapsed_s
    ) -> None:
        self._store_time = store_time
        self._own = own
        self._elapsed = elapsed
        #: the store's time at a moment of ours
        self._told = 0
        self._told_at = 0.0
        self._is_told = False
        #: nothing before this is told again
        self._latest = 0

    def now(self) -> int:
        if not self._is_told:
            return self._own.now()
        now = self._told + int((self._elapsed() - self._told_at) * MICROS)
        self._latest = max(self._latest, now)
        return self._latest

    def monotonic(self) -> float:
        return self._own.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._own.sleep(seconds)

    async def measure(self) -> None:
        """Look at the store's clock. Raises what the store raises."""
        asked = self._elapsed()
        told = await self._store_time()
        answered = self._elapsed()
        if not self._is_told:
            self._told, self._told_at, self._is_told = told, answered, True
            apart = (self._own.now() - told) / MICROS
            if abs(apart) * MICROS > _JUMP_US:
                log.warning("this machine's clock is %.1f s off the store's; the store's counts", apart)
            return
        if answered - asked > _SLOW_S:
            return
        off = told - self._told - int((answered - self._told_at) * MICROS)
        self._told, self._told_at = told, answered
        # We are behind the store by what its answer took: only beyond that a difference is one.
        if off > _JUMP_US or off < -_JUMP_US - round((answered - asked) * MICROS):
            log.warning("the store's clock jumped by %.1f s; leases and timers follow it", off / MICROS)
            self._latest = min(self._latest, told)

    async def follow(self, every_s: float) -> None:
        """Look again and again."""
        while True:
            await self._own.sleep(every_s)
            try:
                await self.measure()
            except ArclogError as problem:
                log.info("the store's clock was not read: %s; looking again in %g s", problem, every_s)
