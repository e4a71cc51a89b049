"""Opens connections to PostgreSQL.

Law: every connection of this process is made here, and no error that leaves holds a secret of the address.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.abc import AdaptContext

from arclog.drivers.postgres.address import PostgresAddress
from arclog.drivers.postgres.refusals import state_of


async def connect(
    address: PostgresAddress,
    defaults: Mapping[str, Any] | None = None,
    *,
    context: AdaptContext | None = None,
    cursors: Any = None,
    **own: Any,
) -> AsyncConnection[Any]:
    """A connection that commits each statement and prepares none: behind a pooler, the next one may go to another server
    process. `own` keywords go before the address, the address before `defaults`. Raises psycopg.Error.
    """
    try:
        return await AsyncConnection.connect(
            address.conninfo(defaults, **own),
            autocommit=True,
            prepare_threshold=None,
            context=context,
            cursor_factory=cursors,
        )
    except psycopg.Error as error:
        raise _without_secrets(error, address) from None


def connect_blocking(address: PostgresAddress, *, context: AdaptContext | None = None) -> Connection[Any]:
    """A connection with transactions, for a thread of its own. Raises psycopg.Error."""
    try:
        return Connection.connect(address.conninfo(), prepare_threshold=None, context=context)
    except psycopg.Error as error:
        raise _without_secrets(error, address) from None


def keepalives(seconds: float) -> dict[str, int]:
    """Keywords for a connection that counts as dead when its other end acknowledges nothing for so long."""
    interval = max(1, round(seconds / 6))
    return {
        "keepalives_idle": 3 * interval,
        "keepalives_interval": interval,
        "keepalives_count": 3,
        "tcp_user_timeout": max(1, round(1000 * seconds)),
    }


def timeout_of(seconds: float) -> int:
    """Libpq's `connect_timeout`: whole seconds, two at least."""
    return max(2, round(seconds))


@contextmanager
def answering(connection: AsyncConnection[Any], seconds: float) -> Iterator[None]:
    """Give a connection up that does not answer in time, as one whose network was cut after it was made. Its socket is shut
    down: a cancellation would wait for the server as well.
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
    """End a connection under whoever waits for it; closing it would pull it from under libpq."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.pgconn.socket)) as shared:
        shared.shutdown(socket.SHUT_RDWR)


def _without_secrets(error: psycopg.Error, address: PostgresAddress) -> psycopg.Error:
    """The error itself, or one of its kind in whose text the secrets of the address are masked."""
    from arclog.model.data.redact import Redactor

    redactor = Redactor.of(address.secrets())
    shown = str(error) if redactor is None else redactor.text(str(error))
    if shown == str(error):
        return error.with_traceback(None)
    masked = type(error)(shown)
    masked.sqlstate = state_of(error) or None  # a mask may stand in the text that it is read from
    return masked
