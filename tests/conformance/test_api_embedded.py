from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.ports.views.api import Api
from arclog.testing.conformance.api import ApiContract
from arclog.wiring.embedded import embedded


class TestEngineApi(ApiContract):
    @pytest.fixture
    async def api(self, tmp_path: Path) -> AsyncIterator[Api]:
        async with embedded(Settings({"home": str(tmp_path / "home")})) as runtime:
            await runtime.start_worker()
            yield runtime.api
