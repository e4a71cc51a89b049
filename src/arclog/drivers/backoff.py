"""Reconnect back-off of the drivers: each pause is twice the previous one, up to a maximum.

Retries of tasks are in core/flow/pipeline.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

R = TypeVar("R")
E = TypeVar("E", bound=Exception)

#: Shortest and longest pause between attempts to reach an unavailable server.
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0
#: A pause is shortened by a random share of at most this, so that the clients of a server do not all retry at once.
SPREAD = 0.5
_MOST_DOUBLINGS = 62


def pause_after(attempts: int, first_s: float, longest_s: float) -> float:
    """Return the pause in seconds after the given number of failed attempts (1 or more)."""
    return min(first_s * 2.0 ** min(attempts - 1, _MOST_DOUBLINGS), longest_s)


class Backoff:
    """The pauses of one series of attempts. It does not sleep; the caller does."""

    def __init__(self, first_s: float, longest_s: float, *, spread: float = 0.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._spread = spread
        self._attempts = 0

    def pause_s(self) -> float:
        """Return the pause in seconds before the next attempt."""
        self._attempts += 1
        pause = pause_after(self._attempts, self._first_s, self._longest_s)
        return pause * random.uniform(1 - self._spread, 1) if self._spread else pause

    def reset(self) -> None:
        """Start again with the first pause. Call it after a success."""
        self._attempts = 0


class Patience:
    """A back-off with a time limit. One last attempt is made when the limit is reached."""

    def __init__(self, seconds: float | Callable[[], float]) -> None:
        """`seconds` may be a function if the limit depends on the results of the attempts."""
        self._seconds: Callable[[], float] = seconds if callable(seconds) else lambda: seconds
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, spread=SPREAD)

    def renew(self) -> None:
        """Start again with the full time and the first pause. Call it after a success."""
        self._since = self._loop.time()
        self._backoff.reset()

    async def more(self, at_least_s: float = 0.0) -> bool:
        """Pause and return True. Return False at once if the time is up, or would be up after a pause of
        `at_least_s`.
        """
        remaining = self._since + self._seconds() - self._loop.time()
        if remaining <= 0 or remaining < at_least_s:
            return False
        await asyncio.sleep(max(at_least_s, min(self._backoff.pause_s(), remaining)))
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
    """Return the result of the first attempt that does not raise `on`. When the time is up, raise the last error.

    `pause_s` returns the shortest pause after an error, or None for a permanent error, which is raised at once.
    """
    patience = Patience(patience_s)
    while True:
        try:
            return await attempt()
        except on as error:
            pause = pause_s(error)
            if pause is None or not await patience.more(pause):
                raise
