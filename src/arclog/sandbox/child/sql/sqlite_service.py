"""SQLite's operations in its own process (`databases`)."""

# Stand-alone and light: the package has another name where it runs.
# ruff: noqa: TID252

from __future__ import annotations

from typing import Any, NoReturn

import apsw
import msgspec

from ..cells import packed_batch
from ..reach import Reach
from ..sql_errors import SqliteError
from . import databases
from .databases import Response
from .sqlite_database import Database


def serve(control: Any) -> NoReturn:
    databases.serve(control, SqliteDatabase)


class SqliteDatabase:
    """A connection of a task or transfer."""

    def __init__(self) -> None:
        self._database: Database | None = None
        self.operations = {
            name: getattr(self, f"_{name}") for name in ("connect", "run", "execute", "fetch", "insert", "close")
        }

    def interrupt(self) -> None:
        if self._database is not None:
            self._database.interrupt()

    def described(self, problem: Exception) -> dict[str, Any]:
        if isinstance(problem, SqliteError):
            return {"primary": problem.primary, "extended": problem.extended, "row": problem.row}
        return {}

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def _connect(self, arguments: dict[str, Any]) -> Response:
        apsw.hard_heap_limit(arguments["heap_bytes"])  # for all connections of this process
        reach = msgspec.convert(arguments["reach"], Reach)
        self._database = Database(arguments["database"], arguments["mode"], reach, arguments["busy_s"])
        return {}, b""

    def _run(self, arguments: dict[str, Any]) -> Response:
        self._opened.run(arguments["sql"])
        return {}, b""

    def _execute(self, arguments: dict[str, Any]) -> Response:
        columns, changed = self._opened.execute(arguments["sql"], arguments["params"])
        return {"columns": columns, "changed": changed}, b""

    def _fetch(self, arguments: dict[str, Any]) -> Response:
        rows = self._opened.rows()
        return {}, packed_batch(rows, arguments["most"], arguments["batch_bytes"], arguments["row_bytes"])

    def _insert(self, arguments: dict[str, Any]) -> Response:
        self._opened.insert(arguments["sql"], arguments["rows"])
        return {}, b""

    def _close(self, _: dict[str, Any]) -> Response:
        self.close()
        return {}, b""

    @property
    def _opened(self) -> Database:
        if self._database is None:
            raise SqliteError("the database is not open", "SQLITE_MISUSE", "SQLITE_MISUSE")
        return self._database
