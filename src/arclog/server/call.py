"""One request, as handlers see it: the caller, the operation, and the body, read within limits.

A body is read within a size and a time, and its memory is counted (`server.max_held_bytes`). An invalid body is refused
with the position of the first error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from arclog.model.data.json_data import ValueCount, values_size
from arclog.model.errors import (
    InvariantBroken,
    NotAllowed,
    RequestRejected,
    RequestTooLarge,
    StoreError,
    StoreUnavailable,
    Unauthenticated,
)
from arclog.model.principal import Principal, role_names
from arclog.operations.operation import Operation
from arclog.server.auth.sessions import check_csrf
from arclog.server.connections import BODY_IS_HERE
from arclog.server.services import Services
from arclog.server.traffic import SLOT, Slot
from arclog.server.workspace import Workspace

log = logging.getLogger("arclog.server")

T = TypeVar("T")

#: Methods that change nothing.
LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})
#: Memory is counted in steps of this size; smaller bodies are not counted.
_COUNTED = 1024 * 1024
#: Bodies of fewer bytes are decoded at once.
_SMALL = 64 * 1024


class Call:
    """A request for an operation."""

    __slots__ = (
        "_headers",
        "_principal",
        "_request",
        "_workspace",
        "operation",
        "path_values",
        "receive",
        "scope",
        "services",
    )

    def __init__(
        self,
        services: Services,
        operation: Operation[Any],
        path_values: Mapping[str, str],
        scope: Scope,
        receive: Receive,
    ) -> None:
        self.services = services
        self.operation = operation
        self.path_values = path_values
        self.scope = scope
        self.receive = receive
        self._headers: dict[str, str] | None = None
        self._request: Request | None = None
        self._principal: Principal | None = None
        self._workspace: Workspace | None = None

    @property
    def method(self) -> str:
        method: str = self.scope["method"]
        return method

    @property
    def path(self) -> str:
        path: str = self.scope["path"]
        return path

    @property
    def scheme(self) -> str:
        scheme: str = self.scope.get("scheme", "http")
        return scheme

    @property
    def headers(self) -> dict[str, str]:
        """Headers by lower-case name; of a header that is sent twice, the first."""
        if self._headers is None:
            self._headers = {
                name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(self.scope["headers"])
            }
        return self._headers

    @property
    def address(self) -> str:
        """The address of the caller."""
        client = self.scope.get("client")
        return "" if client is None else str(client[0])

    @property
    def request(self) -> Request:
        """The same request, for Starlette's helpers."""
        if self._request is None:
            self._request = Request(self.scope, self.receive)
        return self._request

    # -- the caller ----------------------------------------------------------------------------------------------------

    @property
    def principal(self) -> Principal:
        """The caller. Available for operations that are not public, or after `admit`."""
        if self._principal is None:
            raise InvariantBroken(f"{self.operation.name} is public, so its caller was not authenticated")
        return self._principal

    @principal.setter
    def principal(self, principal: Principal) -> None:
        self._principal = principal
        self._workspace = None

    @property
    def known_principal(self) -> Principal | None:
        """The caller, if it is known yet."""
        return self._principal

    @property
    def workspace(self) -> Workspace:
        """Everything that the caller can see and change."""
        if self._workspace is None:
            self._workspace = Workspace(self.services, self.principal)
        return self._workspace

    async def admit(self, roles: frozenset[str]) -> Principal:
        """Authenticate the caller. Raises Unauthenticated, or NotAllowed unless the caller has one of these roles."""
        headers = self.headers
        if "authorization" in headers and sum(name == b"authorization" for name, _ in self.scope["headers"]) > 1:
            raise Unauthenticated("the request has several Authorization headers; send only one")
        try:
            principal = await self.services.authenticate(headers, self.address)
        except StoreError as problem:
            # The caller is not authenticated yet, so the message must not contain the store's address.
            log.warning("callers cannot be authenticated: %s", problem)
            raise StoreUnavailable("the server cannot verify credentials right now; try again in a moment") from None
        self.principal = principal
        slot: Slot | None = self.scope.get(SLOT)
        if slot is not None:
            slot.take(principal)
        if self.method not in LOOKING:
            check_csrf(principal, headers)
        if not principal.may(roles):
            raise NotAllowed(f"{principal.name} is not allowed to do this; the role {role_names(roles)} is required")
        return principal

    # -- the body ------------------------------------------------------------------------------------------------------

    async def raw_body(
        self,
        large: int = 0,
        look: Callable[[bytes], Awaitable[None]] | None = None,
        *,
        count_values: bool = False,
    ) -> bytes:
        """Return the body, within the operation's limit; no more bytes than that are kept in memory. For a body of at
        least `large` bytes, `look` is called with its beginning before the rest is read. With `count_values`, it is
        JSON and has at most `server.max_body_values` values.
        """
        settings, limit = self.services.settings, self.operation.limit
        most = settings.integer(limit)
        length = self.headers.get("content-length", "")
        declared = int(length) if length.isascii() and length.isdigit() else None
        if declared is not None and declared > most:
            raise _too_large(most, limit)
        if declared is not None and declared < _SMALL and look is None and self.scope.get(BODY_IS_HERE):
            message = await self.receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                body: bytes = message.get("body", b"")
                return body
            raise HTTPException(400, "the connection ended within the body")
        values = ValueCount() if count_values and (declared is None or declared >= _SMALL) else None
        most_values = settings.integer("server.max_body_values")
        patience = settings.number("server.body_timeout_s")
        slot: Slot | None = self.scope.get(SLOT)
        chunks: list[bytes] = []
        size = counted = 0
        more = True
        try:
            # No timer is needed if the whole body has arrived.
            async with nullcontext() if self.scope.get(BODY_IS_HERE) else asyncio.timeout(patience):
                while more:
                    message = await self.receive()
                    if message["type"] == "http.disconnect":  # the client is gone; this is not a bug of the server
                        raise HTTPException(400, "the connection ended within the body")
                    chunk: bytes = message.get("body", b"")
                    more = message.get("more_body", False)
                    size += len(chunk)
                    if size > most:
                        raise _too_large(most, limit)
                    if values is not None and values.add(chunk) > most_values:
                        raise too_many_values(most_values)
                    if slot is not None and size - counted >= _COUNTED:
                        slot.hold(size - counted)
                        counted = size
                    chunks.append(chunk)
                    if look is not None and size >= large:
                        await look(b"".join(chunks))
                        look = None
        except TimeoutError:
            raise HTTPException(
                408, f"the body was not received within {patience:g} s (server.body_timeout_s)"
            ) from None
        if counted and slot is not None:
            slot.hold(size)  # joining the pieces needs memory for both
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def body(self, kind: type[T]) -> T:
        """The body as a type; an empty one is `{}`."""
        raw = await self.raw_body(count_values=True) or b"{}"
        return await self.decoded_json(raw, lambda text: msgspec.json.decode(text, type=kind))

    async def decoded_json(self, raw: bytes, decode: Callable[[bytes], T]) -> T:
        """Decode a body. Decoding many values takes as long as many requests, so it runs in the tenant's turns, which
        limit its share of the time. Raises RequestRejected for an invalid body.
        """
        if len(raw) < _SMALL:
            return decoded_by(decode, raw)
        self.hold_decoded(raw)
        principal = self._principal
        tenant = "" if principal is None else principal.tenant
        value: T = await self.services.turns(tenant, lambda: decoded_by(decode, raw))
        return value

    def hold_decoded(self, raw: bytes) -> None:
        """Count the memory of a large body when it is decoded. Raises TooManyRequests or RequestTooLarge."""
        slot: Slot | None = self.scope.get(SLOT)
        if slot is not None and len(raw) >= _COUNTED:
            slot.hold(values_size(raw))

    async def pieces(self) -> AsyncIterator[bytes]:
        """A body of any length, piece by piece; each piece must arrive within `server.body_timeout_s` of the one
        before.
        """
        patience = self.services.settings.number("server.body_timeout_s")
        coming = aiter(self.request.stream())
        while True:
            try:
                async with asyncio.timeout(patience):
                    piece = await anext(coming, None)
            except TimeoutError:
                raise HTTPException(408, f"no data was received for {patience:g} s (server.body_timeout_s)") from None
            except ClientDisconnect:  # the client is gone; this is not a bug of the server
                raise HTTPException(400, "the connection ended within the body") from None
            if piece is None:
                return
            yield piece


@contextmanager
def numbers_fit() -> Iterator[None]:
    """Raise RequestRejected for a number that is too large for 64 bits, as all ids are."""
    try:
        yield
    except OverflowError:
        raise RequestRejected("a number in the request is out of range") from None


def decoded(raw: bytes, kind: type[T]) -> T:
    """A body, or a part of one, as a type. Raises RequestRejected for an invalid one."""
    return decoded_by(lambda text: msgspec.json.decode(text, type=kind), raw)


def decoded_by(decode: Callable[[bytes], T], raw: bytes) -> T:
    """A decoded body. Raises RequestRejected for an invalid one."""
    try:
        return decode(raw)
    except msgspec.ValidationError as problem:
        raise RequestRejected(f"the body does not match the schema: {problem}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RequestRejected(f"the body is not JSON: {problem}") from None


def too_many_values(most: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"the body has more than {most} values (server.max_body_values); send it in parts, or put large data into a file"
    )


def _too_large(most: int, limit: str) -> RequestTooLarge:
    return RequestTooLarge(f"the body has more than {most} bytes ({limit})")
