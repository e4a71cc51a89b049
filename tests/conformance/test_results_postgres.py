import pytest

from arclog.results.postgres import PostgresResults
from arclog.testing.conformance.results import MakeResults, ResultsContract
from tests.servers.postgres import Database


class TestPostgresResults(ResultsContract):
    @pytest.fixture
    def make_results(self, postgres: Database) -> MakeResults:
        return lambda settings: PostgresResults(postgres.dsn, settings)
