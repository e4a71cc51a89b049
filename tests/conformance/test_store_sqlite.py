"""The contract on SQLite, once as it comes, and once on each of the two ways that a group can take."""

import pytest

from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite.lanes import Writer
from arclog.testing.conformance.store import MakeStore, StoreContract


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def make_store(self, tmp_path) -> MakeStore:
        return lambda clock, settings: SqliteStore(tmp_path / "arclog.db", clock=clock, settings=settings)


class TestSqliteStoreOnItsThread(TestSqliteStore):
    @pytest.fixture(autouse=True)
    def by_thread(self, monkeypatch):
        monkeypatch.setattr(Writer, "INLINE_MAX_S", 0.0)
        monkeypatch.setattr(Writer, "CHECKPOINT_PAGES", 20)


class TestSqliteStoreOnTheLoop(TestSqliteStore):
    @pytest.fixture(autouse=True)
    def by_loop(self, monkeypatch):
        monkeypatch.setattr(Writer, "INLINE_MAX_S", 60.0)
        monkeypatch.setattr(Writer, "INLINE_MAX_JOBS", 1_000_000)
        monkeypatch.setattr(Writer, "CHECKPOINT_PAGES", 20)
