"""Reads stored content part by part, from any blob store. No byte is returned before its part was checked.

A part is checked in its compressed form, before it is decompressed, and must decompress to exactly the size in the
index: whatever a store returns, reading takes no more memory than the largest part. If content is stored again while it
is being read, reading continues with the new blob, which has the same content.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable, Mapping
from typing import Any

import zstandard

from arclog.model.data.lines import decoded
from arclog.model.errors import ResultStoreAway, ResultUnavailable
from arclog.results.blobs.port import Blob, Blobs, Replaced, Threads
from arclog.results.parts import Damaged, Index, Part, is_sha256

_AT_HAND = threading.local()
#: lines up to this size are decoded at once, longer ones in a thread
_AT_ONCE = 64 << 10


class Opened:
    """Stored content that is open for reading: its blob and its index."""

    def __init__(self, blob: Blob, index: Index, path: str, threads: Threads) -> None:
        self.blob = blob
        self.index = index
        #: for messages
        self.path = path
        self.identity = blob.identity
        self.close = blob.close
        self._threads = threads

    async def part(self, number: int, whole: Any = None) -> bytes:
        """Return the content of one part, checked, and add it to the hash `whole`. Raises `Replaced` or
        ResultUnavailable.
        """
        packed = await self.blob.read_frame(self.index, number)
        return await self._threads.run(_unpacked, packed, self.index.parts[number], self.path, whole)


class Reader:
    """Reads the content of one store. Caches the indexes and parts of recently read lists, so that reading a list in
    pages reads its index and decompresses each part once.
    """

    #: maximum numbers of cached indexes and parts, and maximum size of a cached part
    KEPT = 8
    KEPT_BYTES = 4 << 20

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._threads = blobs.threads
        self._indexes: OrderedDict[Hashable, Index] = OrderedDict()
        self._parts: OrderedDict[tuple[Hashable, int], list[bytes]] = OrderedDict()

    async def chunks(self, tenant: str, sha256: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes [start, end). If read completely, they are checked against their hash."""
        opened = await self._open(tenant, sha256, {})
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
                    opened = await self._open(tenant, sha256, {}, instead_of=opened)
                    continue
                if before < at or before + len(content) > stop:
                    content = content[at - before : stop - before]
                    if whole is not None:  # the parts are different from those at the beginning
                        await self._threads.run(whole.update, content)
                at += len(content)
                yield content
            if whole is not None and whole.hexdigest() != sha256:
                raise _damaged(opened.path, "its parts are intact, but together they do not have this hash")
        finally:
            opened.close()

    async def items(self, tenant: str, sha256: str, first: int, last: int) -> list[Any]:
        """Return items [first, last) of a list."""
        opened = await self._open(tenant, sha256, self._indexes, listed=True)
        try:
            while True:
                _keep(self._indexes, opened.identity, opened.index)
                try:
                    lines = await self._lines(opened, first, last)
                    break
                except Replaced:
                    opened = await self._open(tenant, sha256, self._indexes, listed=True, instead_of=opened)
            if sum(map(len, lines)) <= _AT_ONCE:
                return decoded(lines)
            return await self._threads.run(decoded, lines)
        except ValueError as problem:  # a line that is not JSON was not written by arclog
            raise _damaged(opened.path, problem) from problem
        finally:
            opened.close()

    async def _open(
        self,
        tenant: str,
        sha256: str,
        indexes: Mapping[Hashable, Index],
        *,
        listed: bool = False,
        instead_of: Opened | None = None,
    ) -> Opened:
        """Open content as it is stored now. A known index is not read."""
        path = self._blobs.path(tenant, sha256)
        gone: Hashable = None
        if instead_of is not None:
            instead_of.close()
            gone = instead_of.identity
        while True:
            blob = await self._blobs.get(tenant, sha256, indexes, listed=listed) if is_sha256(sha256) else None
            if blob is None:
                raise ResultUnavailable(
                    f"the stored result {path} is missing: it was removed, or its store was; run the task that stored it again"
                )
            try:
                if blob.identity == gone:
                    raise Damaged("parts of it are gone")
                index = indexes.get(blob.identity) or await blob.read_index()
                if index.sha256 != sha256:
                    raise Damaged("it is another result under this name")
                return Opened(blob, index, path, self._threads)
            except Replaced:
                blob.close()
                gone = blob.identity
            except Damaged as problem:
                blob.close()
                raise _damaged(path, problem) from problem
            except BaseException:
                blob.close()
                raise

    async def _lines(self, opened: Opened, first: int, last: int) -> list[bytes]:
        index = opened.index
        if index.rows is None:
            raise ResultUnavailable(f"the stored result {opened.path} is not a list; read it as a whole")
        first, last = max(first, 0), min(last, index.rows)
        lines: list[bytes] = []
        number = index.part_of(first) if first < last else len(index.parts)
        while number < len(index.parts) and index.firsts[number] < last:
            before = index.firsts[number]
            lines += (await self._part_lines(opened, number))[max(first - before, 0) : last - before]
            number += 1
        return lines

    async def _part_lines(self, opened: Opened, number: int) -> list[bytes]:
        key = (opened.identity, number)
        kept = self._parts.get(key)
        if kept is not None:
            self._parts.move_to_end(key)
            return kept
        content = await opened.part(number)
        lines = await self._threads.run(content.split, b"\n")
        lines.pop()
        if len(lines) != opened.index.parts[number].rows:
            raise _damaged(opened.path, f"part {number} has {len(lines)} items")
        if len(content) <= self.KEPT_BYTES:
            _keep(self._parts, key, lines)
        return lines


async def is_whole_list(blob: Blob, threads: Threads, sha256: str) -> bool:
    """Return whether the content is stored as a list and every part is intact. Raises ResultStoreAway."""
    whole = hashlib.sha256()
    try:
        index = await blob.read_index()
        if index.sha256 != sha256 or index.rows is None:
            return False
        opened = Opened(blob, index, "", threads)
        for number in range(len(index.parts)):
            await opened.part(number, whole)
    except ResultStoreAway:
        raise
    except (ResultUnavailable, Replaced, Damaged):
        return False
    return whole.hexdigest() == sha256


def _keep(cache: OrderedDict[Any, Any], key: Hashable, value: object) -> None:
    """Cache a value as the most recently used one, and drop the least recently used one."""
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > Reader.KEPT:
        cache.popitem(last=False)


def _damaged(path: str, problem: object) -> ResultUnavailable:
    return ResultUnavailable(
        f"the stored result {path} is damaged ({problem}); restore it from a backup, or run the task that stored it again"
    )


def _unpacked(packed: bytes, part: Part, path: str, whole: Any = None) -> bytes:
    """Return the content of a part from its frame."""
    try:
        if len(packed) != part.packed or hashlib.sha256(packed).digest() != part.digest:
            raise Damaged(f"the part at byte {part.offset} was changed")
        if zstandard.frame_content_size(packed) != part.size:
            raise Damaged(f"the part at byte {part.offset} has another size than in the index")
        unpacker: Any = getattr(_AT_HAND, "unpacker", None)
        if unpacker is None:
            unpacker = _AT_HAND.unpacker = zstandard.ZstdDecompressor()
        content: bytes = unpacker.decompress(packed, max_output_size=part.size)
        if len(content) != part.size:
            raise Damaged(f"the part at byte {part.offset} has another size than in the index")
    except (Damaged, zstandard.ZstdError) as problem:
        raise _damaged(path, problem) from problem
    if whole is not None:
        whole.update(content)
    return content
