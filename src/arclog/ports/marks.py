"""Marks of work under way, where they outlive the process.

- `begin` and `end` cost next to nothing: they stand around every decision. A mark is seen by the next process even if this one
  is killed between two instructions; it need not outlive the machine.
- Each slot holds one mark. Slot 0 is the event loop's, the others belong to threads.
- `crashes` are what processes that are gone left behind, those of earlier ones added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

#: Marks at once.
SLOTS = 16


class Crash(Struct):
    """How often in a row a process died while it did some work on a run."""

    execution_id: int
    #: see `engine.quarantine.work_of`
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
        """What is known when this process starts."""

    def save(self, crashes: Sequence[Crash]) -> None:
        """Remember these for the next process. Those that other processes of this machine know of are kept."""
