"""Commands that have ended: only the log knows their last holder."""

from __future__ import annotations

from msgspec import Struct

from arclog.ports.storage.store import Store, StoredEvent

_PAGE = 1000
#: How many events of its step run are looked through for the report of a command.
_MOST = 10_000
#: an event that begins a command names it, and so does each that offers it again
_TYPES = ("step.scheduled", "command.issued")


class EndedCommand(Struct, frozen=True):
    """What the log says of a command that is no longer open."""

    #: the last one; 0 when there never was a command of that id
    fence: int = 0
    #: who reported under that fence; '' when nobody did, or it is too long ago
    holder: str = ""
    step: str = ""
    run: int = 0


async def ended_command(store: Store, execution_id: int, command_id: int) -> EndedCommand:
    """The last fence and the last holder of a command that is no longer open."""
    fence, issued = 0, None
    after = 0
    while True:
        page = await store.events(execution_id, after=after, limit=_PAGE, types=_TYPES)
        for one in page:
            if one.event.command_id == command_id and not one.event.informative:
                fence, issued = fence + 1, one
        if len(page) < _PAGE:
            break
        after = page[-1].seq
    if issued is None:
        return EndedCommand()
    event = issued.event
    return EndedCommand(fence, await _holder(store, issued, command_id, fence), event.step, event.run)


async def _holder(store: Store, issued: StoredEvent, command_id: int, fence: int) -> str:
    """The worker that the first report of a command names."""
    event, after, seen = issued.event, issued.seq, 0
    while seen < _MOST:
        page = await store.step_events(issued.execution_id, event.step, event.run, after=after, limit=_PAGE)
        for one in page:
            found = one.event
            if (found.command_id, found.fence) == (command_id, fence) and found.worker_id and not found.informative:
                return found.worker_id
        if len(page) < _PAGE:
            return ""
        after, seen = page[-1].seq, seen + len(page)
    return ""
