"""The rules of `arclog.ports.views.api` as tests. An engine in this process and one behind a server keep them alike:

    class TestMyApi(ApiContract):
        @pytest.fixture
        async def api(self, tmp_path):
            async with my_api(tmp_path) as api:  # with a worker that runs what is asked for
                yield api

Needs pytest and pytest-asyncio (`asyncio_mode = "auto"`).
"""

from arclog.testing.conformance.api.history import HistoryRules
from arclog.testing.conformance.api.overview import CatalogRules, OverviewRules
from arclog.testing.conformance.api.reading import ReadingRules, StoredRules
from arclog.testing.conformance.api.runs import SignalRules, StartingRules

__all__ = ["ApiContract"]


class ApiContract(StartingRules, ReadingRules, OverviewRules, SignalRules, StoredRules, CatalogRules, HistoryRules):
    """All rules. A subclass gives the fixture `api`."""
