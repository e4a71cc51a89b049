"""The result store as one caller may use it: what belongs to another tenant is not there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from arclog.model.errors import NotFound
from arclog.ports.results import Results, ResultWriter, StoredBlob


class ScopedResults:
    """Implements `ports.results.Results` for one tenant; '' is any."""

    def __init__(self, results: Results, tenant: str = "") -> None:
        self.name = results.name
        self._results = results
        self._tenant = tenant

    def writer(self, tenant: str, *, listed: bool = False, content_type: str = "application/json") -> ResultWriter:
        self._check(tenant)
        return self._results.writer(tenant, listed=listed, content_type=content_type)

    def chunks(self, tenant: str, sha256: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        self._check(tenant)
        return self._results.chunks(tenant, sha256, start, end)

    async def items(self, tenant: str, sha256: str, first: int, last: int) -> list[Any]:
        self._check(tenant)
        return await self._results.items(tenant, sha256, first, last)

    async def find(self, tenant: str, sha256: str) -> StoredBlob | None:
        self._check(tenant)
        return await self._results.find(tenant, sha256)

    async def remove(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        self._check(tenant)
        return await self._results.remove(tenant, sha256, stored_at)

    async def all(self) -> AsyncIterator[StoredBlob]:
        async for blob in self._results.all():
            if not self._tenant or blob.tenant == self._tenant:
                yield blob

    async def leftovers(self, older_than: int) -> int:
        return await self._results.leftovers(older_than)

    async def close(self) -> None:
        """The store is the server's."""

    def _check(self, tenant: str) -> None:
        if self._tenant and tenant != self._tenant:
            raise NotFound(f"there is no tenant {tenant!r} for this caller")
