"""A clock that moves only when a test says so."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush


class FakeClock:
    """`ports.clock.Clock` by hand: `advance` moves it and wakes the sleepers whose time has come, in order."""

    def __init__(self, start: int = 1_800_000_000_000_000) -> None:
        self._now = start
        self._monotonic = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        self._count += 1
        woken = asyncio.get_running_loop().create_future()
        heappush(self._sleepers, (self._monotonic + seconds, self._count, woken))
        await woken

    def advance(self, seconds: float) -> None:
        """Move both times forward."""
        self._now += round(seconds * 1_000_000)
        self._monotonic += seconds
        while self._sleepers and self._sleepers[0][0] <= self._monotonic:
            _, _, woken = heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)

    def jump(self, seconds: float) -> None:
        """Set the wall clock back or forth, as an administrator or NTP may; durations do not notice."""
        self._now += round(seconds * 1_000_000)
