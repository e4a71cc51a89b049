"""What a client needs to be `ports.api` from afar and nobody else asks for: how far a run is, its source, one result's
facts, and the removal of stored results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from msgspec import Struct
from starlette.responses import Response

from arclog.ports.api import Collected, StoredResult
from arclog.server.access import ADMIN, VIEW, allows, api_of, services_of
from arclog.server.bodies import answered, body_of
from arclog.server.schemas import documented

router = APIRouter(tags=["clients"])

_REF = "noetl://execution/380452616754167808/result/fetch/" + "0" * 64


class Head(Struct, frozen=True):
    """How far a run is."""

    #: seq of its last event
    head: int
    ended: bool
    #: paused, or draining to be
    pausing: bool


class Collecting(Struct, frozen=True):
    """What to remove."""

    dry_run: bool = False


@router.get(
    "/api/executions/{execution_id}/head",
    dependencies=[allows(VIEW)],
    **documented(answer=Head, example=Head(12, ended=False, pausing=False), text="How far the run is."),
)
async def head(
    execution_id: str,
    request: Request,
    after: Annotated[int, Query(ge=0, le=2**62)] = 0,
    until: Annotated[Literal["news", "ended"], Query()] = "news",
    timeout_s: Annotated[float, Query(ge=0, le=3600)] = 0.0,
) -> Response:
    """Answer once the run has an event behind `after` (or has ended), or after the time-out; at once without one."""
    api, services = api_of(request), services_of(request)
    left = min(timeout_s, services.settings.number("server.poll_max_s"))
    if until == "ended":
        await _unless_stopping(api.ended(execution_id, timeout_s=left), services.stopping)
    else:
        await _unless_stopping(api.wait(execution_id, after=after, timeout_s=left), services.stopping)
    # Whether it has ended is looked up first: what is behind the head that is then read came later.
    over = await api.ended(execution_id, timeout_s=0)
    seq = await api.wait(execution_id, timeout_s=0)
    return answered(Head(seq, over, await api.pausing(execution_id)))


@router.get(
    "/api/executions/{execution_id}/source",
    dependencies=[allows(VIEW)],
    **documented(example="metadata: {name: hello}\n…", media="text/plain", text="The playbook as it was written."),
)
async def source(execution_id: str, request: Request) -> Response:
    """The playbook as it was written."""
    return Response(await api_of(request).source(execution_id), media_type="text/plain")


@router.get(
    "/api/result",
    dependencies=[allows(VIEW)],
    **documented(
        answer=StoredResult,
        example=StoredResult(
            ref=_REF,
            execution_id="380452616754167808",
            name="fetch",
            step="fetch",
            run=1,
            task="fetch_task",
            kind="list",
            content_type="application/x-ndjson",
            bytes=1_048_576,
            rows=10_000,
            sha256="0" * 64,
            scope="execution",
            stored_at="2026-01-31T12:00:00.000000Z",
            expires_at=None,
            removed_at=None,
            seq=9,
        ),
        text="All that is known of one stored result.",
    ),
)
async def described(ref: Annotated[str, Query(max_length=1000)], request: Request) -> Response:
    """All that is known of one stored result."""
    return answered(await api_of(request).result(ref))


@router.post(
    "/api/gc",
    dependencies=[allows(ADMIN)],
    **documented(
        takes=Collecting,
        takes_example=Collecting(dry_run=True),
        answer=Collected,
        example=Collected(dry_run=True, results=3, contents=1, bytes=5_000_000, leftovers=0),
        text="What was removed, or would be.",
    ),
)
async def collect(request: Request) -> Response:
    """Remove stored results that are no longer needed."""
    asked = await body_of(request, Collecting)
    return answered(await api_of(request).collect(dry_run=asked.dry_run))


async def _unless_stopping(work: Awaitable[Any], stopping: asyncio.Event) -> None:
    """Wait for the work, but not while the server drains."""
    working, told = asyncio.ensure_future(work), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((working, told), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        working.cancel()
        told.cancel()
        await asyncio.gather(working, told, return_exceptions=True)
