"""The clock port: engines, workers and stores read the time here, so that tests can control it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now(self) -> int:
        """Return the microseconds since 1970, UTC. The time may jump; order never depends on it."""

    def monotonic(self) -> float:
        """Return seconds that never go back, for durations.

        Time that the machine slept counts, if the system reports it.
        """

    async def sleep(self, seconds: float) -> None:
        """Return after at least this many seconds."""
