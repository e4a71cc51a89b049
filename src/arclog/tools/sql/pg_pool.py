"""PostgreSQL connections of one worker, kept for the next task.

Law: a connection that is handed out works and remembers nothing of the task before (DISCARD ALL both resets and proves
it); one whose task was cancelled or that broke is never kept. Errors of connecting reach the task that wanted to.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.adapt import AdaptersMap, Buffer, Loader
from psycopg.types.string import TextLoader

from arclog.drivers.postgres.address import AddressError, address_of
from arclog.tools.sql.failures import SqlFailure

#: Moments are told in UTC and durations in ISO 8601, whatever the server's own settings.
_SESSION = "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=iso_8601"
#: Types that Python has no exact value for (infinity, months, years past 9999): their own text is.
_AS_TEXT = ("date", "time", "interval", "inet", "cidr")
_RANGES = ("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange")
_MULTIRANGES = ("int4multirange", "int8multirange", "nummultirange", "datemultirange", "tsmultirange", "tstzmultirange")
_HOURS_ONLY = re.compile(r"[+-]\d\d$")

#: What the server says when it refuses a connection; libpq gives no SQLSTATE there.
_REFUSALS = (
    (re.compile(r"authentication failed|no password supplied|no pg_hba\.conf entry|role .* does not exist"), "auth", "28P01"),
    (re.compile(r"permission denied for database|not permitted to log in"), "auth", "42501"),
    (re.compile(r"database .* does not exist"), "sql", "3D000"),
    (re.compile(r"too many (clients|connections)|remaining connection slots"), "connection", "53300"),
    (re.compile(r"starting up|shutting down|in recovery mode"), "connection", "57P03"),
)  # fmt: skip


class _Moment(Loader):
    """A date and time as ISO 8601."""

    def load(self, data: Buffer) -> str:
        text = bytes(data).decode()
        if text[10:11] == " ":
            text = f"{text[:10]}T{text[11:]}"
            if _HOURS_ONLY.search(text, 19):
                text += ":00"
        return text


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    for name in (*_AS_TEXT, *_RANGES, *_MULTIRANGES, "timetz"):
        adapters.register_loader(name, TextLoader)
    for name in ("timestamp", "timestamptz"):
        adapters.register_loader(name, _Moment)
    return adapters


class Adapting:
    """What psycopg asks of a context."""

    connection = None

    def __init__(self) -> None:
        self.adapters = _adapters()


class Pool:
    """Connections to one database as one user."""

    def __init__(self, conninfo: str, most: int, idle_s: float, adapting: Any) -> None:
        self._conninfo = conninfo
        self._adapting = adapting
        self._idle_s = idle_s
        self._room = asyncio.Semaphore(most)
        #: the one used last is taken first
        self._idle: list[tuple[AsyncConnection[Any], float]] = []
        self._reaping: asyncio.Task[None] | None = None
        self._closed = False

    async def take(self) -> AsyncConnection[Any]:
        await self._room.acquire()
        try:
            while self._idle:
                connection, _ = self._idle.pop()
                try:
                    await connection.execute("DISCARD ALL")
                    return connection
                except psycopg.Error:
                    await connection.close()
                except BaseException:
                    await connection.close()
                    raise
            return await self._connect()
        except BaseException:
            self._room.release()
            raise

    async def give(self, connection: AsyncConnection[Any], *, keep: bool) -> None:
        """Give a connection back."""
        try:
            if keep and self._idle_s and not connection.closed and not self._closed:
                self._idle.append((connection, time.monotonic()))
                if self._reaping is None:
                    self._reaping = asyncio.create_task(self._reap())
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
        while self._idle:
            connection, _ = self._idle.pop()
            await connection.close()

    async def _connect(self) -> AsyncConnection[Any]:
        try:
            return await AsyncConnection.connect(
                self._conninfo,
                autocommit=True,
                prepare_threshold=None,
                context=self._adapting,
                cursor_factory=AsyncRawCursor,
            )
        except psycopg.Error as problem:
            raise refusal_of(problem) from None

    async def _reap(self) -> None:
        """Close what nobody uses, and end when nothing is left."""
        while self._idle:
            await asyncio.sleep(self._idle_s)
            limit = time.monotonic() - self._idle_s
            while self._idle and self._idle[0][1] <= limit:
                connection, _ = self._idle.pop(0)
                await connection.close()
        self._reaping = None


class Pools:
    """The pools of one worker, by where they lead."""

    def __init__(self, most: int, idle_s: float, connect_s: float) -> None:
        self._most = most
        self._idle_s = idle_s
        self._connect_s = connect_s
        self._adapting = Adapting()
        self._pools: dict[tuple[str, str], Pool] = {}

    def to(self, where: dict[str, Any], scope: str) -> Pool:
        """The pool of a connection's description; executions of different scopes never share a connection."""
        conninfo = conninfo_of(where, self._connect_s)
        pool = self._pools.get((conninfo, scope))
        if pool is None:
            pool = self._pools[conninfo, scope] = Pool(conninfo, self._most, self._idle_s, self._adapting)
        return pool

    async def close(self) -> None:
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            await pool.close()


def conninfo_of(where: dict[str, Any], connect_s: float) -> str:
    """What libpq connects with."""
    known = {key: value for key, value in where.items() if value is not None}
    dsn = str(known.pop("dsn", ""))
    known["options"] = f"{_SESSION} {known.get('options', '')}".strip()
    known.setdefault("connect_timeout", max(1, round(connect_s)))
    known.setdefault("application_name", "arclog")
    try:
        return address_of(dsn, **known).conninfo()
    except AddressError as problem:
        raise SqlFailure("config", f"the dsn cannot be read: {problem}; better use auth") from None


def refusal_of(problem: psycopg.Error) -> SqlFailure:
    text = " ".join(str(problem).split())
    for pattern, kind, code in _REFUSALS:
        if pattern.search(text):
            return SqlFailure(kind, text, code)
    if isinstance(problem, psycopg.OperationalError):
        return SqlFailure("connection", text, problem.sqlstate or "08001")
    return SqlFailure("config", f"the connection cannot be made: {text}", problem.sqlstate)
