"""The machine's own clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial


def _elapsing() -> Callable[[], float]:
    """Gives seconds since the machine started, those asleep included, where the system has such a clock."""
    return partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


elapsed_s = _elapsing()


class SystemClock:
    """Implements `ports.clock.Clock`."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return elapsed_s()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
