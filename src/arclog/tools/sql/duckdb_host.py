"""DuckDB in its own process: the worker's side. The process's side is `child.sql.duckdb_database`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arclog.model.config.settings import Settings
from arclog.tools.sql.failures import SqlFailure
from arclog.tools.sql.hosts import Connection, Library


class DuckdbError(Exception):
    """An exception of DuckDB: its name and its text."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        super().__init__(text)


class Statement(NamedTuple):
    """The kind and the columns of a statement."""

    #: (name, type) of each column
    columns: list[tuple[str, str]]
    reads: bool
    attaches: bool


class DuckdbConnection:
    """The operations of a connection to DuckDB."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.folder = connection.folder
        self.write_file = connection.write_file
        self.remove_file = connection.remove_file
        self.fetch = connection.fetch
        self.interrupt = connection.interrupt
        self.close = connection.close

    def connect(self, database: str, options: Mapping[str, str]) -> None:
        self._connection.do("connect", {"database": database, "options": dict(options)})

    def begin(self) -> None:
        self._connection.do("begin")

    def commit(self) -> None:
        self._connection.do("commit")

    def execute(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[str, str]]:
        """Run SQL. Return name and type of each column."""
        header, _ = self._connection.do("execute", {"sql": sql, "params": list(params)})
        return [(name, kind) for name, kind in header["columns"]]

    def statement(self, sql: str, params: Sequence[Any]) -> Statement:
        """Run a single statement. Raises SqlFailure if there are more."""
        header, _ = self._connection.do("statement", {"sql": sql, "params": list(params)})
        if header["count"] != 1:
            message = f"DuckDB reads {header['count']} statements where one was found: {sql[:200]}"
            raise SqlFailure("sql", message, "Parser")
        columns = [(name, kind) for name, kind in header["columns"]]
        return Statement(columns, reads=header["reads"], attaches=header["attaches"])


def extension_folder(settings: Settings) -> str:
    """Return the folder of DuckDB's extensions."""
    configured = settings.text("duckdb.extensions")
    return str(Path(configured).absolute() if configured else Path.home() / ".duckdb" / "extensions")


def _error(header: dict[str, Any]) -> DuckdbError:
    return DuckdbError(str(header["error"]), str(header.get("text", "")))


DUCKDB = Library("duckdb", "DuckDB", _error, lambda settings: [extension_folder(settings)])
