"""Handlers of `operations.results`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from arclog.model.errors import RequestTooLarge
from arclog.operations import results as ops
from arclog.ports.views.api import Collected, StoredResult
from arclog.server.call import Call
from arclog.server.dispatch import handles
from arclog.server.headers import media_type
from arclog.server.problems import problem

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


@handles(ops.LIST)
async def results(call: Call, request: ops.ListResults) -> ops.ResultPage:
    stored = await call.workspace.api.results(request.execution_id, after=request.after, limit=request.limit)
    return ops.ResultPage(stored, stored[-1].seq if stored else request.after)


@handles(ops.DESCRIBE)
async def described(call: Call, request: ops.ByRef) -> StoredResult:
    return await call.workspace.api.result(request.ref)


@handles(ops.RESOLVE)
async def resolve(call: Call, request: ops.ByRef) -> Response:
    api, ref = call.workspace.api, request.ref
    result = await api.result(ref)
    start, end, partial = 0, result.bytes, False
    requested_range = _RANGE.fullmatch(call.headers.get("range", "").replace(" ", ""))
    if requested_range is not None and requested_range.group() != "bytes=-":
        partial = True
        start, end = _bounds(requested_range.group(1), requested_range.group(2), result.bytes)
        if start >= end:
            refusal = problem(416, "RangeNotSatisfiable", f"{ref} has {result.bytes} bytes")
            refusal.headers["Content-Range"] = f"bytes */{result.bytes}"
            return refusal
    most = call.services.settings.integer("server.max_result_bytes")
    if end - start > most:
        raise RequestTooLarge(
            f"{end - start} bytes of {ref} were requested; one response carries at most {most} "
            "(server.max_result_bytes): request it in parts, with Range: bytes=A-B"
        )
    chunks = api.content(ref, start, end)
    # Read the first piece now: content that is missing or damaged there becomes an error with a status, not a broken
    # stream.
    first = await anext(aiter(chunks), b"")
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Length": str(end - start),
        "Content-Disposition": 'attachment; filename="result"',
        "X-Content-Type-Options": "nosniff",
        "ETag": f'"{result.sha256}"',
    }
    if partial:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{result.bytes}"
    return StreamingResponse(joined(first, chunks), 206 if partial else 200, headers, media_type(result.content_type))


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """Bytes [start, end) of a range as HTTP writes it."""
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size


async def joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The first piece of a stream, which was read already, and the others."""
    if first:
        yield first
    async for chunk in rest:
        yield chunk


@handles(ops.COLLECT)
async def collect(call: Call, body: ops.CollectBody) -> Collected:
    return await call.workspace.api.collect(dry_run=body.dry_run)
