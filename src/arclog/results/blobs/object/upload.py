"""Frames on their way into a bucket: in one request while there are few, else as an upload that goes on while they
come. An upload that does not end well is aborted: its source raises, which makes obstore take back what it sent.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import obstore

from arclog.model.errors import ResultStoreAway, ResultUnavailable
from arclog.results.blobs.object.bucket import ObjectLink
from arclog.results.blobs.object.keys import Version, new_nonce
from arclog.results.blobs.port import Blob, Upload

if TYPE_CHECKING:
    from arclog.results.blobs.object.blobs import ObjectBlobs

#: A file up to this size goes in one request; above, in parts of so much: the least that S3 takes, up to 10,000 times.
PIECE_BYTES = 5 * 1024 * 1024
_MOST_PIECES = 9_000
_AT_A_TIME = 2


class _Stopped(Exception):
    """The upload is no longer wanted."""


class ObjectUpload(Upload):
    """A new version of some content. It stands beside those before, which go afterwards."""

    def __init__(self, blobs: ObjectBlobs, tenant: str, *, listed: bool, max_bytes: int) -> None:
        self._blobs = blobs
        self._link = blobs.link
        self._tenant = tenant
        self._listed = listed
        self._piece = max(PIECE_BYTES, -(-max_bytes // _MOST_PIECES))
        self._nonce = new_nonce()
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._bytes = 0
        self._upload: _Upload | None = None
        #: there is, or may be, an object in .data that nothing refers to
        self._unreferred = False

    async def put(self, frame: bytes) -> None:
        self._bytes += len(frame)
        if self._upload is None:
            self._held.append(frame)
            self._held_bytes += len(frame)
            if self._held_bytes <= PIECE_BYTES:
                return
            self._unreferred = True
            self._upload = _Upload(self._link, self._blobs.keys.of_data(self._nonce), self._piece)
            held, self._held = self._held, []
            for each in held:
                await self._upload.give(each)
        else:
            await self._upload.give(frame)

    async def stored(self, sha256: str) -> Blob | None:  # noqa: ARG002
        """None: plain bytes leave a list where it is."""
        return None

    async def finish(self, end: bytes, sha256: str) -> bool:
        if self._upload is not None:
            await self._upload.give(end)
            await self._upload.end()
            body = self._blobs.keys.of_data(self._nonce).encode()
        else:
            body = b"".join([*self._held, end])
        before = await self._blobs.versions(self._tenant, sha256)
        version = Version(
            stored_at=max(self._blobs.now(), *(each.stored_at + 1 for each in before), 0),
            nonce=self._nonce,
            stored_bytes=self._bytes + len(end),
            listed=self._listed,
            referred=self._upload is not None,
        )
        try:
            await self._link.put(self._blobs.keys.of_version(self._tenant, sha256, version), body)
        except ResultStoreAway:
            self._unreferred = False  # it may have come: then gc finds out
            raise
        self._unreferred = False
        with suppress(ResultUnavailable):  # what cannot be removed now is a leftover
            await self._blobs.tidy(self._tenant, sha256, version)
        return True

    async def renew(self, sha256: str) -> bool:
        raise NotImplementedError("`stored` opens nothing that could be kept")

    async def discard(self) -> None:
        self._held.clear()
        if self._upload is not None and not self._upload.over:
            await self._upload.stop()
        if self._unreferred:
            self._unreferred = False
            await self._link.delete(self._blobs.keys.of_data(self._nonce))


class _Upload:
    """An upload in progress; at most one piece waits for it."""

    def __init__(self, link: ObjectLink, key: str, piece_bytes: int) -> None:
        self._link = link
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._stopped = asyncio.Event()
        self._sending: asyncio.Future[Any] = asyncio.ensure_future(
            obstore.put_async(link.store, key, self, chunk_size=piece_bytes, max_concurrency=_AT_A_TIME)
        )

    @property
    def over(self) -> bool:
        return self._sending.done()

    async def give(self, piece: bytes | None) -> None:
        """Hand the next piece over; raises when the upload failed."""
        giving = asyncio.ensure_future(self._pieces.put(piece))
        await asyncio.wait({giving, self._sending}, return_when=asyncio.FIRST_COMPLETED)
        if not giving.done():
            giving.cancel()
            await self._ended()

    async def end(self) -> None:
        await self.give(None)
        await self._ended()

    async def _ended(self) -> None:
        try:
            await self._sending
        except Exception as problem:  # noqa: BLE001 - `meant` raises what is none of its own
            raise self._link.meant(problem) from None

    async def stop(self) -> None:
        self._stopped.set()
        await asyncio.gather(self._sending, return_exceptions=True)

    def __aiter__(self) -> _Upload:
        return self

    async def __anext__(self) -> bytes:
        coming = asyncio.ensure_future(self._pieces.get())
        stopping = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({coming, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self._stopped.is_set():
                raise _Stopped
            piece = coming.result()
        finally:
            coming.cancel()
            stopping.cancel()
        if piece is None:
            raise StopAsyncIteration
        return piece
