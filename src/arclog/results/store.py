"""A result store over blobs: content is compressed when it is stored and checked when it is read, for every blob store.

A run that stores nothing has no cost: compression and hashing are imported with the first result.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.ports.results import ResultWriter, StoredBlob
from arclog.results.blobs.port import Blobs
from arclog.results.parts import is_sha256

if TYPE_CHECKING:
    from arclog.results.packing import Packing
    from arclog.results.reading import Reader

#: higher levels take gigabytes of memory
_HIGHEST_LEVEL = 19


class Limits(Struct, frozen=True):
    """The settings for writers."""

    zstd_level: int
    max_bytes: int
    preview_bytes: int


def limits_of(settings: Settings) -> Limits:
    level = settings.integer("results.zstd_level")
    if level > _HIGHEST_LEVEL:
        raise SettingsError(f"ARCLOG_RESULTS_ZSTD_LEVEL: {level} is above the highest level, {_HIGHEST_LEVEL}")
    return Limits(level, settings.integer("results.max_bytes"), settings.integer("results.preview_bytes"))


class BlobResults:
    """See `ports.results.Results`."""

    def __init__(self, blobs: Blobs, settings: Settings | None = None) -> None:
        self.name = blobs.name
        self.blobs = blobs
        self._limits = limits_of(settings or Settings())

    @cached_property
    def _packing(self) -> Packing:
        from arclog.results.packing import Packing

        return Packing(self.blobs, self._limits)

    @cached_property
    def _reader(self) -> Reader:
        from arclog.results.reading import Reader

        return Reader(self.blobs)

    def writer(self, tenant: str, *, listed: bool = False, content_type: str = "application/json") -> ResultWriter:
        return self._packing.writer(tenant, listed=listed, content_type=content_type)

    def chunks(self, tenant: str, sha256: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return self._reader.chunks(tenant, sha256, start, end)

    async def items(self, tenant: str, sha256: str, first: int, last: int) -> list[Any]:
        return await self._reader.items(tenant, sha256, first, last)

    async def find(self, tenant: str, sha256: str) -> StoredBlob | None:
        return await self.blobs.stat(tenant, sha256) if is_sha256(sha256) else None

    async def remove(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        return is_sha256(sha256) and await self.blobs.delete(tenant, sha256, stored_at)

    def all(self) -> AsyncIterator[StoredBlob]:
        return self.blobs.list_all()

    async def leftovers(self, older_than: int) -> int:
        return await self.blobs.sweep(older_than)

    async def close(self) -> None:
        if "_packing" in self.__dict__:
            await self._packing.settle()
        await self.blobs.close()
