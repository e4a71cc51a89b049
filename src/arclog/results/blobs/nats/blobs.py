"""Blobs in the object store of NATS JetStream. `objects` defines their form.

The message that describes an object comes last, and replaces the previous one only if that is unchanged since it was
read. The same applies to the message that removes an object. Chunks that no message describes are leftovers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import suppress

from msgspec.structs import replace

from arclog.model.config.settings import Settings
from arclog.model.errors import InvariantBroken, ResultStoreAway, ResultUnavailable
from arclog.ports.results import StoredBlob
from arclog.results.blobs.nats.bucket import (
    Bucket,
    Connect,
    Current,
    MovedOn,
    ObjectInfo,
    PlacedIndex,
    content_of,
    cut,
    info_of,
    now,
    read_tail,
    table_of,
)
from arclog.results.blobs.port import Blob, Blobs, Known, Replaced, Upload
from arclog.results.parts import Damaged, Index


class NatsBlobs(Blobs):
    """See `blobs.port.Blobs`."""

    name = "nats"

    def __init__(self, connect: Connect, place: str, settings: Settings) -> None:
        """`place` names the bucket in messages."""
        super().__init__()
        self._bucket = Bucket(connect, place, settings)
        self.place = self._bucket.place

    def put(self, tenant: str, *, listed: bool) -> NatsUpload:  # noqa: ARG002 - what is there is always looked at
        return NatsUpload(self, self._bucket, tenant)

    async def get(self, tenant: str, sha256: str, indexes: Known = (), *, listed: bool = False) -> NatsBlob | None:  # noqa: ARG002 - there is one form at a time, and its index is read by itself
        current = await self._current(tenant, sha256)
        return None if current is None else NatsBlob(self._bucket, current.info)

    async def _current(self, tenant: str, sha256: str) -> Current | None:
        current = await self._bucket.current(self._bucket.names.info(tenant, sha256))
        return None if current is None or current.info.deleted else current

    async def stat(self, tenant: str, sha256: str) -> StoredBlob | None:
        current = await self._current(tenant, sha256)
        return None if current is None else _blob(tenant, sha256, current)

    async def delete(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        while True:
            current = await self._current(tenant, sha256)
            if current is None or (stored_at is not None and current.at != stored_at):
                return False
            gone = ObjectInfo(current.info.name, current.info.bucket, current.info.nuid, deleted=True)
            try:
                place = await self._bucket.publish_info(self._bucket.names.info(tenant, sha256), gone, current.place)
            except MovedOn:
                continue
            with suppress(ResultStoreAway):  # chunks that cannot be removed now are leftovers
                await self._bucket.purge(gone.nuid)
                await self._bucket.erase(place)
            return True

    async def list_all(self) -> AsyncIterator[StoredBlob]:
        async for current in self._bucket.every():
            content = content_of(current.info.name)
            if content is not None and not current.info.deleted:
                yield _blob(*content, current)

    async def sweep(self, older_than: int) -> int:
        # Chunks first: an object that is described in the meantime is found below.
        orphans = {*await self._bucket.chunk_counts()}
        async for current in self._bucket.every():
            if not current.info.deleted:
                orphans.discard(current.info.nuid)
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
        await self._bucket.connection.close()


def _blob(tenant: str, sha256: str, current: Current) -> StoredBlob:
    try:
        table = int(current.info.metadata["table"])
    except (KeyError, ValueError):
        table = 0
    return StoredBlob(tenant, sha256, current.info.size - table, current.at)


class NatsBlob(Blob):
    """An object, as its message describes it."""

    def __init__(self, bucket: Bucket, info: ObjectInfo) -> None:
        self.identity = info.nuid
        self._bucket = bucket
        self._info = info

    async def read_index(self) -> Index:
        try:
            places = [int(place) for place in self._info.metadata.get("tail", "").split()]
        except ValueError as problem:
            raise Damaged(problem) from problem
        tail = await self._bucket.get(self._info.nuid, places)
        if tail is None:
            raise Replaced
        return read_tail(tail, self._info)

    async def read_frame(self, index: Index, number: int) -> bytes:
        if not isinstance(index, PlacedIndex):
            raise InvariantBroken("the index of another store")
        places = index.places[index.chunk_of[number] : index.chunk_of[number + 1]]
        frame = await self._bucket.get(self._info.nuid, places)
        if frame is None:
            raise Replaced
        return frame


class NatsUpload(Upload):
    """Chunks that no message describes until the upload is finished."""

    def __init__(self, blobs: NatsBlobs, bucket: Bucket, tenant: str) -> None:
        self._blobs = blobs
        self._bucket = bucket
        self._tenant = tenant
        self._nuid = os.urandom(11).hex()
        self._chunk = 0
        self._places: list[int] = []
        self._digest = hashlib.sha256()
        self._bytes = 0
        #: the message that described the object when `stored` was called
        self._before: Current | None = None
        #: the message of the whole upload, after its last chunk was sent
        self._info: ObjectInfo | None = None
        #: whether there may be chunks that no message describes
        self._orphaned = False

    async def put(self, frame: bytes) -> None:
        self._places += await self._sent(frame, len(self._places))

    async def stored(self, sha256: str) -> NatsBlob | None:
        self._before = await self._bucket.current(self._bucket.names.info(self._tenant, sha256))
        if self._before is None or self._before.info.deleted or self._is_published():
            return None
        return NatsBlob(self._bucket, self._before.info)

    async def finish(self, end: bytes, sha256: str) -> bool:
        if self._is_published():  # it was published, but the response was lost
            return True
        if self._info is None:
            self._info = await self._end(end, sha256)
        if not await self._publish(self._info, sha256, renews=False):
            return False
        if self._before is not None and not self._before.info.deleted:
            with suppress(ResultUnavailable):  # chunks that cannot be removed now are leftovers
                await self._bucket.purge(self._before.info.nuid)
        return True

    async def renew(self, sha256: str) -> bool:
        if self._before is None:
            return False
        if not await self._publish(replace(self._before.info, mtime=now()), sha256, renews=True):
            return False
        with suppress(ResultUnavailable):  # chunks that cannot be removed now are leftovers
            await self.discard()
        return True

    async def discard(self) -> None:
        if self._orphaned:
            await self._bucket.purge(self._nuid)
            self._orphaned = False

    def _is_published(self) -> bool:
        before = self._before
        return before is not None and before.info.nuid == self._nuid and not before.info.deleted

    async def _end(self, end: bytes, sha256: str) -> ObjectInfo:
        """Send the last chunks. Return the message that describes the whole object."""
        table = table_of(self._places)
        tail = await self._sent(table + end, len(self._places))
        count = len(self._places) + len(tail)
        if (await self._bucket.chunk_counts(self._nuid)).get(self._nuid, 0) < count:
            raise ResultUnavailable(
                f"the unfinished result in {self._bucket.place} is gone: the bucket was emptied, or gc took it for "
                "the leftover of a writer that died (setting results.orphan_grace_s); run it again"
            )
        return info_of(
            self._bucket.names, self._tenant, sha256, self._nuid, self._bytes, self._digest.digest(), self._chunk,
            self._places, tail, len(table), len(end),
        )  # fmt: skip

    async def _publish(self, info: ObjectInfo, sha256: str, *, renews: bool) -> bool:
        """Publish a message in place of the one that `stored` read. Return False if another one was published in the
        meantime.
        """
        try:
            self._orphaned = renews  # if the response is lost, the outcome is unknown, and gc cleans up
            subject = self._bucket.names.info(self._tenant, sha256)
            await self._bucket.publish_info(subject, info, 0 if self._before is None else self._before.place)
        except MovedOn:
            self._orphaned = True
            return False
        except ResultStoreAway:
            raise
        except ResultUnavailable:
            self._orphaned = True
            raise
        return True

    async def _sent(self, body: bytes, number: int) -> list[int]:
        if not self._chunk:
            self._chunk = await self._bucket.chunk_bytes()
        self._orphaned = True
        places = await self._bucket.put(self._nuid, number, cut(body, self._chunk))
        await self._blobs.threads.run(self._digest.update, body)
        self._bytes += len(body)
        return places
