"""What a place that holds objects can do. Files and clouds answer alike; every failure is a `Refused`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from msgspec import Struct

#: Bytes that are read, hashed or sent at a time.
PIECE = 1024 * 1024

Pieces = AsyncIterator[bytes]


class ObjectMeta(Struct, frozen=True):
    """What is known of an object without reading it."""

    key: str
    size: int
    etag: str | None
    #: ISO 8601, UTC
    last_modified: str | None
    content_type: str | None = None
    version: str | None = None


class Found(Struct, frozen=True):
    """An object that was opened to be read: bytes [start, end) of it."""

    meta: ObjectMeta
    start: int
    end: int
    pieces: Any


class Range(Struct, frozen=True):
    """Bytes [start, end), or the last so many."""

    start: int = 0
    end: int | None = None
    last: int | None = None


class Place(Protocol):
    """A root folder or a bucket."""

    async def put(self, key: str, pieces: Pieces, content_type: str, *, if_absent: bool) -> ObjectMeta:
        """Store an object whole or not at all; `if_absent`: only where there is none."""

    async def get(self, key: str, part: Range | None) -> Found:
        """Open an object. Its pieces are read after this, and closed by the reader."""

    async def head(self, key: str) -> ObjectMeta: ...

    def listing(self, prefix: str, *, recursive: bool) -> AsyncIterator[tuple[list[ObjectMeta], list[str]]]:
        """Objects under a prefix in order, some at a time, and (not recursive) the folders in it."""

    async def delete(self, keys: list[str]) -> None:
        """Remove objects; those that are not there are gone already."""


def resolved(part: Range | None, size: int) -> tuple[int, int]:
    """What a range means in an object of this size; an empty one when it lies behind the end."""
    if part is None:
        return 0, size
    if part.last is not None:
        return max(0, size - part.last), size
    end = size if part.end is None else min(part.end, size)
    return min(part.start, end), end
