"""When a request is sent again: one policy for every client.

An attempt that fails is made again after a pause that grows, for as long as its caller has patience, if its failure is one
that passes. Nothing repeats requests beside this.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from arclog.model.errors import ArclogError

T = TypeVar("T")

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


class Patience:
    """How long to go on trying; any success begins it anew."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        self._since = time.monotonic()
        self._pause = _FIRST_PAUSE_S

    async def over(self, at_least: float = 0.0) -> bool:
        """Whether it is over; else it was waited for a while, longer each time."""
        # Many clients of a server that comes back must not all ask at once.
        pause = max(at_least, self._pause * random.uniform(0.5, 1.0))
        if time.monotonic() + pause > self._since + self._seconds():
            return True
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)
        await asyncio.sleep(pause)
        return False


async def repeated(
    attempt: Callable[[], Awaitable[T]], patience: Patience, passes: Callable[[ArclogError], float | None]
) -> T:
    """What an attempt gives, once it does not fail. `passes` is how long to wait at least before the next one; None: this
    failure is final, and is raised.
    """
    while True:
        try:
            return await attempt()
        except ArclogError as problem:
            pause_s = passes(problem)
            if pause_s is None or await patience.over(pause_s):
                raise
