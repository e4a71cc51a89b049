"""A run's events as they happen, over server-sent events.

Order and completeness rest on `seq` alone: who was cut off asks for what comes behind the last event that it has, and an
event that it has already is not given twice. The end is the run's end, never the connection's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx2
import msgspec

from arclog.model.errors import ServerUnavailable

if TYPE_CHECKING:
    from arclog.client.api import RemoteApi
    from arclog.client.connection import Connection

#: An event, with what its envelope adds, is far below this; a server that sends more is none of ours.
_LARGEST_EVENT = 64 * 1024 * 1024


class _NoStream(ServerUnavailable):
    """What answers is no stream of events; it would be none the next time either."""


async def follow(
    connection: Connection, api: RemoteApi, execution_id: str, *, after: int = 0, types: Sequence[str] = ()
) -> AsyncIterator[dict[str, Any]]:
    """Full envelopes behind a seq, to the run's end. Raises NotFound, or ServerUnavailable once patience is over."""
    path = f"/api/executions/{quote(execution_id, safe='')}/events/stream"
    patience = connection.patience()
    last = after
    while True:
        over = (await api.status(execution_id)).ended_at is not None
        try:
            params = {"after": last, **({"type": list(types)} if types else {})}
            async with connection.streamed(path, params=params) as answer:
                patience.renew()
                async for event in _events(answer):
                    if event["seq"] <= last:
                        continue
                    last = event["seq"]
                    yield event
                    patience.renew()
        except _NoStream:
            raise
        except ServerUnavailable:
            if await patience.over():
                raise
            continue
        # A stream also ends when its server stops: the run's end is known only if it was over before, and all was told.
        if over and not await api.events(execution_id, after=last, limit=1, types=types):
            return
        await patience.over()


async def _events(answer: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    try:
        async for message in httpx2.EventSource(answer, max_event_size=_LARGEST_EVENT):
            if not message.data:
                continue
            event = msgspec.json.decode(message.data)
            if isinstance(event, dict) and isinstance(event.get("seq"), int):
                yield event
    except (httpx2.SSEError, msgspec.DecodeError) as problem:
        raise _NoStream(f"the server's stream cannot be understood: {problem}") from None
