"""Handlers of `operations.events`."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from starlette.responses import Response, StreamingResponse

from arclog.dialects.names import asked_for, canonical_types
from arclog.dialects.rendering import Rendered
from arclog.model.errors import ArclogError, RequestRejected
from arclog.model.ids import micros
from arclog.operations import events as ops
from arclog.operations.operation import EVENT_STREAM, VIEW
from arclog.ports.ingest import Taken
from arclog.ports.storage.task_logs import STREAMS, LogFilter
from arclog.ports.views.api import EventsFound
from arclog.server.call import Call
from arclog.server.dispatch import DENIALS, handles
from arclog.server.problems import status_of, title_of
from arclog.server.streams.events import Telling, check_names, log_stream, while_allowed
from arclog.server.streams.outline import outline_frames
from arclog.server.streams.waiting import unless_stopping

#: In outline streams, events of an active run are sent together, at most this often.
_OUTLINE_PACE_S = 0.2
#: The fastest level compresses an outline to a tenth; higher levels gain little.
_GZIP_LEVEL = 1


@handles(ops.EVENTS)
async def events(call: Call, asked: ops.ListEvents) -> ops.EventPage:
    api, readings = call.workspace.api, call.services.readings
    await api.status(asked.execution_id)
    entity = (asked.entity_type, asked.entity_id)
    telling = Telling(api, asked.execution_id, asked.dialect, asked.types, readings, entity)
    return await telling.page(asked.after, asked.limit)


@handles(ops.STREAM)
async def stream(call: Call, asked: ops.FollowEvents) -> Response:
    api, services = call.workspace.api, call.services
    await api.status(asked.execution_id)
    telling = Telling(api, asked.execution_id, asked.dialect, asked.types, services.readings)
    resumed = _resumed(call)
    if resumed is not None and await telling.is_over(resumed):
        return Response(status_code=204)
    return _streamed(call, telling.stream(services, asked.after if resumed is None else resumed))


@handles(ops.OUTLINE_STREAM)
async def outline_stream(call: Call, asked: ops.FollowOutline) -> Response:
    api, services = call.workspace.api, call.services
    await api.status(asked.execution_id)
    telling = Telling(api, asked.execution_id, "canonical", ())
    resumed = _resumed(call)
    if resumed is not None and await telling.is_over(resumed):
        return Response(status_code=204)

    def frames(told: Sequence[Rendered]) -> bytes:
        return outline_frames([each.record for each in told])

    packed = "gzip" in call.headers.get("accept-encoding", "")
    after = asked.after if resumed is None else resumed
    return _streamed(call, telling.stream(services, after, frames, _OUTLINE_PACE_S), packed=packed)


def _streamed(call: Call, frames: AsyncGenerator[bytes, None], *, packed: bool = False) -> Response:
    async def allowed() -> AsyncIterator[bytes]:
        with call.services.traffic.streaming():
            async for frame in while_allowed(call, VIEW, frames):
                yield frame

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    if packed:
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return StreamingResponse(_gzipped(allowed()) if packed else allowed(), headers=headers, media_type=EVENT_STREAM)


async def _gzipped(frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Flush after each frame, so that it can be read as soon as it arrives."""
    gzip = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    async for frame in frames:
        yield gzip.compress(frame) + gzip.flush(zlib.Z_SYNC_FLUSH)
    yield gzip.flush()


def _resumed(call: Call) -> int | None:
    """The last event that a client received before its connection broke off; None if there is none."""
    raw = call.headers.get("last-event-id", "")
    if not raw:
        return None
    if not (raw.isascii() and raw.isdigit() and len(raw) <= 18):
        raise RequestRejected(f"Last-Event-ID {raw[:50]!r} is not a seq")
    return int(raw)


@handles(ops.HEAD)
async def head(call: Call, asked: ops.WaitForHead) -> ops.Head:
    api, services, execution_id = call.workspace.api, call.services, asked.execution_id
    patience = min(asked.timeout_s, services.settings.number("server.long_poll_s"))
    if asked.until:
        await unless_stopping(services, api.ended(execution_id, timeout_s=patience))
    elif asked.after is not None:
        await unless_stopping(services, api.wait(execution_id, after=asked.after, timeout_s=patience))
    now = await api.wait(execution_id, timeout_s=0)
    ended = (await api.status(execution_id)).terminal_event is not None
    return ops.Head(now, ended, pausing=await api.pausing(execution_id))


# -- logs --------------------------------------------------------------------------------------------------------------


@handles(ops.LOGS)
async def logs(call: Call, asked: ops.ListLogs) -> ops.LogPage:
    lines = await call.workspace.api.logs(
        asked.execution_id, after=asked.after, limit=asked.limit, where=_filter(asked)
    )
    return ops.LogPage(lines, lines[-1]["position"] if lines else asked.after)


@handles(ops.LOG_STREAM)
async def log_lines(call: Call, asked: ops.LogLines) -> Response:
    api, where = call.workspace.api, _filter(asked)
    resumed = _resumed(call)
    begin = asked.after if resumed is None else resumed
    await api.logs(asked.execution_id, after=begin, limit=1, where=where)  # raises for invalid requests
    return _streamed(call, log_stream(call.services, api, asked.execution_id, where, begin))


def _filter(asked: ops.LogLines) -> LogFilter:
    unknown = next((stream for stream in asked.streams if stream not in STREAMS), None)
    if unknown is not None:
        raise RequestRejected(f"there is no stream {unknown[:50]!r}; there are {', '.join(STREAMS)}")
    return LogFilter(
        asked.step, asked.task, _iteration(asked.iteration), tuple(asked.streams), asked.text, _moment(asked.since)
    )


def _iteration(raw: str) -> tuple[int, ...] | None:
    if not raw:
        return None
    parts = raw.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts):
        raise RequestRejected(f"iteration {raw[:50]!r} is not like 3, or 3.1 in a nested loop")
    return tuple(int(part) for part in parts)


def _moment(raw: str) -> int:
    if raw.isascii() and raw.isdigit() and len(raw) <= 18:
        return int(raw)
    try:
        return max(0, micros(raw)) if raw else 0
    except (ValueError, OverflowError):
        raise RequestRejected(f"since {raw!r} is not a time; write it like 2026-01-31T12:00:00Z") from None


# -- of all runs -------------------------------------------------------------------------------------------------------


@handles(ops.POST_EVENT)
async def post_event(call: Call, body: Any) -> Taken:
    return await call.workspace.take_event(body)


@handles(ops.POST_BATCH)
async def post_batch(call: Call, body: Any) -> ops.BatchAnswer:
    answers = await call.workspace.take_batch(body)
    denied = [answer for answer in answers if isinstance(answer, DENIALS)]
    if denied:
        reason = f"{len(denied)} of {len(answers)} events: {denied[0]}"
        await call.services.audit.note(call, call.principal, "denied", reason)
    results = [_item(index, answer) for index, answer in enumerate(answers)]
    accepted = sum(item.status == 200 for item in results)
    return ops.BatchAnswer(accepted, len(results) - accepted, results)


def _item(index: int, answer: Taken | ArclogError) -> ops.Item:
    if isinstance(answer, Taken):
        return ops.Item(index, 200, answer)
    return ops.Item(index, status_of(answer), title=title_of(answer), detail=str(answer))


@handles(ops.SEARCH)
async def search(call: Call, asked: ops.SearchEvents) -> EventsFound:
    check_names(asked.types)
    found = await call.workspace.api.search(
        types=canonical_types(asked.types),
        since=asked.since,
        until=asked.until,
        entity=asked.entity,
        where=asked.where,
        informative=asked.informative,
        cursor=asked.cursor,
        limit=asked.limit,
    )
    # A name of a dialect may mean a type with only some of its statuses.
    kept = [
        event
        for event in found.events
        if not asked.types or asked_for(Rendered(event["event_type"], event, event), asked.types)
    ]
    return EventsFound(kept, found.next, found.more)
