"""Rows to Parquet files, which DuckDB writes: it can only write what it holds, so the rows are gathered first."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arclog.tools.sql.duckdb_host import Connection
from arclog.tools.transfer.duckdb import DuckdbTarget
from arclog.tools.transfer.files import PathTarget
from arclog.tools.transfer.rows import Column, Row


class ParquetTarget(PathTarget):
    """A Parquet file, gathered in a DuckDB database of its own and written at the end."""

    def __init__(self, shown: str, path: Path, connection: Connection, options: Mapping[str, str]) -> None:
        super().__init__(shown, path)
        self._folder = connection.folder / f"parquet-{id(self)}"
        database = str(self._folder / "rows.db")
        self._table = DuckdbTarget(connection, database, options, "rows", "", "append", (), create=True)

    def open(self, columns: Sequence[Column]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._table.open(columns)

    def write(self, rows: list[Row]) -> None:
        self._table.write(rows)

    def commit(self) -> dict[str, Any]:
        # The table is never committed: its database is there for this file alone.
        with self._replacing() as temporary:
            self._table.export(temporary)
        return {"bytes": self._path.stat().st_size}

    def interrupt(self) -> None:
        self._table.interrupt()

    def close(self) -> None:
        self._table.close()
        shutil.rmtree(self._folder, ignore_errors=True)
