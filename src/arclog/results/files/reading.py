"""Stored files, open for reading. Files are read in threads."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable
from concurrent.futures import Future
from typing import Any

from msgspec import Struct

from arclog.model.errors import ResultUnavailable
from arclog.results.files.places import Places
from arclog.results.opened import Known, damaged, missing, unpacked
from arclog.results.parts import END_BYTES, Damaged, Index, index_bytes, read_index
from arclog.results.threads import Threads, over


class Blob(Struct, frozen=True):
    """An open stored file."""

    file: int
    index: Index
    #: for messages
    path: str
    #: device, inode, time, size
    identity: tuple[int, int, int, int]


class OpenedFile:
    """See `results.opened.Opened`."""

    def __init__(self, blob: Blob, threads: Threads) -> None:
        self.index = blob.index
        self.path = blob.path
        self.identity: Hashable = blob.identity
        self._blob = blob
        self._threads = threads
        self._reading: Future[bytes] | None = None

    async def part(self, number: int, whole: Any = None) -> bytes:
        self._reading = self._threads.submit(read_part, self._blob, number, whole)
        return await self._threads.result(self._reading)

    def close(self) -> None:
        # A thread may still be reading when the reader is cancelled; the file is closed behind it.
        self._threads.submit(_close, self._reading, self._blob.file)


def unreadable(path: str, problem: OSError) -> ResultUnavailable:
    return ResultUnavailable(
        f"the stored result {path} cannot be read ({problem.strerror or problem}); check the disk and the folder"
    )


def open_blob(places: Places, tenant: str, sha256: str, known: Known | None = None) -> Blob:
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


def read_part(blob: Blob, number: int, whole: Any = None) -> bytes:
    """The content of one part, checked."""
    part = blob.index.parts[number]
    try:
        packed = os.pread(blob.file, part.packed, part.offset)
    except OSError as problem:
        raise unreadable(blob.path, problem) from problem
    return unpacked(packed, part, blob.path, whole)


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
            read_part(blob, number, whole)
        return whole.hexdigest() == sha256
    except ResultUnavailable:
        return False
    finally:
        os.close(blob.file)


def _close(reading: Future[bytes] | None, file: int) -> None:
    over(reading)
    os.close(file)
