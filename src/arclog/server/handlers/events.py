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
from arclog.ports.ingest import RecordedEvent
from arclog.ports.storage.task_logs import STREAMS, LogFilter
from arclog.ports.views.api import EventSearchPage
from arclog.server.call import Call
from arclog.server.dispatch import DENIALS, handles
from arclog.server.problems import status_of, title_of
from arclog.server.streams.events import RunEvents, check_names, log_stream, while_allowed
from arclog.server.streams.outline import outline_frames
from arclog.server.streams.waiting import unless_stopping

#: In outline streams, events of an active run are sent together, at most this often.
_OUTLINE_PACE_S = 0.2
#: The fastest level compresses an outline to a tenth; higher levels gain little.
_GZIP_LEVEL = 1


@handles(ops.EVENTS)
async def events(call: Call, request: ops.ListEvents) -> ops.EventPage:
    api, positions = call.workspace.api, call.services.positions
    await api.status(request.execution_id)
    entity = (request.entity_type, request.entity_id)
    run_events = RunEvents(api, request.execution_id, request.dialect, request.types, positions, entity)
    return await run_events.page(request.after, request.limit)


@handles(ops.STREAM)
async def stream(call: Call, request: ops.FollowEvents) -> Response:
    api, services = call.workspace.api, call.services
    await api.status(request.execution_id)
    run_events = RunEvents(api, request.execution_id, request.dialect, request.types, services.positions)
    resumed = _resumed(call)
    if resumed is not None and await run_events.is_over(resumed):
        return Response(status_code=204)
    return _streamed(call, run_events.stream(services, request.after if resumed is None else resumed))


@handles(ops.OUTLINE_STREAM)
async def outline_stream(call: Call, request: ops.FollowOutline) -> Response:
    api, services = call.workspace.api, call.services
    await api.status(request.execution_id)
    run_events = RunEvents(api, request.execution_id, "canonical", ())
    resumed = _resumed(call)
    if resumed is not None and await run_events.is_over(resumed):
        return Response(status_code=204)

    def frames(records: Sequence[Rendered]) -> bytes:
        return outline_frames([stored.record for stored in records])

    packed = "gzip" in call.headers.get("accept-encoding", "")
    after = request.after if resumed is None else resumed
    return _streamed(call, run_events.stream(services, after, frames, _OUTLINE_PACE_S), packed=packed)


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
async def head(call: Call, request: ops.WaitForHead) -> ops.Head:
    api, services, execution_id = call.workspace.api, call.services, request.execution_id
    patience = min(request.timeout_s, services.settings.number("server.long_poll_s"))
    if request.until:
        await unless_stopping(services, api.ended(execution_id, timeout_s=patience))
    elif request.after is not None:
        await unless_stopping(services, api.wait(execution_id, after=request.after, timeout_s=patience))
    now = await api.wait(execution_id, timeout_s=0)
    ended = (await api.status(execution_id)).terminal_event is not None
    return ops.Head(now, ended, pausing=await api.pausing(execution_id))


# -- logs --------------------------------------------------------------------------------------------------------------


@handles(ops.LOGS)
async def logs(call: Call, request: ops.ListLogs) -> ops.LogPage:
    lines = await call.workspace.api.logs(
        request.execution_id, after=request.after, limit=request.limit, where=_filter(request)
    )
    return ops.LogPage(lines, lines[-1]["position"] if lines else request.after)


@handles(ops.LOG_STREAM)
async def log_lines(call: Call, request: ops.LogLines) -> Response:
    api, where = call.workspace.api, _filter(request)
    resumed = _resumed(call)
    begin = request.after if resumed is None else resumed
    await api.logs(request.execution_id, after=begin, limit=1, where=where)  # raises for invalid requests
    return _streamed(call, log_stream(call.services, api, request.execution_id, where, begin))


def _filter(request: ops.LogLines) -> LogFilter:
    unknown = next((stream for stream in request.streams if stream not in STREAMS), None)
    if unknown is not None:
        raise RequestRejected(f"there is no stream {unknown[:50]!r}; there are {', '.join(STREAMS)}")
    return LogFilter(
        request.step,
        request.task,
        _iteration(request.iteration),
        tuple(request.streams),
        request.text,
        _moment(request.since),
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
async def post_event(call: Call, body: Any) -> RecordedEvent:
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


def _item(index: int, answer: RecordedEvent | ArclogError) -> ops.Item:
    if isinstance(answer, RecordedEvent):
        return ops.Item(index, 200, answer)
    return ops.Item(index, status_of(answer), title=title_of(answer), detail=str(answer))


@handles(ops.SEARCH)
async def search(call: Call, request: ops.SearchEvents) -> EventSearchPage:
    check_names(request.types)
    page = await call.workspace.api.search(
        types=canonical_types(request.types),
        since=request.since,
        until=request.until,
        entity=request.entity,
        where=request.where,
        informative=request.informative,
        cursor=request.cursor,
        limit=request.limit,
    )
    # A name of a dialect may mean a type with only some of its statuses.
    visible = [
        event
        for event in page.events
        if not request.types or asked_for(Rendered(event["event_type"], event, event), request.types)
    ]
    return EventSearchPage(visible, page.next, page.more)
