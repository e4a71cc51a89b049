"""The bus: hints between servers, after the commit. No facts: all of it may be lost, repeated or late; that costs time only.

Rules that every bus keeps (`arclog.testing.conformance.bus` proves them):
- `tell` never waits and never fails. What cannot be sent is dropped, and counted; a server that cannot be reached is
  tried again until `close`.
- What one process tells, every other process on the same bus hears in the end, but for `offered`: of the processes that
  wait for a pool, it is enough that one hears.
- A process need not hear itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from msgspec import Struct


class Notice(Struct, frozen=True, omit_defaults=True):
    """What some commits led to."""

    #: executions whose logs have grown: (execution_id, head)
    moved: tuple[tuple[int, int], ...] = ()
    #: some of them have ended, which may free slots
    ended: bool = False
    #: pools for which commands are offered, and how many
    offered: tuple[tuple[str, int], ...] = ()
    #: the earliest timer that was set, microseconds since 1970; 0: none
    timer: int = 0


class Bus(Protocol):
    async def open(self, heard: Callable[[Notice], None]) -> None:
        """Connect in the background; `heard` is called with what others tell. A bus that is configured wrongly (no such
        address, wrong credentials, a version that is too old) raises `SettingsError`; one that is away does not.
        """

    def tell(self, notice: Notice) -> None:
        """Let the others know, soon."""

    def waiting(self, pools: Collection[str]) -> None:
        """Workers of this process wait for commands of these pools; no pools: nobody waits. '' is any pool."""

    async def close(self) -> None: ...
