"""Pauses between attempts. Each pause is twice the one before, up to a longest."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

R = TypeVar("R")

#: Between attempts to reach a server that is away.
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0
#: Random share by which a pause is shortened: those who wait for the same server must not all ask at once.
SPREAD = 0.5
_MOST_DOUBLINGS = 62


def pause_after(attempts: int, first_s: float, longest_s: float) -> float:
    """Seconds to wait after so many failed attempts, counted from 1."""
    return min(first_s * 2.0 ** min(attempts - 1, _MOST_DOUBLINGS), longest_s)


class Backoff:
    """The pauses of one series of attempts. The caller waits, by whichever clock it has."""

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
    """A back-off that ends: attempts go on until a time has passed, and one is made when it has."""

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + seconds
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, spread=SPREAD)

    async def more(self) -> bool:
        """Pause; False, without a pause, when the time is over."""
        left = self._until - self._loop.time()
        if left <= 0:
            return False
        await asyncio.sleep(min(self._backoff.pause_s(), left))
        return True


async def retry(attempt: Callable[[], Awaitable[R]], *, on: type[Exception], patience_s: float) -> R:
    """The result of the first attempt that does not fail with `on`; raises that once the time is over."""
    patience = Patience(patience_s)
    while True:
        try:
            return await attempt()
        except on:
            if not await patience.more():
                raise
