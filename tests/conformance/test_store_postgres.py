"""The contract on PostgreSQL: as it comes, and without prepared statements, as behind a pooler."""

from collections.abc import Iterator

import pytest

from arclog.model.settings import Settings
from arclog.stores.postgres import PostgresStore
from arclog.testing.conformance.store import MakeStore, StoreContract
from tests.servers.postgres import Database, running_postgres

TRUNCATE = """
DO $$ BEGIN EXECUTE (
    SELECT 'TRUNCATE ' || string_agg(format('arclog.%I', relname), ', ') FROM pg_class
    WHERE relnamespace = to_regnamespace('arclog') AND relkind IN ('r', 'p') AND NOT relispartition
      AND relname NOT IN ('schema_version', 'spans', 'positions')
); END $$
"""


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    # Whatever runs a transaction of its own, as autovacuum does, holds `tail` back while it lasts.
    with running_postgres("autovacuum=off", unsafe=True) as server:
        yield server.create()


class TestPostgresStore(StoreContract):
    prepare = "auto"

    @pytest.fixture
    def make_store(self, database: Database) -> Iterator[MakeStore]:
        def make(clock, settings: Settings) -> PostgresStore:
            settings = settings.replaced(store__unsafe=True, store__prepare=self.prepare)
            return PostgresStore(database.dsn, clock=clock, settings=settings)

        yield make
        database.rows(TRUNCATE)  # a new database for each would take a second
