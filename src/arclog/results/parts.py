"""The form of a stored file: zstd frames of about 1 MiB of content each, then an index in a skippable frame.

    frame … frame │ magic size │ entry … entry │ tail │ sha256 of entries and tail

So `zstd -d` returns the content without knowledge of the index, and a reader that knows it can read any part alone. An
entry has a frame's compressed size, content size, number of items, and the sha256 of the compressed frame; the tail
describes the whole content.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right

from msgspec import Struct

from arclog.model.data import digest
from arclog.model.data.lazy import pattern
from arclog.model.errors import ResultUnavailable

# Names of tenants and contents in result stores. Every store accepts them, and they cannot lead to another place.


_SHA256 = pattern(r"[0-9a-f]{64}")
_AS_THEY_ARE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
#: file systems allow 255
_LONGEST = 250


def is_sha256(text: str) -> bool:
    """Return whether a text can be the name of content."""
    return _SHA256.fullmatch(text) is not None


def folder_of(tenant: str) -> str:
    """Return the name of a tenant's folder. Every byte except `A-Za-z0-9_-` is written as `%XX`, so that different
    tenants have different folders.
    """
    raw = tenant.encode("utf-8", "surrogatepass")
    name = "".join(chr(byte) if byte in _AS_THEY_ARE else f"%{byte:02X}" for byte in raw) or "%"
    if len(name) > _LONGEST:
        raise ResultUnavailable(f"the tenant's name {tenant[:40]!r}… is too long to store results under; shorten it")
    return name


def tenant_of(folder: str) -> str | None:
    """Return the tenant of a folder; None if it is not a tenant's."""
    if folder == "%":
        return ""
    try:
        raw = re.sub(rb"%([0-9A-F]{2})", lambda match: bytes([int(match[1], 16)]), folder.encode())
        tenant = raw.decode("utf-8", "surrogatepass")
        return tenant if folder_of(tenant) == folder else None
    except (UnicodeError, ResultUnavailable):
        return None


#: content size of a part; items of a list are never split, so a part may be larger
PART_BYTES = 1 << 20
_SKIPPABLE = 0x184D2A5E
_MARK = b"arclog\x00\x01"
_HEAD = struct.Struct("<II")
_ENTRY = struct.Struct("<QQQ32s")
#: content's sha256, size, number of items (-1 if it is not a list), number of parts, mark
_TAIL = struct.Struct("<32sQqQ8s")
_DIGEST = 32
#: size of the end of every file
END_BYTES = _TAIL.size + _DIGEST


class Damaged(Exception):
    """The bytes are not those that were written."""


class Part(Struct, frozen=True, gc=False):
    """The position of a part, and its expected size and digest."""

    offset: int
    packed: int
    size: int
    rows: int
    digest: bytes


class Index(Struct, frozen=True):
    """The contents of a file."""

    sha256: str
    bytes: int
    #: None if it is not a list
    rows: int | None
    parts: list[Part]
    #: number of content bytes, and of items, before each part
    starts: list[int]
    firsts: list[int]

    def part_at(self, position: int) -> int:
        """Return the part that contains a byte."""
        return bisect_right(self.starts, position) - 1

    def part_of(self, item: int) -> int:
        """Return the part that contains an item."""
        return bisect_right(self.firsts, item) - 1


class IndexWriter:
    """Records parts as they are written."""

    def __init__(self) -> None:
        self._entries = bytearray()
        self._count = 0

    def add(self, packed: int, size: int, rows: int, digest: bytes) -> None:
        self._entries += _ENTRY.pack(packed, size, rows, digest)
        self._count += 1

    def frame(self, sha256: bytes, size: int, rows: int | None) -> bytes:
        """Return the skippable frame that ends the file."""
        tail = _TAIL.pack(sha256, size, -1 if rows is None else rows, self._count, _MARK)
        body = bytes(self._entries) + tail
        body += bytes.fromhex(digest.sha256(body))
        return _HEAD.pack(_SKIPPABLE, len(body)) + body


def index_bytes(end: bytes, file_bytes: int) -> int:
    """Return the size of a file's index, read from the last `END_BYTES` of the file."""
    if len(end) != END_BYTES:
        raise Damaged("it is cut")
    *_, count, mark = _TAIL.unpack(end[: _TAIL.size])
    wanted: int = _HEAD.size + count * _ENTRY.size + END_BYTES
    if mark != _MARK or wanted > file_bytes:
        raise Damaged("its index is missing")
    return wanted


def read_index(frame: bytes, file_bytes: int) -> Index:
    """Parse the index from its frame. Raises Damaged if it is inconsistent."""
    if len(frame) < _HEAD.size + END_BYTES:
        raise Damaged("its index is cut")
    magic, size = _HEAD.unpack_from(frame)
    body, recorded = frame[_HEAD.size : -_DIGEST], frame[-_DIGEST:]
    if magic != _SKIPPABLE or size != len(frame) - _HEAD.size or digest.sha256(body) != recorded.hex():
        raise Damaged("its index was changed")
    sha256, content, rows, count, _ = _TAIL.unpack_from(body, len(body) - _TAIL.size)
    parts: list[Part] = []
    starts: list[int] = []
    firsts: list[int] = []
    offset = start = first = 0
    for packed, part_bytes, part_rows, part_digest in _ENTRY.iter_unpack(body[: -_TAIL.size]):
        parts.append(Part(offset, packed, part_bytes, part_rows, part_digest))
        starts.append(start)
        firsts.append(first)
        offset, start, first = offset + packed, start + part_bytes, first + part_rows
    adds_up = start == content and first == max(rows, 0) and len(parts) == count
    if not adds_up or offset + len(frame) != file_bytes:
        raise Damaged("its index is inconsistent")
    return Index(sha256.hex(), content, None if rows < 0 else rows, parts, starts, firsts)
