"""Marks of work in progress that outlive the process.

- `begin` and `end` must be cheap: they surround every decision. The next process sees a mark even if this one is killed
  between two instructions; a mark need not outlive the machine.
- Each slot holds one mark. Slot 0 belongs to the event loop, the others to threads.
- `crashes` are the marks of processes that died, added up over earlier processes. Servers that share a store count
  together in its `CrashBook`: each adds the crashes of its own home.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

#: Number of marks at the same time.
SLOTS = 16


class Crash(Struct):
    """The number of consecutive process deaths during work on a run."""

    execution_id: int
    #: see `engine.commits.quarantine.work_of`
    work: int
    count: int
    #: the run's head when it was paused; 0 if it is not paused
    paused_at: int = 0


class Marks(Protocol):
    def begin(self, slot: int, execution_id: int, work: int) -> None:
        """Mark the start of work on a run."""

    def end(self, slot: int) -> None:
        """Remove the mark."""

    def crashes(self) -> list[Crash]:
        """Return the marks at the start of this process."""

    def left(self) -> list[tuple[int, int]]:
        """Return the work, as (execution, work), during which processes died since the last start here."""

    def save(self, crashes: Sequence[Crash]) -> None:
        """Store crashes for the next process. Those that other processes of this machine know of are kept."""


@runtime_checkable
class CrashBook(Protocol):
    """Crashes that all servers of a store know of."""

    async def add_crashes(self, work: Sequence[tuple[int, int]], at: int, since: int) -> list[Crash]:
        """Count one more crash of each (execution, work). Returns all known crashes.

        Those of runs that are not paused are forgotten if the latest was before `since`.
        """

    async def set_crash(self, execution_id: int, work: int, count: int, at: int) -> None:
        """Record that work on a run killed at least `count` processes in a row."""

    async def pause_crash(self, crash: Crash, at_head: int) -> bool:
        """Store the run's head at its pause. Returns False if another server stored one since this crash was read."""

    async def forget_crash(self, execution_id: int, work: int = 0) -> None:
        """Forget the crashes of some work on a run (0 for any), since it succeeded."""
