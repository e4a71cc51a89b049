"""Refused reports, and commands that have ended, whose last holder only the log knows.

A refused report leaves an informative `command.refused` in the log of its run, for the first reports of each claim.
"""

from __future__ import annotations

import logging

from msgspec import Struct

from arclog.core.boundary.inputs import Observed, Refused
from arclog.engine.commits.engine import Engine
from arclog.model.data.lru import LruCache
from arclog.model.errors import ArclogError
from arclog.model.events import Event
from arclog.ports.storage.store import Store, StoredEvent

log = logging.getLogger("arclog.engine")

#: Maximum number of claims whose refusals are counted.
_MOST_CLAIMS = 10_000
_LONGEST_REASON = 1000


class Refusals:
    """Records refused reports."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._most = engine.settings.integer("ingest.max_refusals")
        self._most_in_run = engine.settings.integer("ingest.max_events")
        self._counts: LruCache[tuple[int, int], int] = LruCache(_MOST_CLAIMS)

    async def note(self, claim: tuple[int, int, int], worker_id: str, refused: Refused) -> None:
        """Record that a report of a claim (execution_id, command_id, fence) was refused. A failure to record it is logged;
        the sender gets its answer in any case.
        """
        execution_id, command_id, fence = claim
        count = (self._counts.get((command_id, fence)) or 0) + 1
        if count > self._most:
            return
        self._counts.replace((command_id, fence), count)
        payload = {"reason": refused.message[:_LONGEST_REASON], "worker_id": worker_id, "source": "server"}
        if refused.event_type:
            payload["refused"] = refused.event_type
        try:
            command = (await self._engine.seen(execution_id)).state.commands.get(command_id)
            event = Event(
                "command.refused", self._engine.clock.now(), command_id=command_id, fence=fence, payload=payload
            )
            if command is not None:
                event.step, event.run = command.step, command.run
            await self._engine.put(execution_id, Observed([event], {}, self._most_in_run))
        except ArclogError as problem:
            log.info("execution %s: a refused report could not be recorded: %s", execution_id, problem)


_PAGE = 1000
#: Number of events of a step run that are searched for the report of a command.
_MOST = 10_000
#: types of the events that create a command or offer it again; they carry its id
_TYPES = ("step.scheduled", "command.issued")


class EndedCommand(Struct, frozen=True):
    """The recorded end of a command that is no longer open."""

    #: the last fence; 0 if there never was a command with that id
    fence: int = 0
    #: the worker that reported under that fence; '' if none did, or if it is too long ago
    holder: str = ""
    step: str = ""
    run: int = 0


async def ended_command(store: Store, execution_id: int, command_id: int) -> EndedCommand:
    """Return the last fence and the last holder of a command that is no longer open."""
    fence, issued = 0, None
    after = 0
    while True:
        page = await store.events(execution_id, after=after, limit=_PAGE, types=_TYPES)
        for stored in page:
            if stored.event.command_id == command_id and not stored.event.informative:
                fence, issued = fence + 1, stored
        if len(page) < _PAGE:
            break
        after = page[-1].seq
    if issued is None:
        return EndedCommand()
    event = issued.event
    return EndedCommand(fence, await _holder(store, issued, command_id, fence), event.step, event.run)


async def _holder(store: Store, issued: StoredEvent, command_id: int, fence: int) -> str:
    """Return the worker that the first report of a command names."""
    event, after, seen = issued.event, issued.seq, 0
    while seen < _MOST:
        page = await store.step_events(issued.execution_id, event.step, event.run, after=after, limit=_PAGE)
        for stored in page:
            event_seen = stored.event
            if (
                (event_seen.command_id, event_seen.fence) == (command_id, fence)
                and event_seen.worker_id
                and not event_seen.informative
            ):
                return event_seen.worker_id
        if len(page) < _PAGE:
            return ""
        after, seen = page[-1].seq, seen + len(page)
    return ""
