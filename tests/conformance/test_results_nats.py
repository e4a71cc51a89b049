import os

import pytest

from arclog.model.config.settings import Settings
from arclog.ports.results import Results
from arclog.testing.conformance.results import MakeResults, ResultsContract
from arclog.wiring.backends import choose_results
from tests.servers.nats import NatsServer


class TestNatsResults(ResultsContract):
    @pytest.fixture
    def make_results(self, nats_server: NatsServer) -> MakeResults:
        bucket = f"results-{os.urandom(4).hex()}"

        def make(settings: Settings) -> Results:
            return choose_results(
                settings.replaced(results__url="nats", bus__url=nats_server.url, results__bucket=bucket)
            )

        return make
