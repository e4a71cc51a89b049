"""Counts of ended runs by outcome and hour.

Rules that every store keeps (`arclog.testing.conformance.store` proves them):
- A run is counted once, in the append that brings its terminal event, in the hour of the store's clock.
- Runs that another run called are not counted: their caller is.
- Counts outlive the runs that they count.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from arclog.model.ids import MICROS

#: microseconds
HOUR = 3600 * MICROS


class RunCount(Struct, frozen=True):
    """Runs of one hour."""

    #: its beginning, microseconds since 1970
    hour: int
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class StatisticsBook(Protocol):
    async def run_counts(
        self, tenant: str, *, project: str = "", environment: str = "", since: int = 0, limit: int = 1000
    ) -> list[RunCount]:
        """Hours in which a run of the tenant (and of one project, one environment) ended, oldest first, from the hour of
        `since` on.
        """
