import pytest

from arclog.results.memory import MemoryResults
from arclog.testing.conformance.results import MakeResults, ResultsContract


class TestMemoryResults(ResultsContract):
    @pytest.fixture
    def make_results(self) -> MakeResults:
        return lambda settings: MemoryResults(settings=settings)
