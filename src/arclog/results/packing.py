"""Stores content: hashed and compressed by threads, part by part, and uploaded in order.

At most a few parts are in memory. Content cannot be read before the upload is finished. Any failure before that (an
error, a full disk, a limit, a cancelled task) discards the upload, and a writer that failed never commits.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import zstandard

from arclog.model.data.lines import encoded, preview
from arclog.model.errors import InvariantBroken, ResultStoreAway, ResultTooLarge, ResultUnavailable
from arclog.ports.results import Content
from arclog.results.blobs.port import Blobs, Upload
from arclog.results.parts import PART_BYTES, IndexWriter
from arclog.results.reading import is_whole_list
from arclog.results.store import Limits

R = TypeVar("R")
_AT_HAND = threading.local()


class Packing:
    """Creates the writers of one store, and keeps their uploads that continue after the caller is gone."""

    def __init__(self, blobs: Blobs, limits: Limits) -> None:
        self.blobs = blobs
        self.limits = limits
        self._tasks: set[asyncio.Task[Any]] = set()

    def writer(self, tenant: str, *, listed: bool, content_type: str) -> PackingWriter:
        return PackingWriter(self, self.blobs.put(tenant, listed=listed), listed=listed, content_type=content_type)

    def begin(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """Start work that a cancelled caller does not stop."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settle(self) -> None:
        """Wait for all work that was started."""
        while self._tasks:
            await asyncio.wait([*self._tasks])


class PackingWriter:
    """See `ports.results.ResultWriter`."""

    def __init__(self, packing: Packing, upload: Upload, *, listed: bool, content_type: str) -> None:
        self._store = packing
        self._upload = upload
        self._threads = packing.blobs.threads
        self._limits = packing.limits
        self._listed = listed
        self._content_type = content_type
        self._held = bytearray()
        self._held_rows = 0
        self._hash = hashlib.sha256()
        self._bytes = 0
        self._rows = 0
        self._beginning = b""
        self._index = IndexWriter()
        self._packed_bytes = 0
        #: parts that are being packed: size, items, (frame, its digest)
        self._packing: deque[tuple[int, int, Future[tuple[bytes, bytes]]]] = deque()
        self._hashing: Future[None] | None = None
        #: the current or last action of the upload
        self._uploading: asyncio.Task[None] | None = None
        self._dropping: asyncio.Task[None] | None = None
        #: why the writer cannot be used any more; '' while it can
        self._over = ""
        #: whether the caller is gone
        self._away = False

    async def write(self, chunk: bytes) -> None:
        if self._listed:
            raise TypeError("a list takes items, not bytes")
        self._check()
        async with self._all_or_nothing():
            self._count(len(chunk))
            view = memoryview(chunk)
            while view:
                room = PART_BYTES - len(self._held)
                self._held += view[:room]
                view = view[room:]
                if len(self._held) == PART_BYTES:
                    await self._cut()

    async def add(self, items: Sequence[Any]) -> None:
        if not self._listed:
            raise TypeError("bytes were begun, not a list")
        self._check()
        async with self._all_or_nothing():
            for run, rows in await self._threads.run(encoded, items, self._rows, PART_BYTES):
                self._count(len(run))
                self._held += run
                self._held_rows += rows
                self._rows += rows
                if len(self._held) >= PART_BYTES:
                    await self._cut()

    async def commit(self) -> Content:
        self._check()
        async with self._all_or_nothing():
            if self._held:
                await self._cut()
            while self._packing:
                await self._upload_oldest()
            await self._hashed()
            await self._uploaded()
            rows = self._rows if self._listed else None
            end = self._index.frame(self._hash.digest(), self._bytes, rows)
            sha256 = self._hash.hexdigest()
            self._uploading = self._store.begin(self._finish(end, sha256))
            await self._uploaded()
        self._over = "it is committed"
        return Content(
            sha256=sha256,
            bytes=self._bytes,
            stored_bytes=self._packed_bytes + len(end),
            content_type=self._content_type,
            compression="zstd",
            rows=rows,
            preview=preview(self._beginning, self._limits.preview_bytes),
        )

    async def _finish(self, end: bytes, sha256: str) -> None:
        """Store the upload under its name. Of two forms of the same bytes the list is kept, since it can be read both
        ways.
        """
        done = False
        while not done:
            stored = await self._upload.stored(sha256)
            if stored is None:
                done = await self._upload.finish(end, sha256)
                continue
            try:
                if not self._listed and await is_whole_list(stored, self._threads, sha256):
                    done = await self._upload.renew(sha256)
                else:
                    done = await self._upload.finish(end, sha256)
            finally:
                stored.close()

    async def abandon(self) -> None:
        if not self._over:
            self._over = "it was abandoned"
            self._drop()
        if self._dropping is not None:
            await asyncio.shield(self._dropping)

    def _check(self) -> None:
        if self._over:
            raise InvariantBroken(f"nothing can be added to a result or committed: {self._over}")

    def _count(self, more: int) -> None:
        self._bytes += more
        if self._bytes > self._limits.max_bytes:
            raise ResultTooLarge(
                f"the result has more than {self._limits.max_bytes} bytes; nothing of it is kept: make it smaller, or "
                "raise ARCLOG_RESULTS_MAX_BYTES"
            )

    async def _cut(self) -> None:
        """Pack the buffered content as one part."""
        part, rows = bytes(self._held), self._held_rows
        self._held.clear()
        self._held_rows = 0
        if len(self._beginning) < self._limits.preview_bytes:
            self._beginning += part[: self._limits.preview_bytes - len(self._beginning)]
        await self._hashed()
        self._hashing = self._threads.submit(self._hash.update, part)
        self._packing.append((len(part), rows, self._threads.submit(_packed, part, self._limits.zstd_level)))
        while len(self._packing) > self._threads.count:
            await self._upload_oldest()

    async def _upload_oldest(self) -> None:
        size, rows, packing = self._packing[0]
        frame, digest = await self._threads.result(packing)
        await self._uploaded()
        self._packing.popleft()
        self._index.add(len(frame), size, rows, digest)
        self._packed_bytes += len(frame)
        self._uploading = self._store.begin(self._upload.put(frame))

    async def _hashed(self) -> None:
        if self._hashing is not None:
            await self._threads.result(self._hashing)

    async def _uploaded(self) -> None:
        """Wait for the upload. It continues if the caller is cancelled meanwhile."""
        if self._uploading is not None:
            await asyncio.shield(self._uploading)

    @asynccontextmanager
    async def _all_or_nothing(self) -> AsyncIterator[None]:
        """End this writer and discard its content on any failure inside, including a cancellation."""
        try:
            yield
        except BaseException as problem:
            self._over = f"it failed before ({type(problem).__name__}: {problem})"
            self._away = isinstance(problem, ResultStoreAway)
            dropping = self._drop()
            if not isinstance(problem, asyncio.CancelledError):  # a cancelled task must not wait
                await asyncio.shield(dropping)
            raise

    def _drop(self) -> asyncio.Task[None]:
        self._dropping = self._store.begin(self._discard())
        return self._dropping

    async def _discard(self) -> None:
        """Discard the upload after all started work has ended, whatever its result."""
        begun: list[asyncio.Future[Any]] = [] if self._uploading is None else [self._uploading]
        begun += [asyncio.wrap_future(job[2]) for job in self._packing]
        if self._hashing is not None:
            begun.append(asyncio.wrap_future(self._hashing))
        await asyncio.gather(*begun, return_exceptions=True)
        if not self._away:
            with suppress(ResultUnavailable):  # `leftovers` finds it later
                await self._upload.discard()


def _packed(part: bytes, level: int) -> tuple[bytes, bytes]:
    """Return a zstd frame and its digest."""
    packers: dict[int, Any] = _AT_HAND.__dict__.setdefault("packers", {})
    packer = packers.get(level)
    if packer is None:
        packer = packers[level] = zstandard.ZstdCompressor(level=level, write_checksum=True)
    frame: bytes = packer.compress(part)
    return frame, hashlib.sha256(frame).digest()
