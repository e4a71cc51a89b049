"""Counts of ended runs by outcome and hour.

Rules that every store keeps (`arclog.testing.conformance.store` checks them):
- A run is counted once, in the append of its terminal event, in the hour of the store's clock.
- Child runs are not counted; their parent is.
- Counts outlive the runs that they count.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from arclog.model.ids import MICROS

#: microseconds
HOUR = 3600 * MICROS


class RunCount(Struct, frozen=True):
    """The runs that ended in one hour."""

    #: start of the hour, microseconds since 1970
    hour: int
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class StatisticsBook(Protocol):
    async def run_counts(
        self, tenant: str, *, project: str = "", environment: str = "", since: int = 0, limit: int = 1000
    ) -> list[RunCount]:
        """Return the hours in which a run of the tenant (and of one project, one environment) ended, oldest first.

        The first hour is that of `since`.
        """
