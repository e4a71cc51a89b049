"""Lanes: a bounded number of things in progress at once, one for each tenant; tenants that wait are admitted by turns."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Lanes:
    """At most so many tenants at once. Used on one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._busy: set[str] = set()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def lane(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a lane, and have it meanwhile."""
        await self._enter(tenant)
        try:
            yield
        finally:
            self._leave(tenant)

    async def _enter(self, tenant: str) -> None:
        if tenant not in self._busy and len(self._busy) < self._most:
            self._busy.add(tenant)
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(admitted)
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self._leave(tenant)
            raise

    def _leave(self, tenant: str) -> None:
        self._busy.discard(tenant)
        for name in list(self._waiting):
            if len(self._busy) >= self._most:
                return
            if name in self._busy:
                continue
            queue = self._waiting.pop(name)
            while queue:
                admitted = queue.popleft()
                if not admitted.done():
                    self._busy.add(name)
                    admitted.set_result(None)
                    break
            if queue:
                self._waiting[name] = queue  # behind the others
