"""Time, as a port: engines, workers and stores read it here, so that tests can move it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now(self) -> int:
        """Microseconds since 1970, UTC. It may jump; order never depends on it."""

    def monotonic(self) -> float:
        """Seconds that never go back; for durations. The time that the machine slept counts, where the system knows it."""

    async def sleep(self, seconds: float) -> None:
        """Return after at least that long."""
