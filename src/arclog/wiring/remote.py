"""A server, with the interface of an embedded arclog: the CLI opens either and uses both in the same way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from arclog.client.asynchronous import AsyncClient
from arclog.model.config.settings import Settings
from arclog.plan.net import Plan
from arclog.ports.storage.pools import PoolApi
from arclog.ports.storage.schedules import ScheduleApi
from arclog.ports.views.api import Api


class Remote:
    """A server whose workers run the commands: nothing is opened, started or taken over here."""

    def __init__(self, client: AsyncClient) -> None:
        self.api: Api = client
        self._client = client
        #: never resolves: this process does not learn when the server's workers stop
        self.worker: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def schedules(self) -> ScheduleApi:
        """The schedules of the caller's tenant."""
        return self._client.schedules

    def pools(self) -> PoolApi:
        """Pools and workers, as the caller sees them."""
        return self._client.pools

    def keep_plan(self, text: str, plan: Plan) -> None:
        """The server compiles it."""

    def open_tools(self, text: str) -> None:
        """Tools are opened by the workers."""

    async def start_worker(self, execution_id: str = "") -> None:
        """The server has workers, or will have."""

    def served_by(self, execution_id: str) -> str:  # noqa: ARG002 - the same face
        """No particular worker: the run can be shown from here."""
        return ""

    async def take_over(self, execution_id: str) -> str:  # noqa: ARG002 - the same face
        """Nothing to do; the server continues its runs."""
        return ""


@asynccontextmanager
async def remote(settings: Settings) -> AsyncIterator[Remote]:
    """The server that settings name."""
    async with AsyncClient(settings=settings) as client:
        runtime = Remote(client)
        try:
            yield runtime
        finally:
            runtime.worker.cancel()
