"""Events from outside: `POST /api/events` without HTTP, and the commands of workers that report this way.

Rules:
- An answered event is durable. The same `(execution_id, event_id)` with the same content (timestamps and `meta` aside) is
  answered as the first time, with other content it is an `EventDiffers`.
- Events of a producer are recorded and never applied, also for a run that has ended. An event of a worker about a command that
  it holds is a report like any other; about a command that has ended, it is recorded; with another fence it is a `StaleFence`.
- A command is held by the caller: by its credential and, within it, the worker that the event names. A caller that
  reports on a command of another credential is refused with `NotHolder`.
- A worker's event that is out of order is refused, and an informative `command.refused` records why.
- Items of a batch are taken in order, each with an answer of its own. A run that the caller does not reach is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from arclog.model.commands import Command, NextTask, WireCommand
from arclog.model.errors import ArclogError
from arclog.ports.boundary import Boundary


class Taken(Struct, frozen=True):
    """An event from outside that is in the log."""

    execution_id: str
    event_id: str
    #: in the canonical taxonomy
    event_type: str
    seq: int
    #: recorded, and nothing was decided
    informative: bool
    #: it was in the log before
    duplicate: bool = False
    #: ignored parts of the event
    warnings: tuple[str, ...] = ()
    #: the sender's command is over: it has nothing more to report for it
    closed: bool = False
    #: the current or next task of the sender's pipeline; None if it has ended or the sender has no command
    next: NextTask | None = None
    #: why the sender's pipeline has failed; None when it has not
    error: dict[str, Any] | None = None


class Ingest(Protocol):
    async def event(self, body: Any, caller: Boundary) -> Taken:
        """Take one event. Raises RequestRejected, NotAllowed, NotFound, EventDiffers, StaleFence, NotHolder or StoreError."""

    async def commands(self, claimed: Sequence[Command]) -> list[WireCommand]:
        """Claimed commands for workers that report here; those that are over are left out."""

    async def batch(self, body: Any, caller: Boundary) -> list[Taken | ArclogError]:
        """Take each item, or say why not. Raises RequestRejected when the body is not a batch."""
