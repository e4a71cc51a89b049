"""DuckDB's operations in its own process (`databases`)."""

# Stand-alone and light: the package has another name where it runs.
# ruff: noqa: TID252

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import duckdb

from ..cells import packed_batch
from . import databases
from .databases import Response

#: Number of rows that are taken from DuckDB at a time.
_ROWS = 100


def serve(control: Any) -> NoReturn:
    databases.serve(control, DuckdbDatabase)


class DuckdbDatabase:
    """A connection of a task or transfer."""

    def __init__(self) -> None:
        self._database: Any = None
        #: the rows of the last statement that are not sent yet
        self._rows: Iterator[Any] = iter(())
        self.operations = {
            name: getattr(self, f"_{name}")
            for name in ("connect", "execute", "statement", "fetch", "begin", "commit", "close")
        }

    def interrupt(self) -> None:
        database = self._database
        if database is not None:
            try:
                database.interrupt()
            except Exception:  # noqa: BLE001 - it came to its end meanwhile
                return

    def described(self, _: Exception) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def _connect(self, arguments: dict[str, Any]) -> Response:
        self._database = duckdb.connect(arguments["database"], config=arguments["options"])
        return {}, b""

    def _begin(self, _: dict[str, Any]) -> Response:
        self._database.begin()
        return {}, b""

    def _commit(self, _: dict[str, Any]) -> Response:
        self._database.commit()
        return {}, b""

    def _close(self, _: dict[str, Any]) -> Response:
        self.close()
        return {}, b""

    def _execute(self, arguments: dict[str, Any]) -> Response:
        self._run(arguments["sql"], arguments["params"])
        return {"columns": self._columns()}, b""

    def _statement(self, arguments: dict[str, Any]) -> Response:
        """Execute like `execute` if the SQL is one statement, and return the kind of statement as well."""
        statements = duckdb.extract_statements(arguments["sql"])
        if len(statements) != 1:
            return {"count": len(statements)}, b""
        parsed = statements[0]
        self._run(parsed, arguments["params"])
        return {
            "count": 1,
            "columns": self._columns(),
            "attaches": parsed.type == duckdb.StatementType.ATTACH,
            "reads": parsed.expected_result_type == [duckdb.ExpectedResultType.QUERY_RESULT],
        }, b""

    def _run(self, statement: Any, params: list[Any]) -> None:
        self._rows = iter(())
        self._database.execute(statement, params)
        self._rows = self._remaining()

    def _remaining(self) -> Iterator[Any]:
        while rows := self._database.fetchmany(_ROWS):
            yield from rows

    def _columns(self) -> list[tuple[str, str]]:
        return [(str(column[0]), str(column[1])) for column in self._database.description or []]

    def _fetch(self, arguments: dict[str, Any]) -> Response:
        return {}, packed_batch(self._rows, arguments["most"], arguments["batch_bytes"], arguments["row_bytes"])
