"""The blob port: the interface of the folder, database or bucket that keeps the bytes of a result store.

A blob is named by tenant and sha256 of its content. It is a sequence of frames, followed by the index that describes
them (`results.parts`). A blob store does not interpret frames and indexes: hashing, compression, checks and the choice
between two forms of the same content are implemented once, above it, in `results.store`.

Failures are `ResultUnavailable`, or `ResultStoreAway` if the same request may succeed later.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from arclog.ports.results import StoredBlob
from arclog.results.parts import END_BYTES, Index, folder_of, index_bytes, read_index

# ── threads ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# A few threads for hashing, compression and I/O, started with the first work.


P = ParamSpec("P")
R = TypeVar("R")

#: more threads do not make one result faster, and the machine has other work
MOST = 4


class Threads:
    """Runs calls in threads, in order of submission."""

    def __init__(self) -> None:
        self.count = max(2, min(MOST, os.cpu_count() or 1))
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    def submit(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        if self._closed:  # late cleanup runs at once, so that nothing is left behind
            return _at_once(call, *args, **kwargs)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.count, "arclog-results")
        return self._pool.submit(call, *args, **kwargs)

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.result(self.submit(call, *args, **kwargs))

    async def result(self, work: Future[R]) -> R:
        """Return the result of some work. The work continues if the caller is cancelled meanwhile."""
        return await asyncio.shield(asyncio.wrap_future(work))

    async def close(self) -> None:
        """Wait for submitted work, then stop."""
        self._closed = True
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await asyncio.to_thread(pool.shutdown)


def _at_once(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
    done: Future[R] = Future()
    try:
        done.set_result(call(*args, **kwargs))
    except BaseException as problem:  # noqa: BLE001 - it is raised where the result is awaited
        done.set_exception(problem)
    return done


def await_in_thread(work: Future[Any] | None) -> None:
    """Wait in a thread until work that was submitted before has ended, whatever its result. Work starts in order, so it
    has begun and waiting for it cannot hang.
    """
    if work is not None and not work.cancelled():
        work.exception()


# ── port ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


#: identities of blobs whose indexes are already known
Known = Collection[Hashable]


class Replaced(Exception):
    """The opened blob no longer exists: its content was stored again, or removed."""


class Blob(ABC):
    """A stored blob, open for reading."""

    #: differs from the identity of every other blob that had or will have the same name
    identity: Hashable

    @abstractmethod
    async def read_index(self) -> Index:
        """Read the index. Raises `Replaced` or `Damaged`."""

    @abstractmethod
    async def read_frame(self, index: Index, number: int) -> bytes:
        """Read one frame as it is stored, unchecked. Raises `Replaced`."""

    def close(self) -> None:  # noqa: B027 - most hold nothing open
        """Release the resources of reading."""


class RangeBlob(Blob):
    """A blob whose frames and index are one sequence of bytes, read by position."""

    #: number of bytes at the end that are read first; most indexes, and many whole blobs, are smaller
    END_BYTES = 64 << 10

    def __init__(self, size: int) -> None:
        self.size = size
        #: the bytes from `_end_at` on, after they were read
        self._end = b""
        self._end_at = size

    @abstractmethod
    async def read(self, start: int, end: int) -> bytes:
        """Read bytes [start, end); fewer if the blob ends before."""

    async def read_index(self) -> Index:
        if not self._end:
            await self._read_end(self.END_BYTES)
        wanted = index_bytes(self._end[-END_BYTES:], self.size)
        if wanted > len(self._end):
            await self._read_end(wanted)
        return read_index(self._end[len(self._end) - wanted :], self.size)

    async def read_frame(self, index: Index, number: int) -> bytes:
        part = index.parts[number]
        if part.offset >= self._end_at:
            return self._end[part.offset - self._end_at :][: part.packed]
        return await self.read(part.offset, part.offset + part.packed)

    async def _read_end(self, size: int) -> None:
        start = max(self.size - size, 0)
        self._end, self._end_at = await self.read(start, self.size), start


class Upload(ABC):
    """A blob that is being stored. One call at a time; it cannot be read before it is finished."""

    @abstractmethod
    async def put(self, frame: bytes) -> None:
        """Add the next frame."""

    @abstractmethod
    async def stored(self, sha256: str) -> Blob | None:
        """Open the blob that `finish` would replace and `renew` could keep; None if there is none."""

    @abstractmethod
    async def finish(self, end: bytes, sha256: str) -> bool:
        """Add the index, make the blob durable, then readable under its name. Return False if another blob was stored
        under that name since `stored` was called; then call `stored` again.
        """

    @abstractmethod
    async def renew(self, sha256: str) -> bool:
        """Keep the blob that `stored` opened and reset its age; the upload is discarded. Return False if that blob no
        longer exists; then call `stored` again.
        """

    @abstractmethod
    async def discard(self) -> None:
        """Remove the added frames, as far as possible now. Has no effect on a finished upload."""


class Blobs(ABC):
    """A blob store."""

    #: the name of the store in refs
    name: str
    #: the server, bucket or folder, for messages; without credentials
    place: str

    def __init__(self) -> None:
        self.threads = Threads()

    def path(self, tenant: str, sha256: str) -> str:
        """Return the blob's place, for messages."""
        return f"{self.place} {folder_of(tenant)}/{sha256[:100]!r}"

    @abstractmethod
    def put(self, tenant: str, *, listed: bool) -> Upload:
        """Begin to store a blob. `listed` means that its content is a list."""

    @abstractmethod
    async def get(self, tenant: str, sha256: str, indexes: Known = (), *, listed: bool = False) -> Blob | None:
        """Open a blob; None if there is none. The indexes of `known` blobs are not read. With `listed`, the list is
        chosen from two forms of the same content.
        """

    @abstractmethod
    async def stat(self, tenant: str, sha256: str) -> StoredBlob | None:
        """Return size and age of a blob."""

    @abstractmethod
    async def delete(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        """Remove a blob. Return whether it existed. With `stored_at`, only a blob that was stored at that time is
        removed.
        """

    @abstractmethod
    def list_all(self) -> AsyncIterator[StoredBlob]:
        """Yield every blob of every tenant, in no order."""

    @abstractmethod
    async def sweep(self, older_than: int) -> int:
        """Remove leftovers of uploads that died before that time. Return their number."""

    async def close(self) -> None:
        await self.threads.close()
