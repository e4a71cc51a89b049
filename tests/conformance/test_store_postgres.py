"""The contract on PostgreSQL, in tables that each have a column more than this release knows.

So the first phase of a newer release's migration leaves them, and both go on: no statement may depend on their number.
"""

import asyncio
from collections.abc import Iterator

import pytest

from arclog.model.config.settings import Settings
from arclog.stores.postgres import PostgresStore
from arclog.testing.conformance.store import MakeStore, StoreContract
from arclog.testing.virtual import FakeClock
from tests.servers.postgres import Database, running_postgres

TRUNCATE = """
DO $$ BEGIN EXECUTE (
    SELECT 'TRUNCATE ' || string_agg(format('arclog.%I', relname), ', ') FROM pg_class
    WHERE relnamespace = to_regnamespace('arclog') AND relkind IN ('r', 'p') AND NOT relispartition
      AND relname NOT IN ('schema_version', 'spans', 'positions')
); END $$
"""
MIGRATE = """
DO $$ DECLARE each regclass; BEGIN
    FOR each IN SELECT oid FROM pg_class
        WHERE relnamespace = to_regnamespace('arclog') AND relkind IN ('r', 'p') AND NOT relispartition
    LOOP EXECUTE format('ALTER TABLE %s ADD COLUMN added_later text NOT NULL DEFAULT %L', each, 'more'); END LOOP;
END $$
"""


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    # Whatever runs a transaction of its own, as autovacuum does, holds `tail` back while it lasts.
    with running_postgres("autovacuum=off", unsafe=True) as server:
        database = server.create()

        async def make() -> None:
            store = PostgresStore(database.dsn, clock=FakeClock(), settings=Settings().replaced(store__unsafe=True))
            await store.open()
            await store.close()

        asyncio.run(make())
        database.rows(MIGRATE)
        yield database


class TestPostgresStore(StoreContract):
    prepare = "auto"

    @pytest.fixture
    def make_store(self, database: Database) -> Iterator[MakeStore]:
        def make(clock, settings: Settings) -> PostgresStore:
            settings = settings.replaced(store__unsafe=True, store__prepare=self.prepare)
            return PostgresStore(database.dsn, clock=clock, settings=settings)

        yield make
        database.rows(TRUNCATE)  # a new database for each would take a second
