"""Commands that are over: the log alone still knows who held them last."""

from __future__ import annotations

from arclog.ports.store import Store

_PAGE = 1000
#: an event that begins a command names it, and so does each that offers it again
_TYPES = ("step.scheduled", "command.issued")
#: the same command again, under the next fence
_COMES_BACK = frozenset({"lease_lost", "paused", "retry"})


async def fence_of_ended(store: Store, execution_id: int, command_id: int) -> int:
    """The last fence of a command that is no longer open; 0 when there never was one of that id."""
    fence, after = 0, 0
    while True:
        page = await store.events(execution_id, after=after, limit=_PAGE, types=_TYPES)
        for one in page:
            event = one.event
            if event.command_id == command_id and not event.informative:
                came_back = event.type == "command.issued" and event.payload.get("reason") in _COMES_BACK
                fence = fence + 1 if came_back else 1
        if len(page) < _PAGE:
            return fence
        after = page[-1].seq
