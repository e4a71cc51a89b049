"""Connections of tasks and transfers to SQLite files.

On a server's worker, which several tenants share, they run in a confined process with a memory limit (`sql.hosts`).
Elsewhere tasks read all files of their user, and they run in the worker. The rules are the same (`child.sql.sqlite_database`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import asdict

from arclog.model.config.settings import Settings
from arclog.sandbox.child.reach import Reach
from arclog.sandbox.child.sql_errors import Refused, SqliteError
from arclog.sandbox.confinement_settings import reach_of
from arclog.tools.sql.failures import SqlFailure, explained, refusal_of
from arclog.tools.sql.hosts import Connection, Hosts, Library
from arclog.tools.sql.run import BATCH, batch_of

if TYPE_CHECKING:
    from arclog.sandbox.child.sql.sqlite_database import Database

#: Error kinds by primary result code, and whether they are retryable if the kind alone does not decide it.
_KINDS: dict[str, tuple[str, bool | None]] = {
    "SQLITE_BUSY": ("serialization", True),
    "SQLITE_LOCKED": ("serialization", True),
    "SQLITE_CONSTRAINT": ("constraint", None),
    "SQLITE_CANTOPEN": ("connection", False),
    "SQLITE_NOTADB": ("connection", False),
    "SQLITE_CORRUPT": ("connection", False),
    "SQLITE_IOERR": ("connection", True),
    "SQLITE_PERM": ("auth", False),
    "SQLITE_AUTH": ("auth", False),
    "SQLITE_READONLY": ("auth", False),
    "SQLITE_FULL": ("limit", None),
    "SQLITE_TOOBIG": ("limit", None),
    "SQLITE_NOMEM": ("limit", None),
}
#: The share of `tasks.max_memory_bytes` that SQLite may use, so that a statement that needs more fails. If it were all,
#: the process would be killed first, with the other tasks of its scope.
_HEAP_SHARE = 0.75
Columns = list[tuple[str, str | None]]


class SqliteConnection(Protocol):
    """A connection. `open` comes first. Methods raise SqliteError, Refused and SqlFailure."""

    @property
    def reach(self) -> Reach:
        """The files that it may open."""

    def open(self, database: str, mode: str) -> None:
        """Open a database for a `task`, or as `source`, `target` or `new target` of a transfer."""

    def run(self, sql: str) -> None:
        """Run a statement of ours, whose rows do not matter."""

    def execute(self, sql: str, params: Sequence[Any] = ()) -> tuple[Columns, int]:
        """Run a statement. Return name and declared type of each column, and the number of changed rows if there are no
        columns.
        """

    def fetch(self, most: int = BATCH) -> list[tuple[Any, ...]]:
        """Return the next rows; an empty list at the end."""

    def insert(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row. A SqliteError has the number of the row that failed."""

    def interrupt(self) -> None:
        """Interrupt the current statement, from any thread."""

    def close(self) -> None:
        """Close the connection and roll back uncommitted changes. May be called again."""


class _Local:
    """A connection in this process."""

    def __init__(self, reach: Reach, busy_s: float) -> None:
        self.reach = reach
        self._busy_s = busy_s
        self._database: Database | None = None
        self._rows: Iterator[tuple[Any, ...]] = iter(())

    def open(self, database: str, mode: str) -> None:
        from arclog.sandbox.child.sql.sqlite_database import Database

        self._database = Database(database, mode, self.reach, self._busy_s)

    def run(self, sql: str) -> None:
        self._opened.run(sql)

    def execute(self, sql: str, params: Sequence[Any] = ()) -> tuple[Columns, int]:
        return self._opened.execute(sql, params)

    def fetch(self, most: int = BATCH) -> list[tuple[Any, ...]]:
        return batch_of(self._opened.rows(), most)

    def insert(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._opened.insert(sql, rows)

    def interrupt(self) -> None:
        if self._database is not None:
            self._database.interrupt()

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    @property
    def _opened(self) -> Database:
        if self._database is None:
            raise SqlFailure("connection", "the database is not open")
        return self._database


class _Hosted:
    """A connection in a process of its scope."""

    def __init__(self, connection: Connection, reach: Reach, busy_s: float, heap_bytes: int) -> None:
        self.connection = connection
        self.reach = reach
        self._options = {"reach": asdict(reach), "busy_s": busy_s, "heap_bytes": heap_bytes}
        self.interrupt = connection.interrupt
        self.close = connection.close

    def open(self, database: str, mode: str) -> None:
        self.connection.do("connect", {"database": database, "mode": mode, **self._options})

    def run(self, sql: str) -> None:
        self.connection.do("run", {"sql": sql})

    def execute(self, sql: str, params: Sequence[Any] = ()) -> tuple[Columns, int]:
        header, _ = self.connection.do("execute", {"sql": sql, "params": list(params)})
        return [(name, declared) for name, declared in header["columns"]], int(header["changed"])

    def fetch(self, most: int = BATCH) -> list[tuple[Any, ...]]:
        return self.connection.fetch(most)

    def insert(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self.connection.do("insert", {"sql": sql, "rows": rows})


class SqliteConnections:
    """The connections of one kind of a worker."""

    def __init__(self, settings: Settings, scratch: Path) -> None:
        self._reach = reach_of(settings, scratch)
        self._busy_s = settings.number("sql.busy_timeout_s")
        self._heap_bytes = int(_HEAP_SHARE * settings.integer("tasks.max_memory_bytes"))
        self._hosts = None if self._reach.write is None else Hosts.shared(_LIBRARY, settings, scratch)

    def start(self) -> None:
        """Start what the first connection would wait for."""
        if self._hosts is not None:
            self._hosts.start()

    def connection(self, scope: str, files: Path | None = None) -> SqliteConnection:
        """Return a connection for a task, which also reads `files`. Raises SqlFailure."""
        reach = self._reach.including(files)
        if self._hosts is None:
            return _Local(reach, self._busy_s)
        return _Hosted(self._hosts.connection(scope, files), reach, self._busy_s, self._heap_bytes)

    def release(self, connection: SqliteConnection) -> None:
        """Release what a finished task had for itself."""
        if self._hosts is not None and isinstance(connection, _Hosted):
            self._hosts.release(connection.connection)

    async def close(self) -> None:
        if self._hosts is not None:
            await self._hosts.close()


def failure_of(problem: Refused | SqliteError, database: str, reach: Reach, params: int = 0) -> SqlFailure:
    """Return the error of a task. `params` is the number of values of its statement."""
    if isinstance(problem, Refused):
        return refusal_of(problem)
    kind, retryable = _KINDS.get(problem.primary, ("sql", None))
    message = str(problem)
    if problem.primary == "SQLITE_CANTOPEN":
        # The path is shown completely: redaction would not recognize a part of a secret in it.
        why = "" if Path(reach.base, database).parent.is_dir() else ": its folder does not exist"
        message = f"cannot open the database {database}{why}"
    elif problem.primary == "SQLITE_BUSY":
        message += "; another connection held its lock longer than sql.busy_timeout_s"
    outside = "within a transaction" in message or "inside a transaction" in message
    message = explained(message, syntax="syntax error" in message, outside=outside, params=params)
    return SqlFailure(kind, message, problem.extended, retryable=retryable)


def _error(header: dict[str, Any]) -> Exception:
    """Return the exception of an error response."""
    name, text = str(header["error"]), str(header.get("text", ""))
    primary, extended = header.get("primary", "SQLITE_ERROR"), header.get("extended", "SQLITE_ERROR")
    if name == "MemoryError":
        primary = extended = "SQLITE_NOMEM"
    if primary == "SQLITE_NOMEM":
        text = "out of memory: the sqlite tasks of a scope together may use less than tasks.max_memory_bytes"
    elif name in ("TypeError", "OverflowError", "UnicodeEncodeError"):
        return TypeError(text)  # of a value
    return SqliteError(text, str(primary), str(extended), int(header.get("row", 0)))


_LIBRARY = Library("sqlite", "SQLite", _error)
