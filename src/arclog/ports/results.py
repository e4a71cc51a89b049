"""Results: data that is too large for the log, stored under the hash of its content.

Rules that every result store keeps (`arclog.testing.conformance.results` proves them):
- Content is named by the sha256 of its uncompressed bytes, within one tenant. To store the same content twice is to
  store it once. Nothing of one tenant can be read, found or removed under another's name.
- `commit` answers only when the content is durable and whole; until then, and after `abandon`, a crash or a full disk,
  nothing can be read under any name, and what was half-written is removed (at once, or by `leftovers`). Storing content
  again makes it whole if it was damaged, and young if it was old.
- What is read is checked against its hash: content that is missing, cut or changed raises `ResultUnavailable`, never
  gives other bytes. (Items of a list are checked part by part, as they are read.) Content that is stored again while it is
  read is read on.
- A list keeps its items in parts, so that items [first, last) are read without the rest. As bytes it is one JSON value a line.
  An item that is not plain JSON is refused (`ResultUnavailable` with its place) and so is the list. Bytes that were stored
  as a list and as plain content, in whatever order, can be read both ways.
- Content above `results.max_bytes` is refused (`ResultTooLarge`) while it is written.
- Memory does not grow with the content, in either direction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from msgspec import Struct


class Content(Struct, frozen=True):
    """Stored content, as `commit` answers it."""

    sha256: str
    #: of the content itself
    bytes: int
    #: as it takes room in the store
    stored_bytes: int
    content_type: str
    compression: str
    #: items, of a list; else None
    rows: int | None
    #: the first bytes as text, at most `results.preview_bytes`
    preview: str


class StoredFile(Struct, frozen=True):
    """A file that a task wrote and that was stored as a result."""

    content: Content
    #: without folders
    name: str


class StoredBlob(Struct, frozen=True):
    """One piece of content in a store."""

    tenant: str
    sha256: str
    stored_bytes: int
    #: when it was stored last, microseconds since 1970
    stored_at: int


class ResultWriter(Protocol):
    """Content on its way into a store."""

    async def write(self, chunk: bytes) -> None:
        """Add bytes (not for a list)."""

    async def add(self, items: Sequence[Any]) -> None:
        """Add items (of a list only); each must be JSON."""

    async def commit(self) -> Content:
        """Make it durable and readable."""

    async def abandon(self) -> None:
        """Forget it; harmless after `commit`."""


class Results(Protocol):
    """A result store."""

    #: as refs name it
    name: str

    def writer(self, tenant: str, *, listed: bool = False, content_type: str = "application/json") -> ResultWriter:
        """Begin to store content; `listed`: a list, item by item."""

    def chunks(self, tenant: str, sha256: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The content's bytes [start, end). Read whole, it is checked."""

    async def items(self, tenant: str, sha256: str, first: int, last: int) -> list[Any]:
        """Items [first, last) of a list; fewer when it ends before."""

    async def find(self, tenant: str, sha256: str) -> StoredBlob | None:
        """Metadata of the content, without reading it."""

    async def remove(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        """Remove the content. Returns whether it existed. With `stored_at`, only if it was not stored again after the
        time that `find` or `all` returned.
        """

    def all(self) -> AsyncIterator[StoredBlob]:
        """Everything that is stored, in no order."""

    async def leftovers(self, older_than: int) -> int:
        """Remove unfinished content of writers that died before that moment. Returns how many."""

    async def close(self) -> None: ...


class ResultSink(Protocol):
    """Stores the result of a running task. Secrets that the task uses are redacted."""

    #: a payload up to this size goes into the outcome itself, a larger one should be streamed here
    inline_max_bytes: int

    def writer(self, *, listed: bool = False, content_type: str = "application/json") -> ResultWriter:
        """Begin to store the task's payload; hand what `commit` answers to `Outcome.stored`."""

    def read(self, ref: Any) -> AsyncIterator[bytes]:
        """The bytes of a `ResultRef` that a config field gave (`KindSpec.by_ref`)."""

    def read_items(self, ref: Any) -> AsyncIterator[list[Any]]:
        """The items of a list, some at a time."""
