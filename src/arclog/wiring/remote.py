"""arclog at a server, with the face of an arclog in this process: the CLI opens either and does the same with it."""

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
    """A server whose workers run what is asked for: nothing is to be opened, started or taken over here."""

    def __init__(self, client: AsyncClient) -> None:
        self.api: Api = client
        self._client = client
        #: the server's workers are its own care: nothing stops them that this process would hear of
        self.worker: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def schedules(self) -> ScheduleApi:
        """Those of the caller's tenant."""
        return self._client.schedules

    def pools(self) -> PoolApi:
        """Pools and workers, as the caller sees them."""
        return self._client.pools

    def keep_plan(self, text: str, plan: Plan) -> None:
        """The server compiles it."""

    def open_tools(self, text: str) -> None:
        """Tools are opened by the workers."""

    async def start_worker(self, execution_id: str = "") -> None:
        """Workers are there, or come."""

    def served_by(self, execution_id: str) -> str:  # noqa: ARG002 - the same face
        """Nobody in particular: the run can be watched from here."""
        return ""

    async def take_over(self, execution_id: str) -> str:  # noqa: ARG002 - the same face
        """The server continues with its runs by itself."""
        return ""


@asynccontextmanager
async def remote(settings: Settings) -> AsyncIterator[Remote]:
    """The server that settings name."""
    async with AsyncClient(settings=settings) as client:
        there = Remote(client)
        try:
            yield there
        finally:
            there.worker.cancel()
