"""What a run says: its events in any dialect, followed or by the page, its tasks' logs, and how far it is."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from msgspec import Struct
from starlette.responses import Response, StreamingResponse

from arclog.dialects.rendering import Rendered
from arclog.model.errors import RequestRejected
from arclog.model.ids import micros
from arclog.ports.storage.task_logs import STREAMS, LogFilter
from arclog.server.auth.access import VIEW, allows, api_of, services_of
from arclog.server.bodies import answered
from arclog.server.openapi import examples
from arclog.server.openapi.params import Count, ExecutionId, Limit, Types
from arclog.server.openapi.schemas import documented
from arclog.server.streams.events import EventPage, Telling
from arclog.server.streams.logs import log_stream
from arclog.server.streams.outline import outline_frames
from arclog.server.streams.permits import while_allowed
from arclog.server.streams.waiting import unless_stopping

router = APIRouter(prefix="/api/executions/{execution_id}", tags=["events and logs"])

_EVENT_STREAM = "text/event-stream"
#: Events of a run that moves are sent together, in outline, at most this often.
_OUTLINE_PACE_S = 0.2
#: An outline is a tenth of its size at the fastest level; higher ones gain little.
_GZIP_LEVEL = 1

Dialect = Annotated[str, Query(description="canonical, lifecycle, run, wire or legacy")]
After = Annotated[Count, Query(description="Only events after this seq")]
EntityType = Annotated[
    str, Query(description="Only events about this type of entity: step, task, command …", max_length=64)
]
EntityId = Annotated[str, Query(description="Only events about this entity; requires `entity_type`", max_length=600)]


class LogPage(Struct, frozen=True):
    lines: list[dict[str, Any]]
    #: ask for what comes behind it with `after=`
    next: int


class Head(Struct, frozen=True):
    """How far a run is."""

    #: seq of its last event
    head: int
    ended: bool
    #: paused, or draining to be
    pausing: bool


@router.get(
    "/events",
    dependencies=[allows(VIEW)],
    **documented(answer=EventPage, example=EventPage([examples.EVENT], 1, more=False)),
)
async def events(
    execution_id: ExecutionId,
    request: Request,
    after: After = 0,
    limit: Limit = 1000,
    dialect: Dialect = "canonical",
    types: Types = [],  # noqa: B006 - FastAPI copies it
    entity_type: EntityType = "",
    entity_id: EntityId = "",
) -> Response:
    """List events in seq order, in the requested dialect. `next` is the cursor for `after`."""
    api, readings = api_of(request), services_of(request).readings
    await api.status(execution_id)
    telling = Telling(api, execution_id, dialect, types, readings, (entity_type, entity_id))
    return answered(await telling.page(after, limit))


@router.get(
    "/events/stream",
    dependencies=[allows(VIEW)],
    **documented(
        example='id: 1\ndata: {"seq": 1, "event_type": "playbook.execution.requested"}\n\n',
        media=_EVENT_STREAM,
        text="Server-sent events; the id is the seq.",
        also={204: "The run has ended; there are no events after Last-Event-ID."},
    ),
)
async def stream(
    execution_id: ExecutionId,
    request: Request,
    after: After = 0,
    dialect: Dialect = "canonical",
    types: Types = [],  # noqa: B006 - FastAPI copies it
) -> Response:
    """Stream the events of a run: each event once, in order, from `after` or Last-Event-ID until the run ends.

    After a lost connection, reconnect with the id of the last event (an EventSource does this itself).
    """
    api, services = api_of(request), services_of(request)
    await api.status(execution_id)
    telling = Telling(api, execution_id, dialect, types, services.readings)
    resumed = _resumed(request.headers.get("last-event-id", ""))
    if resumed is not None:
        after = resumed
        if await telling.is_over(after):
            return Response(status_code=204)
    return _streamed(request, telling.stream(services, after))


@router.get(
    "/outline/stream",
    dependencies=[allows(VIEW)],
    **documented(
        example='id: 1\ndata: {"first": 1, "kinds": [["playbook.execution.requested", "", "", 0]], "what": [0]}\n\n',
        media=_EVENT_STREAM,
        text="Server-sent events: parts of the outline; the id is the last seq of a part.",
        also={204: "The run has ended; there are no events after Last-Event-ID."},
    ),
)
async def outline_stream(execution_id: ExecutionId, request: Request, after: After = 0) -> Response:
    """Stream an outline of the run: what each event is about, in columns and without payloads, at about a fiftieth of
    the size.
    """
    api, services = api_of(request), services_of(request)
    await api.status(execution_id)
    telling = Telling(api, execution_id, "canonical", ())
    resumed = _resumed(request.headers.get("last-event-id", ""))
    after = after if resumed is None else resumed
    if resumed is not None and await telling.is_over(after):
        return Response(status_code=204)

    def frames(told: Sequence[Rendered]) -> bytes:
        return outline_frames([each.record for each in told])

    packed = "gzip" in request.headers.get("accept-encoding", "")
    return _streamed(request, telling.stream(services, after, frames, _OUTLINE_PACE_S), packed=packed)


def _streamed(request: Request, frames: AsyncGenerator[bytes, None], *, packed: bool = False) -> Response:
    async def allowed_frames() -> AsyncIterator[bytes]:
        with services_of(request).traffic.streaming():
            async for frame in while_allowed(request, VIEW, frames):
                yield frame

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    if packed:
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return StreamingResponse(
        _gzipped(allowed_frames()) if packed else allowed_frames(), headers=headers, media_type=_EVENT_STREAM
    )


async def _gzipped(frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Each frame can be read as soon as it arrives."""
    gzip = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    async for frame in frames:
        yield gzip.compress(frame) + gzip.flush(zlib.Z_SYNC_FLUSH)
    yield gzip.flush()


def _resumed(raw: str) -> int | None:
    if not raw:
        return None
    if not (raw.isascii() and raw.isdigit() and len(raw) <= 18):
        raise RequestRejected(f"Last-Event-ID {raw[:50]!r} is not a seq")
    return int(raw)


@router.get(
    "/head", dependencies=[allows(VIEW)], **documented(answer=Head, example=Head(12, ended=False, pausing=False))
)
async def head(
    execution_id: ExecutionId,
    request: Request,
    after: Annotated[
        Count | None, Query(description="Wait until there is an event after this seq, or the run has ended")
    ] = None,
    until: Annotated[str, Query(description="`ended`: wait for the run's end", pattern="^(ended)?$")] = "",
    timeout_s: Annotated[float, Query(description="Maximum time to wait", ge=0, le=86_400, allow_inf_nan=False)] = 0,
) -> Response:
    """Get the progress of a run. With `after` or `until`, wait for it (a long poll of at most server.long_poll_s)."""
    api, services = api_of(request), services_of(request)
    patience = min(timeout_s, services.settings.number("server.long_poll_s"))
    if until:
        await unless_stopping(services, api.ended(execution_id, timeout_s=patience))
    elif after is not None:
        await unless_stopping(services, api.wait(execution_id, after=after, timeout_s=patience))
    now = await api.wait(execution_id, timeout_s=0)
    ended = (await api.status(execution_id)).terminal_event is not None
    return answered(Head(now, ended, pausing=await api.pausing(execution_id)))


Step = Annotated[str, Query(max_length=200)]
Iteration = Annotated[str, Query(description="3, or 3.1 in a nested loop", max_length=200)]
Streams = Annotated[
    list[str], Query(alias="stream", description="stdout, stderr, log, progress (default: all but progress)")
]
Text = Annotated[str, Query(description="Only lines that contain this text", max_length=1000)]
Since = Annotated[str, Query(description="RFC 3339, or microseconds since 1970", max_length=64)]
Position = Annotated[Count, Query(description="Only lines after this position")]


def _where(
    step: Step = "",
    task: Step = "",
    iteration: Iteration = "",
    streams: Streams = [],  # noqa: B006 - FastAPI copies it
    text: Text = "",
    since: Since = "",
) -> LogFilter:
    unknown = next((one for one in streams if one not in STREAMS), None)
    if unknown is not None:
        raise RequestRejected(f"there is no stream {unknown[:50]!r}; there are {', '.join(STREAMS)}")
    return LogFilter(step, task, _iteration(iteration), tuple(streams), text, _moment(since))


Where = Annotated[LogFilter, Depends(_where)]


@router.get("/logs", dependencies=[allows(VIEW)], **documented(answer=LogPage, example=LogPage([examples.LINE], 1)))
async def logs(
    execution_id: ExecutionId, request: Request, where: Where, after: Position = 0, limit: Limit = 1000
) -> Response:
    """List the output of the run's tasks."""
    lines = await api_of(request).logs(execution_id, after=after, limit=limit, where=where)
    return answered(LogPage(lines, lines[-1]["position"] if lines else after))


@router.get(
    "/logs/stream",
    dependencies=[allows(VIEW)],
    **documented(
        example='id: 1\ndata: {"position": 1, "text": "hello"}\n\n',
        media=_EVENT_STREAM,
        text="Server-sent events; the id is the line's position.",
    ),
)
async def log_lines(execution_id: ExecutionId, request: Request, where: Where, after: Position = 0) -> Response:
    """Stream the output of the run's tasks, from `after` or Last-Event-ID until the run ends."""
    api = api_of(request)
    resumed = _resumed(request.headers.get("last-event-id", ""))
    begin = after if resumed is None else resumed
    await api.logs(execution_id, after=begin, limit=1, where=where)  # what cannot be asked for is refused here
    return _streamed(request, log_stream(services_of(request), api, execution_id, where, begin))


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
