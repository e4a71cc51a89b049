"""Results in the object store of NATS JetStream. `nats_objects` says in what form.

The message that tells of an object comes last, and replaces the one before only if that is still the one that was looked
at; so does the one that removes it. Chunks that no message tells of are leftovers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Hashable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from arclog.model.config.settings import Settings
from arclog.model.errors import ResultStoreAway, ResultUnavailable
from arclog.ports.results import StoredBlob
from arclog.results.names import folder_of, is_sha256
from arclog.results.nats.bucket import Bucket, Current, MovedOn
from arclog.results.nats.connection import Connect
from arclog.results.nats.objects import PlacedIndex, Told, content_of, cut, read_tail, table_of, told_of
from arclog.results.opened import Known, Replaced, damaged, is_whole_list, missing, unpacked
from arclog.results.parted import PartedResults
from arclog.results.parts import Damaged, Index
from arclog.results.threads import Threads


class NatsResults(PartedResults):
    """See `ports.results.Results`."""

    def __init__(self, connect: Connect, place: str, settings: Settings, name: str = "nats") -> None:
        """`place` is for messages."""
        super().__init__(settings)
        self.name = name
        self._bucket = Bucket(connect, place, settings)

    def _sink(self, tenant: str, *, listed: bool) -> NatsSink:
        return NatsSink(self, self._bucket, self._threads, tenant, listed=listed)

    async def _open(self, tenant: str, sha256: str, known: Known) -> OpenedObject:
        before = None
        while True:
            current = await self._current(tenant, sha256)
            if current is None:
                raise missing(self._path(tenant, sha256))
            try:
                return await self.opened(current, tenant, sha256, known)
            except Replaced:
                if before == current.told.nuid:
                    raise damaged(self._path(tenant, sha256), "its index is missing") from None
                before = current.told.nuid

    async def opened(self, current: Current, tenant: str, sha256: str, known: Known) -> OpenedObject:
        """Raises `Replaced` when its chunks are gone."""
        path, told = self._path(tenant, sha256), current.told
        index = known.get(told.nuid)
        try:
            if not isinstance(index, PlacedIndex):
                places = [int(each) for each in told.metadata.get("tail", "").split()]
                tail = await self._bucket.get(told.nuid, places)
                if tail is None:
                    raise Replaced
                index = read_tail(tail, told)
            if index.sha256 != sha256:
                raise Damaged("it is another result under this name")
        except (Damaged, ValueError) as problem:
            raise damaged(path, problem) from problem
        return OpenedObject(self._bucket, self._threads, told.nuid, index, path)

    async def _current(self, tenant: str, sha256: str) -> Current | None:
        if not is_sha256(sha256):
            return None
        current = await self._bucket.current(self._bucket.names.told(tenant, sha256))
        return None if current is None or current.told.deleted else current

    def _path(self, tenant: str, sha256: str) -> str:
        return f"{self._bucket.place} {folder_of(tenant)}/{sha256[:100]!r}"

    async def find(self, tenant: str, sha256: str) -> StoredBlob | None:
        current = await self._current(tenant, sha256)
        return None if current is None else _blob(tenant, sha256, current)

    async def remove(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        while True:
            current = await self._current(tenant, sha256)
            if current is None or (stored_at is not None and current.at != stored_at):
                return False
            gone = Told(current.told.name, current.told.bucket, current.told.nuid, deleted=True)
            try:
                place = await self._bucket.tell(self._bucket.names.told(tenant, sha256), gone, current.place)
            except MovedOn:
                continue
            with suppress(ResultStoreAway):  # what cannot be removed now is a leftover
                await self._bucket.purge(gone.nuid)
                await self._bucket.erase(place)
            return True

    async def all(self) -> AsyncIterator[StoredBlob]:
        async for current in self._bucket.every():
            content = content_of(current.told.name)
            if content is not None and not current.told.deleted:
                yield _blob(*content, current)

    async def leftovers(self, older_than: int) -> int:
        # Chunks first: an object that is told of meanwhile is found below.
        orphans = {*await self._bucket.chunk_counts()}
        async for current in self._bucket.every():
            if not current.told.deleted:
                orphans.discard(current.told.nuid)
            elif current.at < older_than:
                await self._bucket.erase(current.place)
        count = 0
        for nuid in orphans:
            if 0 < await self._bucket.last_chunk_at(nuid) < older_than:
                await self._bucket.purge(nuid)
                count += 1
        return count

    async def close(self) -> None:
        await super().close()
        await self._bucket.link.close()


def _blob(tenant: str, sha256: str, current: Current) -> StoredBlob:
    try:
        table = int(current.told.metadata["table"])
    except (KeyError, ValueError):
        table = 0
    return StoredBlob(tenant, sha256, current.told.size - table, current.at)


class OpenedObject:
    """See `results.opened.Opened`."""

    def __init__(self, bucket: Bucket, threads: Threads, nuid: str, index: PlacedIndex, path: str) -> None:
        self.index: Index = index
        self.path = path
        self.identity: Hashable = nuid
        self._placed = index
        self._bucket = bucket
        self._threads = threads
        self._nuid = nuid

    async def part(self, number: int, whole: Any = None) -> bytes:
        places = self._placed.places[self._placed.chunk_of[number] : self._placed.chunk_of[number + 1]]
        packed = await self._bucket.get(self._nuid, places)
        if packed is None:
            raise Replaced
        return await self._threads.run(unpacked, packed, self.index.parts[number], self.path, whole)

    def close(self) -> None:
        """Nothing is held open."""


class NatsSink:
    """See `results.packing.Sink`."""

    def __init__(self, results: NatsResults, bucket: Bucket, threads: Threads, tenant: str, *, listed: bool) -> None:
        self._results = results
        self._bucket = bucket
        self._threads = threads
        self._tenant = tenant
        self._listed = listed
        self._nuid = os.urandom(11).hex()
        self._chunk = 0
        self._places: list[int] = []
        self._digest = hashlib.sha256()
        self._bytes = 0
        #: there may be chunks that no message tells of
        self._untold = False

    async def put(self, frame: bytes) -> None:
        self._places += await self._sent(frame, len(self._places))

    async def finish(self, end: bytes, sha256: str) -> None:
        table = table_of(self._places)
        tail = await self._sent(table + end, len(self._places))
        count = len(self._places) + len(tail)
        if (await self._bucket.chunk_counts(self._nuid)).get(self._nuid, 0) < count:
            raise ResultUnavailable(
                f"what was written of a result to {self._bucket.place} is gone: the bucket was emptied, or gc took it for "
                "the leftover of a writer that died (setting results.orphan_grace_s); run it again"
            )
        told = told_of(
            self._bucket.names, self._tenant, sha256, self._nuid, self._bytes, self._digest.digest(), self._chunk,
            self._places, tail, len(table), len(end),
        )  # fmt: skip
        await self._tell(told, sha256)

    async def _tell(self, told: Told, sha256: str) -> None:
        subject = self._bucket.names.told(self._tenant, sha256)
        while True:
            before = await self._bucket.current(subject)
            if before is not None and before.told.nuid == self._nuid and not before.told.deleted:
                return  # it was told, and the answer got lost
            # Of two forms of the same bytes the list is kept: it can be read both ways.
            renewed = before is not None and not self._listed and await self._is_whole_list(before, sha256)
            saying = replace(before.told, mtime=told.mtime) if renewed and before is not None else told
            try:
                self._untold = renewed  # should the answer get lost, nobody knows: then gc does
                await self._bucket.tell(subject, saying, 0 if before is None else before.place)
            except MovedOn:
                self._untold = True
                continue
            except ResultStoreAway:
                raise
            except ResultUnavailable:
                self._untold = True
                raise
            with suppress(ResultUnavailable):  # what cannot be removed now is a leftover
                if renewed:
                    await self.discard()
                elif before is not None and not before.told.deleted:
                    await self._bucket.purge(before.told.nuid)
            return

    async def discard(self) -> None:
        if self._untold:
            await self._bucket.purge(self._nuid)
            self._untold = False

    async def _sent(self, body: bytes, number: int) -> list[int]:
        if not self._chunk:
            self._chunk = await self._bucket.chunk_bytes()
        self._untold = True
        places = await self._bucket.put(self._nuid, number, cut(body, self._chunk))
        await self._threads.run(self._digest.update, body)
        self._bytes += len(body)
        return places

    async def _is_whole_list(self, current: Current, sha256: str) -> bool:
        if current.told.deleted:
            return False
        try:
            opened = await self._results.opened(current, self._tenant, sha256, {})
        except ResultStoreAway:
            raise
        except (ResultUnavailable, Replaced):
            return False
        return await is_whole_list(opened, sha256)
