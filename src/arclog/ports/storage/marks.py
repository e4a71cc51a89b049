"""Marks of work in progress, where they outlive the process.

- `begin` and `end` must be cheap: they surround every decision. A mark is seen by the next process even if this one
  is killed between two instructions; it need not outlive the machine.
- Each slot holds one mark. Slot 0 is the event loop's, the others belong to threads.
- `crashes` are what processes that are gone left behind, those of earlier ones added up. Where several servers share a store,
  they count together in its `CrashBook`: each adds what the processes of its own home left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

#: Marks at once.
SLOTS = 16


class Crash(Struct):
    """The number of consecutive process deaths during work on a run."""

    execution_id: int
    #: see `engine.commits.quarantine.work_of`
    work: int
    count: int
    #: the run's head with its pause; 0: it is not paused
    paused_at: int = 0


class Marks(Protocol):
    def begin(self, slot: int, execution_id: int, work: int) -> None:
        """Work on a run begins."""

    def end(self, slot: int) -> None:
        """It is over."""

    def crashes(self) -> list[Crash]:
        """The marks at the start of this process."""

    def left(self) -> list[tuple[int, int]]:
        """The work, as (execution, work), at which processes died since one was started here last."""

    def save(self, crashes: Sequence[Crash]) -> None:
        """Remember these for the next process. Those that other processes of this machine know of are kept."""


@runtime_checkable
class CrashBook(Protocol):
    """Crashes that all servers of a store know of."""

    async def add_crashes(self, work: Sequence[tuple[int, int]], at: int, since: int) -> list[Crash]:
        """Count one more crash of each (execution, work), and answer with all that are known. Those of runs that are not
        paused are forgotten when the latest was before `since`.
        """

    async def pause_crash(self, crash: Crash) -> None:
        """Its run is paused."""

    async def forget_crash(self, execution_id: int, work: int = 0) -> None:
        """Some work on a run (0: any) was done without a crash."""
