"""Results as files in a folder: the store of an embedded arclog. `places` says where, `parts` in what form.

A run that stores nothing pays nothing: whatever it takes to store and to read is imported with the first result.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from arclog.model.errors import ResultUnavailable, SettingsError
from arclog.model.settings import Settings
from arclog.ports.results import ResultWriter, StoredBlob

if TYPE_CHECKING:
    from concurrent.futures import Future

    from arclog.results.places import Places
    from arclog.results.reading import ItemReader
    from arclog.results.threads import Threads

#: those above take gigabytes of memory
_HIGHEST_LEVEL = 19


class FileResults:
    """`ports.results` on a folder. It is made when the first content is stored. Several processes may share it."""

    def __init__(self, root: str | os.PathLike[str], settings: Settings | None = None, name: str = "files") -> None:
        self.name = name
        self._settings = settings or Settings()
        self._root = os.fspath(root)

    @cached_property
    def _places(self) -> Places:
        from arclog.results.places import Places

        return Places(self._root)

    @cached_property
    def _threads(self) -> Threads:
        from arclog.results.threads import Threads

        return Threads()

    @cached_property
    def _items(self) -> ItemReader:
        from arclog.results.reading import ItemReader

        return ItemReader(self._places)

    def writer(self, tenant: str, *, listed: bool = False, content_type: str = "application/json") -> ResultWriter:
        from arclog.results.writing import FileWriter, Limits

        level = self._settings.integer("results.zstd_level")
        if level > _HIGHEST_LEVEL:
            raise SettingsError(f"ARCLOG_RESULTS_ZSTD_LEVEL: {level} is above the highest level, {_HIGHEST_LEVEL}")
        limits = Limits(
            level,
            self._settings.integer("results.max_bytes"),
            self._settings.integer("results.preview_bytes"),
        )
        return FileWriter(self._places, self._threads, limits, tenant, listed, content_type)

    async def chunks(self, tenant: str, sha256: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        import hashlib

        from arclog.results.reading import damaged, open_blob, read_part

        blob = await self._threads.run(open_blob, self._places, tenant, sha256)
        reading: Future[bytes] | None = None
        try:
            index = blob.index
            start = max(start, 0)
            stop = index.bytes if end is None else min(end, index.bytes)
            whole = hashlib.sha256() if start == 0 and stop == index.bytes else None
            number = index.part_at(start) if start < stop else len(index.parts)
            while number < len(index.parts) and index.starts[number] < stop:
                reading = self._threads.submit(_read, read_part, blob, number, whole)
                content = await self._threads.result(reading)
                before = index.starts[number]
                if before < start or before + len(content) > stop:
                    content = content[max(start - before, 0) : stop - before]
                yield content
                number += 1
            if whole is not None and whole.hexdigest() != sha256:
                raise damaged(blob.path, "its parts are whole, but it is not the content of this name")
        finally:
            # A thread may still be reading when the reader is cancelled; the file is closed behind it.
            self._threads.submit(_close, reading, blob.file)

    async def items(self, tenant: str, sha256: str, first: int, last: int) -> list[Any]:
        return await self._threads.run(self._items.read, tenant, sha256, first, last)

    async def find(self, tenant: str, sha256: str) -> StoredBlob | None:
        return await self._threads.run(self._find, tenant, sha256)

    def _find(self, tenant: str, sha256: str) -> StoredBlob | None:
        try:
            file = self._places.open(tenant, sha256)
        except OSError as problem:
            raise self._unusable(problem) from problem
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

    async def close(self) -> None:
        if "_threads" in self.__dict__:
            await self._threads.close()

    def _do(self, call: Any, *args: Any) -> Any:
        try:
            return call(*args)
        except OSError as problem:
            raise self._unusable(problem) from problem

    def _unusable(self, problem: OSError) -> ResultUnavailable:
        return ResultUnavailable(
            f"the results in {self._root} cannot be reached ({problem.strerror or problem}); check the disk and who may "
            "write the folder"
        )


def _blob(tenant: str, sha256: str, about: os.stat_result) -> StoredBlob:
    return StoredBlob(tenant, sha256, about.st_size, about.st_mtime_ns // 1000)


def _read(read_part: Any, blob: Any, number: int, whole: Any) -> bytes:
    content: bytes = read_part(blob, number)
    if whole is not None:
        whole.update(content)
    return content


def _close(reading: Future[bytes] | None, file: int) -> None:
    from arclog.results.threads import over

    over(reading)
    os.close(file)
