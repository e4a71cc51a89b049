"""Kind `sqlite`: SQL on a SQLite file. On a server's worker, SQLite runs in a confined process (`sql.hosts`).

Invariants: each attempt has its own connection, in the journal mode of the file. It waits up to `sql.busy_timeout_s`
for a lock. A cancelled attempt is interrupted and rolled back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.model.data.shapes import Field
from arclog.model.outcome import Outcome
from arclog.ports.tool import TaskContext, ToolKind, ToolServices
from arclog.sandbox.child.sql_errors import Refused, SqliteError
from arclog.tools.sql.failures import SqlFailure
from arclog.tools.sql.files import DATABASE_DOC, FileSession, run_on_file
from arclog.tools.sql.run import Answer, Bound, SqlConfig, Threads, failed_with, sql_kind
from arclog.tools.sql.sqlite import SqliteConnection, SqliteConnections, failure_of
from arclog.tools.sql.values import checked, json_text

HELPER = "sqlite"
_I64 = 1 << 63
_READS = re.compile(r"\s*(select|values|explain)\b", re.IGNORECASE)
_WITH = re.compile(r"\s*with\b", re.IGNORECASE)
_WRITES = re.compile(r"\b(insert|update|delete|replace)\b", re.IGNORECASE)


class SqliteConfig(SqlConfig, frozen=True, kw_only=True):
    """A sqlite task."""

    database: str


class SqliteTool:
    """Runs SQL on SQLite files."""

    Config: type[Struct] = SqliteConfig

    def __init__(self, settings: Settings, scratch: Path) -> None:
        self._connections = SqliteConnections(settings, scratch)
        self._threads = Threads(settings.integer("sql.threads"), "arclog-sqlite")
        self._connections.start()

    async def run(self, config: SqliteConfig, context: TaskContext) -> Outcome:
        try:
            connection = self._connections.connection(context.scope, context.files)
        except SqlFailure as problem:
            return failed_with(problem, HELPER)
        try:
            return await run_on_file(_Session(connection, config.database, self._threads), config, context, HELPER)
        finally:
            self._connections.release(connection)

    async def execution_ended(self, execution_id: str) -> None:
        """Nothing to release for a run."""

    async def close(self) -> None:
        await self._connections.close()
        self._threads.close()


class _Session(FileSession):
    """The connection of one attempt."""

    def __init__(self, connection: SqliteConnection, database: str, threads: Threads) -> None:
        super().__init__(threads)
        self._connection = connection
        self._database = database

    async def begin(self, statements: Sequence[Bound]) -> None:
        reads = all(_only_reads(statement.sql) for statement in statements)
        await self.call(self._connection.run, "BEGIN" if reads else "BEGIN IMMEDIATE")

    async def execute(self, statement: Bound) -> Answer:
        params = [_bound(value, number) for number, value in enumerate(statement.params, start=1)]
        answer: Answer = await self.call(self._execute, statement.sql, params)
        return answer

    async def commit(self) -> None:
        await self.call(self._connection.run, "COMMIT")

    def _interrupt(self) -> None:
        self._connection.interrupt()

    # --- on the thread --------------------------------------------------------------------------------------------

    def _translated(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except (Refused, SqliteError) as problem:
            params = len(args[1]) if len(args) > 1 else 0
            raise failure_of(problem, self._database, self._connection.reach, params) from None

    def _close(self) -> None:
        self._connection.close()

    def _open(self) -> None:
        self._connection.open(self._database, "task")

    def _execute(self, sql: str, params: list[Any]) -> Answer:
        columns, changed = self._connection.execute(sql, params)
        return Answer([name for name, _ in columns], 0) if columns else Answer(None, changed)

    def _fetch(self) -> list[Any]:
        return self._connection.fetch()


def _only_reads(sql: str) -> bool:
    return bool(_READS.match(sql) or (_WITH.match(sql) and not _WRITES.search(sql)))


def _bound(value: Any, number: int) -> Any:
    checked(value, f"value {number}", nul=True)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int) and not -_I64 <= value < _I64:
        raise SqlFailure("sql", f"value {number} is an integer of more than 64 bits; bind it as text", "22003")
    return json_text(value) if isinstance(value, (list, dict)) else value


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
