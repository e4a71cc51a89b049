"""Blobs as files in a folder: the store of an embedded arclog. `folders` defines the layout. Files are used in threads.

The folder is made when the first blob is stored. Several processes may share it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from typing import ParamSpec, TypeVar

from arclog.model.errors import ResultUnavailable
from arclog.ports.results import StoredBlob
from arclog.results.blobs.files.folders import Folders
from arclog.results.blobs.port import Blobs, Known, RangeBlob, Upload
from arclog.results.threads import over

P = ParamSpec("P")
R = TypeVar("R")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class FileBlobs(Blobs):
    """See `blobs.port.Blobs`."""

    def __init__(self, root: str | os.PathLike[str], name: str = "files") -> None:
        super().__init__()
        self.name = name
        self.place = os.fspath(root)
        self._folders = Folders(self.place)

    def path(self, tenant: str, sha256: str) -> str:
        return self._folders.path(tenant, sha256)

    def put(self, tenant: str, *, listed: bool) -> FileUpload:
        return FileUpload(self, self._folders, tenant, listed=listed)

    async def get(self, tenant: str, sha256: str, known: Known = (), *, listed: bool = False) -> FileBlob | None:  # noqa: ARG002 - there is one form at a time
        return await self.threads.run(self._get, tenant, sha256, known)

    def _get(self, tenant: str, sha256: str, known: Known) -> FileBlob | None:
        try:
            file = self._folders.open(tenant, sha256)
            if file is None:
                return None
            try:
                return FileBlob(file, self, tenant, sha256, known)
            except OSError:
                os.close(file)
                raise
        except OSError as problem:
            raise self.unreadable(tenant, sha256, problem) from problem

    def unreadable(self, tenant: str, sha256: str, problem: OSError) -> ResultUnavailable:
        path = self.path(tenant, sha256)
        return ResultUnavailable(
            f"the stored result {path} cannot be read ({problem.strerror or problem}); check the disk and the folder"
        )

    async def stat(self, tenant: str, sha256: str) -> StoredBlob | None:
        return await self._run(self._stat, tenant, sha256)

    def _stat(self, tenant: str, sha256: str) -> StoredBlob | None:
        file = self._folders.open(tenant, sha256)
        if file is None:
            return None
        try:
            return _blob(tenant, sha256, os.fstat(file))
        finally:
            os.close(file)

    async def delete(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        return await self._run(self._folders.remove, tenant, sha256, stored_at)

    async def list_all(self) -> AsyncIterator[StoredBlob]:
        for tenant, digits in await self._run(self._folders.shelves):
            for sha256, about in await self._run(self._folders.stored, tenant, digits):
                yield _blob(tenant, sha256, about)

    async def sweep(self, older_than: int) -> int:
        return await self._run(self._folders.clear, older_than)

    async def _run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await self.threads.run(call, *args, **kwargs)
        except OSError as problem:
            raise ResultUnavailable(
                f"the results in {self.place} cannot be reached ({problem.strerror or problem}); check the disk and "
                "who may write the folder"
            ) from problem


class FileBlob(RangeBlob):
    """An open file."""

    def __init__(self, file: int, blobs: FileBlobs, tenant: str, sha256: str, known: Known) -> None:
        about = os.fstat(file)
        super().__init__(about.st_size)
        self.identity = _identity(about)
        self._file = file
        self._blobs = blobs
        self._name = (tenant, sha256)
        self._reading: Future[bytes] | None = None
        if self.identity not in known:  # in the thread that opened it
            self._end_at = max(self.size - self.END_BYTES, 0)
            self._end = os.pread(file, self.END_BYTES, self._end_at)

    async def read(self, start: int, end: int) -> bytes:
        threads = self._blobs.threads
        self._reading = threads.submit(os.pread, self._file, end - start, start)
        try:
            return await threads.result(self._reading)
        except OSError as problem:
            raise self._blobs.unreadable(*self._name, problem) from problem

    def close(self) -> None:
        # A thread may still be reading when the reader is cancelled; the file is closed behind it.
        self._blobs.threads.submit(_close, self._reading, self._file)


class FileUpload(Upload):
    """A file with a name that nobody reads until it is whole and on the disk. It is made with the first frame."""

    def __init__(self, blobs: FileBlobs, folders: Folders, tenant: str, *, listed: bool) -> None:
        self._blobs = blobs
        self._folders = folders
        self._tenant = tenant
        self._listed = listed
        self._file = -1
        self._name = ""
        #: the file that `stored` opened
        self._kept: Hashable = None

    async def put(self, frame: bytes) -> None:
        await self._run(self._write, frame)

    async def stored(self, sha256: str) -> FileBlob | None:
        if self._listed:
            return None
        try:
            stored = await self._blobs.get(self._tenant, sha256)
        except ResultUnavailable:  # it cannot be read, and is replaced
            return None
        self._kept = None if stored is None else stored.identity
        return stored

    async def finish(self, end: bytes, sha256: str) -> bool:
        await self._run(self._finish, end, sha256)
        return True

    async def renew(self, sha256: str) -> bool:
        return await self._run(self._renew, sha256)

    async def discard(self) -> None:
        if self._file >= 0:
            await self._blobs.threads.run(self._discard)

    async def _run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await self._blobs.threads.run(call, *args, **kwargs)
        except OSError as problem:
            raise _unwritable(self._blobs.place, problem) from problem

    def _write(self, frame: bytes) -> None:
        if self._file < 0:
            self._file, self._name = self._folders.begin()
        view = memoryview(frame)
        while view:
            view = view[os.write(self._file, view) :]

    def _finish(self, end: bytes, sha256: str) -> None:
        """Make it durable, then readable."""
        self._write(end)
        os.fsync(self._file)
        with self._folders.shelving():
            os.utime(self._file)
            self._folders.shelve(self._name, self._tenant, sha256)
        os.close(self._file)
        self._file = -1

    def _renew(self, sha256: str) -> bool:
        with self._folders.shelving():
            about = self._folders.stat(self._tenant, sha256)
            if about is None or _identity(about) != self._kept:
                return False
            self._folders.renew(self._tenant, sha256)
        self._discard()
        return True

    def _discard(self) -> None:
        if self._file >= 0:
            with suppress(OSError):
                self._folders.forget(self._name)
            os.close(self._file)
            self._file = -1


def _blob(tenant: str, sha256: str, about: os.stat_result) -> StoredBlob:
    return StoredBlob(tenant, sha256, about.st_size, about.st_mtime_ns // 1000)


def _identity(about: os.stat_result) -> Hashable:
    return about.st_dev, about.st_ino, about.st_mtime_ns, about.st_size


def _close(reading: Future[bytes] | None, file: int) -> None:
    over(reading)
    os.close(file)


def _unwritable(root: str, problem: OSError) -> ResultUnavailable:
    """What a failed write means, and what to do."""
    if problem.errno in _FULL:
        return ResultUnavailable(
            f"disk full: a result could not be stored in {root}, and nothing of it is kept; free space (`arclog gc` removes "
            "results that are no longer needed), then run it again"
        )
    return ResultUnavailable(
        f"a result could not be stored in {root} ({problem.strerror or problem}), and nothing of it is kept; check the disk "
        "and whether the folder may be written"
    )
