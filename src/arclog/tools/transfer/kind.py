"""Kind `transfer`: moves rows from a source to a target in chunks, all or nothing.

Its data is `{rows, columns, bytes?}`. A database is changed in one transaction, and a file is put in place when it is
complete. So `replace` and `upsert` may be repeated, and a failed transfer leaves no rows behind.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, Struct

from arclog.model.config.extras import required
from arclog.model.config.kinds import KindSpec
from arclog.model.config.settings import Settings
from arclog.model.data.shapes import Field
from arclog.model.errors import ResultUnavailable
from arclog.model.outcome import Outcome, error, failed, result_error
from arclog.ports.tool import TaskContext, ToolKind, ToolServices
from arclog.sandbox.child.reach import MEMORY
from arclog.sandbox.confinement_settings import reach_of
from arclog.tools.object.location import Refused
from arclog.tools.postgres import place_of, server_of
from arclog.tools.sql.failures import SqlFailure
from arclog.tools.sql.files import located
from arclog.tools.transfer.rows import TYPES, Source, Target

if TYPE_CHECKING:
    from arclog.tools.sql.duckdb_host import DuckdbConnection
    from arclog.tools.sql.hosts import Hosts
    from arclog.tools.sql.sqlite import SqliteConnection, SqliteConnections
    from arclog.tools.transfer.files import CsvForm
    from arclog.tools.transfer.move import Moved
    from arclog.tools.transfer.postgres import Connecting

# ── config ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The config of a transfer task, and its checks.

DATABASES = ("sqlite", "postgres", "duckdb")
FILES = ("csv", "ndjson", "parquet")


class End(Struct, frozen=True, forbid_unknown_fields=True):
    """The keys that sources and targets share."""

    kind: Literal["sqlite", "postgres", "duckdb", "csv", "ndjson", "parquet"]
    database: str | None = None
    path: str | None = None
    table: str | None = None
    schema: str | None = None
    dsn: str | None = None
    host: str | None = None
    port: int | str | None = None
    user: str | None = None
    password: str | None = None
    dbname: str | None = None
    sslmode: str | None = None
    delimiter: str | None = None
    null: str | None = None
    header: bool | None = None


class SourceConfig(End, frozen=True, forbid_unknown_fields=True):
    """The source of the rows."""

    query: str | None = None
    params: list[Any] | dict[str, Any] | None = None


class TargetConfig(End, frozen=True, forbid_unknown_fields=True):
    """Target of the rows."""

    mode: Literal["append", "replace", "upsert"] | None = None
    key: str | list[str] | None = None
    create: bool | None = None
    types: dict[str, Literal[TYPES]] | None = None  # type: ignore[valid-type]  # the table of types is their list


class TransferConfig(Struct, frozen=True):
    """A transfer task."""

    target: TargetConfig
    source: SourceConfig | None = None
    rows: Any = UNSET
    columns: list[str] | dict[str, str] | None = None
    chunk_rows: int | None = None


#: Keys that only some kinds have.
_ONLY = {
    "database": ("sqlite", "duckdb"),
    "path": FILES,
    "table": DATABASES,
    "schema": ("postgres", "duckdb"),
    "query": DATABASES,
    "params": DATABASES,
    "mode": (*DATABASES, *FILES),
    "key": DATABASES,
    "create": DATABASES,
    "delimiter": ("csv",),
    "null": ("csv",),
    "header": ("csv",),
    **dict.fromkeys(("dsn", "host", "port", "user", "password", "dbname", "sslmode"), ("postgres",)),
}


def check(config: TransferConfig) -> None:
    """Refuse keys that do not belong to a kind, and missing ones. Raises SqlFailure."""
    if (config.source is None) == (config.rows is UNSET):
        raise SqlFailure("config", "give either `source` or `rows`")
    if config.chunk_rows is not None and config.chunk_rows < 1:
        raise SqlFailure("config", f"chunk_rows: {config.chunk_rows} is below 1")
    if config.columns is not None and not config.columns:
        raise SqlFailure("config", "columns: names none")
    for role, end in (("source", config.source), ("target", config.target)):
        if end is None:
            continue
        for name, kinds in _ONLY.items():
            if getattr(end, name, None) is not None and end.kind not in kinds:
                raise SqlFailure("config", f"{role}.{name} does not belong to kind {end.kind}")
        if end.kind in FILES and not end.path:
            raise SqlFailure("config", f"{role}: kind {end.kind} needs `path`")
    if (
        config.source is not None
        and config.source.kind in DATABASES
        and bool(config.source.table) == bool(config.source.query)
    ):
        raise SqlFailure("config", "source: give either `table` or `query`")
    if config.source is not None and config.source.params is not None and not config.source.query:
        raise SqlFailure("config", "source.params: only a `query` takes values")
    _check_target(config.target)


def _check_target(target: TargetConfig) -> None:
    if target.kind in DATABASES and not target.table:
        raise SqlFailure("config", "target: a database needs `table`")
    if target.kind in FILES and target.mode not in (None, "replace"):
        raise SqlFailure("config", f"target.mode: a file is always replaced, never {target.mode}")
    if (target.mode == "upsert") != bool(target.key):
        raise SqlFailure("config", "target: `mode: upsert` and `key` (the columns that identify a row) belong together")


class _Connections:
    """The connections of one transfer to databases that are files."""

    def __init__(self, duckdb: Hosts, sqlite: SqliteConnections, scope: str) -> None:
        self._duckdb = duckdb
        self._sqlite = sqlite
        self._scope = scope
        self._opened: list[DuckdbConnection | SqliteConnection] = []

    def duckdb(self) -> DuckdbConnection:
        from arclog.tools.sql.duckdb_host import DuckdbConnection

        connection = DuckdbConnection(self._duckdb.connection(self._scope))
        self._opened.append(connection)
        return connection

    def sqlite(self) -> SqliteConnection:
        connection = self._sqlite.connection(self._scope)
        self._opened.append(connection)
        return connection

    def close(self) -> None:
        for connection in self._opened:
            connection.close()


# ── kind ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class TransferTool:
    """Runs transfers, each in a thread."""

    Config: type[Struct] = TransferConfig

    def __init__(self, settings: Settings, scratch: Path) -> None:
        from arclog.tools.sql.duckdb_host import DUCKDB
        from arclog.tools.sql.hosts import Hosts
        from arclog.tools.sql.run import Threads
        from arclog.tools.sql.sqlite import SqliteConnections

        self._settings = settings
        self._duckdb = Hosts.shared(DUCKDB, settings, scratch)
        self._sqlite = SqliteConnections(settings, scratch)
        self._reach = reach_of(settings, scratch)
        self._chunk_rows = settings.integer("transfer.chunk_rows")
        self._busy_s = settings.number("sql.busy_timeout_s")
        self._threads = Threads(settings.integer("sql.threads"), "arclog-transfer")

    async def run(self, config: TransferConfig, context: TaskContext) -> Outcome:
        from arclog.tools.transfer.new_files import MadeMeanwhile

        try:
            check(config)
            try:
                moved = await self._moved(config, context)
            except MadeMeanwhile:
                moved = await self._moved(config, context)
        except MadeMeanwhile:
            message = "another process repeatedly removes and creates the database file"
            return failed(error("serialization", message))
        except SqlFailure as failure:
            return failed(failure.problem)
        except Refused as refused:
            return failed(refused.problem)
        except ResultUnavailable as problem:
            return failed(result_error(problem))
        servers = {
            side: place
            for side, end in (("source", config.source), ("target", config.target))
            if end is not None and end.kind == "postgres" and (place := place_of(self._server(end, context)))
        }
        meta = {"servers": servers} if servers else {}
        return Outcome(result={"rows": moved.rows, "columns": moved.columns, **moved.more}, meta=meta)

    async def _moved(self, config: TransferConfig, context: TaskContext) -> Moved:
        """Move all rows once."""
        from arclog.tools.transfer.move import Move

        loop = asyncio.get_running_loop()
        connections = _Connections(self._duckdb, self._sqlite, context.scope)
        try:
            target = self._target(config.target, context, connections)
            source = self._source(config, context, loop, connections)
            move = Move(
                source,
                target,
                chunk_rows=config.chunk_rows or self._chunk_rows,
                columns=config.columns,
                types=config.target.types or {},
                progress=lambda done, total, unit: _report_progress(loop, context, done, total, unit),
            )
            return await self._threads.call(move.interrupt, move.run)
        finally:
            connections.close()

    async def execution_ended(self, execution_id: str) -> None:
        """Nothing to release for a run."""

    async def close(self) -> None:
        await self._duckdb.close()
        await self._sqlite.close()
        self._threads.close()

    def _source(
        self,
        config: TransferConfig,
        context: TaskContext,
        loop: asyncio.AbstractEventLoop,
        connections: _Connections,
    ) -> Source:
        from arclog.tools.transfer import files

        end = config.source
        if end is None:
            return files.ResultSource(config.rows, context.results, loop)
        if end.kind == "csv":
            return files.CsvSource(*self._file(end), _csv(end))
        if end.kind == "ndjson":
            return files.NdjsonSource(*self._file(end))
        asked: dict[str, Any] = {"table": end.table or "", "query": end.query or "", "params": end.params}
        if end.kind == "sqlite":
            from arclog.tools.transfer.sqlite import SqliteSource

            database = self._database(end, write=False)
            return SqliteSource(connections.sqlite(), database, **asked)
        if end.kind == "postgres":
            from arclog.tools.transfer.postgres import PostgresSource

            return PostgresSource(self._connecting(end, context), schema=end.schema or "", **asked)
        _need_duckdb(end.kind)
        from arclog.tools.transfer.duckdb import DuckdbSource

        if end.kind == "parquet":
            path = self._file(end)[1]
            host = connections.duckdb()
            return DuckdbSource(host, ":memory:", self._duckdb_options(host), path=path)
        database = self._database(end, write=False)
        host = connections.duckdb()
        options = self._duckdb_options(host)
        return DuckdbSource(host, database, options, self._busy_s, schema=end.schema or "", **asked)

    def _target(self, end: TargetConfig, context: TaskContext, connections: _Connections) -> Target:
        from arclog.tools.transfer import files

        if end.kind == "csv":
            return files.CsvTarget(*self._file(end), _csv(end))
        if end.kind == "ndjson":
            return files.NdjsonTarget(*self._file(end))
        if end.kind == "parquet":
            _need_duckdb(end.kind)
            from arclog.tools.transfer.duckdb import ParquetTarget

            shown, path = self._file(end)
            host = connections.duckdb()
            return ParquetTarget(shown, path, host, self._duckdb_options(host))
        key = [end.key] if isinstance(end.key, str) else end.key or []
        mode, create, table = end.mode or "append", end.create is True, end.table or ""
        if end.kind == "sqlite":
            from arclog.tools.transfer.sqlite import SqliteTarget

            database = self._database(end, write=True)
            return SqliteTarget(connections.sqlite(), database, table, mode, key, create=create)
        if end.kind == "postgres":
            from arclog.tools.transfer.postgres import PostgresTarget

            return PostgresTarget(self._connecting(end, context), table, end.schema or "", mode, key, create=create)
        _need_duckdb(end.kind)
        from arclog.tools.transfer.duckdb import DuckdbTarget

        database = self._database(end, write=True)
        host = connections.duckdb()
        return DuckdbTarget(
            host,
            database,
            self._duckdb_options(host),
            table,
            end.schema or "",
            mode,
            key,
            create=create,
            busy_s=self._busy_s,
        )

    def _connecting(self, end: End, context: TaskContext) -> Connecting:
        with required("postgres", "kind postgres"):
            import psycopg  # noqa: F401 - asks whether the extra is there
        from arclog.tools.sql.postgres_servers import PostgresServers
        from arclog.tools.transfer.postgres import Connecting

        servers = PostgresServers(self._settings)
        return Connecting(self._server(end, context), servers, self._settings.number("tasks.kill_grace_s"))

    @staticmethod
    def _server(end: End, context: TaskContext) -> dict[str, Any]:
        # The task's `auth` belongs to the end that names no server.
        return server_of(end, None if end.dsn or end.host else context.auth)

    def _database(self, end: End, *, write: bool) -> str:
        """Return the real path of a database file. Raises SqlFailure."""
        if not end.database:
            raise SqlFailure("config", f"a {end.kind} source or target needs `database`, the path of its file")
        if end.database == MEMORY:
            raise SqlFailure("config", f"database: {MEMORY} ends with the transfer, and its rows with it; name a file")
        return located(end.database, self._reach, write=write)

    def _file(self, end: End) -> tuple[str, Path]:
        """Return the name of a file for messages, and its real path."""
        from arclog.tools.object.folder import local_files
        from arclog.tools.object.location import FILE, locate

        at = locate(end.path or "")
        if at.scheme != FILE:
            raise SqlFailure("config", f"path: {end.path} is not a file; move it with `kind: object` before or after")
        return at.key, local_files(at.key, self._settings, self._reach).path_of(at.key)

    def _duckdb_options(self, connection: DuckdbConnection) -> dict[str, str]:
        from arclog.tools.duckdb import options_of

        return options_of(self._settings, connection.folder)


def _need_duckdb(kind: str) -> None:
    from arclog.tools.duckdb import require_duckdb

    require_duckdb(f"kind {kind}")


def _csv(end: End) -> CsvForm:
    from arclog.tools.transfer.files import CsvForm

    delimiter = "," if end.delimiter is None else end.delimiter
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise SqlFailure("config", "delimiter: the separator is not one character")
    return CsvForm(delimiter, end.null or "", end.header is not False)


def _report_progress(
    loop: asyncio.AbstractEventLoop, context: TaskContext, done: int, total: int | None, unit: str
) -> None:
    loop.call_soon_threadsafe(context.progress, done, total, unit)


def _open(services: ToolServices) -> TransferTool:
    return TransferTool(services.settings, services.scratch)


def _field(name: str, kind: str, doc: str, **more: Any) -> Field:
    return Field(name, kind, doc, template=True, **more)


_SHARED = (
    _field("database", "string", "sqlite, duckdb: path of the file."),
    _field("table", "string", "Databases: name of the table."),
    _field("schema", "string", "postgres, duckdb: schema of the table."),
    _field("path", "string", "csv, ndjson, parquet: the file, within `object.file_root`."),
    _field("dsn", "string", "postgres: postgresql://…; without dsn and host, the task's `auth` provides the address."),
    _field("host", "string", "postgres: server."),
    _field("port", "integer|string", "postgres: port."),
    _field("user", "string", "postgres: user name."),
    _field("password", "string", "postgres: password. Prefer `auth`, or `{{ keychain.name.password }}`."),
    _field("dbname", "string", "postgres: database."),
    _field("sslmode", "string", "postgres: as in a postgres task."),
    _field("delimiter", "string", "csv: separator, one character. Default: `,`."),
    _field("null", "string", "csv: text that represents NULL. Default: the empty text."),
    _field(
        "header",
        "boolean",
        "csv: whether the first row contains the column names (default). Without names, columns are called c1, c2 and so on.",
    ),
)
_KINDS = Field("kind", "string", "The kind of database or file.", required=True, choices=(*DATABASES, *FILES))

KIND = ToolKind(
    KindSpec(
        name="transfer",
        opens_files=False,
        summary="Moves rows between databases and files in chunks, all or nothing.",
        auth=("postgres_credential", "secret", "secret_manager", "basic", "env", "file"),
        fields=(
            Field(
                "source",
                "object",
                "Source of the rows, unless `rows` is set.",
                fields=(
                    _KINDS,
                    *_SHARED,
                    Field(
                        "query",
                        "string",
                        "Databases: a SELECT statement instead of `table`. It cannot contain templates; bind values with `params`.",
                        plain=True,
                    ),
                    _field(
                        "params",
                        "list|object",
                        "Values for placeholders in the query: a map for `:name`, a list by position.",
                    ),
                ),
            ),
            _field(
                "rows",
                "any",
                "Rows to write, instead of `source`: a list of maps, or a stored result that is such a list.",
            ),
            Field(
                "target",
                "object",
                "Target of the rows.",
                required=True,
                fields=(
                    _KINDS,
                    *_SHARED,
                    _field(
                        "mode",
                        "string",
                        "`append` (default for databases), `replace` (the only mode for files) or `upsert`.",
                        choices=("append", "replace", "upsert"),
                    ),
                    _field(
                        "key",
                        "string|list",
                        "upsert: columns that identify a row. Of several rows with the same key, the last is kept.",
                        items=_field("column", "string", "A column."),
                    ),
                    _field(
                        "create", "boolean", "Whether to create the database file and the table if they do not exist."
                    ),
                    _field("types", "object", "Column types of a new table, by column: " + ", ".join(TYPES) + "."),
                ),
            ),
            _field(
                "columns",
                "list|object",
                "Columns to transfer, in this order, or a map of target names to source names.",
            ),
            _field(
                "chunk_rows",
                "integer",
                "Number of rows that are transferred at a time. Default: the setting `transfer.chunk_rows`.",
                minimum=1,
            ),
        ),
        by_ref=("rows",),
        one_of=(("source", "rows"),),
    ),
    _open,
)
