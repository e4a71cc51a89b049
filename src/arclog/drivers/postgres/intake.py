"""Bounds what a PostgreSQL connection receives from a server that is not trusted.

libpq has no limit: it allocates as much memory as the length of a message says, and within one call it reads as long as
data arrive. So each step of psycopg that reads gets only a portion of the data: it is looked at, copied to a pair of
sockets that takes the place of the connection during the step, and removed from the connection as far as libpq took it.
This works for every kind of socket, and below TLS.

Invariant: without a row or the end of a statement, libpq takes at most the limit and one portion.
"""

from __future__ import annotations

import os
import select
import socket
import weakref
from collections.abc import Generator
from functools import cache
from typing import Any, Self, TypeVar

import psycopg
from psycopg import AsyncConnection, Connection, Notify
from psycopg.abc import PQGen, PQGenConn
from psycopg.waiting import Ready, Wait

T = TypeVar("T")
#: Size of the first portion, which is that of libpq's buffer, and of the largest one, which fits into a pair of sockets.
_FIRST, _LARGEST = 16 * 1024, 128 * 1024
#: Number of portions that are read before others may run.
_AT_ONCE = 8


class TooMuchReceived(psycopg.OperationalError):
    """The server sent more than the limit. The connection is closed."""


class Intake:
    """Counts and bounds what one connection receives. Used by one thread at a time."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        #: number of bytes received in all
        self.received = 0
        #: number of bytes received since the last row, or since the current wait began
        self.pending = 0
        self._portion = _FIRST
        #: whether there are probably more data to read
        self._more = False
        self._pair = _Pair()
        #: another descriptor of the connection once it is open
        self._connection: socket.socket | None = None
        #: what libpq wrote during reading steps and the connection has not accepted yet
        self._unsent = b""

    def connected(self, fileno: int) -> None:
        """Bound an open connection. Call `close` when it is closed."""
        self._connection = _shared(fileno)

    def close(self) -> None:
        """Give up the descriptors, so that the connection can close."""
        self._pair.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        self.close()

    def connecting(self, steps: PQGenConn[T]) -> PQGenConn[T]:
        """Bound the steps that open a connection. Raises TooMuchReceived."""
        try:
            fileno, wait = next(steps)
            while True:
                ready = yield fileno, wait
                fileno, wait = self._step(steps, fileno, ready)
                if self._unsent:
                    raise psycopg.OperationalError("the server does not read what it is sent")
        except StopIteration as end:
            connection: T = end.value
            return connection

    def running(self, steps: PQGen[T], fileno: int) -> PQGen[T]:
        """Bound the steps of an open connection. Raises TooMuchReceived."""
        self.pending = 0
        try:
            wait = next(steps)
            while True:
                ready = (yield Wait.RW if self._unsent else wait) or 0
                if self._unsent:
                    self._send(fileno)
                    if self._unsent and not ready & Ready.R:
                        continue  # libpq must not write now
                if not ready or ready & wait:
                    wait = self._step(steps, fileno, ready)
                for _ in range(_AT_ONCE):
                    if not self._more or wait != Wait.R or self._unsent:
                        break
                    wait = self._step(steps, fileno, Ready.R)
        except StopIteration as end:
            while self._unsent:
                yield Wait.W
                self._send(fileno)
            result: T = end.value
            return result

    def _step(self, steps: Generator[Any, int, Any], fileno: int, ready: int) -> Any:
        """Take a step; if there are data to read, with a portion of them."""
        if not ready or not ready & Ready.R:
            return steps.send(ready)
        connection = self._connection or _shared(fileno)
        try:
            return self._read_step(steps, fileno, connection, ready)
        finally:
            if connection is not self._connection:
                connection.close()

    def _read_step(self, steps: Generator[Any, int, Any], fileno: int, connection: socket.socket, ready: int) -> Any:
        try:
            portion = connection.recv(self._portion, socket.MSG_PEEK)
        except OSError:
            portion = b""
        self._more = len(portion) == self._portion
        if not portion:  # no data, or an end or an error, which libpq reports
            return steps.send(Ready.R if self._unsent else ready)
        if self.pending > self.limit:
            raise TooMuchReceived(f"the server sent more than {self.limit} bytes at once")
        pair = self._pair
        size = os.write(pair.feed, portion)
        os.dup2(pair.fed, fileno, False)
        try:
            return steps.send(Ready.R)
        finally:
            left, written = pair.emptied()
            if pair.is_at(fileno):  # else libpq has closed the connection, and may have opened another one
                os.dup2(connection.fileno(), fileno, False)
                self._account(connection, size - left, size)
                if written:
                    self._unsent += written
                    self._send(fileno)

    def _account(self, connection: socket.socket, taken: int, size: int) -> None:
        """Remove what libpq took of a portion from the connection."""
        self.received += taken
        self.pending += taken
        self._portion = min(2 * self._portion, _LARGEST) if taken == size else max(_FIRST, taken)
        while taken and (removed := len(connection.recv(taken))):
            taken -= removed

    def _send(self, fileno: int) -> None:
        with _shared(fileno) as connection:
            try:
                sent = connection.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:  # the connection is lost, which libpq notices
                sent = len(self._unsent)
            self._unsent = self._unsent[sent:]


class _Pair:
    """Two connected sockets: what is written to `feed` is read from `fed`, which libpq gets."""

    def __init__(self) -> None:
        ends = socket.socketpair()
        for end in ends:
            end.setblocking(False)
        self.feed, self.fed = (end.detach() for end in ends)
        self._inode = os.fstat(self.fed).st_ino
        self._poll = select.poll()
        self._poll.register(self.feed, select.POLLIN)
        self._poll.register(self.fed, select.POLLIN)
        self._finalizer = weakref.finalize(self, _close, self.feed, self.fed)

    def close(self) -> None:
        self._finalizer()
        self.feed = self.fed = -1

    def is_at(self, fileno: int) -> bool:
        """Return whether a descriptor is that of `fed`."""
        try:
            return os.fstat(fileno).st_ino == self._inode
        except OSError:  # it is closed
            return False

    def emptied(self) -> tuple[int, bytes]:
        """Remove what libpq has not read, and return its size and what libpq wrote."""
        left, written = 0, b""
        for descriptor, _ in self._poll.poll(0):
            found = os.read(descriptor, 2 * _LARGEST)
            if descriptor == self.fed:
                left = len(found)
            else:
                written = found
        return left, written


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _shared(fileno: int) -> socket.socket:
    """Return another descriptor of a connected socket. The family does not matter for sending and receiving."""
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=os.dup(fileno))


# ── connections ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _ignore(_notification: Notify) -> None:
    """Drop a notification. Without a handler, psycopg keeps all."""


class BoundedConnection(Connection[Any]):
    """A blocking connection that receives a bounded amount at once."""

    limit: int
    intake: Intake

    @classmethod
    def _connect_gen(cls, conninfo: str = "") -> PQGenConn[Self]:
        intake = Intake(cls.limit)
        connection = yield from intake.connecting(super()._connect_gen(conninfo))
        connection.intake = intake
        intake.connected(connection.pgconn.socket)
        connection.add_notify_handler(_ignore)
        return connection

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        try:
            return super().wait(self.intake.running(gen, self.pgconn.socket), *args, **options)
        except TooMuchReceived:
            self.close()
            raise

    def close(self) -> None:
        super().close()
        self.intake.close()


class AsyncBoundedConnection(AsyncConnection[Any]):
    """An asynchronous connection that receives a bounded amount at once."""

    limit: int
    intake: Intake

    @classmethod
    def _connect_gen(cls, conninfo: str = "") -> PQGenConn[Self]:
        intake = Intake(cls.limit)
        connection = yield from intake.connecting(super()._connect_gen(conninfo))
        connection.intake = intake
        intake.connected(connection.pgconn.socket)
        connection.add_notify_handler(_ignore)
        return connection

    async def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        try:
            return await super().wait(self.intake.running(gen, self.pgconn.socket), *args, **options)
        except TooMuchReceived:
            await self.close()
            raise

    async def close(self) -> None:
        await super().close()
        self.intake.close()


@cache
def bounded(limit: int) -> type[BoundedConnection]:
    """Return the class of blocking connections with a limit."""
    return type("BoundedConnection", (BoundedConnection,), {"limit": limit})


@cache
def bounded_async(limit: int) -> type[AsyncBoundedConnection]:
    """Return the class of asynchronous connections with a limit."""
    return type("AsyncBoundedConnection", (AsyncBoundedConnection,), {"limit": limit})
