"""Sealed secrets in every store that several servers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from arclog.model.config.settings import Settings
from arclog.stores.memory import MemoryStore
from arclog.stores.postgres import PostgresStore
from arclog.testing.conformance.secrets import MakeBooks, SecretsContract
from arclog.testing.virtual import FakeClock
from tests.servers.postgres import Database, PostgresServer


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Database:
    return postgres_server.create()


class TestMemorySecrets(SecretsContract):
    """In the memory store of one process."""

    @pytest.fixture
    def make_books(self) -> MakeBooks:
        store = MemoryStore(clock=FakeClock())
        return lambda: (store, store)


class TestPostgresSecrets(SecretsContract):
    """By two servers with connections of their own to a real PostgreSQL."""

    @pytest.fixture
    def make_books(self, database: Database) -> Iterator[MakeBooks]:
        def one() -> PostgresStore:
            return PostgresStore(database.dsn, clock=FakeClock(), settings=Settings({"store.unsafe": True}))

        yield lambda: (one(), one())
        database.rows("TRUNCATE arclog.secrets")
