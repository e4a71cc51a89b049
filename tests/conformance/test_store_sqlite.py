"""The contract on SQLite, once as it comes, and once on each of the two ways that a group can take.

On the loop in tables that each have a column more, as a newer release that shares the file may leave them.
"""

import asyncio
import shutil
from pathlib import Path

import apsw
import pytest

from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite.connection.writer import Writer
from arclog.testing.conformance.store import MakeStore, StoreContract
from arclog.testing.virtual import FakeClock


@pytest.fixture(scope="module")
def newer(tmp_path_factory) -> Path:
    file: Path = tmp_path_factory.mktemp("newer") / "arclog.db"

    async def make() -> None:
        store = SqliteStore(file, clock=FakeClock())
        await store.open()
        await store.close()

    asyncio.run(make())
    connection = apsw.Connection(str(file))
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
    for (name,) in connection.execute(tables).fetchall():
        connection.execute(f"ALTER TABLE {name} ADD COLUMN added_later TEXT NOT NULL DEFAULT 'more'")
    connection.close()
    return file


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def make_store(self, tmp_path) -> MakeStore:
        return lambda clock, settings: SqliteStore(tmp_path / "arclog.db", clock=clock, settings=settings)


class TestSqliteStoreOnItsThread(TestSqliteStore):
    @pytest.fixture(autouse=True)
    def by_thread(self, monkeypatch):
        monkeypatch.setattr(Writer, "STATEMENTS_MAX_S", 0.0)
        monkeypatch.setattr(Writer, "CHECKPOINT_PAGES", 20)


class TestSqliteStoreOnTheLoop(TestSqliteStore):
    @pytest.fixture
    def make_store(self, tmp_path, newer) -> MakeStore:
        file = shutil.copy(newer, tmp_path)
        return lambda clock, settings: SqliteStore(Path(file), clock=clock, settings=settings)

    @pytest.fixture(autouse=True)
    def by_loop(self, monkeypatch):
        monkeypatch.setattr(Writer, "INLINE_MAX_S", 60.0)
        monkeypatch.setattr(Writer, "STATEMENTS_MAX_S", 60.0)
        monkeypatch.setattr(Writer, "INLINE_MAX_JOBS", 1_000_000)
        monkeypatch.setattr(Writer, "CHECKPOINT_PAGES", 20)
