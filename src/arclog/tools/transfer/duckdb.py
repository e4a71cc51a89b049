"""Rows from and to DuckDB, and from Parquet files through it.

DuckDB's Python client can insert rows only one by one, so a chunk is loaded from a small CSV file, with the types of
the table.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from datetime import time as clock_time
from pathlib import Path
from typing import Any, TypeVar

from arclog.tools.duckdb import connect, failure_of
from arclog.tools.sql.duckdb_host import DuckdbConnection, DuckdbError
from arclog.tools.sql.failures import SqlFailure
from arclog.tools.sql.values import to_json
from arclog.tools.transfer import statements
from arclog.tools.transfer.files import PathTarget
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

# ── duckdb ────────────────────────────────────────────────────────────────────────────────────────────────────────────

DIALECT = "duckdb"
T = TypeVar("T")

#: Decimals are text, because DuckDB's have a fixed scale, which is unknown here.
DECLARED = {
    INTEGER: "BIGINT",
    REAL: "DOUBLE",
    DECIMAL: "VARCHAR",
    TEXT: "VARCHAR",
    BOOLEAN: "BOOLEAN",
    BYTES: "BLOB",
    DATE: "DATE",
    TIME: "TIME",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMPTZ: "TIMESTAMPTZ",
    JSON: "JSON",
    UUID_TYPE: "UUID",
}
_MEANT = {
    "BIGINT": INTEGER,
    "INTEGER": INTEGER,
    "SMALLINT": INTEGER,
    "TINYINT": INTEGER,
    "UBIGINT": DECIMAL,
    "HUGEINT": DECIMAL,
    "UHUGEINT": DECIMAL,
    "UINTEGER": INTEGER,
    "USMALLINT": INTEGER,
    "UTINYINT": INTEGER,
    "DOUBLE": REAL,
    "FLOAT": REAL,
    "VARCHAR": TEXT,
    "BOOLEAN": BOOLEAN,
    "BLOB": BYTES,
    "DATE": DATE,
    "TIME": TIME,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": TIMESTAMPTZ,
    "JSON": JSON,
    "UUID": UUID_TYPE,
}
#: DuckDB's message about a chunk's CSV file. Its line numbers are our row numbers, unless a text contains line breaks.
_LINE = re.compile(r"CSV Error on Line: (\d+)")
_COLUMN = re.compile(r'converting column "([^"]+)"\. (.*)')
_LINE_BYTES = 2 * 1024 * 1024


class _Database:
    """A connection, opened in the thread that uses it."""

    def __init__(self, connection: DuckdbConnection, database: str, options: Mapping[str, str], busy_s: float) -> None:
        self._connection = connection
        self._database = database
        self._options = options
        self._busy_s = busy_s
        self._stopped = threading.Event()

    def interrupt(self) -> None:
        self._stopped.set()
        self._connection.interrupt()

    def _connect(self, path: str = "") -> DuckdbConnection:
        database = path or self._database
        self._do(lambda: connect(self._connection, database, self._options, self._busy_s, self._stopped))
        return self._connection

    def _do(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except DuckdbError as problem:
            error = failure_of(problem, ()).problem
            # DuckDB replaces backslashes in a path. Redaction recognizes it only as it was written.
            message = self._shown(error.message.replace(self._database.replace("\\", "/"), self._database))
            raise SqlFailure(error.kind, message, error.code, retryable=error.retryable) from None

    def _shown(self, message: str) -> str:
        """Return a message with the path that the author knows."""
        return message

    def close(self) -> None:
        self._connection.close()


class DuckdbSource(_Database):
    """A table or query of a database, or a Parquet file (`path`)."""

    def __init__(
        self,
        connection: DuckdbConnection,
        database: str,
        options: Mapping[str, str],
        busy_s: float = 0.0,
        *,
        table: str = "",
        schema: str = "",
        query: str = "",
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        path: Path | None = None,
    ) -> None:
        super().__init__(connection, database, options, busy_s)
        self.total: int | None = None
        self._path = path
        self._from = ""
        self._params: list[Any] = []
        if query:
            self._sql, self._params = statements.query_of(DIALECT, query, params)
        else:
            self._from = (
                statements.name_of(DIALECT, table, schema) if path is None else f"read_parquet({_literal(path)})"
            )
            self._sql = f"SELECT * FROM {self._from}"  # noqa: S608 - quoted
        self._at_a_time = 1

    def open(self, at_a_time: int) -> list[Column]:
        self._at_a_time = at_a_time
        for path in (self._path, None if self._path else Path(self._database)):
            if path is not None and not path.is_file():
                raise SqlFailure(
                    "not_found" if self._path else "connection", f"there is no file {path}", "IO", retryable=False
                )
        connection = self._connect()
        self._do(connection.begin)
        if self._from:
            count = f"SELECT count(*) FROM {self._from}"  # noqa: S608 - quoted
            self._do(lambda: connection.execute(count))
            self.total = int(self._do(lambda: connection.fetch(1))[0][0])
        columns = self._do(lambda: connection.execute(self._sql, [json_cell(value) for value in self._params]))
        return [Column(name, _type_of(kind)) for name, kind in columns]

    def chunks(self) -> Iterator[list[Row]]:
        while chunk := self._do(lambda: self._connection.fetch(self._at_a_time)):
            yield [row if _SIMPLE.issuperset(map(type, row)) else tuple(map(_cell, row)) for row in chunk]


class DuckdbTarget(_Database):
    """A table. All rows are written in one transaction."""

    def __init__(
        self,
        connection: DuckdbConnection,
        database: str,
        options: Mapping[str, str],
        table: str,
        schema: str,
        mode: str,
        key: Sequence[str],
        *,
        create: bool,
        busy_s: float = 0.0,
    ) -> None:
        super().__init__(connection, database, options, busy_s)
        self._table = statements.name_of(DIALECT, table, schema)
        self._mode = mode
        self._key = key
        self._create = create
        self._columns: Sequence[Column] = ()
        self._types: list[str] = []
        self._done = 0
        #: the new file until the commit; None if the file existed
        self._draft: Draft | None = None
        #: held while the file is created
        self._file_turn = Turn(database)
        #: DuckDB refuses concurrent transactions that create, empty or update a table; appending to an existing one is
        #: allowed
        self._table_turn = Turn(database, f"{schema or 'main'}.{table}")

    def open(self, columns: Sequence[Column]) -> None:
        statements.check_key(columns, self._key)
        self._columns = columns
        self._file_turn.take(self._stopped)
        if not Path(self._database).exists():
            if not self._create:
                message = f"there is no database {self._database}; `create: true` creates it"
                raise SqlFailure("connection", message, "IO", retryable=False)
            self._draft = Draft(self._database)
        else:
            self._file_turn.give()
        connection = self._connect(self._draft.path if self._draft else "")
        self._table_turn.take(self._stopped)
        if self._mode == "append" and self._is_there(connection):
            self._table_turn.give()
        self._do(connection.begin)
        if self._create and columns:
            made = statements.create_table(DIALECT, self._table, columns, self._key, DECLARED)
            self._do(lambda: connection.execute(made))
        if self._mode == "replace":
            self._do(lambda: connection.execute(f"DELETE FROM {self._table}"))  # noqa: S608 - quoted
        if not columns:
            return
        names = statements.names_of(DIALECT, columns)
        look = f"SELECT {names} FROM {self._table} LIMIT 0"  # noqa: S608 - quoted
        self._types = [kind for _, kind in self._do(lambda: connection.execute(look))]

    def _is_there(self, connection: DuckdbConnection) -> bool:
        try:
            connection.execute(f"SELECT 1 FROM {self._table} LIMIT 0")  # noqa: S608 - quoted
        except DuckdbError as problem:
            if problem.name != "CatalogException":
                raise failure_of(problem, ()) from None
            return False
        return True

    def write(self, rows: list[Row]) -> None:
        if not rows:
            return
        if bad := bad_cell(rows, self._columns, self._done, nul=False):
            raise bad
        lines = [",".join(map(_csv_cell, row)) for row in rows]
        name = f"chunk-{id(self)}.csv"
        longest = 4 * max(map(len, lines)) + 16
        try:
            path = self._connection.write_file(name, "\n".join([*lines, ""]).encode())
            self._connection.execute(self._insert(path, max(longest, _LINE_BYTES)))
        except DuckdbError as problem:
            raise self._placed(problem) from None
        finally:
            self._connection.remove_file(name)
        self._done += len(rows)

    def _insert(self, path: Path, line_bytes: int) -> str:
        kinds = ", ".join(f"{_text(f'c{n}')}: {_text(kind)}" for n, kind in enumerate(self._types))
        read = (
            f"read_csv({_literal(path)}, header=false, auto_detect=false, delim=',', quote='\"', escape='\"', "
            f"new_line='\\n', nullstr='', allow_quoted_nulls=false, strict_mode=true, parallel=false, "
            f"max_line_size={line_bytes}, buffer_size={max(line_bytes, 16 * _LINE_BYTES)}, columns={{{kinds}}})"
        )
        names = statements.names_of(DIALECT, self._columns)
        insert = f"INSERT INTO {self._table} ({names}) SELECT * FROM {read}"  # noqa: S608 - quoted
        if self._mode == "upsert":
            insert = self._last_of_each(names, read) + " " + statements.on_conflict(DIALECT, self._columns, self._key)
        return insert

    def _last_of_each(self, names: str, read: str) -> str:
        """Return an INSERT that keeps only the last of several rows with the same key."""
        at = {column.name: f"c{n}" for n, column in enumerate(self._columns)}
        keys = ", ".join(at[name] for name in self._key)
        cells = ", ".join(at.values())
        numbered = f"SELECT {cells}, row_number() OVER () AS n FROM {read}"  # noqa: S608 - our own names
        latest = f"SELECT {cells} FROM ({numbered}) QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY n DESC) = 1"  # noqa: S608 - our own names
        return f"INSERT INTO {self._table} ({names}) {latest}"

    def commit(self) -> dict[str, Any]:
        self._do(self._connection.commit)
        if self._draft is not None:
            self._do(self._connection.close)
            self._draft.publish()
        return {}

    def close(self) -> None:
        try:
            super().close()
            if self._draft is not None:
                self._draft.remove()
        finally:
            self._table_turn.give()
            self._file_turn.give()

    def export(self, path: Path) -> None:
        """Write the table as a Parquet file."""
        self._do(lambda: self._connection.execute(f"COPY {self._table} TO {_literal(path)} (FORMAT parquet)"))

    def _shown(self, message: str) -> str:
        return message if self._draft is None else message.replace(self._draft.path, self._database)

    def _placed(self, problem: DuckdbError) -> SqlFailure:
        error = failure_of(problem, ()).problem
        line, column = _LINE.search(error.message), _COLUMN.search(error.message)
        if line is None or column is None:
            kept = self._shown(error.message.split("\n\n", 1)[0])
            return SqlFailure(error.kind, f"rows from {self._done + 1}: {kept}", error.code, retryable=error.retryable)
        name = self._columns[int(column[1][1:])].name
        return SqlFailure("sql", f"row {self._done + int(line[1])}, column {name}: {column[2]}", error.code)


#: The types that every target accepts unchanged.
_SIMPLE = frozenset({int, float, str, bytes, bool, type(None)})


def _cell(value: Any) -> Any:
    return json_cell(to_json(value)) if isinstance(value, (list, dict, tuple, set)) else value


def _csv_cell(value: Any) -> str:
    """Return a cell of the CSV file: empty for NULL, everything else in quotes."""
    if value is None:
        return ""
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, (bytes, bytearray, memoryview)):
        text = "".join(f"\\x{byte:02X}" for byte in bytes(value))
    elif isinstance(value, datetime):
        text = value.isoformat(sep=" ")
    elif isinstance(value, timedelta):
        text = f"{value.total_seconds()} seconds"
    elif isinstance(value, (date, clock_time)):
        text = value.isoformat()
    elif isinstance(value, (list, tuple)):
        text = str(json_cell(to_json(value)))
    else:
        text = str(value)
    return '"' + text.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _literal(path: Path) -> str:
    return _text(str(path))


def _type_of(kind: str) -> str:
    if kind.startswith("DECIMAL"):
        return DECIMAL
    return _MEANT.get(kind, JSON if kind.endswith("]") or kind.startswith(("STRUCT", "MAP")) else TEXT)


# ── parquet ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rows to Parquet files. DuckDB writes them from a table, so the rows are collected in one first.


class ParquetTarget(PathTarget):
    """A Parquet file. The rows are collected in a temporary DuckDB database and exported at the end."""

    def __init__(self, shown: str, path: Path, connection: DuckdbConnection, options: Mapping[str, str]) -> None:
        super().__init__(shown, path)
        self._folder = connection.folder / f"parquet-{id(self)}"
        database = str(self._folder / "rows.db")
        self._table = DuckdbTarget(connection, database, options, "rows", "", "append", (), create=True)

    def open(self, columns: Sequence[Column]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._table.open(columns)

    def write(self, rows: list[Row]) -> None:
        self._table.write(rows)

    def commit(self) -> dict[str, Any]:
        # The table is never committed, since its database exists for this file only.
        with self._replacing() as temporary:
            self._table.export(temporary)
        return {"bytes": self._path.stat().st_size}

    def interrupt(self) -> None:
        self._table.interrupt()

    def close(self) -> None:
        self._table.close()
        shutil.rmtree(self._folder, ignore_errors=True)
