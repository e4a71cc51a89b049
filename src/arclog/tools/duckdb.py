"""Kind `duckdb`: SQL on DuckDB, for files of rows (Parquet, CSV, JSON) and analysis in place.

Invariants: DuckDB runs in a confined process (`sql.hosts`). Each attempt has its own connection with the
operator's limits, which SQL cannot change. No extension is fetched from the network. A cancelled attempt is interrupted
and rolled back.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import decode

from arclog.drivers.backoff import Backoff
from arclog.model.config.extras import required
from arclog.model.config.settings import Settings
from arclog.model.data.shapes import Field
from arclog.model.outcome import Outcome
from arclog.ports.tool import TaskContext, ToolKind, ToolServices
from arclog.sandbox.child.reach import MEMORY, NO_FILES, Reach
from arclog.sandbox.confinement_settings import reach_of
from arclog.tools.sql.duckdb_host import DUCKDB, DuckdbConnection, DuckdbError, extension_folder
from arclog.tools.sql.failures import SqlFailure, explained
from arclog.tools.sql.files import DATABASE_DOC, FileSession, not_ours, run_on_file
from arclog.tools.sql.hosts import Hosts
from arclog.tools.sql.run import BATCH, Answer, Bound, SqlConfig, Threads, failed_with, sql_kind
from arclog.tools.sql.values import checked, is_flat, json_text

HELPER = "duckdb"
_RETURNING = re.compile(r"\breturning\b", re.IGNORECASE)
#: The only column of a statement that changes rows and returns none.
_CHANGED = ["Count"]

#: Error kinds by exception; others are `sql`.
_KINDS = {
    "ConstraintException": "constraint",
    "TransactionException": "serialization",
    "SerializationException": "serialization",
    "IOException": "connection",
    "ConnectionException": "connection",
    "PermissionException": "auth",
    "OutOfMemoryException": "limit",
}
#: DuckDB's messages about a file that another process has open, or that this process is still closing or has attached
#: elsewhere.
_IN_USE = ("Could not set lock on file", "Unique file handle conflict")
#: First and longest pause between two attempts to open a file that another process has open.
_FIRST_PAUSE_S = 0.001
_PAUSE_S = 0.05
#: Errors of files that a retry would not fix.
_FOR_GOOD = ("not a valid DuckDB database file", "Permission denied", "Read-only file system", "Is a directory")
#: DuckDB's messages about a file that its process cannot reach.
_OUT_OF_REACH = ("No files found", "No such file", "Permission denied", "Read-only file system")
#: DuckDB's messages about a missing extension.
_EXTENSION = re.compile(
    r'Extension "(?:[^"]*/)?(\w+)\.duckdb_extension" not found|requires the extension (\w+) to be loaded'
    r"|it exists in the (\w+) extension"
)
#: Alternatives that need no extension.
_INSTEAD = {
    **dict.fromkeys(
        ("httpfs", "aws", "azure"),
        "copy the file here first (`kind: object`, or `kind: http` with `download: true`) and read the copy; ",
    ),
    **dict.fromkeys(("sqlite_scanner", "postgres_scanner"), "`kind: transfer` moves tables between databases; "),
}


class DuckdbConfig(SqlConfig, frozen=True, kw_only=True):
    """A duckdb task."""

    database: str = MEMORY


class DuckdbTool:
    """Runs SQL on DuckDB."""

    Config: type[Struct] = DuckdbConfig

    def __init__(self, settings: Settings, scratch: Path) -> None:
        self._threads = Threads(settings.integer("sql.threads"), "arclog-duckdb")
        self._settings = settings
        self._busy_s = settings.number("sql.busy_timeout_s")
        self._reach = reach_of(settings, scratch)
        require_duckdb("kind duckdb")
        self._hosts = Hosts.shared(DUCKDB, settings, scratch)
        self._hosts.start()

    async def run(self, config: DuckdbConfig, context: TaskContext) -> Outcome:
        try:
            connection = self._hosts.connection(context.scope, context.files)
        except SqlFailure as problem:
            return failed_with(problem, HELPER)
        options = options_of(self._settings, connection.folder)
        reach = self._reach.including(context.files)
        session = _Session(DuckdbConnection(connection), config.database, reach, options, self._busy_s, self._threads)
        try:
            return await run_on_file(session, config, context, HELPER)
        finally:
            self._hosts.release(connection)

    async def execution_ended(self, execution_id: str) -> None:
        """Nothing to release for a run."""

    async def close(self) -> None:
        await self._hosts.close()
        self._threads.close()


class _Session(FileSession):
    """The connection of one attempt."""

    def __init__(
        self,
        connection: DuckdbConnection,
        database: str,
        reach: Reach,
        options: dict[str, str],
        busy_s: float,
        threads: Threads,
    ) -> None:
        super().__init__(threads)
        self._connection = connection
        self._database = database
        self._reach = reach
        self._options = options
        self._busy_s = busy_s
        self._stopped = threading.Event()
        #: JSON columns, which the driver returns as text
        self._json: list[int] = []

    async def begin(self, statements: Sequence[Bound]) -> None:  # noqa: ARG002 - the same for all
        await self.call(self._connection.begin)

    async def execute(self, statement: Bound) -> Answer:
        params = [
            _bound(value, number, json=number in statement.json)
            for number, value in enumerate(statement.params, start=1)
        ]
        answer: Answer = await self.call(self._execute, statement.sql, params)
        return answer

    async def commit(self) -> None:
        await self.call(self._connection.commit)

    def _interrupt(self) -> None:
        self._stopped.set()
        self._connection.interrupt()

    # --- on the thread --------------------------------------------------------------------------------------------

    def _translated(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except DuckdbError as problem:
            failure = failure_of(problem, args)
            if self._reach.has_none() and any(words in str(problem) for words in _OUT_OF_REACH):
                failure = SqlFailure("config", f"{failure.problem.message}; {NO_FILES}", failure.problem.code)
            raise failure from None

    def _close(self) -> None:
        self._connection.close()

    def _open(self) -> None:
        not_ours(self._database, self._reach, write=False)
        if self._database != MEMORY and not Path(self._reach.base, self._database).parent.is_dir():
            # The path is shown completely: redaction would not recognize a part of a secret in it.
            message = f"cannot open the database {self._database}: its folder does not exist"
            raise SqlFailure("connection", message, "IO", retryable=False)
        connect(self._connection, self._database, self._options, self._busy_s, self._stopped)

    def _execute(self, sql: str, params: list[Any]) -> Answer:
        done = self._connection.statement(sql, params)
        if done.attaches:
            self._look_at_attached()
            return Answer(None, 0)
        columns = [name for name, _ in done.columns]
        self._json = [at for at, (_, kind) in enumerate(done.columns) if kind == "JSON"]
        if done.reads or (_RETURNING.search(sql) and columns != _CHANGED):
            return Answer(columns, 0)
        changed = self._connection.fetch(BATCH) if columns == _CHANGED else []
        return Answer(None, int(changed[0][0]) if changed else 0)

    def _look_at_attached(self) -> None:
        self._connection.execute("SELECT path FROM duckdb_databases() WHERE path IS NOT NULL")
        while rows := self._connection.fetch(BATCH):
            for (path,) in rows:
                not_ours(path, self._reach, write=False)

    def _fetch(self) -> list[Any]:
        rows: list[Any] = self._connection.fetch(BATCH)
        return [self._decoded(row) for row in rows] if self._json else rows

    def _decoded(self, row: tuple[Any, ...]) -> list[Any]:
        cells = list(row)
        for at in self._json:
            if cells[at] is not None:
                cells[at] = decode(cells[at])
        return cells


def require_duckdb(feature: str) -> None:
    """Raise MissingExtra if DuckDB is not installed. It is not imported here, but in its own process."""
    with required("duckdb", feature):
        if find_spec("duckdb") is None:
            raise ModuleNotFoundError(name="duckdb")


def connect(
    connection: DuckdbConnection, database: str, options: Mapping[str, str], busy_s: float, stopped: threading.Event
) -> None:
    """Open a database. Waits up to `busy_s` for a file that is in use elsewhere, or until the attempt is `stopped`."""
    end = time.monotonic() + busy_s
    backoff = Backoff(_FIRST_PAUSE_S, _PAUSE_S)
    while True:
        try:
            connection.connect(database, options)
        except DuckdbError as problem:
            remaining_s = end - time.monotonic()
            if not _is_in_use(str(problem)) or remaining_s <= 0 or stopped.wait(min(remaining_s, backoff.pause_s())):
                raise
        else:
            return


def options_of(settings: Settings, scratch: Path) -> dict[str, str]:
    """Return the options of a database with the operator's limits."""
    memory, disk = settings.integer("duckdb.max_memory_bytes"), settings.integer("duckdb.max_temp_bytes")
    return {
        "extension_directory": extension_folder(settings),
        "memory_limit": f"{memory}B",
        "max_temp_directory_size": f"{disk}B",
        "temp_directory": str(scratch / "duckdb"),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "python_enable_replacements": "false",
        "lock_configuration": "true",
    }


def _bound(value: Any, number: int, *, json: bool) -> Any:
    checked(value, f"value {number}", nul=True)
    if json and isinstance(value, str):
        return value  # it is JSON already, or the cast reports the error
    if (json and value is not None) or isinstance(value, dict) or (isinstance(value, list) and not is_flat(value)):
        return json_text(value)
    return value


def failure_of(problem: DuckdbError, args: tuple[Any, ...]) -> SqlFailure:
    name, text = problem.name, str(problem)
    if lacking := _EXTENSION.search(text):
        return _missing_extension(next(filter(None, lacking.groups())))
    kind = _KINDS.get(name, "sql")
    retryable = None
    if name == "IOException" and any(words in text for words in ("No files found", "No such file")):
        kind = "not_found"
    elif _is_in_use(text):
        kind = "serialization"
        text += "; the file is in use elsewhere (a task waits for it as long as sql.busy_timeout_s)"
    elif any(words in text for words in _FOR_GOOD):
        retryable = False
    if any(words in text for words in ("No space left on device", "Disk quota exceeded")):
        kind = "limit"  # during any operation: a commit that cannot be written is not a conflict
    params = len(args[1]) if len(args) > 1 else 0
    message = explained(text, syntax=name == "ParserException", outside=False, params=params)
    return SqlFailure(kind, message, name.removesuffix("Exception"), retryable=retryable)


def _is_in_use(text: str) -> bool:
    return any(words in text for words in _IN_USE)


def _missing_extension(name: str) -> SqlFailure:
    """Return the error for a missing extension. DuckDB's own advice is to install it, which tasks cannot do."""
    message = (
        f"this needs DuckDB's extension {name}, which is not installed, and tasks cannot install it: {_INSTEAD.get(name, '')}"
        f"or have {name}.duckdb_extension put into the folder that the setting duckdb.extensions names, and begin the "
        f"command with LOAD {name}"
    )
    return SqlFailure("config", message, "MissingExtension")


def _open(services: ToolServices) -> DuckdbTool:
    return DuckdbTool(services.settings, services.scratch)


KIND = ToolKind(
    sql_kind(
        "duckdb",
        "Runs SQL on DuckDB, in memory or on a file; reads and writes Parquet, CSV and JSON files. The data are the rows.",
        HELPER,
        Field("database", "string", DATABASE_DOC, default=MEMORY, template=True),
    ),
    _open,
)
