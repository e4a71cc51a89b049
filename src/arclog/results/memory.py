"""A result store in memory that implements all rules of `ports.results` in plain Python, for tests and simulations."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.model.data.lines import decoded, encoded, preview
from arclog.model.errors import InvariantBroken, ResultTooLarge, ResultUnavailable
from arclog.ports.results import Content, StoredBlob


class _Kept(Struct):
    body: bytes
    #: the items of a list; None for bytes
    items: list[bytes] | None
    stored_at: int


class MemoryResults:
    """Keeps contents in a dict."""

    name = "memory"

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.kept: dict[tuple[str, str], _Kept] = {}
        self._clock = 0

    def writer(self, tenant: str, *, listed: bool = False, content_type: str = "application/json") -> MemoryWriter:
        return MemoryWriter(self, tenant, content_type, [] if listed else None)

    def keep(self, tenant: str, sha256: str, body: bytes, items: list[bytes] | None) -> None:
        self._clock += 1
        previous = self.kept.get((tenant, sha256))
        if items is None and previous is not None:  # a list stays a list
            items = previous.items
        self.kept[tenant, sha256] = _Kept(body, items, self._clock)

    async def chunks(self, tenant: str, sha256: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        body = self._kept_or_raise(tenant, sha256).body
        if hashlib.sha256(body).hexdigest() != sha256:
            raise ResultUnavailable(f"stored result {sha256} was changed")
        yield body[max(start, 0) : len(body) if end is None else max(end, 0)]

    async def items(self, tenant: str, sha256: str, first: int, last: int) -> list[Any]:
        kept = self._kept_or_raise(tenant, sha256)
        if kept.items is None:
            raise ResultUnavailable(f"stored result {sha256} is not a list")
        return decoded(kept.items[max(first, 0) : max(last, 0)])

    async def find(self, tenant: str, sha256: str) -> StoredBlob | None:
        kept = self.kept.get((tenant, sha256))
        return None if kept is None else StoredBlob(tenant, sha256, len(kept.body), kept.stored_at)

    async def remove(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        blob = self.kept.get((tenant, sha256))
        if stored_at is not None and blob is not None and blob.stored_at != stored_at:
            return False
        return self.kept.pop((tenant, sha256), None) is not None

    async def all(self) -> AsyncIterator[StoredBlob]:
        for (tenant, sha256), kept in list(self.kept.items()):
            yield StoredBlob(tenant, sha256, len(kept.body), kept.stored_at)

    async def leftovers(self, older_than: int) -> int:  # noqa: ARG002 - nothing is ever half-written here
        return 0

    async def close(self) -> None:
        """Nothing to close."""

    def _kept_or_raise(self, tenant: str, sha256: str) -> _Kept:
        kept = self.kept.get((tenant, sha256))
        if kept is None:
            raise ResultUnavailable(f"stored result {sha256} is missing")
        return kept


class MemoryWriter:
    """Content that is being stored."""

    def __init__(self, results: MemoryResults, tenant: str, content_type: str, items: list[bytes] | None) -> None:
        self._results = results
        self._tenant = tenant
        self._content_type = content_type
        self._items = items
        self._body = bytearray()
        self._over = False

    async def write(self, chunk: bytes) -> None:
        if self._items is not None:
            raise TypeError("a list takes items, not bytes")
        self._take(chunk)

    async def add(self, items: Sequence[Any]) -> None:
        if self._items is None:
            raise TypeError("bytes were begun, not a list")
        self._check()
        try:
            for run, _ in encoded(items, len(self._items), 1):
                self._items += run.splitlines()
                self._take(run)
        except ResultUnavailable:
            self._over = True
            raise

    def _take(self, chunk: bytes) -> None:
        self._check()
        self._body += chunk
        limit = self._results.settings.integer("results.max_bytes")
        if len(self._body) > limit:
            self._over = True
            raise ResultTooLarge(f"the result has more than {limit} bytes; raise ARCLOG_RESULTS_MAX_BYTES")

    def _check(self) -> None:
        if self._over:
            raise InvariantBroken("nothing can be added to a result or committed: it is over")

    async def commit(self) -> Content:
        self._check()
        self._over = True
        body = bytes(self._body)
        sha256 = hashlib.sha256(body).hexdigest()
        self._results.keep(self._tenant, sha256, body, self._items)
        rows = None if self._items is None else len(self._items)
        shown = preview(body, self._results.settings.integer("results.preview_bytes"))
        return Content(sha256, len(body), len(body), self._content_type, "none", rows, shown)

    async def abandon(self) -> None:
        self._over = True
        self._body.clear()
