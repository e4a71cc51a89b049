"""Bodies of the worker protocol: read up to a limit, decoded strictly, encoded as they are."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from fastapi import Request
from starlette.responses import Response

from arclog.model.errors import RequestRejected, RequestTooLarge
from arclog.server.access import services_of

T = TypeVar("T")


async def body_of(request: Request, kind: type[T], most: int = 0) -> T:
    """The body as a struct; `most` bytes, else `server.max_body_bytes`."""
    limit = most or services_of(request).settings.integer("server.max_body_bytes")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            name = "server.max_report_bytes" if most else "server.max_body_bytes"
            raise RequestTooLarge(f"the body takes more than {limit} bytes ({name})")
    try:
        return msgspec.json.decode(bytes(body), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RequestRejected(f"the body does not fit: {problem}") from None


def answered(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
