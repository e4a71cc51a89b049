"""The work behind `files`: stored files written, read, found and removed, in threads."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from typing import ParamSpec, TypeVar

from arclog.model.config.settings import Settings
from arclog.model.errors import ResultUnavailable
from arclog.ports.results import StoredBlob
from arclog.results.files.places import Places
from arclog.results.files.reading import OpenedFile, open_blob
from arclog.results.files.writing import FileSink
from arclog.results.opened import Known
from arclog.results.parted import PartedResults

P = ParamSpec("P")
R = TypeVar("R")


class Shelves(PartedResults):
    """See `ports.results.Results`."""

    def __init__(self, root: str, settings: Settings) -> None:
        super().__init__(settings)
        self._places = Places(root)

    def _sink(self, tenant: str, *, listed: bool) -> FileSink:
        return FileSink(self._places, self._threads, tenant, listed=listed)

    async def _open(self, tenant: str, sha256: str, known: Known) -> OpenedFile:
        opening = self._threads.submit(open_blob, self._places, tenant, sha256, known)
        return OpenedFile(await self._threads.result(opening), self._threads)

    async def find(self, tenant: str, sha256: str) -> StoredBlob | None:
        return await self._threads.run(self._find, tenant, sha256)

    def _find(self, tenant: str, sha256: str) -> StoredBlob | None:
        file = self._do(self._places.open, tenant, sha256)
        if file is None:
            return None
        try:
            return _blob(tenant, sha256, os.fstat(file))
        finally:
            os.close(file)

    async def remove(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        return await self._threads.run(self._do, self._places.remove, tenant, sha256, stored_at)

    async def all(self) -> AsyncIterator[StoredBlob]:
        for tenant, digits in await self._threads.run(self._do, self._places.shelves):
            for sha256, about in await self._threads.run(self._do, self._places.stored, tenant, digits):
                yield _blob(tenant, sha256, about)

    async def leftovers(self, older_than: int) -> int:
        return await self._threads.run(self._do, self._places.clear, older_than)

    def _do(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except OSError as problem:
            raise ResultUnavailable(
                f"the results in {self._places.root} cannot be reached ({problem.strerror or problem}); check the disk and "
                "who may write the folder"
            ) from problem


def _blob(tenant: str, sha256: str, about: os.stat_result) -> StoredBlob:
    return StoredBlob(tenant, sha256, about.st_size, about.st_mtime_ns // 1000)
