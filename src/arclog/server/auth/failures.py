"""How often an address failed to say who it is. In memory, bounded: the least recent are forgotten first."""

from __future__ import annotations

import math
from collections import OrderedDict

from arclog.model.errors import TooManyRequests
from arclog.ports.clock import Clock
from arclog.server.auth.addresses import neighbourhood

_WINDOW_S = 60.0
_REMEMBERED = 10_000


class Failures:
    """Counts by address, in windows of a minute from the first failure."""

    def __init__(self, clock: Clock, most: int) -> None:
        self._clock = clock
        self._most = most
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raise TooManyRequests while an address has failed too often."""
        since, count = self._counts.get(neighbourhood(address), (0.0, 0))
        left = since + _WINDOW_S - self._clock.monotonic()
        if count >= self._most and left > 0:
            raise TooManyRequests(
                f"too many requests from {address} without valid credentials; try again in {math.ceil(left)} s "
                "(auth.max_failures)",
                retry_after_s=math.ceil(left),
            )

    def note(self, address: str) -> None:
        where, now = neighbourhood(address), self._clock.monotonic()
        since, count = self._counts.pop(where, (now, 0))
        if now - since >= _WINDOW_S:
            since, count = now, 0
        self._counts[where] = (since, count + 1)
        while len(self._counts) > _REMEMBERED:
            self._counts.popitem(last=False)
