"""What runs stored outside the log: listed, described, and read, whole or in ranges."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from msgspec import Struct
from starlette.responses import Response, StreamingResponse

from arclog.model.errors import RequestTooLarge
from arclog.ports.views.api import Collected, StoredResult
from arclog.server.auth.access import ADMIN, VIEW, allows, api_of, services_of
from arclog.server.bodies import answered, body_of
from arclog.server.headers import media_type
from arclog.server.openapi import examples
from arclog.server.openapi.params import Count, ExecutionId, Limit
from arclog.server.openapi.schemas import documented
from arclog.server.problems import problem

router = APIRouter(prefix="/api", tags=["results"])

Ref = Annotated[str, Query(description="noetl://execution/…", examples=[examples.REF], max_length=2000)]
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


class ResultPage(Struct, frozen=True):
    results: list[StoredResult]
    #: ask for what comes behind it with `after=`
    next: int


class CollectBody(Struct, frozen=True, forbid_unknown_fields=True):
    #: only tell what would be removed
    dry_run: bool = False


@router.get(
    "/executions/{execution_id}/results",
    dependencies=[allows(VIEW)],
    **documented(answer=ResultPage, example=ResultPage([examples.STORED], 9)),
)
async def results(execution_id: ExecutionId, request: Request, after: Count = 0, limit: Limit = 1000) -> Response:
    """List the stored results of a run, in the order of their events."""
    found = await api_of(request).results(execution_id, after=after, limit=limit)
    return answered(ResultPage(found, found[-1].seq if found else after))


@router.get("/result", dependencies=[allows(VIEW)], **documented(answer=StoredResult, example=examples.STORED))
async def described(request: Request, ref: Ref) -> Response:
    """Describe a stored result."""
    return answered(await api_of(request).result(ref))


@router.get(
    "/result/resolve",
    dependencies=[allows(VIEW)],
    **documented(
        example='{"id": 1}\n{"id": 2}\n',
        media="application/octet-stream",
        text="The content, with its stored media type.",
        also={206: "The requested range."},
        errors=(404, 413, 416),
    ),
)
async def resolve(request: Request, ref: Ref) -> Response:
    """Get the content of a stored result. `Range: bytes=A-B` returns a part of it."""
    api = api_of(request)
    known = await api.result(ref)
    start, end, partial = 0, known.bytes, False
    asked = _RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    if asked is not None and asked.group() != "bytes=-":
        partial = True
        start, end = _bounds(asked.group(1), asked.group(2), known.bytes)
        if start >= end:
            refusal = problem(416, "RangeNotSatisfiable", f"{ref} has {known.bytes} bytes")
            refusal.headers["Content-Range"] = f"bytes */{known.bytes}"
            return refusal
    most = services_of(request).settings.integer("server.max_result_bytes")
    if end - start > most:
        raise RequestTooLarge(
            f"{end - start} bytes of {ref} were requested; one response carries at most {most} "
            "(server.max_result_bytes): request parts with Range: bytes=A-B"
        )
    chunks = api.content(ref, start, end)
    # What is missing or damaged at its beginning is an error with a status, not a broken stream.
    first = await anext(aiter(chunks), b"")
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Length": str(end - start),
        "Content-Disposition": 'attachment; filename="result"',
        "X-Content-Type-Options": "nosniff",
        "ETag": f'"{known.sha256}"',
    }
    if partial:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{known.bytes}"
    return StreamingResponse(_joined(first, chunks), 206 if partial else 200, headers, media_type(known.content_type))


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """Bytes [start, end) of a range as HTTP writes it."""
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


@router.post(
    "/gc",
    dependencies=[allows(ADMIN, tenant_wide=True)],
    **documented(
        takes=CollectBody,
        takes_example={"dry_run": True},
        answer=Collected,
        example=Collected(True, 3, 2, 120_000, 0),
        errors=(),
    ),
)
async def collect(request: Request) -> Response:
    """Remove stored results that are no longer needed: those of the caller's tenant, or of all tenants for an admin
    of the server's own tenant.
    """
    body = await body_of(request, CollectBody)
    return answered(await api_of(request).collect(dry_run=body.dry_run))
