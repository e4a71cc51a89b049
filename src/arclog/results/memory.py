"""A result store in memory: every rule of `ports.results` in plain Python, for tests and simulations."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.json import decode, encode

from arclog.model.errors import ResultUnavailable
from arclog.ports.results import Content, StoredBlob

_PREVIEW_BYTES = 1024


class _Kept(Struct):
    body: bytes
    #: of a list
    items: list[bytes] | None
    stored_at: int


class MemoryResults:
    """Keeps contents in a dict."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self.kept: dict[tuple[str, str], _Kept] = {}
        self._clock = 0

    def writer(self, tenant: str, *, listed: bool = False, content_type: str = "application/json") -> MemoryWriter:
        return MemoryWriter(self, tenant, content_type, [] if listed else None)

    def keep(self, tenant: str, sha256: str, body: bytes, items: list[bytes] | None) -> None:
        self._clock += 1
        self.kept.setdefault((tenant, sha256), _Kept(body, items, self._clock))

    async def chunks(self, tenant: str, sha256: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        body = self._found(tenant, sha256).body
        if start == 0 and end is None and hashlib.sha256(body).hexdigest() != sha256:
            raise ResultUnavailable(f"stored result {sha256} was changed")
        yield body[start:end]

    async def items(self, tenant: str, sha256: str, first: int, last: int) -> list[Any]:
        kept = self._found(tenant, sha256)
        if kept.items is None:
            raise ResultUnavailable(f"stored result {sha256} is no list")
        return [decode(item) for item in kept.items[first:last]]

    async def find(self, tenant: str, sha256: str) -> StoredBlob | None:
        kept = self.kept.get((tenant, sha256))
        return None if kept is None else StoredBlob(tenant, sha256, len(kept.body), kept.stored_at)

    async def remove(self, tenant: str, sha256: str) -> bool:
        return self.kept.pop((tenant, sha256), None) is not None

    async def all(self) -> AsyncIterator[StoredBlob]:
        for (tenant, sha256), kept in list(self.kept.items()):
            yield StoredBlob(tenant, sha256, len(kept.body), kept.stored_at)

    async def leftovers(self, older_than: int) -> int:  # noqa: ARG002 - nothing is ever half-written here
        return 0

    async def close(self) -> None:
        """Nothing is open."""

    def _found(self, tenant: str, sha256: str) -> _Kept:
        kept = self.kept.get((tenant, sha256))
        if kept is None:
            raise ResultUnavailable(f"stored result {sha256} is missing")
        return kept


class MemoryWriter:
    """Content on its way into memory."""

    def __init__(self, results: MemoryResults, tenant: str, content_type: str, items: list[bytes] | None) -> None:
        self._results = results
        self._tenant = tenant
        self._content_type = content_type
        self._items = items
        self._body = bytearray()

    async def write(self, chunk: bytes) -> None:
        if self._items is not None:
            raise TypeError("a list takes items, not bytes")
        self._body += chunk

    async def add(self, items: Sequence[Any]) -> None:
        if self._items is None:
            raise TypeError("bytes were begun, not a list")
        for item in items:
            line = encode(item)
            self._items.append(line)
            self._body += line + b"\n"

    async def commit(self) -> Content:
        body = bytes(self._body)
        sha256 = hashlib.sha256(body).hexdigest()
        self._results.keep(self._tenant, sha256, body, self._items)
        preview = body[:_PREVIEW_BYTES].decode("utf-8", "replace")
        rows = None if self._items is None else len(self._items)
        return Content(sha256, len(body), len(body), self._content_type, "none", rows, preview)

    async def abandon(self) -> None:
        self._body.clear()
