"""Kind `sqlite`: SQL on a SQLite file, through the same library as the store.

Invariants: each attempt has its own connection, in the journal mode of the file. It waits up to `sql.busy_timeout_s`
for a lock. A cancelled attempt is interrupted and rolled back.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.model.data.shapes import Field
from arclog.model.outcome import Outcome
from arclog.ports.tool import TaskContext, ToolKind, ToolServices
from arclog.sandbox.confinement_settings import Reach, reach_of
from arclog.tools.sql.failures import SqlFailure, explained
from arclog.tools.sql.files import DATABASE_DOC, MEMORY, FileSession, located, run_on_file
from arclog.tools.sql.run import Answer, Bound, SqlConfig, Threads, batch_of, sql_kind
from arclog.tools.sql.sqlite_access import SqliteAccess
from arclog.tools.sql.values import checked, json_text

if TYPE_CHECKING:
    import apsw

HELPER = "sqlite"
_I64 = 1 << 63
#: Longest pause between two attempts to lock a file.
_PAUSE_S = 0.05
_READS = re.compile(r"\s*(select|values|explain)\b", re.IGNORECASE)
_WITH = re.compile(r"\s*with\b", re.IGNORECASE)
_WRITES = re.compile(r"\b(insert|update|delete|replace)\b", re.IGNORECASE)

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


class SqliteConfig(SqlConfig, frozen=True, kw_only=True):
    """A sqlite task."""

    database: str


class SqliteTool:
    """Runs SQL on SQLite files."""

    Config: type[Struct] = SqliteConfig

    def __init__(self, settings: Settings, scratch: Path) -> None:
        self._busy_s = settings.number("sql.busy_timeout_s")
        self._reach = reach_of(settings, scratch)
        self._threads = Threads(settings.integer("sql.threads"), "arclog-sqlite")

    async def run(self, config: SqliteConfig, context: TaskContext) -> Outcome:
        session = _Session(config.database, self._reach.including(context.files), self._busy_s, self._threads)
        return await run_on_file(session, config, context, HELPER)

    async def execution_ended(self, execution_id: str) -> None:
        """Nothing to release for a run."""

    async def close(self) -> None:
        self._threads.close()


class _Session(FileSession):
    """The connection of one attempt."""

    def __init__(self, database: str, reach: Reach, busy_s: float, threads: Threads) -> None:
        super().__init__(threads)
        self._database = database
        self._reach = reach
        self._busy_s = busy_s
        self._connection: apsw.Connection | None = None
        self._cursor: apsw.Cursor | None = None
        self._columns: list[str] = []
        self._access = SqliteAccess(reach)
        self._stopped = threading.Event()

    async def begin(self, statements: Sequence[Bound]) -> None:
        reads = all(_only_reads(statement.sql) for statement in statements)
        await self.call(self._plainly, "BEGIN" if reads else "BEGIN IMMEDIATE")

    async def execute(self, statement: Bound) -> Answer:
        params = [_bound(value, number) for number, value in enumerate(statement.params, start=1)]
        answer: Answer = await self.call(self._execute, statement.sql, params)
        return answer

    async def commit(self) -> None:
        await self.call(self._plainly, "COMMIT")

    def _interrupt(self) -> None:
        self._stopped.set()
        if self._connection is not None:
            self._connection.interrupt()

    # --- on the thread --------------------------------------------------------------------------------------------

    def _translated(self, function: Callable[..., Any], *args: Any) -> Any:
        import apsw

        try:
            return function(*args)
        except apsw.Error as problem:
            raise self._access.refusal or failure_of(problem, self._database, args, self._reach) from None

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close(force=True)
            self._connection = None

    def _open(self) -> None:
        import apsw

        connection = self._connection = open_file(self._database, self._reach)
        connection.set_busy_handler(patience(self._busy_s, self._stopped))
        # "x" is a name, never a text; foreign keys are enforced.
        connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
        connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
        self._access.apply_to(connection)

    def _plainly(self, sql: str) -> None:
        self._drop()
        self._open_connection.execute(sql)

    def _execute(self, sql: str, params: list[Any]) -> Answer:
        self._drop()
        connection = self._open_connection
        cursor = self._cursor = connection.cursor()

        def describe(cursor: apsw.Cursor, statement: str, _bindings: Any) -> bool:
            """Store the columns. It is called before the first row, also for a statement that returns no rows."""
            self._access.before(connection, sql, statement)
            self._columns = [column[0] for column in cursor.get_description()]
            return True

        cursor.exec_trace = describe
        before = connection.total_changes()
        cursor.execute(sql, params)
        self._access.check_attached(connection)
        if self._columns:
            return Answer(self._columns, 0)
        return Answer(None, connection.changes() if connection.total_changes() != before else 0)

    def _fetch(self) -> list[Any]:
        return [] if self._cursor is None else batch_of(self._cursor)

    def _drop(self) -> None:
        self._columns = []
        if self._cursor is not None:
            self._cursor.close(force=True)
            self._cursor = None

    @property
    def _open_connection(self) -> apsw.Connection:
        if self._connection is None:
            raise SqlFailure("connection", "the database is not open")
        return self._connection


def open_file(database: str, reach: Reach) -> apsw.Connection:
    """Return a connection, read-only if the file may not be written. Links are resolved before the check, not
    after it.
    """
    import apsw

    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    # If the folder is missing, SQLite reports it with the path as given.
    real = located(database, reach, write=False)
    in_memory = database in ("", MEMORY)
    if not in_memory and reach.refusal(real):
        flags = apsw.SQLITE_OPEN_READONLY
    if reach.write is not None:
        # Also without a file: it decides which files the connection attaches.
        from arclog.tools.held_files import connect

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


def _only_reads(sql: str) -> bool:
    return bool(_READS.match(sql) or (_WITH.match(sql) and not _WRITES.search(sql)))


def _bound(value: Any, number: int) -> Any:
    checked(value, f"value {number}", nul=True)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int) and not -_I64 <= value < _I64:
        raise SqlFailure("sql", f"value {number} is an integer of more than 64 bits; bind it as text", "22003")
    return json_text(value) if isinstance(value, (list, dict)) else value


def failure_of(problem: apsw.Error, database: str, args: tuple[Any, ...], reach: Reach) -> SqlFailure:
    import apsw

    primary = str(apsw.mapping_result_codes.get(getattr(problem, "result", 1), "SQLITE_ERROR"))
    extended = apsw.mapping_extended_result_codes.get(getattr(problem, "extendedresult", 0), primary)
    kind, retryable = _KINDS.get(primary, ("sql", None))
    message = str(problem)
    if primary == "SQLITE_CANTOPEN":
        # The path is shown completely: redaction would not recognize a part of a secret in it.
        why = "" if Path(reach.base, database).parent.is_dir() else ": its folder does not exist"
        message = f"cannot open the database {database}{why}"
    elif primary == "SQLITE_BUSY":
        message += "; another connection held its lock longer than sql.busy_timeout_s"
    params = len(args[1]) if len(args) > 1 else 0
    outside = "within a transaction" in message or "inside a transaction" in message
    message = explained(message, syntax="syntax error" in message, outside=outside, params=params)
    return SqlFailure(kind, message, str(extended), retryable=retryable)


def _open(services: ToolServices) -> SqliteTool:
    return SqliteTool(services.settings, services.scratch)


KIND = ToolKind(
    sql_kind(
        "sqlite",
        "Runs SQL on a SQLite file. The data are the rows.",
        HELPER,
        Field("database", "string", DATABASE_DOC, required=True, template=True),
    ),
    _open,
)
