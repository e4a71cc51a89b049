"""Events from outside: `POST /api/events` without HTTP, and the commands of workers that report this way.

Rules:
- An answered event is durable. The same `(execution_id, event_id)` with the same content (except timestamps and `meta`)
  gets the first answer again; with other content it raises `EventDiffers`.
- Events of a producer are recorded and never applied, even for a run that has ended. A worker's event about a command
  that it holds is a report like any other; about a command that has ended, it is recorded; with another fence it raises
  `StaleFence`.
- The caller holds a command: by its credential and, within it, the worker that the event names. A caller that reports
  on a command of another credential is refused with `NotHolder`.
- A worker's event that is out of order is refused, and an informational `command.refused` records the reason.
- Items of a batch are processed in order, each with its own answer. A run outside the caller's boundary does not exist
  for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from arclog.model.commands import Command, NextTask, WireCommand
from arclog.model.errors import ArclogError
from arclog.ports.boundary import Boundary


class RecordedEvent(Struct, frozen=True):
    """An event from outside that is in the log."""

    execution_id: str
    event_id: str
    #: in the canonical taxonomy
    event_type: str
    seq: int
    #: whether it was recorded without a decision
    informative: bool
    #: whether it was in the log before
    duplicate: bool = False
    #: ignored parts of the event
    warnings: tuple[str, ...] = ()
    #: whether the sender's command is over: it has nothing more to report for it
    closed: bool = False
    #: the current or next task of the sender's pipeline; None if it has ended or the sender has no command
    next: NextTask | None = None
    #: the error of the sender's pipeline; None if it has not failed
    error: dict[str, Any] | None = None


class Ingest(Protocol):
    async def event(self, body: Any, caller: Boundary) -> RecordedEvent:
        """Record one event.

        Raises RequestRejected, NotAllowed, NotFound, EventDiffers, StaleFence, NotHolder or StoreError.
        """

    async def commands(self, claimed: Sequence[Command]) -> list[WireCommand]:
        """Return claimed commands for workers that report here, without commands that are over."""

    async def batch(self, body: Any, caller: Boundary) -> list[RecordedEvent | ArclogError]:
        """Record each item, or return its error. Raises RequestRejected if the body is not a batch."""
