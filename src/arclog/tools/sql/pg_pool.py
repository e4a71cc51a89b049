"""PostgreSQL connections of one worker, kept for the next task, and how their values become JSON.

Law: a connection that is handed out works and remembers nothing of the task before: DISCARD ALL both resets and proves it.
"""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.adapt import AdaptersMap, Buffer, Loader
from psycopg.types.string import TextLoader

from arclog.drivers.postgres.address import AddressError, PostgresAddress, address_of
from arclog.drivers.postgres.connect import connect, timeout_of
from arclog.drivers.postgres.pool import Pool
from arclog.drivers.postgres.refusals import refusal_of, state_of, text_of
from arclog.tools.sql.failures import SqlFailure

#: Moments are told in UTC and durations in ISO 8601, whatever the server's own settings.
_SESSION = "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=iso_8601"
#: Types that Python has no exact value for (infinity, months, years past 9999): their own text is.
_AS_TEXT = ("date", "time", "interval", "inet", "cidr")
_RANGES = ("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange")
_MULTIRANGES = ("int4multirange", "int8multirange", "nummultirange", "datemultirange", "tsmultirange", "tstzmultirange")
_HOURS_ONLY = re.compile(r"[+-]\d\d$")


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
        address = address_for(where, self._connect_s)
        key = address.conninfo(), scope
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(
                lambda: self._connected(address), self._most, idle_s=self._idle_s, reset="DISCARD ALL"
            )
        return pool

    async def close(self) -> None:
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            await pool.close()

    async def _connected(self, address: PostgresAddress) -> AsyncConnection[Any]:
        try:
            return await connect(address, context=self._adapting, cursors=AsyncRawCursor)
        except psycopg.Error as problem:
            raise not_connected(problem) from None


def address_for(where: dict[str, Any], connect_s: float) -> PostgresAddress:
    """The address of a connection's description, with what every session of a task has."""
    known = {key: value for key, value in where.items() if value is not None}
    try:
        parts = address_of(str(known.pop("dsn", "")), **known).parts
    except AddressError as problem:
        raise SqlFailure("config", f"the dsn cannot be read: {problem}; better use auth") from None
    defaults = {"connect_timeout": str(timeout_of(connect_s)), "application_name": "arclog"}
    return PostgresAddress({**defaults, **parts, "options": f"{_SESSION} {parts.get('options', '')}".strip()})


def not_connected(problem: psycopg.Error) -> SqlFailure:
    """Why there is no connection."""
    text = text_of(problem)
    if state := state_of(problem):
        return SqlFailure(refusal_of(problem).kind, text, state)
    if isinstance(problem, psycopg.OperationalError):
        return SqlFailure("connection", text, "08001")
    return SqlFailure("config", f"the connection cannot be made: {text}")
