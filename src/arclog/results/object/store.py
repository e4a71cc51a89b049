"""Results in a bucket of S3, or of whatever speaks like it, of Google Cloud or of Azure. `object_keys` says under which
names, and why storing, reading and removing never get into each other's way.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Hashable
from typing import Any

from arclog.model.config.settings import Settings
from arclog.ports.results import StoredBlob
from arclog.results.names import folder_of, is_sha256
from arclog.results.object.bucket import ObjectLink
from arclog.results.object.keys import Keys, Version, superseded
from arclog.results.object.sink import ObjectSink
from arclog.results.opened import Known, Replaced, damaged, missing, unpacked
from arclog.results.parted import PartedResults
from arclog.results.parts import END_BYTES, Damaged, Index, index_bytes, read_index
from arclog.results.threads import Threads

#: of an object's end, asked for at once: most indexes, and many whole objects, are smaller
_END_BYTES = 64 * 1024


class ObjectResults(PartedResults):
    """See `ports.results.Results`."""

    def __init__(self, url: str, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        super().__init__(settings)
        self._link = ObjectLink(url, settings)
        self.name = self._link.address.scheme
        self.keys = Keys(self._link.address.prefix)

    async def close(self) -> None:
        await super().close()
        await self._link.close()

    def now(self) -> int:
        return time.time_ns() // 1000

    def _sink(self, tenant: str, *, listed: bool) -> ObjectSink:
        return ObjectSink(self, self._link, tenant, listed=listed, max_bytes=self._limits.max_bytes)

    async def items(self, tenant: str, sha256: str, first: int, last: int) -> list[Any]:
        return await self._items.read(lambda known: self._open(tenant, sha256, known, as_list=True), first, last)

    async def versions(self, tenant: str, sha256: str) -> list[Version]:
        """What is stored of some content, the latest last."""
        found: list[Version] = []
        if is_sha256(sha256):
            async for some in self._link.listing(self.keys.of(tenant, sha256)):
                parsed = [self.keys.parsed(each["path"]) for each in some]
                found += [each[2] for each in parsed if each is not None and each[:2] == (tenant, sha256)]
        return sorted(found)

    async def tidy(self, tenant: str, sha256: str, upto: Version) -> None:
        """Remove the versions that this one stands for."""
        versions = [each for each in await self.versions(tenant, sha256) if each <= upto]
        for each in superseded(versions):
            await self._delete(tenant, sha256, each)

    async def _delete(self, tenant: str, sha256: str, version: Version) -> None:
        await self._link.delete(self.keys.of_version(tenant, sha256, version))
        if version.referred:
            await self._link.delete(self.keys.of_data(version.nonce))

    async def _open(self, tenant: str, sha256: str, known: Known, *, as_list: bool = False) -> OpenedVersion:
        path = f"{self._link.place} {folder_of(tenant)}/{sha256[:100]!r}"
        before: Version | None = None
        while True:
            versions = await self.versions(tenant, sha256)
            if not versions:
                raise missing(path)
            latest = ([each for each in versions if each.listed] if as_list else []) or versions
            version = latest[-1]
            opened = OpenedVersion(self._link, self._threads, self._key(tenant, sha256, version), version, path)
            try:
                opened.index = known.get(opened.identity) or await opened.read_index()
                if opened.index.sha256 != sha256:
                    raise Damaged("it is another result under this name")
                return opened
            except Damaged as problem:
                raise damaged(path, problem) from problem
            except Replaced:
                if version == before:
                    raise damaged(path, "its object is missing") from None
                before = version

    def _key(self, tenant: str, sha256: str, version: Version) -> str:
        return self.keys.content(version, self.keys.of_version(tenant, sha256, version))

    async def find(self, tenant: str, sha256: str) -> StoredBlob | None:
        versions = await self.versions(tenant, sha256)
        return _blob(tenant, sha256, versions[-1]) if versions else None

    async def remove(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        versions = await self.versions(tenant, sha256)
        if not versions or (stored_at is not None and versions[-1].stored_at != stored_at):
            return False
        for each in versions:
            await self._delete(tenant, sha256, each)
        return True

    async def all(self) -> AsyncIterator[StoredBlob]:
        async for tenant, sha256, versions in self._every():
            yield _blob(tenant, sha256, max(versions))

    async def _every(self) -> AsyncIterator[tuple[str, str, list[Version]]]:
        """All contents. Buckets list in the order of keys, in which the versions of one content stand together."""
        at: tuple[str, str] | None = None
        versions: list[Version] = []
        async for some in self._link.listing(self.keys.root):
            for each in some:
                parsed = self.keys.parsed(each["path"])
                if parsed is None:
                    continue
                if at != parsed[:2]:
                    if at is not None:
                        yield *at, versions
                    at, versions = parsed[:2], []
                versions.append(parsed[2])
        if at is not None:
            yield *at, versions

    async def leftovers(self, older_than: int) -> int:
        # Data first: what is referred to meanwhile is found below.
        orphans: dict[str, str] = {}
        async for some in self._link.listing(self.keys.all_data):
            for each in some:
                nonce = self.keys.nonce_of(each["path"])
                if nonce is not None and each["last_modified"].timestamp() * 1_000_000 < older_than:
                    orphans[nonce] = each["path"]
        count = 0
        async for tenant, sha256, versions in self._every():
            gone = {each for each in superseded(versions) if each.stored_at < older_than}
            for version in gone:
                await self._delete(tenant, sha256, version)
            count += len(gone)
            for version in versions:
                if version.referred:
                    orphans.pop(version.nonce, None)
        for key in orphans.values():
            await self._link.delete(key)
        return count + len(orphans)


def _blob(tenant: str, sha256: str, version: Version) -> StoredBlob:
    return StoredBlob(tenant, sha256, version.stored_bytes, version.stored_at)


class OpenedVersion:
    """See `results.opened.Opened`."""

    index: Index

    def __init__(self, link: ObjectLink, threads: Threads, key: str, version: Version, path: str) -> None:
        self.path = path
        self.identity: Hashable = key
        self._link = link
        self._threads = threads
        self._key = key
        self._size = version.stored_bytes
        #: the end of the object, from this byte on
        self._end = b""
        self._end_at = self._size

    async def read_index(self) -> Index:
        await self._read_end(_END_BYTES)
        wanted = index_bytes(self._end[-END_BYTES:], self._size)
        if wanted > len(self._end):
            await self._read_end(wanted)
        return read_index(self._end[len(self._end) - wanted :], self._size)

    async def _read_end(self, size: int) -> None:
        start = max(self._size - size, 0)
        self._end = await self._get(start, self._size)
        self._end_at = start

    async def _get(self, start: int, end: int) -> bytes:
        got = await self._link.get(self._key, start, end)
        if got is None:
            raise Replaced
        return got

    async def part(self, number: int, whole: Any = None) -> bytes:
        part = self.index.parts[number]
        if part.offset >= self._end_at:
            packed = self._end[part.offset - self._end_at :][: part.packed]
        else:
            packed = await self._get(part.offset, part.offset + part.packed)
        return await self._threads.run(unpacked, packed, part, self.path, whole)

    def close(self) -> None:
        """Nothing is held open."""
