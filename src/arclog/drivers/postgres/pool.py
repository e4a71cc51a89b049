"""Connections that are kept for the next user.

Law: an error of connecting reaches the caller that needed the connection, at once and with its reason. (psycopg_pool
connects in the background and answers with a time-out in its place: ADR 069.) A connection that broke, or whose user was
cancelled, is never kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from psycopg import AsyncConnection


class Pool:
    """Connections to one database as one user."""

    def __init__(
        self, connect: Callable[[], Awaitable[AsyncConnection[Any]]], most: int, *, idle_s: float | None = None, reset: str = ""
    ) -> None:  # fmt: skip
        """`idle_s`: how long an unused connection is kept, for ever without it. `reset`: a statement that a kept connection
        runs before it is used again; one that cannot is closed.
        """
        self._connect = connect
        self._idle_s = idle_s
        self._reset = reset
        self._room = asyncio.Semaphore(most)
        #: with the time of their return; the one used last is taken first
        self._idle: list[tuple[AsyncConnection[Any], float]] = []
        self._reaping: asyncio.Task[None] | None = None
        self._closed = False

    async def take(self) -> AsyncConnection[Any]:
        """A connection for one user, which gives it back. Waits while all are in use."""
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

    async def give(self, connection: AsyncConnection[Any], *, keep: bool) -> None:
        """Give a connection back; `keep`: nothing is left over on it, so that another may use it."""
        try:
            if connection.closed:
                await self._close_idle()  # those that have been idle since may be broken as well
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
        """Close connections that nobody uses, and end when none is left."""
        while self._idle:
            await asyncio.sleep(idle_s)
            limit = time.monotonic() - idle_s
            while self._idle and self._idle[0][1] <= limit:
                connection, _ = self._idle.pop(0)
                await connection.close()
        self._reaping = None
