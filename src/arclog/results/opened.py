"""Reads stored content part by part, whatever it is stored in. No byte is handed out before its part was checked.

A part is checked as packed, before it is unpacked, and unpacks to exactly the size that the index tells: whatever a store
gives, reading it takes no more memory than its largest part. Content that was stored again while it is read is read on
where it is now: it is the same content.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from typing import Any, Protocol

import zstandard

from arclog.model.data.lines import decoded
from arclog.model.errors import ResultStoreAway, ResultUnavailable
from arclog.results.parts import Damaged, Index, Part
from arclog.results.threads import Threads

_AT_HAND = threading.local()
#: lines up to this size are made values at once, others in a thread
_AT_ONCE = 64 << 10
#: indexes by what they are of
Known = Mapping[Hashable, Index]


class Replaced(Exception):
    """What was opened is no longer there: the content was stored again, or removed."""


class Opened(Protocol):
    """Stored content that is open for reading."""

    index: Index
    #: for messages
    path: str
    #: tells it, as it is, from everything else that had or will have its name
    identity: Hashable

    async def part(self, number: int, whole: Any = None) -> bytes:
        """The content of one part, checked, and added to the hash `whole`. Raises `Replaced` or ResultUnavailable."""

    def close(self) -> None: ...


Opening = Callable[[Known], Awaitable[Opened]]


def missing(path: str) -> ResultUnavailable:
    return ResultUnavailable(
        f"the stored result {path} is missing: it was removed, or what kept it was; run again what made it"
    )


def damaged(path: str, problem: object) -> ResultUnavailable:
    return ResultUnavailable(
        f"the stored result {path} is damaged ({problem}); restore it from a backup, or run again what made it"
    )


def unpacked(packed: bytes, part: Part, path: str, whole: Any = None) -> bytes:
    """The content of a part from its frame."""
    try:
        content = _unpacked(packed, part)
    except (Damaged, zstandard.ZstdError) as problem:
        raise damaged(path, problem) from problem
    if whole is not None:
        whole.update(content)
    return content


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


async def read_chunks(
    opening: Opening, threads: Threads, sha256: str, start: int, end: int | None
) -> AsyncIterator[bytes]:
    """The bytes [start, end); read whole, they are checked against their name."""
    opened = await opening({})
    try:
        at = max(start, 0)
        stop = opened.index.bytes if end is None else min(end, opened.index.bytes)
        whole = hashlib.sha256() if at == 0 and stop == opened.index.bytes else None
        while at < stop:
            number = opened.index.part_at(at)
            before = opened.index.starts[number]
            try:
                content = await opened.part(number, whole if before == at else None)
            except Replaced:
                opened = await _again(opened, opening, {})
                continue
            if before < at or before + len(content) > stop:
                content = content[at - before : stop - before]
                if whole is not None:  # the parts are others than they were when reading began
                    await threads.run(whole.update, content)
            at += len(content)
            yield content
        if whole is not None and whole.hexdigest() != sha256:
            raise damaged(opened.path, "its parts are whole, but it is not the content of this name")
    finally:
        opened.close()


async def _again(opened: Opened, opening: Opening, known: Known) -> Opened:
    """The content as it is stored now."""
    opened.close()
    now = await opening(known)
    if now.identity == opened.identity:
        now.close()
        raise damaged(opened.path, "parts of it are gone")
    return now


async def is_whole_list(opened: Opened, sha256: str) -> bool:
    """Whether the content is there as a list, every part of it as it was written. Raises ResultStoreAway."""
    if opened.index.rows is None:
        return False
    whole = hashlib.sha256()
    try:
        for number in range(len(opened.index.parts)):
            await opened.part(number, whole)
    except ResultStoreAway:
        raise
    except (ResultUnavailable, Replaced):
        return False
    return whole.hexdigest() == sha256


class ItemReader:
    """Reads items of lists. Keeps what was read last: who reads a list some items at a time reads its index and unpacks
    each part once.
    """

    #: indexes kept, parts kept, and the largest part that is kept
    KEPT = 8
    KEPT_BYTES = 4 << 20

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._indexes: OrderedDict[Hashable, Index] = OrderedDict()
        self._kept: OrderedDict[tuple[Hashable, int], list[bytes]] = OrderedDict()

    async def read(self, opening: Opening, first: int, last: int) -> list[Any]:
        opened = await opening(self._indexes)
        try:
            while True:
                self._keep_index(opened)
                try:
                    found = await self._found(opened, first, last)
                    break
                except Replaced:
                    opened = await _again(opened, opening, self._indexes)
            if sum(map(len, found)) <= _AT_ONCE:
                return decoded(found)
            return await self._threads.run(decoded, found)
        except ValueError as problem:  # a line that is not JSON: the list was not written by us
            raise damaged(opened.path, problem) from problem
        finally:
            opened.close()

    def _keep_index(self, opened: Opened) -> None:
        self._indexes[opened.identity] = opened.index
        self._indexes.move_to_end(opened.identity)
        while len(self._indexes) > self.KEPT:
            self._indexes.popitem(last=False)

    async def _found(self, opened: Opened, first: int, last: int) -> list[bytes]:
        index = opened.index
        if index.rows is None:
            raise ResultUnavailable(f"the stored result {opened.path} is not a list; read it as a whole")
        first, last = max(first, 0), min(last, index.rows)
        found: list[bytes] = []
        number = index.part_of(first) if first < last else len(index.parts)
        while number < len(index.parts) and index.firsts[number] < last:
            before = index.firsts[number]
            found += (await self._lines(opened, number))[max(first - before, 0) : last - before]
            number += 1
        return found

    async def _lines(self, opened: Opened, number: int) -> list[bytes]:
        key = (opened.identity, number)
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept
        content = await opened.part(number)
        lines = await self._threads.run(content.split, b"\n")
        lines.pop()
        if len(lines) != opened.index.parts[number].rows:
            raise damaged(opened.path, f"part {number} has {len(lines)} items")
        if len(content) <= self.KEPT_BYTES:
            self._kept[key] = lines
            while len(self._kept) > self.KEPT:
                self._kept.popitem(last=False)
        return lines
