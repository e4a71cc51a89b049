"""Bodies in and out: read within a limit, decoded by type, encoded as JSON. A body that does not fit says where."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from arclog.model.data.sizes import ValueCount, values_size
from arclog.model.errors import RequestRejected, RequestTooLarge
from arclog.server.auth.access import services_of
from arclog.server.openapi.schemas import JSON
from arclog.server.traffic import SLOT, Slot

T = TypeVar("T")

#: Memory is counted in steps of this: smaller bodies cost nothing.
_COUNTED = 1024 * 1024
#: Bodies of fewer bytes are decoded at once.
_SMALL = 64 * 1024

YAML = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")


async def raw_body(
    request: Request,
    limit: str = "server.max_body_bytes",
    large: int = 0,
    look: Callable[[bytes], Awaitable[None]] | None = None,
    *,
    count_values: bool = False,
) -> bytes:
    """The body, at most as many bytes as the setting `limit` says; nothing more than that is ever held. `look` is called with the
    beginning of one that has at least `large` bytes, before the rest is taken. `count_values`: it is JSON, and has at most
    `server.max_body_values` values.
    """
    services = services_of(request)
    most = services.settings.integer(limit)
    length = request.headers.get("content-length", "")
    declared = int(length) if length.isascii() and length.isdigit() else None
    if declared is not None and declared > most:
        raise _too_large(most, limit)
    patience = services.settings.number("server.body_timeout_s")
    slot: Slot | None = request.scope.get(SLOT)
    chunks: list[bytes] = []
    size = counted = 0
    values = ValueCount() if count_values and (declared is None or declared >= _SMALL) else None
    most_values = services.settings.integer("server.max_body_values")
    try:
        async with asyncio.timeout(patience):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most:
                    raise _too_large(most, limit)
                if slot is not None and size - counted >= _COUNTED:
                    slot.hold(size - counted)
                    counted = size
                chunks.append(chunk)
                if values is not None and values.add(chunk) > most_values:
                    raise too_many_values(most_values)
                if look is not None and size >= large:
                    await look(b"".join(chunks))
                    look = None
    except TimeoutError:
        raise HTTPException(408, f"the body was not received within {patience:g} s (server.body_timeout_s)") from None
    except ClientDisconnect:  # nobody hears the answer, and it is not a bug of ours
        raise HTTPException(400, "the connection ended within the body") from None
    if counted and slot is not None:
        slot.hold(size)  # it is put together from its pieces, and both are there for a moment
    return b"".join(chunks)


def hold_decoded(request: Request, raw: bytes) -> None:
    """Count what a large body will take once it is decoded. Raises TooManyRequests or RequestTooLarge."""
    slot: Slot | None = request.scope.get(SLOT)
    if slot is not None and len(raw) >= _COUNTED:
        slot.hold(values_size(raw))


async def pieces(request: Request) -> AsyncIterator[bytes]:
    """A body of any length as it comes; each piece within `server.body_timeout_s` of the one before."""
    patience = services_of(request).settings.number("server.body_timeout_s")
    coming = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(patience):
                piece = await anext(coming, None)
        except TimeoutError:
            raise HTTPException(408, f"no data was received for {patience:g} s (server.body_timeout_s)") from None
        if piece is None:
            return
        yield piece


async def body_of(request: Request, kind: type[T], limit: str = "server.max_body_bytes", *, lax: bool = False) -> T:
    """The body as a type; an empty one is `{}`. A lax one may have numbers as strings: JSON readers elsewhere round ids."""
    raw = await raw_body(request, limit, count_values=True) or b"{}"
    hold_decoded(request, raw)
    if len(raw) < _SMALL:
        return decoded(raw, kind, lax=lax)
    # To decode many values takes as long as many requests: the tenant's turns bound what share of the time it has.
    return await services_of(request).in_turns(request, lambda: decoded(raw, kind, lax=lax))


async def yaml_of(request: Request) -> str | None:
    """The body's text when it is sent as YAML, else None: a playbook may be sent as the file that it is."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in YAML:
        return None
    try:
        return (await raw_body(request)).decode()
    except UnicodeDecodeError as problem:
        raise RequestRejected(f"the body is not UTF-8: {problem.reason} at byte {problem.start}") from None


@contextmanager
def numbers_fit() -> Iterator[None]:
    """Stores keep 64 bits: a larger number can name nothing."""
    try:
        yield
    except OverflowError:
        raise RequestRejected("a number in the request is out of range") from None


def decoded(raw: bytes, kind: type[T], *, lax: bool = False) -> T:
    try:
        return msgspec.json.decode(raw, type=kind, strict=not lax)
    except msgspec.ValidationError as problem:
        raise RequestRejected(f"the body does not match the schema: {problem}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RequestRejected(f"the body is not JSON: {problem}") from None


def answered(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, JSON)


def too_many_values(most: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"the body has more than {most} values (server.max_body_values); send it in parts, or put large data into a file"
    )


def _too_large(most: int, limit: str) -> RequestTooLarge:
    return RequestTooLarge(f"the body has more than {most} bytes ({limit})")
