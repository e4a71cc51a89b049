"""Rows from and to SQLite files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from datetime import time as clock_time
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from arclog.sandbox.child.sql_errors import Refused, SqliteError
from arclog.tools.sql.failures import SqlFailure
from arclog.tools.sql.sqlite import SqliteConnection, failure_of
from arclog.tools.sql.values import to_json
from arclog.tools.transfer import statements
from arclog.tools.transfer.new_files import Draft, Turn
from arclog.tools.transfer.rows import (
    BOOLEAN,
    BYTES,
    DATE,
    DECIMAL,
    INTEGER,
    JSON,
    REAL,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID_TYPE,
    Column,
    Row,
    bad_cell,
    json_cell,
)

DIALECT = "sqlite"
T = TypeVar("T")

#: The declared types of a created table. Decimals, JSON and UUIDs are TEXT, since another affinity would turn some into
#: floats.
DECLARED = {
    INTEGER: "INTEGER",
    REAL: "REAL",
    DECIMAL: "TEXT",
    TEXT: "TEXT",
    BOOLEAN: "BOOLEAN",
    BYTES: "BLOB",
    DATE: "DATE",
    TIME: "TIME",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMPTZ: "TIMESTAMP",
    JSON: "TEXT",
    UUID_TYPE: "TEXT",
}
#: Column types by a word in the declaration. The first match counts.
_MEANT = (
    ("INT", INTEGER),
    ("BOOL", BOOLEAN),
    ("CHAR", TEXT),
    ("CLOB", TEXT),
    ("TEXT", TEXT),
    ("BLOB", BYTES),
    ("REAL", REAL),
    ("FLOA", REAL),
    ("DOUB", REAL),
    ("DEC", DECIMAL),
    ("NUMERIC", DECIMAL),
    ("TIMESTAMP", TIMESTAMP),
    ("DATETIME", TIMESTAMP),
    ("DATE", DATE),
    ("TIME", TIME),
    ("JSON", JSON),
    ("UUID", UUID_TYPE),
)


class _File:
    """A connection, opened in the thread that uses it."""

    def __init__(self, connection: SqliteConnection, database: str) -> None:
        self._connection = connection
        self._database = database
        self._stopped = threading.Event()

    def interrupt(self) -> None:
        self._stopped.set()
        self._connection.interrupt()

    def _do(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (Refused, SqliteError) as problem:
            raise failure_of(problem, self._database, self._connection.reach) from None

    def close(self) -> None:
        self._connection.close()


class SqliteSource(_File):
    """A table or query of an existing file, which is opened read-only."""

    def __init__(
        self,
        connection: SqliteConnection,
        database: str,
        *,
        table: str = "",
        query: str = "",
        params: Sequence[Any] | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(connection, database)
        self.total: int | None = None
        self._table = table
        self._sql, self._params = statements.query_of(DIALECT, query, params) if query else ("", [])
        self._at_a_time = 1

    def open(self, at_a_time: int) -> list[Column]:
        self._at_a_time = at_a_time
        if not Path(self._database).is_file():
            raise SqlFailure("connection", f"there is no database {self._database}", "SQLITE_CANTOPEN", retryable=False)
        connection = self._connection
        self._do(lambda: connection.open(self._database, "source"))
        if self._table:
            quoted = statements.name_of(DIALECT, self._table)
            # One snapshot for the count and the rows.
            self._do(lambda: connection.run("BEGIN"))
            self._do(lambda: connection.execute(f"SELECT count(*) FROM {quoted}"))  # noqa: S608 - quoted
            self.total = int(self._do(lambda: connection.fetch(1))[0][0])
            self._sql = f"SELECT * FROM {quoted}"  # noqa: S608 - quoted
        columns, _ = self._do(lambda: connection.execute(self._sql, [json_cell(value) for value in self._params]))
        if not columns:
            raise SqlFailure("config", "query: gives no rows; a SELECT is needed")
        return [Column(name, _type_of(declared)) for name, declared in columns]

    def chunks(self) -> Iterator[list[Row]]:
        while chunk := self._do(lambda: self._connection.fetch(self._at_a_time)):
            yield chunk


class SqliteTarget(_File):
    """A table. All rows are written in one transaction."""

    def __init__(
        self, connection: SqliteConnection, database: str, table: str, mode: str, key: Sequence[str], *, create: bool
    ) -> None:
        super().__init__(connection, database)
        self._table = statements.name_of(DIALECT, table)
        self._mode = mode
        self._key = key
        self._create = create
        self._columns: Sequence[Column] = ()
        self._insert = ""
        self._done = 0
        #: SQLite has one writer at a time; waiting for another transfer is not limited by `sql.busy_timeout_s`
        self._turn = Turn(database)
        #: the new file until the commit; None if the file existed
        self._draft: Draft | None = None

    def open(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._turn.take(self._stopped)
        if not Path(self._database).exists():
            if not self._create:
                message = f"there is no database {self._database}; `create: true` creates it"
                raise SqlFailure("connection", message, "SQLITE_CANTOPEN", retryable=False)
            self._draft = Draft(self._database)
        connection, draft = self._connection, self._draft
        if draft is None:
            self._do(lambda: connection.open(self._database, "target"))
        else:
            self._do(lambda: connection.open(draft.path, "new target"))
        self._do(lambda: connection.run("BEGIN IMMEDIATE"))
        statements.check_key(columns, self._key)
        if self._create and columns:
            made = statements.create_table(DIALECT, self._table, columns, self._key, DECLARED)
            self._do(lambda: connection.run(made))
        if self._mode == "replace":
            self._do(lambda: connection.run(f"DELETE FROM {self._table}"))  # noqa: S608 - quoted
        names = statements.names_of(DIALECT, columns)
        values = ", ".join("?" * len(columns))
        self._insert = f"INSERT INTO {self._table} ({names}) VALUES ({values})"  # noqa: S608 - quoted
        if self._mode == "upsert":
            self._insert += " " + statements.on_conflict(DIALECT, columns, self._key)

    def write(self, rows: list[Row]) -> None:
        if not rows:
            return
        plain = [row if _PLAIN.issuperset(map(type, row)) else [_cell(value) for value in row] for row in rows]
        try:
            self._connection.insert(self._insert, plain)
        except SqliteError as problem:
            error = failure_of(problem, self._database, self._connection.reach).problem
            where = f"row {self._done + problem.row}: " if error.kind in ("constraint", "sql") and problem.row else ""
            raise SqlFailure(error.kind, where + error.message, error.code, retryable=error.retryable) from None
        except (TypeError, OverflowError, UnicodeEncodeError) as problem:
            raise bad_cell(rows, self._columns, self._done, nul=True) or problem from None
        self._done += len(rows)

    def commit(self) -> dict[str, Any]:
        self._do(lambda: self._connection.run("COMMIT"))
        if self._draft is not None:
            self._connection.close()
            self._draft.publish()
        return {}

    def close(self) -> None:
        try:
            super().close()
            if self._draft is not None:
                self._draft.remove()
        finally:
            self._turn.give()


#: The types that SQLite accepts unchanged.
_PLAIN = frozenset({int, float, str, bytes, type(None)})


def _cell(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if isinstance(value, (datetime, date, clock_time, timedelta)):
        return to_json(value)
    if isinstance(value, (memoryview, bytearray)):
        return bytes(value)
    if isinstance(value, (list, tuple)):
        return json_cell(to_json(value))
    return str(value)


def _type_of(declared: str | None) -> str:
    text = (declared or "").upper()
    return next((kind for word, kind in _MEANT if word in text), "")
