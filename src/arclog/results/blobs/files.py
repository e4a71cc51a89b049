"""Blobs as files in a folder: the store of an embedded arclog. Files are accessed in threads.

The folder is created when the first blob is stored. Several processes may share it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from arclog.model.data.lazy import pattern
from arclog.model.errors import ResultUnavailable
from arclog.ports.results import StoredBlob
from arclog.results.blobs.port import Blobs, Known, RangeBlob, Upload, await_in_thread
from arclog.results.parts import folder_of, is_sha256, tenant_of

# The layout of stored files: `<root>/<tenant>/<aa>/<sha256>.zst`, and `<root>/.new/` for files being written.
#
# Links are never followed: every folder and file below the root is opened by its own name and refused if it is a
# symlink or anything but a folder or a plain file. `parts.folder_of` names a tenant's folder.


NEW = ".new"
_LOCK = ".lock"
_FILE = pattern(r"([0-9a-f]{64})\.zst")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: non-blocking, so that a pipe in place of a file does not block
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Folders:
    """The folders and files below one root. Raises OSError, which `FileBlobs` turns into a message."""

    def __init__(self, root: str) -> None:
        self.root = root
        #: folders whose own names are known to be on the disk
        self._durable: set[str] = set()

    def path(self, tenant: str, sha256: str) -> str:
        """Return the path of a file, for messages."""
        return f"{self.root}/{folder_of(tenant)}/{sha256[:2]}/{sha256}.zst"

    def open(self, tenant: str, sha256: str) -> int | None:
        """Return a descriptor of the stored file; None if there is none. Raises OSError if it is not a plain file."""
        try:
            with self._shelf(tenant, sha256) as shelf:
                file = os.open(f"{sha256}.zst", _READ, dir_fd=shelf)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(errno.EINVAL, "it is not a plain file")
        return file

    def begin(self) -> tuple[int, str]:
        """Create a file to write. Return its descriptor, which is locked while its writer lives, and its name in
        `.new`.
        """
        root = Path(self.root)
        if not root.is_dir():
            root.mkdir(0o700, parents=True, exist_ok=True)
            with self._opened(str(root.parent), None, 0) as parent:
                os.fsync(parent)
        with self._root() as folder, self._made(NEW, folder) as new:
            name = f"{os.getpid()}-{os.urandom(8).hex()}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(name, flags, 0o600, dir_fd=new)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file, name

    def forget(self, name: str) -> None:
        """Remove an unfinished file."""
        with suppress(FileNotFoundError), self._root() as root, self._opened(NEW, root) as new:
            os.unlink(name, dir_fd=new)

    @contextmanager
    def shelving(self) -> Iterator[None]:
        """Hold a lock while files are put in place, so that none are removed."""
        with self._locked(fcntl.LOCK_SH):
            yield

    def shelve(self, name: str, tenant: str, sha256: str) -> None:
        """Move a finished file to its place, durably. An existing file is replaced atomically."""
        with (
            self._root() as root,
            self._opened(NEW, root) as new,
            self._made(folder_of(tenant), root) as folder,
            self._made(sha256[:2], folder, folder_of(tenant)) as shelf,
        ):
            os.rename(name, f"{sha256}.zst", src_dir_fd=new, dst_dir_fd=shelf)
            os.fsync(shelf)

    def stat(self, tenant: str, sha256: str) -> os.stat_result | None:
        with suppress(FileNotFoundError), self._shelf(tenant, sha256) as shelf:
            return os.stat(f"{sha256}.zst", dir_fd=shelf, follow_symlinks=False)
        return None

    def renew(self, tenant: str, sha256: str) -> None:
        """Reset the age of content that was stored once more."""
        with self._shelf(tenant, sha256) as shelf:
            os.utime(f"{sha256}.zst", dir_fd=shelf, follow_symlinks=False)

    def remove(self, tenant: str, sha256: str, stored_at: int | None) -> bool:
        with self._locked(fcntl.LOCK_EX), suppress(FileNotFoundError), self._shelf(tenant, sha256) as shelf:
            name = f"{sha256}.zst"
            about = os.stat(name, dir_fd=shelf, follow_symlinks=False)
            if stored_at is not None and about.st_mtime_ns // 1000 != stored_at:
                return False
            os.unlink(name, dir_fd=shelf)
            return True
        return False

    def shelves(self) -> list[tuple[str, str]]:
        """Return all (tenant, first two digits) with a folder."""
        shelves: list[tuple[str, str]] = []
        with suppress(FileNotFoundError), self._root() as root:
            for folder in os.listdir(root):  # noqa: PTH208 - of a descriptor
                tenant = tenant_of(folder)
                if tenant is None:
                    continue
                with suppress(FileNotFoundError, NotADirectoryError), self._opened(folder, root) as inside:
                    names = os.listdir(inside)  # noqa: PTH208 - of a descriptor
                    shelves += [(tenant, name) for name in names if re.fullmatch("[0-9a-f]{2}", name)]
        return shelves

    def stored(self, tenant: str, digits: str) -> list[tuple[str, os.stat_result]]:
        """Return the plain files on one shelf: (sha256, stat result)."""
        files: list[tuple[str, os.stat_result]] = []
        # A link or a file in place of a folder contains no results.
        with suppress(FileNotFoundError, NotADirectoryError), self._shelf(tenant, digits.ljust(64, "0")) as shelf:
            for name in os.listdir(shelf):  # noqa: PTH208 - of a descriptor
                match = _FILE.fullmatch(name)
                if match is None or not name.startswith(digits):
                    continue
                with suppress(FileNotFoundError):
                    about = os.stat(name, dir_fd=shelf, follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode):
                        files.append((match[1], about))
        return files

    def clear(self, older_than: int) -> int:
        """Remove unfinished files of dead writers."""
        count = 0
        with suppress(FileNotFoundError), self._root() as root, self._opened(NEW, root) as new:
            for name in os.listdir(new):  # noqa: PTH208 - of a descriptor
                with suppress(FileNotFoundError):
                    about = os.stat(name, dir_fd=new, follow_symlinks=False)
                    old = about.st_mtime_ns // 1000 < older_than
                    if old and not stat.S_ISDIR(about.st_mode) and not _in_use(name, new):
                        os.unlink(name, dir_fd=new)
                        count += 1
        return count

    @contextmanager
    def _root(self) -> Iterator[int]:
        with self._opened(self.root, None, 0) as root:
            yield root

    @contextmanager
    def _shelf(self, tenant: str, sha256: str) -> Iterator[int]:
        if not is_sha256(sha256):
            raise FileNotFoundError(errno.ENOENT, "no sha256", sha256)
        with (
            self._root() as root,
            self._opened(folder_of(tenant), root) as folder,
            self._opened(sha256[:2], folder) as shelf,
        ):
            yield shelf

    @contextmanager
    def _opened(self, name: str, inside: int | None, nofollow: int = os.O_NOFOLLOW) -> Iterator[int]:
        """Open a folder. The root itself may be a link, nothing below it."""
        folder = os.open(name, (_FOLDER & ~os.O_NOFOLLOW) | nofollow, dir_fd=inside)
        try:
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _made(self, name: str, inside: int, above: str = "") -> Iterator[int]:
        """Open a folder; create it if necessary. It is synced in any case, since another process may have created it
        without syncing it yet.
        """
        path = f"{above}/{name}"
        try:
            os.mkdir(name, 0o700, dir_fd=inside)
            self._durable.discard(path)
        except FileExistsError:
            pass
        if path not in self._durable:
            os.fsync(inside)
            self._durable.add(path)
        with self._opened(name, inside) as folder:
            yield folder

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Hold a lock. Files are put in place under a shared lock and removed under an exclusive one, so that a removal
        never affects a file that a writer has just put there.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with self._root() as root:
                lock = os.open(_LOCK, flags, 0o600, dir_fd=root)
        except FileNotFoundError:  # no root, so there is nothing to remove
            yield
            return
        try:
            fcntl.flock(lock, how)
            yield
        finally:
            os.close(lock)


def _in_use(name: str, folder: int) -> bool:
    """Return whether the writer of a new file is alive."""
    try:
        file = os.open(name, _READ, dir_fd=folder)
    except OSError:  # not a plain file, so nothing writes it
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


P = ParamSpec("P")
R = TypeVar("R")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class FileBlobs(Blobs):
    """See `blobs.port.Blobs`."""

    name = "files"

    def __init__(self, root: str | os.PathLike[str]) -> None:
        super().__init__()
        self.place = os.fspath(root)
        self._folders = Folders(self.place)

    def path(self, tenant: str, sha256: str) -> str:
        return self._folders.path(tenant, sha256)

    def put(self, tenant: str, *, listed: bool) -> FileUpload:
        return FileUpload(self, self._folders, tenant, listed=listed)

    async def get(self, tenant: str, sha256: str, indexes: Known = (), *, listed: bool = False) -> FileBlob | None:  # noqa: ARG002 - there is one form at a time
        return await self.threads.run(self._get, tenant, sha256, indexes)

    def _get(self, tenant: str, sha256: str, indexes: Known) -> FileBlob | None:
        try:
            file = self._folders.open(tenant, sha256)
            if file is None:
                return None
            try:
                return FileBlob(file, self, tenant, sha256, indexes)
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
                "the permissions of the folder"
            ) from problem


class FileBlob(RangeBlob):
    """An open file."""

    def __init__(self, file: int, blobs: FileBlobs, tenant: str, sha256: str, indexes: Known) -> None:
        about = os.fstat(file)
        super().__init__(about.st_size)
        self.identity = _identity(about)
        self._file = file
        self._blobs = blobs
        self._name = (tenant, sha256)
        self._reading: Future[bytes] | None = None
        if self.identity not in indexes:  # read in the thread that opened it
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
        # A thread may still be reading when the reader is cancelled; the file is closed after it.
        self._blobs.threads.submit(_close, self._reading, self._file)


class FileUpload(Upload):
    """A file under a temporary name until it is complete and on the disk. It is created with the first frame."""

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
        """Make the file durable, then readable."""
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
    await_in_thread(reading)
    os.close(file)


def _unwritable(root: str, problem: OSError) -> ResultUnavailable:
    """Return the error for a failed write, with the remedy."""
    if problem.errno in _FULL:
        return ResultUnavailable(
            f"disk full: a result could not be stored in {root}, and nothing of it is kept; free space (`arclog gc` removes "
            "results that are no longer needed), then run it again"
        )
    return ResultUnavailable(
        f"a result could not be stored in {root} ({problem.strerror or problem}), and nothing of it is kept; check the disk "
        "and whether the folder may be written"
    )
