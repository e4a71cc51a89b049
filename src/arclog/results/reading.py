"""Reads stored files, part by part, in threads. No byte is handed out before its part was checked.

A part is checked as packed, before it is unpacked, and unpacks to exactly the size that the index tells: whatever stands
in a file, reading it takes no more memory than its largest part.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from typing import Any

import zstandard
from msgspec import Struct

from arclog.model.errors import ResultUnavailable
from arclog.model.lines import decoded
from arclog.results.parts import END_BYTES, Damaged, Index, Part, index_bytes, read_index
from arclog.results.places import Places

_AT_HAND = threading.local()
#: tells a file, as it is, from every other that had or will have its name: device, inode, time, size
Identity = tuple[int, int, int, int]


class Blob(Struct, frozen=True):
    """An open stored file."""

    file: int
    index: Index
    #: for messages
    path: str
    identity: Identity


def missing(path: str) -> ResultUnavailable:
    return ResultUnavailable(
        f"the stored result {path} is missing: it was removed, or the folder was; run again what made it"
    )


def damaged(path: str, problem: object) -> ResultUnavailable:
    return ResultUnavailable(
        f"the stored result {path} is damaged ({problem}); restore it from a backup, or run again what made it"
    )


def unreadable(path: str, problem: OSError) -> ResultUnavailable:
    return ResultUnavailable(
        f"the stored result {path} cannot be read ({problem.strerror or problem}); check the disk and the folder"
    )


def open_blob(places: Places, tenant: str, sha256: str, known: dict[Identity, Index] | None = None) -> Blob:
    """Open a stored file and read its index, unless that is known; the caller closes `file`."""
    path = places.path(tenant, sha256)
    try:
        file = places.open(tenant, sha256)
    except OSError as problem:
        raise unreadable(path, problem) from problem
    if file is None:
        raise missing(path)
    try:
        about = os.fstat(file)
        size = about.st_size
        identity = (about.st_dev, about.st_ino, about.st_mtime_ns, size)
        index = None if known is None else known.get(identity)
        if index is None:
            wanted = index_bytes(os.pread(file, END_BYTES, max(size - END_BYTES, 0)), size)
            index = read_index(os.pread(file, wanted, size - wanted), size)
        if index.sha256 != sha256:
            raise Damaged("it is another result under this name")
    except Damaged as problem:
        os.close(file)
        raise damaged(path, problem) from problem
    except OSError as problem:
        os.close(file)
        raise unreadable(path, problem) from problem
    return Blob(file, index, path, identity)


def read_part(blob: Blob, number: int) -> bytes:
    """The content of one part, checked."""
    part = blob.index.parts[number]
    try:
        packed = os.pread(blob.file, part.packed, part.offset)
    except OSError as problem:
        raise unreadable(blob.path, problem) from problem
    try:
        return _unpacked(packed, part)
    except (Damaged, zstandard.ZstdError) as problem:
        raise damaged(blob.path, problem) from problem


def _unpacked(packed: bytes, part: Part) -> bytes:
    if len(packed) != part.packed or hashlib.sha256(packed).digest() != part.digest:
        raise Damaged(f"the part at byte {part.offset} was changed")
    if zstandard.frame_content_size(packed) != part.size:
        raise Damaged(f"the part at byte {part.offset} has another size than its index says")
    unpacker: Any = getattr(_AT_HAND, "unpacker", None)
    if unpacker is None:
        unpacker = _AT_HAND.unpacker = zstandard.ZstdDecompressor()
    content: bytes = unpacker.decompress(packed, max_output_size=part.size)
    if len(content) != part.size:
        raise Damaged(f"the part at byte {part.offset} has another size than its index says")
    return content


def is_whole_list(places: Places, tenant: str, sha256: str) -> bool:
    """Whether the content is there as a list, every part of it as it was written."""
    try:
        blob = open_blob(places, tenant, sha256)
    except ResultUnavailable:
        return False
    try:
        if blob.index.rows is None:
            return False
        whole = hashlib.sha256()
        for number in range(len(blob.index.parts)):
            whole.update(read_part(blob, number))
        return whole.hexdigest() == sha256
    except ResultUnavailable:
        return False
    finally:
        os.close(blob.file)


class ItemReader:
    """Reads items of lists. Keeps what was read last: who reads a list some items at a time reads its index and unpacks
    each part once.
    """

    #: indexes kept, parts kept, and the largest part that is kept
    KEPT = 8
    KEPT_BYTES = 4 << 20

    def __init__(self, places: Places) -> None:
        self._places = places
        self._indexes: dict[Identity, Index] = {}
        self._kept: OrderedDict[tuple[Identity, int], list[bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, tenant: str, sha256: str, first: int, last: int) -> list[Any]:
        blob = open_blob(self._places, tenant, sha256, self._indexes)
        try:
            index = blob.index
            with self._lock:
                self._indexes[blob.identity] = index
                while len(self._indexes) > self.KEPT:
                    del self._indexes[next(iter(self._indexes))]
            if index.rows is None:
                raise ResultUnavailable(f"the stored result {blob.path} is no list; read it as a whole")
            first, last = max(first, 0), min(last, index.rows)
            found: list[bytes] = []
            number = index.part_of(first) if first < last else len(index.parts)
            while number < len(index.parts) and index.firsts[number] < last:
                before = index.firsts[number]
                found += self._lines(blob, number)[max(first - before, 0) : last - before]
                number += 1
            return decoded(found)
        except ValueError as problem:  # a line that is no JSON: the list was not written by us
            raise damaged(blob.path, problem) from problem
        finally:
            os.close(blob.file)

    def _lines(self, blob: Blob, number: int) -> list[bytes]:
        key = (blob.identity, number)
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                return kept
        content = read_part(blob, number)
        lines = content.split(b"\n")
        lines.pop()
        if len(lines) != blob.index.parts[number].rows:
            raise damaged(blob.path, f"part {number} has {len(lines)} items")
        if len(content) <= self.KEPT_BYTES:
            with self._lock:
                self._kept[key] = lines
                while len(self._kept) > self.KEPT:
                    self._kept.popitem(last=False)
        return lines
