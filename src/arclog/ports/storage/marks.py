"""Marks of work in progress that outlive the process.

- `begin` and `end` must be cheap: they surround every decision. The next process sees a mark even if this one is killed
  between two instructions; a mark need not outlive the machine.
- A mark is a run and the number of some work on it. Slot 0 belongs to the event loop, the next ones to threads. `STEP_SLOT`
  names the commit or the reading of a log whose code runs now, `HELD_SLOTS` the work that waits for something that may kill
  the process, too, and `WRITE_SLOT` the appends that are being written. A slot holds the marks of all inputs that share a
  commit: nobody knows which of them killed the process, and the next time they may be committed apart.
- `crashes` are the marks of processes that died, added up over earlier processes. Servers that share a store count
  together in its `CrashBook`: each adds the crashes of its own home.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

#: Slots of the event loop and of threads.
SLOTS = 16
#: The slot of the commit or the reading of a log whose code runs now.
STEP_SLOT = SLOTS
#: The slots of work that waits for a thread, or for a page of a log.
HELD_SLOTS = range(STEP_SLOT + 1, STEP_SLOT + 17)
#: The slot of the append that a store's own thread writes.
WRITE_SLOT = HELD_SLOTS.stop
ALL_SLOTS = WRITE_SLOT + 1
#: Maximum number of marks in a slot.
MARKS_PER_SLOT = 64
#: A bit of a work's number: the work has begun and has a record. It is a crash only if its server is gone.
ATTEMPT = 0x80


class Crash(Struct):
    """The number of consecutive process deaths during work on a run."""

    execution_id: int
    #: see `engine.commits.quarantine.work_of`
    work: int
    count: int
    #: the run's head when it was paused; 0 if it is not paused
    paused_at: int = 0
    #: how many of `count` are deaths of servers that left no record of what they were doing
    presumed: int = 0
    #: the process that wrote this record or, of a crash, the one whose record was counted last
    owner: str = ""


class Marks(Protocol):
    def begin(self, slot: int, *marks: tuple[int, int]) -> None:
        """Mark the start of work: (execution, work), at most `MARKS_PER_SLOT`."""

    def end(self, slot: int) -> None:
        """Remove the marks of a slot."""

    def crashes(self) -> list[Crash]:
        """Return the marks at the start of this process."""

    def left(self) -> list[tuple[int, int]]:
        """Return the work, as (execution, work), during which processes died since the last start here."""

    def dead(self) -> list[str]:
        """Return the names of the processes that left these marks."""

    def judged(self) -> None:
        """Forget what dead processes left, since it is in the store now. Until then the next process finds it as well."""

    def save(self, crashes: Sequence[Crash]) -> None:
        """Store crashes for the next process. Those that other processes of this machine know of are kept."""


@runtime_checkable
class CrashBook(Protocol):
    """Crashes that all servers of a store know of, and records of work that may have killed a server and is tried again.

    A record is a row whose work has the bit `ATTEMPT`. It belongs to the process that wrote it: only that process renews or
    ends it.
    """

    async def add_crashes(self, work: Sequence[tuple[int, int]], at: int, since: int) -> list[Crash]:
        """Count one more crash of each (execution, work), or confirm a presumed one. Returns all known crashes and records.

        Those of runs that are not paused are forgotten if the latest was before `since`.
        """

    async def begin_attempt(self, execution_id: int, attempt: int, owner: str, at: int) -> list[Crash]:
        """Record that a process begins work, unless another process has a record of it. Returns all known crashes and
        records.
        """

    async def renew_attempts(self, attempts: Sequence[tuple[int, int]], owner: str, at: int, since: int) -> list[Crash]:
        """Renew the records of a process. If others counted one of them as a crash, withdraw that and what was presumed with
        it: the process is alive. Otherwise like `add_crashes`.
        """

    async def end_attempt(self, execution_id: int, attempt: int, owner: str, *, withdraw: bool) -> None:
        """Delete the record of a process. `withdraw` means that its work had begun: a crash that others counted is withdrawn."""

    async def count_attempt(self, execution_id: int, attempt: int, seen: int, at: int, least: int) -> None:
        """Replace the record of work whose server is gone by a crash of that work. If no earlier crash of it is known, as
        many are presumed as make `least`, and every process that is registered now is a suspect. Does nothing if the record
        is gone or, unless `seen` is 0, no longer has the count `seen`.
        """

    async def excuse_attempt(self, execution_id: int, attempt: int, at: int) -> None:
        """Replace the record of work by one crash of that work and presume no other. If the record was counted already,
        withdraw what was presumed, unless code of other work on the run was running when a server died.
        """

    async def vouch(self, owners: Sequence[str], died_of: Sequence[tuple[int, int]], at: int) -> None:
        """Record that processes are alive, or that they died and these marks are all that they left: what was presumed is not
        about them. Counts the marks as crashes, and withdraws what is about no process any more. All of it happens, or nothing.
        """

    async def pause_crash(self, crash: Crash, at_head: int, least: int) -> bool:
        """Store the run's head at its pause. Returns False if another server stored one since this crash was read, or if
        fewer than `least` crashes are left.
        """

    async def resume_crash(self, crash: Crash) -> None:
        """Record that a run is no longer paused because of a crash."""

    async def forget_crash(self, execution_id: int, work: int = 0) -> None:
        """Forget the crashes of some work on a run (0 for any), since it succeeded. Records are not affected."""
