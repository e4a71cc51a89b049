"""Results as files in a folder: the store of an embedded arclog. `places` says where, `parts` in what form.

A run that stores nothing pays nothing: whatever it takes to store and to read is imported with the first result.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from arclog.model.config.settings import Settings
from arclog.ports.results import ResultWriter, StoredBlob

if TYPE_CHECKING:
    from arclog.results.files.shelves import Shelves


class FileResults:
    """`ports.results` on a folder. It is made when the first content is stored. Several processes may share it."""

    def __init__(self, root: str | os.PathLike[str], settings: Settings | None = None, name: str = "files") -> None:
        self.name = name
        self._settings = settings or Settings()
        self._root = os.fspath(root)

    @cached_property
    def _shelves(self) -> Shelves:
        from arclog.results.files.shelves import Shelves

        return Shelves(self._root, self._settings)

    def writer(self, tenant: str, *, listed: bool = False, content_type: str = "application/json") -> ResultWriter:
        return self._shelves.writer(tenant, listed=listed, content_type=content_type)

    def chunks(self, tenant: str, sha256: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return self._shelves.chunks(tenant, sha256, start, end)

    async def items(self, tenant: str, sha256: str, first: int, last: int) -> list[Any]:
        return await self._shelves.items(tenant, sha256, first, last)

    async def find(self, tenant: str, sha256: str) -> StoredBlob | None:
        return await self._shelves.find(tenant, sha256)

    async def remove(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        return await self._shelves.remove(tenant, sha256, stored_at)

    def all(self) -> AsyncIterator[StoredBlob]:
        return self._shelves.all()

    async def leftovers(self, older_than: int) -> int:
        return await self._shelves.leftovers(older_than)

    async def close(self) -> None:
        if "_shelves" in self.__dict__:
            await self._shelves.close()
