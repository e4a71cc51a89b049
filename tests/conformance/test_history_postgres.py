from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.ports.views.api import Api
from arclog.testing.conformance.api.history import HistoryRules
from arclog.wiring.embedded import embedded
from tests.servers.postgres import Database


class TestHistoryOnPostgres(HistoryRules):
    @pytest.fixture
    async def api(self, tmp_path: Path, postgres: Database) -> AsyncIterator[Api]:
        settings = Settings({"home": str(tmp_path / "home"), "store.url": postgres.dsn})
        async with embedded(settings) as runtime:
            await runtime.start_worker()
            yield runtime.api
