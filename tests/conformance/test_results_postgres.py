import os
from collections.abc import Iterator

import pytest

from arclog.model.config.settings import Settings
from arclog.results.blobs.postgres import PostgresBlobs
from arclog.results.store import BlobResults
from arclog.testing.conformance.results import MakeResults, ResultsContract
from tests.servers.postgres import Database, PostgresServer


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[Database]:
    made = postgres_server.create()
    yield made
    postgres_server.drop(made)


class TestPostgresResults(ResultsContract):
    @pytest.fixture
    def make_results(self, database: Database) -> MakeResults:
        schema = f"s{os.urandom(4).hex()}"

        def make(settings: Settings) -> BlobResults:
            return BlobResults(PostgresBlobs(database.dsn, settings.replaced(store__schema=schema)), settings)

        return make
