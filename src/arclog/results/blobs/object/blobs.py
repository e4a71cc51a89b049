"""Blobs in a bucket of S3, or of whatever speaks like it, of Google Cloud or of Azure. `keys` defines their names, and why
storing, reading and removing never get into each other's way.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from arclog.model.config.settings import Settings
from arclog.ports.results import StoredBlob
from arclog.results.blobs.object.bucket import ObjectLink
from arclog.results.blobs.object.keys import Keys, Version, superseded
from arclog.results.blobs.object.upload import ObjectUpload
from arclog.results.blobs.port import Blobs, Known, RangeBlob, Replaced


class ObjectBlobs(Blobs):
    """See `blobs.port.Blobs`."""

    def __init__(self, url: str, settings: Settings | None = None) -> None:
        super().__init__()
        settings = settings or Settings()
        self.link = ObjectLink(url, settings)
        self.name = self.link.address.scheme
        self.place = self.link.place
        self.keys = Keys(self.link.address.prefix)
        self._max_bytes = settings.integer("results.max_bytes")

    def put(self, tenant: str, *, listed: bool) -> ObjectUpload:
        return ObjectUpload(self, tenant, listed=listed, max_bytes=self._max_bytes)

    async def get(self, tenant: str, sha256: str, known: Known = (), *, listed: bool = False) -> ObjectBlob | None:  # noqa: ARG002 - the index is read by itself
        versions = await self.versions(tenant, sha256)
        if not versions:
            return None
        version = (([each for each in versions if each.listed] if listed else []) or versions)[-1]
        key = self.keys.content(version, self.keys.of_version(tenant, sha256, version))
        return ObjectBlob(self.link, key, version.stored_bytes)

    async def stat(self, tenant: str, sha256: str) -> StoredBlob | None:
        versions = await self.versions(tenant, sha256)
        return _blob(tenant, sha256, versions[-1]) if versions else None

    async def delete(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        versions = await self.versions(tenant, sha256)
        if not versions or (stored_at is not None and versions[-1].stored_at != stored_at):
            return False
        for each in versions:
            await self._delete(tenant, sha256, each)
        return True

    async def list_all(self) -> AsyncIterator[StoredBlob]:
        async for tenant, sha256, versions in self._every():
            yield _blob(tenant, sha256, max(versions))

    async def sweep(self, older_than: int) -> int:
        # Data first: what is referred to meanwhile is found below.
        orphans: dict[str, str] = {}
        async for some in self.link.listing(self.keys.all_data):
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
            await self.link.delete(key)
        return count + len(orphans)

    async def versions(self, tenant: str, sha256: str) -> list[Version]:
        """What is stored of some content, the latest last."""
        stored: list[Version] = []
        async for some in self.link.listing(self.keys.of(tenant, sha256)):
            parsed = [self.keys.parsed(each["path"]) for each in some]
            stored += [each[2] for each in parsed if each is not None and each[:2] == (tenant, sha256)]
        return sorted(stored)

    async def tidy(self, tenant: str, sha256: str, upto: Version) -> None:
        """Remove the versions that this one stands for."""
        versions = [each for each in await self.versions(tenant, sha256) if each <= upto]
        for each in superseded(versions):
            await self._delete(tenant, sha256, each)

    async def close(self) -> None:
        await super().close()
        await self.link.close()

    def now(self) -> int:
        return time.time_ns() // 1000

    async def _delete(self, tenant: str, sha256: str, version: Version) -> None:
        await self.link.delete(self.keys.of_version(tenant, sha256, version))
        if version.referred:
            await self.link.delete(self.keys.of_data(version.nonce))

    async def _every(self) -> AsyncIterator[tuple[str, str, list[Version]]]:
        """All contents. Buckets list in the order of keys, in which the versions of one content stand together."""
        at: tuple[str, str] | None = None
        versions: list[Version] = []
        async for some in self.link.listing(self.keys.root):
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


def _blob(tenant: str, sha256: str, version: Version) -> StoredBlob:
    return StoredBlob(tenant, sha256, version.stored_bytes, version.stored_at)


class ObjectBlob(RangeBlob):
    """An object of a known size."""

    def __init__(self, link: ObjectLink, key: str, size: int) -> None:
        super().__init__(size)
        self.identity = key
        self._link = link
        self._key = key

    async def read(self, start: int, end: int) -> bytes:
        got = await self._link.get(self._key, start, end)
        if got is None:
            raise Replaced
        return got
