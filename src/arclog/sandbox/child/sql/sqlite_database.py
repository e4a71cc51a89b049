"""Connections to SQLite files for tasks and transfers, with the rules for their SQL.

The worker uses it directly where tasks may read all files (`arclog run`). On a server's worker, it runs in a process of
its own (`databases`), where SQLite's memory can be limited.
"""

# Stand-alone and light: the package has another name where it runs.
# ruff: noqa: TID252

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import apsw

from ..reach import MEMORY, Reach, located
from ..sql_errors import SqliteError
from .held_files import connect
from .sqlite_access import SqliteAccess

T = TypeVar("T")
Row = tuple[Any, ...]

#: By how a database is opened: for a task (created if missing, read-only if it may not be written), or by a transfer.
_FLAGS = {
    "task": apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE,
    "source": apsw.SQLITE_OPEN_READONLY,
    "target": apsw.SQLITE_OPEN_READWRITE,
    "new target": apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE,
}
#: Errors that `held_files` raises, which have no codes.
_OWN_ERRORS = {apsw.CantOpenError: apsw.SQLITE_CANTOPEN, apsw.PermissionsError: apsw.SQLITE_PERM}
#: Longest pause between two attempts to lock a file.
_PAUSE_S = 0.05


class Database:
    """One connection. It is used by one thread at a time, except `interrupt`. Methods raise SqliteError and Refused."""

    def __init__(self, database: str, mode: str, reach: Reach, busy_s: float) -> None:
        self._access = SqliteAccess(reach)
        self._cursor: apsw.Cursor | None = None
        self._stopped = threading.Event()
        self._connection = self._do(lambda: open_file(database, reach, mode))
        self._connection.set_busy_handler(patience(busy_s, self._stopped))
        # "x" is a name, never a text; foreign keys are enforced.
        self._connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
        if mode == "task":
            self._connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
        self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
        self._access.apply_to(self._connection)

    def run(self, sql: str) -> None:
        """Run a statement of ours, whose rows do not matter."""
        self._drop()
        self._do(lambda: self._connection.execute(sql))

    def execute(self, sql: str, params: Sequence[Any]) -> tuple[list[tuple[str, str | None]], int]:
        """Run a statement of a playbook. Return name and declared type of each column, and the number of changed rows
        if there are no columns.
        """
        self._drop()
        connection = self._connection
        cursor = self._cursor = connection.cursor()
        columns: list[tuple[str, str | None]] = []

        def describe(cursor: apsw.Cursor, statement: str, _bindings: Any) -> bool:
            """Store the columns. It is called before the first row, also for a statement that returns no rows."""
            self._access.before(sql, statement)
            columns.extend((column[0], column[1]) for column in cursor.get_description())
            return True

        cursor.exec_trace = describe
        before = connection.total_changes()
        self._do(lambda: cursor.execute(sql, params))
        self._access.check_attached(connection)
        changed = not columns and connection.total_changes() != before
        return columns, connection.changes() if changed else 0

    def rows(self) -> Iterator[Row]:
        """Yield the remaining rows of the last statement."""
        try:
            for row in self._cursor or ():  # noqa: UP028 - see below
                yield row  # `yield from` would close the cursor
        except apsw.Error as problem:
            raise self._translated(problem) from None

    def insert(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each row. A SqliteError has the number of the row that failed."""
        taken = 0

        def counted() -> Iterator[Sequence[Any]]:
            nonlocal taken
            for row in rows:
                taken += 1
                yield row  # `yield from` would close the cursor

        try:
            self._do(lambda: self._connection.executemany(sql, counted()))
        except SqliteError as problem:
            problem.row = taken
            raise

    def interrupt(self) -> None:
        """Interrupt the current statement, from any thread."""
        self._stopped.set()
        try:
            self._connection.interrupt()
        except (AttributeError, apsw.ConnectionClosedError):
            return  # it is not open yet, or closed meanwhile

    def close(self) -> None:
        """Close the connection and roll back uncommitted changes. May be called again."""
        self._connection.close(force=True)

    def _drop(self) -> None:
        if self._cursor is not None:
            self._cursor.close(force=True)
            self._cursor = None

    def _do(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except apsw.Error as problem:
            raise self._translated(problem) from None

    def _translated(self, problem: apsw.Error) -> Exception:
        if self._access.refusal is not None:
            return self._access.refusal
        own = _OWN_ERRORS.get(type(problem), apsw.SQLITE_ERROR)
        primary = str(apsw.mapping_result_codes.get(getattr(problem, "result", own), "SQLITE_ERROR"))
        extended = str(apsw.mapping_extended_result_codes.get(getattr(problem, "extendedresult", 0), primary))
        return SqliteError(str(problem), primary, extended)


def open_file(database: str, reach: Reach, mode: str = "task") -> apsw.Connection:
    """Return a connection, read-only if the file may not be written. Links are resolved before the check, not after
    it.
    """
    flags = _FLAGS[mode]
    # If the folder is missing, SQLite reports it with the path as given.
    real = located(database, reach, write="target" in mode)
    if database not in ("", MEMORY) and reach.refusal(real):
        flags = apsw.SQLITE_OPEN_READONLY
    if reach.write is not None:
        # Also without a file: it decides which files the connection attaches.
        return connect(real, flags, reach)
    return apsw.Connection(real, flags=flags | apsw.SQLITE_OPEN_NOFOLLOW)


def patience(busy_s: float, stopped: threading.Event) -> Callable[[int], bool]:
    """Return a busy handler. It stops waiting for a lock when the attempt is cancelled or after `busy_s`."""
    since = 0.0

    def waits(prior: int) -> bool:
        nonlocal since
        now = time.monotonic()
        since = since if prior else now
        remaining_s = busy_s - (now - since)
        return remaining_s > 0 and not stopped.wait(min(remaining_s, _PAUSE_S, 0.001 * (prior + 1)))

    return waits
