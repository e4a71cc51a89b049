"""Content on its way into a store: hashed and packed by threads, part by part, and handed on in order to a sink.

At most a few parts are in memory. Nobody can read anything before the sink has finished; whatever goes wrong before, an
error, a full disk, a limit, a cancelled task, makes the sink discard what it has, and a writer that failed never commits.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar

import zstandard
from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.model.data.lines import encoded, preview
from arclog.model.errors import InvariantBroken, ResultStoreAway, ResultTooLarge, ResultUnavailable, SettingsError
from arclog.ports.results import Content
from arclog.results.parts import PART_BYTES, IndexWriter
from arclog.results.threads import Threads

R = TypeVar("R")
_AT_HAND = threading.local()
#: those above take gigabytes of memory
_HIGHEST_LEVEL = 19


class Limits(Struct, frozen=True):
    """The settings that a writer keeps."""

    zstd_level: int
    max_bytes: int
    preview_bytes: int


def limits_of(settings: Settings) -> Limits:
    level = settings.integer("results.zstd_level")
    if level > _HIGHEST_LEVEL:
        raise SettingsError(f"ARCLOG_RESULTS_ZSTD_LEVEL: {level} is above the highest level, {_HIGHEST_LEVEL}")
    return Limits(level, settings.integer("results.max_bytes"), settings.integer("results.preview_bytes"))


class Sink(Protocol):
    """Where packed parts go. One call at a time; raises ResultUnavailable when it cannot."""

    async def put(self, frame: bytes) -> None:
        """Take the next part."""

    async def finish(self, end: bytes, sha256: str) -> None:
        """Take the index, make the whole durable, then readable under its name."""

    async def discard(self) -> None:
        """Remove what was taken as far as that is possible now; harmless when it is finished."""


class Behind:
    """Work that goes on when nobody waits for it any more, until its store is closed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settle(self) -> None:
        while self._tasks:
            await asyncio.wait([*self._tasks])


class PackingWriter:
    """See `ports.results.ResultWriter`."""

    def __init__(
        self, sink: Sink, threads: Threads, behind: Behind, limits: Limits, *, listed: bool, content_type: str
    ) -> None:
        self._sink = sink
        self._threads = threads
        self._behind = behind
        self._limits = limits
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
        #: what the sink does now, or did last
        self._sinking: asyncio.Task[None] | None = None
        self._dropping: asyncio.Task[None] | None = None
        #: why nothing more can be done with it; '' while it can
        self._over = ""
        #: there is nobody to tell that it is over
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
                await self._sink_oldest()
            await self._hashed()
            await self._sunk()
            rows = self._rows if self._listed else None
            end = self._index.frame(self._hash.digest(), self._bytes, rows)
            sha256 = self._hash.hexdigest()
            self._sinking = self._behind.begin(self._sink.finish(end, sha256))
            await self._sunk()
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
        await self._hashed()
        self._hashing = self._threads.submit(self._hash.update, part)
        self._packing.append((len(part), rows, self._threads.submit(_packed, part, self._limits.zstd_level)))
        while len(self._packing) > self._threads.count:
            await self._sink_oldest()

    async def _sink_oldest(self) -> None:
        size, rows, packing = self._packing[0]
        frame, digest = await self._threads.result(packing)
        await self._sunk()
        self._packing.popleft()
        self._index.add(len(frame), size, rows, digest)
        self._packed_bytes += len(frame)
        self._sinking = self._behind.begin(self._sink.put(frame))

    async def _hashed(self) -> None:
        if self._hashing is not None:
            await self._threads.result(self._hashing)

    async def _sunk(self) -> None:
        """Wait for the sink; it goes on if we are cancelled meanwhile."""
        if self._sinking is not None:
            await asyncio.shield(self._sinking)

    @asynccontextmanager
    async def _all_or_nothing(self) -> AsyncIterator[None]:
        """Whatever goes wrong inside, a cancelled task too, is the end of this writer and of what it wrote."""
        try:
            yield
        except BaseException as problem:
            self._over = f"it failed before ({type(problem).__name__}: {problem})"
            self._away = isinstance(problem, ResultStoreAway)
            dropping = self._drop()
            if not isinstance(problem, asyncio.CancelledError):  # it must not be kept waiting
                await asyncio.shield(dropping)
            raise

    def _drop(self) -> asyncio.Task[None]:
        self._dropping = self._behind.begin(self._discard())
        return self._dropping

    async def _discard(self) -> None:
        """Once everything that was begun is over, whatever came of it."""
        begun: list[asyncio.Future[Any]] = [] if self._sinking is None else [self._sinking]
        begun += [asyncio.wrap_future(each[2]) for each in self._packing]
        if self._hashing is not None:
            begun.append(asyncio.wrap_future(self._hashing))
        await asyncio.gather(*begun, return_exceptions=True)
        if not self._away:
            with suppress(ResultUnavailable):  # then it is found by `leftovers`
                await self._sink.discard()


def _packed(part: bytes, level: int) -> tuple[bytes, bytes]:
    """A zstd frame, and its digest."""
    packers: dict[int, Any] = _AT_HAND.__dict__.setdefault("packers", {})
    packer = packers.get(level)
    if packer is None:
        packer = packers[level] = zstandard.ZstdCompressor(level=level, write_checksum=True)
    frame: bytes = packer.compress(part)
    return frame, hashlib.sha256(frame).digest()
