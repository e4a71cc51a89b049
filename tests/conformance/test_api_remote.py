from collections.abc import AsyncIterator

import pytest

from arclog.client import AsyncClient
from arclog.ports.views.api import Api
from arclog.testing.conformance.api import ApiContract
from tests.servers.arclog import RunningServer


class TestRemoteApi(ApiContract):
    @pytest.fixture
    async def api(self, server: RunningServer) -> AsyncIterator[Api]:
        async with AsyncClient(server.url) as client:
            yield client
