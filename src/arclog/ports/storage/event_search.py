"""Finding events across executions, by type, time and scope.

Rules that every store keeps (`arclog.testing.conformance.store` proves them):
- Events come in the order in which they were persisted, the oldest first; a page that continues from another's cursor has
  neither gaps nor repetitions.
- Informative events are found only when they are asked for.
- A page costs a bounded amount of work, whatever is in the store: it may have fewer events than were asked for, even none,
  while there are more.
- A search is over what is there. Whoever pages on while others write may miss what was persisted at the same moment as the
  last event of a page; an execution's own events are followed without loss by their seq.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from arclog.model.events import Event
from arclog.model.ids import MAX_ID


class StoredEvent(Struct, frozen=True, gc=False):
    """An event with what the store knows of it."""

    event: Event
    execution_id: int
    seq: int
    event_id: int
    persisted_at: int


class EventQuery(Struct, frozen=True):
    """Which events to find; what is left out is any."""

    #: canonical names
    types: tuple[str, ...] = ()
    #: persisted at or after this moment, and before that one (microseconds since 1970)
    since: int = 0
    until: int = MAX_ID
    tenant: str = ""
    project: str = ""
    environment: str = ""
    #: those that are for readers only, too
    informative: bool = False


class FoundEvents(Struct, frozen=True):
    """A page of a search."""

    events: Sequence[StoredEvent]
    #: the same query continues from here
    cursor: str
    #: there may be something behind it now
    more: bool


class EventSearch(Protocol):
    async def search(self, query: EventQuery, *, cursor: str = "", limit: int = 100) -> FoundEvents:
        """The events that a query finds behind a cursor, at most `limit`. Raises RequestRejected for the cursor of another
        kind of query.
        """
