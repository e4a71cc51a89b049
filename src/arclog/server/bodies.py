"""Bodies in and out: read within a limit, decoded by type, encoded as JSON. A body that does not fit says where."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from fastapi import Request
from starlette.responses import Response

from arclog.model.errors import RequestRejected, RequestTooLarge
from arclog.server.access import services_of
from arclog.server.schemas import JSON

T = TypeVar("T")


async def raw_body(request: Request) -> bytes:
    """The body, at most server.max_body_bytes of it; nothing more than that is ever held."""
    most = services_of(request).settings.integer("server.max_body_bytes")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most:
        raise _too_large(most)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise _too_large(most)
        chunks.append(chunk)
    return b"".join(chunks)


async def body_of(request: Request, kind: type[T]) -> T:
    """The body as a type; an empty one is `{}`."""
    return decoded(await raw_body(request) or b"{}", kind)


def decoded(raw: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as problem:
        raise RequestRejected(f"the body does not fit: {problem}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RequestRejected(f"the body is not JSON: {problem}") from None


def answered(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, JSON)


def _too_large(most: int) -> RequestTooLarge:
    return RequestTooLarge(f"the body has more than {most} bytes (server.max_body_bytes)")
