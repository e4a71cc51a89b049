import os

import pytest

from arclog.model.settings import Settings
from arclog.results.nats import NatsResults
from arclog.testing.conformance.results import MakeResults, ResultsContract
from tests.servers.nats import NatsServer


class TestNatsResults(ResultsContract):
    @pytest.fixture
    def make_results(self, nats_server: NatsServer) -> MakeResults:
        bucket = f"results-{os.urandom(4).hex()}"

        def make(settings: Settings) -> NatsResults:
            return NatsResults(settings.replaced(bus__url=nats_server.url, results__bucket=bucket))

        return make
