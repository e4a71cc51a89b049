"""Runs the statements of an attempt on a PostgreSQL connection, and pools a worker's connections."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import AsyncRawCursor
from psycopg.adapt import AdaptersMap, Buffer, Loader
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.types.json import Jsonb
from psycopg.types.string import TextLoader

from arclog.drivers.postgres.address import PostgresAddress
from arclog.drivers.postgres.connect import Pool, connect_bounded
from arclog.drivers.postgres.intake import AsyncBoundedConnection, TooMuchReceived
from arclog.drivers.postgres.refusals import refusal_of, state_of, text_of
from arclog.tools.sql.failures import SqlFailure, explained
from arclog.tools.sql.postgres_rows import Rows
from arclog.tools.sql.postgres_servers import LIMIT, PostgresServers
from arclog.tools.sql.run import BATCH, Answer, Bound
from arclog.tools.sql.values import checked, is_flat

# ── pools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The pooled PostgreSQL connections of one worker, and the conversion of their values to JSON.
#
# Invariant: a connection from the pool works and has no state of an earlier task: DISCARD ALL resets it and proves that
# it works.

#: Types with values that Python cannot represent (infinity, months, years after 9999). They are read as text.
_AS_TEXT = ("date", "time", "interval", "inet", "cidr")
_RANGES = ("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange")
_MULTIRANGES = ("int4multirange", "int8multirange", "nummultirange", "datemultirange", "tsmultirange", "tstzmultirange")
_HOURS_ONLY = re.compile(r"[+-]\d\d$")


class _Moment(Loader):
    """Loads a date and time as ISO 8601."""

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
    """The adaptation context for psycopg."""

    connection = None

    def __init__(self) -> None:
        self.adapters = _adapters()


class Pools:
    """The pools of one worker, by address and scope."""

    def __init__(self, most: int, idle_s: float, servers: PostgresServers) -> None:
        self._most = most
        self._idle_s = idle_s
        self._servers = servers
        self._adapting = Adapting()
        self._pools: dict[tuple[str, str], Pool[AsyncBoundedConnection]] = {}

    def to(self, where: dict[str, Any], scope: str) -> Pool[AsyncBoundedConnection]:
        """Return the pool for a server. Executions of different scopes never share a connection."""
        address = self._servers.address(where)
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

    async def _connected(self, address: PostgresAddress) -> AsyncBoundedConnection:
        resolved = await self._servers.resolved(address)
        try:
            return await connect_bounded(resolved, self._servers.max_row_bytes, context=self._adapting)
        except psycopg.Error as problem:
            raise not_connected(problem) from None


def not_connected(problem: psycopg.Error) -> SqlFailure:
    """Return the error for a failed connection."""
    if isinstance(problem, TooMuchReceived):
        return too_much(problem)
    text = text_of(problem)
    if state := state_of(problem):
        return SqlFailure(refusal_of(problem).kind, text, state)
    if isinstance(problem, psycopg.OperationalError):
        return SqlFailure("connection", text, "08001")
    return SqlFailure("config", f"the connection failed: {text}")


def too_much(problem: TooMuchReceived) -> SqlFailure:
    """Return the error for a server that sent more than the limit."""
    message = (
        f"{text_of(problem)} ({LIMIT}); select fewer or shorter columns, read large values in parts (substr), raise "
        f"fewer notices, or let the operator raise {LIMIT}"
    )
    return SqlFailure("limit", message, "max_row_bytes")


# ── session ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# The use of a PostgreSQL connection by one attempt.
#
# Invariants: rows arrive in chunks as they are fetched, also those of RETURNING. A cancelled statement is cancelled on
# the server. If the connection is lost at COMMIT, the error says that the result is unknown.


class PgSession:
    """Runs statements on a connection that the caller opens and closes."""

    def __init__(self, connection: AsyncBoundedConnection) -> None:
        self._connection = connection
        #: the last statement while it has more rows
        self._rows: Rows | None = None
        self._first: list[tuple[Any, ...]] = []
        self._small = True
        #: the connection has no leftover state and may be used again
        self.clean = True

    async def begin(self, statements: Sequence[Bound]) -> None:  # noqa: ARG002 - the same for all
        self.clean = False
        await self._plainly("BEGIN")

    async def execute(self, statement: Bound) -> Answer:
        await self._drain()
        params = [
            _bound(value, number, json=number in statement.json)
            for number, value in enumerate(statement.params, start=1)
        ]
        self.clean = False
        try:
            return await self._execute(statement.sql, params)
        except psycopg.Error as problem:
            raise failure_of(problem, len(params)) from None

    async def fetch(self) -> Sequence[Sequence[Any]]:
        batch, self._first = self._first, []
        if batch or self._rows is None:
            return batch
        try:
            return await self._next_batch(self._rows)
        except psycopg.Error as problem:
            raise failure_of(problem, 0) from None

    async def commit(self) -> None:
        try:
            await self._plainly("COMMIT")
        except SqlFailure as failure:
            if not self._connection.closed:
                raise
            message = f"the connection was lost during COMMIT, so it is unknown whether the transaction was committed: {failure}"
            raise SqlFailure(failure.problem.kind, message, failure.problem.code) from None
        self.clean = self._small

    async def rollback(self) -> None:
        """Roll back. If that fails, the connection is not used again, and the server rolls back when it is closed.

        The same applies while rows are still arriving: cancelling them could affect the next statement on the
        connection.
        """
        self.clean = False
        if self._rows is None:
            try:
                await self._plainly("ROLLBACK")
                self.clean = self._small
            except SqlFailure:
                self.clean = False

    async def _execute(self, sql: str, params: list[Any]) -> Answer:
        connection = self._connection
        cursor = AsyncRawCursor(connection)
        rows = self._rows = Rows(cursor, connection.intake)
        await connection.wait(rows.execute(sql, params))
        self._first = await self._next_batch(rows)
        if self._first:
            return Answer([column.name for column in cursor.description or ()], 0)
        ended = rows.ended
        if ended is None or ended.status == ExecStatus.COMMAND_OK:
            return Answer(None, 0 if ended is None else ended.command_tuples or 0)
        return Answer([(ended.fname(at) or b"").decode() for at in range(ended.nfields)], 0)

    async def _next_batch(self, rows: Rows) -> list[tuple[Any, ...]]:
        """Return the next rows; empty at the end."""
        self._rows = None
        batch = await self._connection.wait(rows.batch(BATCH))
        self._small = self._small and rows.small
        if rows.ended is None and batch:
            self._rows = rows
        else:
            self._settle()
        return batch

    def _settle(self) -> None:
        self.clean = self._connection.pgconn.transaction_status == TransactionStatus.IDLE and self._small

    async def _plainly(self, sql: str) -> None:
        try:
            await self._connection.execute(sql)
        except psycopg.Error as problem:
            raise failure_of(problem, 0) from None

    async def _drain(self) -> None:
        """Let a statement finish and discard its rows; stopping early would cancel the statement."""
        while await self.fetch():
            pass


def _bound(value: Any, number: int, *, json: bool) -> Any:
    checked(value, f"value {number}", nul=False)
    if json and isinstance(value, str):
        return value  # it is JSON already, or the cast reports the error
    if (json and value is not None) or isinstance(value, dict) or (isinstance(value, list) and not is_flat(value)):
        return Jsonb(value)
    if isinstance(value, list) and any(isinstance(item, float) for item in value):
        return [None if item is None else float(item) for item in value]  # an array has one type
    return value


def failure_of(problem: psycopg.Error, params: int) -> SqlFailure:
    if isinstance(problem, TooMuchReceived):
        return too_much(problem)
    state = problem.sqlstate
    diag = problem.diag
    text = diag.message_primary or text_of(problem)
    for more in (diag.message_detail, diag.message_hint):
        if more:
            text += f" ({more})"
    if state is not None:
        outside = state == "25001"
        kind = refusal_of(problem).kind
        if is_catalog_conflict(problem):
            kind = "serialization"
            text += "; another transaction created the same object at the same time"
        return SqlFailure(kind, explained(text, syntax=state == "42601", outside=outside, params=params), state)
    if isinstance(problem, (psycopg.OperationalError, psycopg.InterfaceError)):
        return SqlFailure("connection", text, "08006")
    return SqlFailure("sql", text)


def is_catalog_conflict(problem: psycopg.Error) -> bool:
    """Return whether two transactions created a table, type or schema of the same name at once."""
    return problem.sqlstate == "23505" and problem.diag.schema_name == "pg_catalog"
