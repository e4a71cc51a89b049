"""A run's events and log lines as they happen, over server-sent events.

Order and completeness rest on `seq` (a line's `position`) alone: who was cut off asks for what comes behind the last that
it has, and what it has already is not given twice. The end is the run's end, never the connection's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
from msgspec.structs import replace

from arclog.client.api import log_lines
from arclog.client.calls import address_of
from arclog.model.errors import ServerUnavailable
from arclog.operations import events as ops
from arclog.operations.operation import Operation
from arclog.ports.storage.task_logs import ANY_LINE, LogFilter

if TYPE_CHECKING:
    from arclog.client.api import RemoteApi
    from arclog.client.connection import Connection

#: An event, with what its envelope adds, is far below this; a server that sends more is none of ours.
_LARGEST_EVENT = 64 * 1024 * 1024


class _NoStream(ServerUnavailable):
    """What answers is not a stream of events; it would be none the next time either."""


async def follow(
    connection: Connection, api: RemoteApi, execution_id: str, *, after: int = 0, types: Sequence[str] = ()
) -> AsyncGenerator[dict[str, Any], None]:
    """Full envelopes behind a seq, to the run's end. Raises NotFound, or ServerUnavailable once patience is over."""

    async def rest(last: int) -> bool:
        return bool(await api.events(execution_id, after=last, limit=1, types=types))

    wanted = ops.FollowEvents(execution_id, after, types=list(types))
    async for event in _followed(connection, api, ops.STREAM, wanted, "seq", rest):
        yield event


async def follow_logs(
    connection: Connection, api: RemoteApi, execution_id: str, *, after: int = 0, where: LogFilter = ANY_LINE
) -> AsyncGenerator[dict[str, Any], None]:
    """Task log lines behind a position, to the run's end. Raises as `follow` does."""

    async def rest(last: int) -> bool:
        return bool(await api.logs(execution_id, after=last, limit=1, where=where))

    wanted = replace(log_lines(execution_id, where), after=after)
    async for line in _followed(connection, api, ops.LOG_STREAM, wanted, "position", rest):
        yield line


async def _followed(
    connection: Connection,
    api: RemoteApi,
    operation: Operation[None],
    wanted: ops.FollowEvents | ops.LogLines,
    key: str,
    rest: Callable[[int], Awaitable[bool]],
) -> AsyncGenerator[dict[str, Any], None]:
    patience = connection.patience()
    last = wanted.after
    while True:
        over = (await api.status(wanted.execution_id)).ended_at is not None
        try:
            path, query = address_of(operation, replace(wanted, after=last))
            async with connection.streamed(path, params=query) as answer:
                patience.renew()
                async for record in _records(answer, key):
                    if record[key] <= last:
                        continue
                    last = record[key]
                    yield record
                    patience.renew()
        except _NoStream:
            raise
        except ServerUnavailable:
            if await patience.over():
                raise
            continue
        # A stream also ends when its server stops: the run's end is known only if it was over before, and all was told.
        if over and not await rest(last):
            return
        await patience.over()


async def _records(answer: httpx2.Response, key: str) -> AsyncGenerator[dict[str, Any], None]:
    try:
        async for message in httpx2.EventSource(answer, max_event_size=_LARGEST_EVENT):
            if not message.data:
                continue
            record = msgspec.json.decode(message.data)
            if isinstance(record, dict) and isinstance(record.get(key), int):
                yield record
    except (httpx2.SSEError, msgspec.DecodeError) as problem:
        raise _NoStream(f"the server's stream cannot be understood: {problem}") from None
