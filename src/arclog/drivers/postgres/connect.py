"""Opens connections to PostgreSQL, and pools them.

Invariants: every connection of this process is opened here, and no exception contains a secret of the address.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, Connection
from psycopg.abc import AdaptContext

from arclog.drivers.postgres.address import PostgresAddress
from arclog.drivers.postgres.intake import AsyncBoundedConnection, BoundedConnection, bounded, bounded_async
from arclog.drivers.postgres.refusals import state_of

C = TypeVar("C", bound=AsyncConnection[Any])

# ── connect ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def connect(
    address: PostgresAddress,
    defaults: Mapping[str, Any] | None = None,
    *,
    context: AdaptContext | None = None,
    **own: Any,
) -> AsyncConnection[Any]:
    """Return a connection in autocommit mode without prepared statements, since a pooler may send the next statement to
    another server process. `own` keywords take precedence over the address, the address over `defaults`. Raises
    psycopg.Error.
    """
    try:
        return await AsyncConnection.connect(
            address.conninfo(defaults, **own),
            autocommit=True,
            prepare_threshold=None,
            context=context,
        )
    except psycopg.Error as error:
        raise _without_secrets(error, address) from None


async def connect_bounded(
    address: PostgresAddress, limit: int, *, context: AdaptContext | None = None
) -> AsyncBoundedConnection:
    """Return a connection like `connect`, which receives at most `limit` bytes at once. Raises psycopg.Error."""
    try:
        return await bounded_async(limit).connect(
            address.conninfo(), autocommit=True, prepare_threshold=None, context=context, cursor_factory=AsyncRawCursor
        )
    except psycopg.Error as error:
        raise _without_secrets(error, address) from None


def connect_blocking(address: PostgresAddress, limit: int, *, context: AdaptContext | None = None) -> BoundedConnection:
    """Return a blocking connection with transactions, for use in a thread, which receives at most `limit` bytes at
    once. Raises psycopg.Error.
    """
    try:
        return bounded(limit).connect(address.conninfo(), prepare_threshold=None, context=context)
    except psycopg.Error as error:
        raise _without_secrets(error, address) from None


def keepalives(seconds: float) -> dict[str, int]:
    """Return libpq keywords that end a connection whose peer acknowledges nothing for `seconds`."""
    interval = max(1, round(seconds / 6))
    return {
        "keepalives_idle": 3 * interval,
        "keepalives_interval": interval,
        "keepalives_count": 3,
        "tcp_user_timeout": max(1, round(1000 * seconds)),
    }


def timeout_of(seconds: float) -> int:
    """Return the value of libpq's `connect_timeout`: whole seconds, at least two."""
    return max(2, round(seconds))


@contextmanager
def answering(connection: AsyncConnection[Any], seconds: float) -> Iterator[None]:
    """Give up a connection that does not respond within `seconds`, for example after a network failure. Its socket is
    shut down, because a cancellation would also wait for the server.
    """
    late = False

    def give_up() -> None:
        nonlocal late
        late = True
        shut_down(connection)

    timer = asyncio.get_running_loop().call_later(seconds, give_up)
    try:
        yield
    except psycopg.Error as error:
        if late:
            raise psycopg.OperationalError(f"no answer within {seconds:g} s") from error
        raise
    finally:
        timer.cancel()


def shut_down(connection: AsyncConnection[Any] | Connection[Any]) -> None:
    """Shut down the socket of a connection in use. Closing the connection would be unsafe for libpq."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.pgconn.socket)) as shared:
        shared.shutdown(socket.SHUT_RDWR)


def _without_secrets(error: psycopg.Error, address: PostgresAddress) -> psycopg.Error:
    """Return the error, or one of the same type with the secrets masked."""
    from arclog.model.data.redact import Redactor

    redactor = Redactor.of(address.secrets())
    shown = str(error) if redactor is None else redactor.text(str(error))
    if shown == str(error):
        return error.with_traceback(None)
    masked = type(error)(shown)
    masked.sqlstate = state_of(error) or None  # the mask may cover the text from which the state is read
    return masked


# ── pool ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
#
# Invariants: a connection error is raised at once, with its reason, to the caller that needed the connection.
# (psycopg_pool connects in the background and raises a time-out instead: ADR 069.) A connection that broke, or whose
# user was cancelled, is never kept.


class Pool(Generic[C]):
    """A pool of connections to one database as one user."""

    def __init__(
        self, connect: Callable[[], Awaitable[C]], most: int, *, idle_s: float | None = None, reset: str = ""
    ) -> None:  # fmt: skip
        """`idle_s`: how long an unused connection is kept; None means without limit. `reset`: a statement that runs
        before a connection is used again. If it fails, the connection is closed.
        """
        self._connect = connect
        self._idle_s = idle_s
        self._reset = reset
        self._room = asyncio.Semaphore(most)
        #: connections and the times of their return; the most recently used one is last and is taken first
        self._idle: list[tuple[C, float]] = []
        self._reaping: asyncio.Task[None] | None = None
        self._closed = False

    async def take(self) -> C:
        """Take a connection from the pool, or open one. Waits while all are in use. Return it with `give`."""
        await self._room.acquire()
        try:
            while self._idle:
                connection, _ = self._idle.pop()
                if await self._is_reset(connection):
                    return connection
            return await self._connect()
        except BaseException:
            self._room.release()
            raise

    async def give(self, connection: C, *, keep: bool) -> None:
        """Return a connection. `keep` means that it has no leftover state and others may use it."""
        try:
            if connection.closed:
                await self._close_idle()  # other idle connections may be broken as well
            elif keep and self._idle_s != 0 and not self._closed:
                self._idle.append((connection, time.monotonic()))
                if self._idle_s is not None and self._reaping is None:
                    self._reaping = asyncio.create_task(self._reap(self._idle_s))
            else:
                await connection.close()
        finally:
            self._room.release()

    async def close(self) -> None:
        self._closed = True
        if self._reaping is not None:
            self._reaping.cancel()
            await asyncio.gather(self._reaping, return_exceptions=True)
            self._reaping = None
        await self._close_idle()

    async def _close_idle(self) -> None:
        while self._idle:
            connection, _ = self._idle.pop()
            await connection.close()

    async def _is_reset(self, connection: AsyncConnection[Any]) -> bool:
        if not self._reset:
            return True
        try:
            await connection.execute(self._reset.encode())
        except psycopg.Error:
            await connection.close()
            return False
        except BaseException:
            await connection.close()
            raise
        return True

    async def _reap(self, idle_s: float) -> None:
        """Close connections that were idle for `idle_s`. Ends when none is left."""
        while self._idle:
            await asyncio.sleep(idle_s)
            limit = time.monotonic() - idle_s
            while self._idle and self._idle[0][1] <= limit:
                connection, _ = self._idle.pop(0)
                await connection.close()
        self._reaping = None
