"""The blob port: what a result store needs from the folder, database or bucket that keeps its bytes.

A blob is named by tenant and sha256 of its content. It is a row of frames, followed by the index that describes them
(`results.parts`). A blob store moves frames and indexes and looks into neither: hashing, compression, checks and the choice
between two forms of the same content are written once, above it, in `results.store`.

Failures are `ResultUnavailable`, or `ResultStoreAway` when the same request may succeed later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Hashable

from arclog.ports.results import StoredBlob
from arclog.results.parts import END_BYTES, Index, folder_of, index_bytes, read_index
from arclog.results.threads import Threads

#: identities of blobs whose indexes are at hand
Known = Collection[Hashable]


class Replaced(Exception):
    """The blob that was opened is no longer there: its content was stored again, or removed."""


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
        """Release what reading holds open."""


class RangeBlob(Blob):
    """A blob whose frames and index are one row of bytes, read by position."""

    #: bytes at the end that are read first: most indexes, and many whole blobs, are smaller
    END_BYTES = 64 << 10

    def __init__(self, size: int) -> None:
        self.size = size
        #: the bytes from `_end_at` on, once they were read
        self._end = b""
        self._end_at = size

    @abstractmethod
    async def read(self, start: int, end: int) -> bytes:
        """Read bytes [start, end); fewer when the blob ends before."""

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
    """A blob on its way into a store. One call at a time; nothing can be read before it is finished."""

    @abstractmethod
    async def put(self, frame: bytes) -> None:
        """Add the next frame."""

    @abstractmethod
    async def stored(self, sha256: str) -> Blob | None:
        """Open the blob that `finish` would replace and `renew` could keep; None when there is none."""

    @abstractmethod
    async def finish(self, end: bytes, sha256: str) -> bool:
        """Add the index, make the whole durable, then readable under its name. False: another blob took that name since
        `stored` looked; look again.
        """

    @abstractmethod
    async def renew(self, sha256: str) -> bool:
        """Keep the blob that `stored` opened and make it as young as a new one; the upload is discarded. False: that blob
        is no longer there; look again.
        """

    @abstractmethod
    async def discard(self) -> None:
        """Remove what was added, as far as that is possible now. Harmless when the upload is finished."""


class Blobs(ABC):
    """A blob store."""

    #: how refs name the store
    name: str
    #: the server, bucket or folder, for messages; without credentials
    place: str

    def __init__(self) -> None:
        self.threads = Threads()

    def path(self, tenant: str, sha256: str) -> str:
        """The blob's place, for messages."""
        return f"{self.place} {folder_of(tenant)}/{sha256[:100]!r}"

    @abstractmethod
    def put(self, tenant: str, *, listed: bool) -> Upload:
        """Begin to store a blob; `listed`: its content is a list."""

    @abstractmethod
    async def get(self, tenant: str, sha256: str, known: Known = (), *, listed: bool = False) -> Blob | None:
        """Open a blob; None when there is none. The indexes of those that are `known` will not be read. `listed`: of two
        forms of the same content, the list.
        """

    @abstractmethod
    async def stat(self, tenant: str, sha256: str) -> StoredBlob | None:
        """Size and age of a blob."""

    @abstractmethod
    async def delete(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        """Remove a blob and return whether it was there. With `stored_at`: only the one that was stored at that moment."""

    @abstractmethod
    def list_all(self) -> AsyncIterator[StoredBlob]:
        """Every blob of every tenant, in no order."""

    @abstractmethod
    async def sweep(self, older_than: int) -> int:
        """Remove what uploads that died left behind before that moment, and return how many."""

    async def close(self) -> None:
        await self.threads.close()
