"""The rules of `arclog.ports.results` as tests. Every result store runs them unchanged:

    class TestMyResults(ResultsContract):
        @pytest.fixture
        def make_results(self, tmp_path):
            return lambda settings: MyResults(tmp_path / "results", settings)

Needs pytest and pytest-asyncio (`asyncio_mode = "auto"`), and hypothesis for contents.
"""

from arclog.testing.conformance.results.base import MakeResults
from arclog.testing.conformance.results.lists import ListRules
from arclog.testing.conformance.results.storing import StoringRules

__all__ = ["MakeResults", "ResultsContract"]


class ResultsContract(StoringRules, ListRules):
    """All rules. A subclass gives the fixture `make_results`."""
