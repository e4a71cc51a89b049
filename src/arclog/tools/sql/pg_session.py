"""One attempt's use of a PostgreSQL connection.

Law: rows arrive in chunks as they are asked for, also those of RETURNING; a cancelled statement is cancelled on the
server; a connection lost at COMMIT says that nobody knows whether it took place.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.abc import PQGen
from psycopg.generators import fetch
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.types.json import Jsonb

from arclog.drivers.postgres.refusals import refusal_of, text_of
from arclog.tools.sql.failures import SqlFailure, explained
from arclog.tools.sql.rows import BATCH
from arclog.tools.sql.run import Answer, Bound
from arclog.tools.sql.values import checked, is_flat

_TUPLES = (ExecStatus.SINGLE_TUPLE, ExecStatus.TUPLES_CHUNK)
_ENDED = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class _Cursor(AsyncRawCursor[tuple[Any, ...]]):
    """psycopg's `stream`, for statements of every sort: one without rows ends at once, and its end is kept."""

    ended: PGresult | None = None

    def _stream_fetchone_gen(self, first: bool) -> PQGen[PGresult | None]:
        result: PGresult | None = yield from fetch(self._pgconn)
        if result is None:
            return None
        if result.status in _ENDED:
            self.ended = result
            while (yield from fetch(self._pgconn)) is not None:
                pass
            return None
        if result.status not in _TUPLES:
            return self._raise_for_result(result)
        self.pgresult = result
        self._tx.set_pgresult(result, set_loaders=first)
        if first:
            self._make_row = self._make_row_maker()
        return result


class PgSession:
    """Runs statements on a connection that somebody else opened and will close."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection
        self._rows: AsyncGenerator[tuple[Any, ...], None] | None = None
        self._first: list[tuple[Any, ...]] = []
        #: nothing is left over on the connection: it may be used again
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
        rows, self._first = self._first, []
        if self._rows is None:
            return rows
        try:
            async for row in self._rows:
                rows.append(row)
                if len(rows) >= BATCH:
                    return rows
        except psycopg.Error as problem:
            self._rows = None
            raise failure_of(problem, 0) from None
        self._rows = None
        self._settle()
        return rows

    async def commit(self) -> None:
        try:
            await self._plainly("COMMIT")
        except SqlFailure as failure:
            if failure.problem.kind != "connection":
                raise
            message = f"the connection was lost at COMMIT, and whether it took place is not known: {failure}"
            raise SqlFailure("connection", message, failure.problem.code) from None
        self.clean = True

    async def rollback(self) -> None:
        """Undo. Where that is not available, the connection is not used again, and the server undoes all when it is closed.

        So with rows still on their way: to cancel them could hit whatever runs there next.
        """
        self.clean = False
        if self._rows is None:
            try:
                await self._plainly("ROLLBACK")
                self.clean = True
            except SqlFailure:
                self.clean = False

    async def end(self) -> None:
        """Leave what was not read to its end; the connection is closed by now."""
        if self._rows is not None:
            await self._rows.aclose()
            self._rows = None

    async def _execute(self, sql: str, params: list[Any]) -> Answer:
        cursor = _Cursor(self._connection)
        rows: Any = cursor.stream(sql, params, size=BATCH)  # an async generator, which its type does not tell
        first = await anext(rows, None)
        if first is not None:
            self._first, self._rows = [first], rows
            return Answer([column.name for column in cursor.description or ()], 0)
        self._settle()
        ended = cursor.ended
        if ended is None or ended.status == ExecStatus.COMMAND_OK:
            return Answer(None, 0 if ended is None else ended.command_tuples or 0)
        return Answer([(ended.fname(at) or b"").decode() for at in range(ended.nfields)], 0)

    def _settle(self) -> None:
        self.clean = self._connection.pgconn.transaction_status == TransactionStatus.IDLE

    async def _plainly(self, sql: str) -> None:
        try:
            await self._connection.execute(sql)
        except psycopg.Error as problem:
            raise failure_of(problem, 0) from None

    async def _drain(self) -> None:
        """Let a statement run to its end, and leave its rows: to break it off would cancel what it does."""
        while await self.fetch():
            pass


def _bound(value: Any, number: int, *, json: bool) -> Any:
    checked(value, f"value {number}", nul=False)
    if json and isinstance(value, str):
        return value  # it is JSON already, or the cast says what is wrong with it
    if (json and value is not None) or isinstance(value, dict) or (isinstance(value, list) and not is_flat(value)):
        return Jsonb(value)
    if isinstance(value, list) and any(isinstance(item, float) for item in value):
        return [None if item is None else float(item) for item in value]  # an array has one type
    return value


def failure_of(problem: psycopg.Error, params: int) -> SqlFailure:
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
            text += "; another transaction made the same thing at the same time"
        return SqlFailure(kind, explained(text, syntax=state == "42601", outside=outside, params=params), state)
    if isinstance(problem, (psycopg.OperationalError, psycopg.InterfaceError)):
        return SqlFailure("connection", text, "08006")
    return SqlFailure("sql", text)


def is_catalog_conflict(problem: psycopg.Error) -> bool:
    """Whether two transactions made a table, type or schema of the same name at once: no constraint of anybody's data."""
    return problem.sqlstate == "23505" and problem.diag.schema_name == "pg_catalog"
