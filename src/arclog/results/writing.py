"""Content on its way into a file: hashed, packed and written by threads at the same time, part by part.

At most a few parts are in memory. The file has a name that nobody reads until it is whole and on the disk; whatever goes
wrong before, an error, a full disk, a limit, a cancelled task, removes it, and a writer that failed never commits.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import zstandard
from msgspec import Struct

from arclog.model.errors import InvariantBroken, ResultTooLarge, ResultUnavailable
from arclog.model.lines import encoded, preview
from arclog.ports.results import Content
from arclog.results.parts import PART_BYTES, IndexWriter
from arclog.results.places import Places
from arclog.results.reading import is_whole_list
from arclog.results.threads import Threads, over

R = TypeVar("R")
_AT_HAND = threading.local()
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Limits(Struct, frozen=True):
    """The settings that a writer keeps."""

    zstd_level: int
    max_bytes: int
    preview_bytes: int


class FileWriter:
    """See `ports.results.ResultWriter`."""

    def __init__(
        self, places: Places, threads: Threads, limits: Limits, tenant: str, listed: bool, content_type: str
    ) -> None:
        self._places = places
        self._threads = threads
        self._limits = limits
        self._tenant = tenant
        self._listed = listed
        self._content_type = content_type
        self._held = bytearray()
        self._held_rows = 0
        self._hash = hashlib.sha256()
        self._bytes = 0
        self._rows = 0
        self._beginning = b""
        self._index = IndexWriter()
        self._written = 0
        #: parts that are being packed: size, items, (frame, its digest)
        self._packing: deque[tuple[int, int, Future[tuple[bytes, bytes]]]] = deque()
        self._hashing: Future[None] | None = None
        self._writing: Future[None] | None = None
        self._finishing: Future[None] | None = None
        self._dropping: Future[None] | None = None
        #: the file comes with the first part
        self._file = -1
        self._name = ""
        #: why nothing more can be done with it; '' while it can
        self._over = ""

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
                await self._write_oldest()
            await _done(self._hashing)
            await _done(self._writing)
            rows = self._rows if self._listed else None
            end = self._index.frame(self._hash.digest(), self._bytes, rows)
            self._finishing = self._threads.submit(self._finish, end)
            await _done(self._finishing)
        self._over = "it is committed"
        return Content(
            sha256=self._hash.hexdigest(),
            bytes=self._bytes,
            stored_bytes=self._written,
            content_type=self._content_type,
            compression="zstd",
            rows=rows,
            preview=preview(self._beginning, self._limits.preview_bytes),
        )

    async def abandon(self) -> None:
        if not self._over:
            self._over = "it was abandoned"
            self._drop()
        await _done(self._dropping)

    # -- on the event loop --------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._over:
            raise InvariantBroken(f"nothing can be added to a result or committed: {self._over}")

    def _count(self, more: int) -> None:
        self._bytes += more
        if self._bytes > self._limits.max_bytes:
            raise ResultTooLarge(
                f"the result takes more than {self._limits.max_bytes} bytes; nothing of it is kept: make it smaller, or "
                "raise ARCLOG_RESULTS_MAX_BYTES"
            )

    async def _cut(self) -> None:
        """Send off what is held as one part."""
        part, rows = bytes(self._held), self._held_rows
        self._held.clear()
        self._held_rows = 0
        if len(self._beginning) < self._limits.preview_bytes:
            self._beginning += part[: self._limits.preview_bytes - len(self._beginning)]
        await _done(self._hashing)
        self._hashing = self._threads.submit(self._hash.update, part)
        self._packing.append((len(part), rows, self._threads.submit(_packed, part, self._limits.zstd_level)))
        while len(self._packing) > self._threads.count:
            await self._write_oldest()

    async def _write_oldest(self) -> None:
        size, rows, packing = self._packing[0]
        frame, digest = await _done(packing)
        await _done(self._writing)
        self._packing.popleft()
        self._index.add(len(frame), size, rows, digest)
        self._writing = self._threads.submit(self._write, frame)

    @asynccontextmanager
    async def _all_or_nothing(self) -> AsyncIterator[None]:
        """Whatever goes wrong inside, a cancelled task too, is the end of this writer and of what it wrote."""
        try:
            yield
        except BaseException as problem:
            self._over = f"it failed before ({type(problem).__name__}: {problem})"
            dropping = self._drop()
            if not isinstance(problem, asyncio.CancelledError):  # it must not be kept waiting
                await _done(dropping)
            if isinstance(problem, OSError):
                raise unwritable(self._places.root, problem) from problem
            raise

    def _drop(self) -> Future[None]:
        before = [self._hashing, self._writing, self._finishing, *(each[2] for each in self._packing)]
        self._dropping = self._threads.submit(self._discard, before)
        return self._dropping

    # -- in threads ---------------------------------------------------------------------------------------------------

    def _write(self, frame: bytes) -> None:
        if self._file < 0:
            self._file, self._name = self._places.begin()
        view = memoryview(frame)
        while view:
            view = view[os.write(self._file, view) :]
        self._written += len(frame)

    def _finish(self, end: bytes) -> None:
        """Make it durable, then readable."""
        self._write(end)
        os.fsync(self._file)
        sha256 = self._hash.hexdigest()
        with self._places.shelving():
            # Of two forms of the same bytes the list is kept: it can be read both ways.
            if not self._listed and is_whole_list(self._places, self._tenant, sha256):
                self._places.renew(self._tenant, sha256)
                self._places.forget(self._name)
            else:
                os.utime(self._file)
                self._places.shelve(self._name, self._tenant, sha256)
        os.close(self._file)
        self._file = -1

    def _discard(self, before: list[Future[Any] | None]) -> None:
        for each in before:
            over(each)
        if self._file >= 0:
            with suppress(OSError):
                self._places.forget(self._name)
            os.close(self._file)
            self._file = -1


def _packed(part: bytes, level: int) -> tuple[bytes, bytes]:
    """A zstd frame, and its digest."""
    packers: dict[int, Any] = _AT_HAND.__dict__.setdefault("packers", {})
    packer = packers.get(level)
    if packer is None:
        packer = packers[level] = zstandard.ZstdCompressor(level=level, write_checksum=True)
    frame: bytes = packer.compress(part)
    return frame, hashlib.sha256(frame).digest()


async def _done(work: Future[R] | None) -> R:
    """What came of work; it goes on if we are cancelled meanwhile."""
    if work is None:
        return None  # type: ignore[return-value]  # only of a Future[None] that was never begun
    return await asyncio.shield(asyncio.wrap_future(work))


def unwritable(root: str, problem: OSError) -> ResultUnavailable:
    """What a failed write means, and what to do."""
    if problem.errno in _FULL:
        return ResultUnavailable(
            f"disk full: a result could not be stored in {root}, and nothing of it is kept; free space (`arclog gc` removes "
            "results that are no longer needed), then run it again"
        )
    return ResultUnavailable(
        f"a result could not be stored in {root} ({problem.strerror or problem}), and nothing of it is kept; check the disk "
        "and whether the folder may be written"
    )
