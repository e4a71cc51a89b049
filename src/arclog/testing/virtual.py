"""Virtual time: an event loop that never waits. When nothing is ready it moves its own clock to the next timer.

Everything that waits through asyncio (sleeps, time-outs, `call_later`) is then instant and happens in the same order
each time, so a day of retries and heartbeats takes milliseconds. Nothing may wait for another thread or process here.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar, TypeVarTuple

# ── clock ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# A clock that moves only when a test moves it.


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


# ── virtual ───────────────────────────────────────────────────────────────────────────────────────────────────────────

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: The start of virtual time, in microseconds since 1970.
START = 1_800_000_000_000_000
#: Timers that are nearer to each other than this are due together.
_RESOLUTION_S = 1e-9


class Stuck(Exception):
    """Nothing is ready, no timer is set, and a task still waits: in real time it would wait forever."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time moves only when there is nothing else to do."""

    def __init__(self) -> None:
        self._virtual = 0.0
        self._places = count()
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._virtual

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()  # type: ignore[attr-defined]
        timer = _Timer(when, callback, args, self, context)
        timer.place = next(self._places)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def jump(self, seconds: float) -> None:
        self._virtual += seconds
        # Of months in seconds, a float has no nanoseconds: with the real clock's resolution a timer would never be due.
        self._clock_resolution = max(_RESOLUTION_S, math.ulp(self._virtual))


class _Timer(asyncio.TimerHandle):
    """A timer that fires after earlier timers for the same time; the order of asyncio's own is undefined."""

    place = 0

    def __lt__(self, other: asyncio.TimerHandle) -> bool:
        return (self.when(), self.place) < (other.when(), other.place if isinstance(other, _Timer) else 0)


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise Stuck("nothing is ready and no timer is set")
            self._loop.jump(max(timeout, 0.0))
        return ready


class LoopClock:
    """`ports.clock.Clock` on the running loop's time; on a VirtualLoop it is virtual."""

    def __init__(self, start: int = START) -> None:
        self._start = start

    def now(self) -> int:
        return self._start + round(self.monotonic() * 1_000_000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
