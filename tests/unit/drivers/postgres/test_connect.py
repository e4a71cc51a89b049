"""Connections are kept for the next user, unless they broke or were left in the middle of something."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from arclog.drivers.postgres.connect import Pool


class _Connection:
    def __init__(self, number: int) -> None:
        self.number = number
        self.closed = False
        self.broken = False
        self.statements: list[bytes] = []

    async def execute(self, statement: bytes) -> None:
        if self.broken:
            self.closed = True
            raise psycopg.OperationalError("lost")
        self.statements.append(statement)

    async def close(self) -> None:
        self.closed = True


class _Server:
    """Gives connections, and counts them."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.refuses: psycopg.Error | None = None

    async def connect(self) -> Any:
        if self.refuses is not None:
            raise self.refuses
        self.made.append(_Connection(len(self.made)))
        return self.made[-1]


@pytest.fixture
def server() -> _Server:
    return _Server()


async def test_a_connection_that_was_given_back_is_used_again(server: _Server) -> None:
    pool = Pool(server.connect, 3, reset="DISCARD ALL")
    first = await pool.take()
    await pool.give(first, keep=True)
    assert await pool.take() is first
    assert server.made[0].statements == [b"DISCARD ALL"]
    await pool.give(first, keep=False)
    assert first.closed
    assert await pool.take() is not first
    await pool.close()


async def test_a_kept_connection_that_cannot_be_reset_is_replaced(server: _Server) -> None:
    pool = Pool(server.connect, 1, reset="DISCARD ALL")
    await pool.give(await pool.take(), keep=True)
    server.made[0].broken = True
    second = await pool.take()
    assert server.made[0].closed
    assert second is server.made[1]


async def test_one_that_broke_takes_the_idle_ones_with_it(server: _Server) -> None:
    pool = Pool(server.connect, 3)
    connections = [await pool.take() for _ in range(3)]
    for connection in connections[:2]:
        await pool.give(connection, keep=True)
    server.made[2].closed = True
    await pool.give(connections[2], keep=True)
    assert all(connection.closed for connection in server.made)
    await pool.take()
    assert len(server.made) == 4


async def test_there_are_no_more_than_allowed(server: _Server) -> None:
    pool = Pool(server.connect, 1)
    first = await pool.take()
    waiting = asyncio.ensure_future(pool.take())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    await pool.give(first, keep=True)
    assert await waiting is first
    assert len(server.made) == 1


async def test_who_needs_a_connection_gets_the_reason_why_there_is_none(server: _Server) -> None:
    pool = Pool(server.connect, 1)
    server.refuses = psycopg.OperationalError("FATAL: password authentication failed")
    for _ in range(3):  # a place that was not used is free again
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            await pool.take()
    server.refuses = None
    assert await pool.take() is server.made[0]


async def test_unused_connections_are_closed_after_a_while(server: _Server) -> None:
    pool = Pool(server.connect, 2, idle_s=0.01)
    await pool.give(await pool.take(), keep=True)
    async with asyncio.timeout(30):
        while not server.made[0].closed:  # noqa: ASYNC110 - the pool tells nobody
            await asyncio.sleep(0.005)
    await pool.close()


async def test_without_time_to_be_idle_none_is_kept(server: _Server) -> None:
    pool = Pool(server.connect, 2, idle_s=0)
    await pool.give(await pool.take(), keep=True)
    assert server.made[0].closed


async def test_a_pool_that_is_closed_keeps_none(server: _Server) -> None:
    pool = Pool(server.connect, 2, idle_s=60.0)
    first, second = await pool.take(), await pool.take()
    await pool.give(first, keep=True)
    await pool.close()
    await pool.give(second, keep=True)
    assert first.closed
    assert second.closed
