"""Pauses between attempts. Each pause is twice the one before, up to a longest."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

R = TypeVar("R")
E = TypeVar("E", bound=Exception)

#: Pauses between attempts to reach a server that is unavailable.
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0
#: The largest random share by which a pause is shortened, so that clients of one server do not all retry at once.
SPREAD = 0.5
_MOST_DOUBLINGS = 62


def pause_after(attempts: int, first_s: float, longest_s: float) -> float:
    """Seconds to wait after so many failed attempts, counted from 1."""
    return min(first_s * 2.0 ** min(attempts - 1, _MOST_DOUBLINGS), longest_s)


class Backoff:
    """The pauses of one series of attempts. The caller waits, with a clock of its own."""

    def __init__(self, first_s: float, longest_s: float, *, spread: float = 0.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._spread = spread
        self._attempts = 0

    def pause_s(self) -> float:
        """Seconds to wait before the next attempt."""
        self._attempts += 1
        pause = pause_after(self._attempts, self._first_s, self._longest_s)
        return pause * random.uniform(1 - self._spread, 1) if self._spread else pause

    def reset(self) -> None:
        """After a success: the next pause is the first again."""
        self._attempts = 0


class Patience:
    """A back-off that ends: attempts continue until a time has passed, and a last one is made then."""

    def __init__(self, seconds: float | Callable[[], float]) -> None:
        """`seconds` may be a function, if the time depends on what the attempts show."""
        self._seconds: Callable[[], float] = seconds if callable(seconds) else lambda: seconds
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, spread=SPREAD)

    def renew(self) -> None:
        """After a success: the time and the pauses begin again."""
        self._since = self._loop.time()
        self._backoff.reset()

    async def more(self, at_least_s: float = 0.0) -> bool:
        """Pause; False, without a pause, when the time is over, or would be after a pause of `at_least_s`."""
        left = self._since + self._seconds() - self._loop.time()
        if left <= 0 or left < at_least_s:
            return False
        await asyncio.sleep(max(at_least_s, min(self._backoff.pause_s(), left)))
        return True


def _at_once(_: Exception) -> float:
    return 0.0


async def retry(
    attempt: Callable[[], Awaitable[R]],
    *,
    on: type[E],
    patience_s: float | Callable[[], float],
    pause_s: Callable[[E], float | None] = _at_once,
) -> R:
    """The result of the first attempt that does not fail with `on`; raises that once the time is over.

    `pause_s` gives the shortest pause after a failure, or None for a failure that is final and is raised at once.
    """
    patience = Patience(patience_s)
    while True:
        try:
            return await attempt()
        except on as error:
            pause = pause_s(error)
            if pause is None or not await patience.more(pause):
                raise
