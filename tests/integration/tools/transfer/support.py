"""What the tests of kind transfer share: a runner, and every end as a thing that can be filled and looked at."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import duckdb
import msgspec

from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome, TaskError
from arclog.results.memory import MemoryResults
from arclog.sandbox.confinement_settings import for_server
from arclog.testing.tools import Recorder, task_context
from arclog.tools.transfer.kind import TransferConfig, TransferTool
from tests.servers.postgres import Database


class Runner:
    """Runs transfers in one folder."""

    def __init__(self, folder: Path, scratch: str = "scratch", *, server: bool = False, **settings: Any) -> None:
        changed = {name.replace("__", "."): value for name, value in settings.items()}
        defaults = {"object.file_root": str(folder), "home": str(folder / ".arclog"), "transfer.chunk_rows": 3}
        defaults["postgres.allow_networks"] = "loopback"  # as for the worker of a server
        self.folder = folder
        whole = Settings({**defaults, **changed})
        self.tool = TransferTool(for_server(whole) if server else whole, folder / scratch)
        self.results = MemoryResults()
        self.recorder = Recorder()
        self.auth: Any = None

    async def __call__(self, source: dict[str, Any] | None, target: dict[str, Any], **config: Any) -> Outcome:
        whole = {"target": target, **config} if source is None else {"source": source, "target": target, **config}
        typed = msgspec.convert(whole, TransferConfig)
        return await self.tool.run(typed, task_context(self.recorder, results=self.results, auth=self.auth))

    async def moved(self, source: dict[str, Any] | None, target: dict[str, Any], **config: Any) -> dict[str, Any]:
        outcome = await self(source, target, **config)
        assert outcome.error is None, outcome.error
        result: dict[str, Any] = outcome.result
        return result

    async def failure(self, source: dict[str, Any] | None, target: dict[str, Any], **config: Any) -> TaskError:
        outcome = await self(source, target, **config)
        assert outcome.error is not None, outcome.result
        return outcome.error


def sqlite(path: Path, *commands: str, rows: Sequence[Sequence[Any]] = (), into: str = "") -> str:
    """Run commands on a SQLite file, made if need be."""
    connection = apsw.Connection(str(path))
    for command in commands:
        connection.execute(command)
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        with connection:
            connection.executemany(f"INSERT INTO {into} VALUES ({marks})", rows)
    connection.close()
    return str(path)


class SqliteEnd:
    """A table `t` of a SQLite file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "end.db"
        self.end = {"kind": "sqlite", "database": str(self.path), "table": "t"}

    def run(self, command: str) -> list[tuple]:
        connection = apsw.Connection(str(self.path))
        try:
            return list(connection.execute(command))
        finally:
            connection.close()


class DuckdbEnd:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "end.duckdb"
        self.end = {"kind": "duckdb", "database": str(self.path), "table": "t"}

    def run(self, command: str) -> list[tuple]:
        with duckdb.connect(str(self.path)) as connection:
            return connection.execute(command).fetchall()


class PostgresEnd:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.end = {"kind": "postgres", "dsn": database.dsn, "table": "t"}

    def run(self, command: str) -> list[tuple]:
        return self.database.rows(command)


def csv_rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))
