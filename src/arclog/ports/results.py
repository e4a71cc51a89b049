"""Results: data that is too large for the log, stored under the hash of its content.

Rules that every result store keeps (`arclog.testing.conformance.results` checks them):
- Content is named by the sha256 of its uncompressed bytes, within one tenant. Storing the same content twice stores it
  once. Content of one tenant cannot be read, found or removed by another.
- `commit` returns only when the content is durable and complete; before that, and after `abandon`, a crash or a full
  disk, nothing can be read under any name, and partial content is removed (at once, or by `leftovers`). Storing content
  again repairs it if it was damaged, and renews its time.
- Content is checked against its hash when it is read: missing, cut or changed content raises `ResultUnavailable` and
  never returns other bytes. (Items of a list are checked part by part, as they are read.) A read continues while the
  content is stored again.
- A list keeps its items in parts, so that items [first, last) are read without the rest. As bytes it is one JSON value
  per line. An item that is not plain JSON is refused (`ResultUnavailable` with its location), and with it the list.
  Bytes that were stored as a list and as plain content, in any order, can be read both ways.
- Content larger than `results.max_bytes` is refused (`ResultTooLarge`) while it is written.
- Memory does not grow with the content, for reads and writes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from msgspec import Struct


class Content(Struct, frozen=True):
    """The answer of `commit`: a description of stored content."""

    sha256: str
    #: size of the content
    bytes: int
    #: size in the store
    stored_bytes: int
    content_type: str
    compression: str
    #: number of items of a list; otherwise None
    rows: int | None
    #: the first bytes as text, at most `results.preview_bytes`
    preview: str


class StoredFile(Struct, frozen=True):
    """A file that a task wrote and that was stored as a result."""

    content: Content
    #: file name without folders
    name: str


class StoredBlob(Struct, frozen=True):
    """One piece of content in a store."""

    tenant: str
    sha256: str
    stored_bytes: int
    #: when it was stored last, microseconds since 1970
    stored_at: int


class ResultWriter(Protocol):
    """Writes content to a store."""

    async def write(self, chunk: bytes) -> None:
        """Add bytes (not for a list)."""

    async def add(self, items: Sequence[Any]) -> None:
        """Add items (of a list only); each must be JSON."""

    async def commit(self) -> Content:
        """Make the content durable and readable."""

    async def abandon(self) -> None:
        """Discard the content; no effect after `commit`."""


class Results(Protocol):
    """A result store."""

    #: its name in refs
    name: str

    def writer(self, tenant: str, *, listed: bool = False, content_type: str = "application/json") -> ResultWriter:
        """Start storing content; with `listed`, a list item by item."""

    def chunks(self, tenant: str, sha256: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Return the content's bytes [start, end). The whole content is checked."""

    async def items(self, tenant: str, sha256: str, first: int, last: int) -> list[Any]:
        """Return items [first, last) of a list; fewer if it ends before."""

    async def find(self, tenant: str, sha256: str) -> StoredBlob | None:
        """Return the metadata of the content without reading it; None if it does not exist."""

    async def remove(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        """Remove the content. Returns whether it existed.

        With `stored_at`, remove it only if it was not stored again after the time that `find` or `all` returned.
        """

    def all(self) -> AsyncIterator[StoredBlob]:
        """Iterate over everything that is stored, in no particular order."""

    async def leftovers(self, older_than: int) -> int:
        """Remove unfinished content of writers that died before that moment. Returns the number removed."""

    async def close(self) -> None: ...


class ResultSink(Protocol):
    """Stores the result of a running task. Secrets that the task uses are redacted."""

    #: a payload up to this size goes into the outcome itself; a larger one should be streamed here
    inline_max_bytes: int

    def writer(self, *, listed: bool = False, content_type: str = "application/json") -> ResultWriter:
        """Start storing the task's payload; set `Outcome.stored` to the result of `commit`."""

    def read(self, ref: Any) -> AsyncIterator[bytes]:
        """Return the bytes of a `ResultRef` from a config field (`KindSpec.by_ref`)."""

    def read_items(self, ref: Any) -> AsyncIterator[list[Any]]:
        """Return the items of a list, some at a time."""
