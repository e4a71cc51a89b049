"""Sends operations to a server: path, query, body and answer come from the operation's row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from arclog.client.connection import Connection
from arclog.model.errors import ServerUnavailable
from arclog.operations.operation import Operation

A = TypeVar("A")
C = TypeVar("C")
T = TypeVar("T")

#: The most rows that a server returns at a time.
PAGE = 1000


def address_of(operation: Operation[Any], params: Struct | None = None) -> tuple[str, dict[str, Any]]:
    """The path and the query of a request. A path parameter is always one segment of the path, whatever it contains;
    default values are left out.
    """
    values: dict[str, Any] = {} if params is None else msgspec.to_builtins(params)
    names = {name: quote(str(values.pop(name)), safe="") for name in operation.path_names}
    query = {name: value for name, value in values.items() if value is not None}
    return operation.path.format(**names), query


class Caller:
    """Sends operations over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def _raw(
        self, operation: Operation[Any], params: Struct | None = None, body: Any = None, *, extra_s: float = 0.0
    ) -> bytes:
        """The body of a success."""
        path, query = address_of(operation, params)
        return await self._connection.ask(
            operation.method,
            path,
            params=query,
            body=body if body is None or isinstance(body, bytes) else msgspec.json.encode(body),
            safe=operation.repeatable,
            extra_s=extra_s or operation.extra_s,
        )

    async def _call(
        self, operation: Operation[A], params: Struct | None = None, body: Any = None, *, extra_s: float = 0.0
    ) -> A:
        """The answer of an operation; None if it has no answer."""
        return decoded(await self._raw(operation, params, body, extra_s=extra_s), operation)


def decoded(body: bytes, operation: Operation[A]) -> A:
    try:
        answer: A = None if operation.answer is None else msgspec.json.decode(body, type=operation.answer)  # type: ignore[assignment]  # A is None then
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ServerUnavailable(
            f"the server's answer cannot be understood ({problem}); is it an arclog server of this version?"
        ) from None
    return answer


async def paged(read: Callable[[C, int], Awaitable[list[T]]], at: C, limit: int, cursor: Callable[[T], C]) -> list[T]:
    """The requested number of rows, by as many requests as necessary."""
    rows: list[T] = []
    while True:
        most = min(limit - len(rows), PAGE)
        page = await read(at, most)
        rows += page
        if len(page) < most or len(rows) >= limit:
            return rows
        at = cursor(page[-1])
