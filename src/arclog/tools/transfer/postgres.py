"""Rows from and to PostgreSQL: read with a server-side cursor in one snapshot, written with COPY in one transaction."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from arclog.tools.sql.failures import SqlFailure
from arclog.tools.transfer import statements
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

if TYPE_CHECKING:
    import psycopg

    from arclog.drivers.postgres.intake import BoundedConnection
    from arclog.tools.sql.postgres_rows import Rows
    from arclog.tools.sql.postgres_servers import PostgresServers

DIALECT = "postgres"
T = TypeVar("T")

DECLARED = {
    INTEGER: "BIGINT",
    REAL: "DOUBLE PRECISION",
    DECIMAL: "NUMERIC",
    TEXT: "TEXT",
    BOOLEAN: "BOOLEAN",
    BYTES: "BYTEA",
    DATE: "DATE",
    TIME: "TIME",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMPTZ: "TIMESTAMPTZ",
    JSON: "JSONB",
    UUID_TYPE: "UUID",
}
#: Types by the server's type name.
_MEANT = {
    "int2": INTEGER,
    "int4": INTEGER,
    "int8": INTEGER,
    "oid": INTEGER,
    "float4": REAL,
    "float8": REAL,
    "numeric": DECIMAL,
    "bool": BOOLEAN,
    "bytea": BYTES,
    "date": DATE,
    "time": TIME,
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMPTZ,
    "json": JSON,
    "jsonb": JSON,
    "uuid": UUID_TYPE,
    "text": TEXT,
    "varchar": TEXT,
    "bpchar": TEXT,
}
#: The server counts the lines of a COPY, which are our rows.
_WHERE = re.compile(r"COPY .*, line (\d+)(?:, column ([^:]+))?")
#: A table or type of that name exists.
_EXISTS = ("42P07", "42710")
#: Number of retries if others create and drop the same table.
_MAKE_AGAIN = 5
_ORDER = "_arclog_row"
_CURSOR = "arclog_transfer"
_INCOMING = "_arclog_incoming"


class Connecting:
    """Opens connections. An invalid address is refused when it is created."""

    def __init__(self, where: dict[str, Any], servers: PostgresServers, grace_s: float) -> None:
        self._servers = servers
        self._address = servers.address(where)
        #: the connection is shut down if the server does not cancel a statement within this time
        self.grace_s = grace_s

    def __call__(self) -> BoundedConnection:
        import psycopg

        from arclog.drivers.postgres.connect import connect_blocking
        from arclog.tools.sql.postgres import Adapting, not_connected

        address = asyncio.run(self._servers.resolved(self._address))  # in the thread of the transfer
        try:
            return connect_blocking(address, self._servers.max_row_bytes, context=Adapting())
        except psycopg.Error as problem:
            raise not_connected(problem) from None


class _GivenUp(Exception):
    """Discards the copied rows."""


class _Session:
    """A connection, opened in the thread that uses it."""

    def __init__(self, connect: Connecting) -> None:
        self._connecting = connect
        self._connection: BoundedConnection | None = None
        self._cancelling: threading.Thread | None = None
        self._asked = 0.0

    def interrupt(self) -> None:
        """Cancel the current statement. Call it repeatedly: a statement that begins after a call is not
        affected by it.
        """
        connection = self._connection
        if connection is None or connection.closed:
            return
        self._asked = self._asked or time.monotonic()
        if time.monotonic() - self._asked > self._connecting.grace_s:
            from arclog.drivers.postgres.connect import shut_down

            shut_down(connection)
        elif self._cancelling is None or not self._cancelling.is_alive():
            # Cancelling opens another connection, which must not block the event loop.
            grace_s = max(self._connecting.grace_s, 0.1)
            self._cancelling = threading.Thread(target=_cancel, args=(connection, grace_s), daemon=True)
            self._cancelling.start()

    def _connect(self) -> BoundedConnection:
        connection = self._connection = self._connecting()
        return connection

    def _do(self, work: Callable[[], T]) -> T:
        import psycopg

        try:
            return work()
        except psycopg.Error as problem:
            raise _placed(problem) from None

    def close(self) -> None:
        # Closing the connection rolls back uncommitted changes.
        if self._connection is not None:
            self._connection.close()
        if self._cancelling is not None:
            self._cancelling.join()


class PostgresSource(_Session):
    """A table or a query, read in one snapshot."""

    def __init__(
        self,
        connect: Connecting,
        *,
        table: str = "",
        schema: str = "",
        query: str = "",
        params: Sequence[Any] | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(connect)
        self.total: int | None = None
        self._sql, self._params = (
            statements.query_of(DIALECT, query, params)
            if query
            else (f"SELECT * FROM {statements.name_of(DIALECT, table, schema)}", [])  # noqa: S608 - quoted
        )
        self._at_a_time = 1
        self._cursor: Any = None
        self._rows: Rows | None = None

    def open(self, at_a_time: int) -> list[Column]:
        from psycopg import IsolationLevel, RawServerCursor
        from psycopg.types.string import TextLoader

        from arclog.tools.sql.postgres_rows import JSON_TYPES, Rows

        self._at_a_time = at_a_time
        connection = self._connect()
        connection.read_only = True
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        for name in ("json", "jsonb"):
            connection.adapters.register_loader(name, TextLoader)
        cursor = self._cursor = RawServerCursor(connection, _CURSOR)
        self._rows = Rows(cursor, connection.intake, plain=JSON_TYPES)
        self._do(lambda: cursor.execute(self._sql.encode(), [_bound(value) for value in self._params]))
        names = connection.adapters.types
        columns = []
        for column in cursor.description or ():
            type_name = names.get(column.type_code)
            array = type_name is not None and column.type_code == type_name.array_oid
            columns.append(
                Column(column.name, JSON if array else _MEANT.get(type_name.name, TEXT) if type_name else TEXT)
            )
        return columns

    def chunks(self) -> Iterator[list[Row]]:
        connection, rows = self._connection, self._rows
        if connection is None or rows is None:
            return
        fetch = f"FETCH FORWARD {self._at_a_time} FROM {_CURSOR}".encode()
        count = self._at_a_time
        while count == self._at_a_time:  # else the cursor has no more rows
            count = 0
            self._do(lambda: connection.wait(rows.command(fetch)))
            while rows.ended is None:
                if chunk := self._do(lambda: connection.wait(rows.batch(self._at_a_time))):
                    count += len(chunk)
                    yield chunk

    def close(self) -> None:
        import psycopg

        if self._cursor is not None:
            try:
                self._cursor.close()
            except psycopg.Error:
                pass  # the connection is gone
        super().close()


class PostgresTarget(_Session):
    """A table. `upsert` copies into a temporary table first; of rows with the same key the last one counts."""

    def __init__(
        self,
        connect: Connecting,
        table: str,
        schema: str,
        mode: str,
        key: Sequence[str],
        *,
        create: bool,
    ) -> None:
        super().__init__(connect)
        self._table = statements.name_of(DIALECT, table, schema)
        self._mode = mode
        self._key = key
        self._create = create
        self._columns: Sequence[Column] = ()
        self._copying = ExitStack()
        self._write: Any = None
        self._done = 0

    def open(self, columns: Sequence[Column]) -> None:
        statements.check_key(columns, self._key)
        self._columns = columns
        names = statements.names_of(DIALECT, columns)
        connection = self._connect()
        cursor = connection.cursor()

        def run(sql: str) -> None:
            self._do(lambda: cursor.execute(sql.encode()))

        if self._create and columns:
            self._make_table(connection)
        into = self._table
        if self._mode == "replace":
            run(f"TRUNCATE {self._table}")
        elif self._mode == "upsert" and columns:
            into = statements.name_of(DIALECT, _INCOMING)
            # Only columns and types. The constraints of the table are checked when the rows are merged.
            run(f"CREATE TEMP TABLE {into} ON COMMIT DROP AS SELECT {names} FROM {self._table} WITH NO DATA")  # noqa: S608 - quoted
            run(f"ALTER TABLE {into} ADD COLUMN {_ORDER} bigserial")
        if not columns:
            return
        copy = cursor.copy(f"COPY {into} ({names}) FROM STDIN".encode())
        self._write = self._do(lambda: self._copying.enter_context(copy)).write_row

    def _make_table(self, connection: psycopg.Connection[Any]) -> None:
        """Create the table unless it exists. PostgreSQL makes a second creator wait for the first one's transaction and
        then refuses it despite IF NOT EXISTS; the next attempt then finds the table.
        """
        import psycopg

        from arclog.tools.sql.postgres import is_catalog_conflict

        made = statements.create_table(DIALECT, self._table, self._columns, self._key, DECLARED).encode()
        for last in (*[False] * _MAKE_AGAIN, True):
            self._do(lambda: connection.execute("SAVEPOINT arclog_table"))
            try:
                connection.execute(made)
            except psycopg.Error as problem:
                if last or not (is_catalog_conflict(problem) or problem.sqlstate in _EXISTS):
                    raise _placed(problem) from None
                self._do(lambda: connection.execute("ROLLBACK TO SAVEPOINT arclog_table"))
            else:
                return

    def write(self, rows: list[Row]) -> None:
        import psycopg

        if not rows:
            return
        write = self._write
        try:
            for row in rows:
                write(row)
        except psycopg.OperationalError as problem:
            raise self._broken(problem) from None
        except (psycopg.Error, UnicodeEncodeError) as problem:
            bad = bad_cell(rows, self._columns, self._done, nul=False)
            if bad is not None:
                raise bad from None
            raise (_placed(problem) if isinstance(problem, psycopg.Error) else problem) from None
        self._done += len(rows)

    def commit(self) -> dict[str, Any]:
        self._do(self._copying.close)
        connection = self._connection
        if connection is None:
            return {}
        if self._mode == "upsert" and self._columns:
            names = statements.names_of(DIALECT, self._columns)
            keys = statements.names_of(DIALECT, list(self._key))
            merge = (
                f"INSERT INTO {self._table} ({names}) SELECT {names} FROM (SELECT DISTINCT ON ({keys}) * "  # noqa: S608 - quoted
                f"FROM {_INCOMING} ORDER BY {keys}, {_ORDER} DESC) AS latest "
                + statements.on_conflict(DIALECT, self._columns, self._key)
            )
            self._do(lambda: connection.execute(merge.encode()))
        self._do(connection.commit)
        return {}

    def close(self) -> None:
        import psycopg

        # An open COPY has failed; the exception ends it on the server.
        given_up = _GivenUp()
        try:
            self._copying.__exit__(_GivenUp, given_up, None)
        except (_GivenUp, psycopg.Error):
            pass  # the failure is already known
        super().close()

    def _broken(self, problem: psycopg.Error) -> SqlFailure:
        """Return the error that the server sent before the connection broke, if there is one."""
        import psycopg

        try:
            self._copying.close()
        except psycopg.Error as answer:
            return _placed(answer)
        return _placed(problem)


def _cancel(connection: psycopg.Connection[Any], timeout_s: float) -> None:
    import psycopg

    try:
        connection.cancel_safe(timeout=timeout_s)
    except psycopg.Error:
        pass  # the server is gone, or the statement has ended; there is nothing to cancel


def _bound(value: Any) -> Any:
    return json_cell(value) if isinstance(value, dict) else value


def _placed(problem: psycopg.Error) -> SqlFailure:
    """Return a failure with the row and column that the server names."""
    from arclog.tools.sql.postgres import failure_of

    error = failure_of(problem, 0).problem
    where = _WHERE.search(problem.diag.context or "")
    place = ""
    if where is not None:
        place = f"row {where[1]}, column {where[2]}: " if where[2] else f"row {where[1]}: "
    message = error.message
    if error.code == "42P10":
        message += "; an upsert needs a unique index (or primary key) on exactly the columns of `key`"
    if error.code == "42P01":
        message += "; `create: true` creates the table"
    return SqlFailure(error.kind, place + message, error.code, retryable=error.retryable)
