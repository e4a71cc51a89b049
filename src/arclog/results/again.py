"""Asking a server again that was away, for as long as the patience lasts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from arclog.model.errors import ResultStoreAway

R = TypeVar("R")

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


async def until_answered(attempt: Callable[[], Awaitable[R]], patience_s: float) -> R:
    """What an attempt gives, once one does not find the store away."""
    clock = asyncio.get_running_loop()
    until = clock.time() + patience_s
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return await attempt()
        except ResultStoreAway:
            if clock.time() + pause > until:
                raise
        # Many that wait for a server must not all ask at once.
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(pause * 2, _LONGEST_PAUSE_S)
