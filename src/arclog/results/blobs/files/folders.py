"""The layout of stored files: `<root>/<tenant>/<aa>/<sha256>.zst`, and `<root>/.new/` for what is being written.

Nothing is reached through a link: every folder and file below the root is opened by its own name and refused if it is
a symlink or anything but a folder or a plain file. `names` says how a tenant's folder is called.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from arclog.results.names import folder_of, is_sha256, tenant_of

NEW = ".new"
_LOCK = ".lock"
_FILE = re.compile(r"([0-9a-f]{64})\.zst")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: a pipe in a file's place must not make us wait
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Folders:
    """The folders and files below one root. Raises OSError; `blobs` turns it into a message."""

    def __init__(self, root: str) -> None:
        self.root = root
        #: folders whose own names are known to be on the disk
        self._durable: set[str] = set()

    def path(self, tenant: str, sha256: str) -> str:
        """For messages."""
        return f"{self.root}/{folder_of(tenant)}/{sha256[:2]}/{sha256}.zst"

    def open(self, tenant: str, sha256: str) -> int | None:
        """A descriptor of the stored file; None when there is none. A thing that is not a plain file is an OSError."""
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
        """A new file to write: its descriptor, locked while its writer lives, and its name in `.new`."""
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
        """Remove a file that was being written."""
        with suppress(FileNotFoundError), self._root() as root, self._opened(NEW, root) as new:
            os.unlink(name, dir_fd=new)

    @contextmanager
    def shelving(self) -> Iterator[None]:
        """While files are put into place: nobody removes any."""
        with self._locked(fcntl.LOCK_SH):
            yield

    def shelve(self, name: str, tenant: str, sha256: str) -> None:
        """Give a finished file its place, durably. What stood there is replaced in one step."""
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
        """The content was stored once more: it is as young as if it were new."""
        with self._shelf(tenant, sha256) as shelf:
            os.utime(f"{sha256}.zst", dir_fd=shelf, follow_symlinks=False)

    def remove(self, tenant: str, sha256: str, stored_at: int | None) -> bool:
        with self._locked(fcntl.LOCK_EX), suppress(FileNotFoundError), self._shelf(tenant, sha256) as shelf:
            name = f"{sha256}.zst"
            found = os.stat(name, dir_fd=shelf, follow_symlinks=False)
            if stored_at is not None and found.st_mtime_ns // 1000 != stored_at:
                return False
            os.unlink(name, dir_fd=shelf)
            return True
        return False

    def shelves(self) -> list[tuple[str, str]]:
        """All (tenant, first two digits) that have a folder."""
        found: list[tuple[str, str]] = []
        with suppress(FileNotFoundError), self._root() as root:
            for folder in os.listdir(root):  # noqa: PTH208 - of a descriptor
                tenant = tenant_of(folder)
                if tenant is None:
                    continue
                with suppress(FileNotFoundError, NotADirectoryError), self._opened(folder, root) as inside:
                    names = os.listdir(inside)  # noqa: PTH208 - of a descriptor
                    found += [(tenant, name) for name in names if re.fullmatch("[0-9a-f]{2}", name)]
        return found

    def stored(self, tenant: str, digits: str) -> list[tuple[str, os.stat_result]]:
        """The plain files on one shelf: (sha256, what is known of it)."""
        found: list[tuple[str, os.stat_result]] = []
        # A link or a file in the place of a folder holds nothing of ours.
        with suppress(FileNotFoundError, NotADirectoryError), self._shelf(tenant, digits.ljust(64, "0")) as shelf:
            for name in os.listdir(shelf):  # noqa: PTH208 - of a descriptor
                match = _FILE.fullmatch(name)
                if match is None or not name.startswith(digits):
                    continue
                with suppress(FileNotFoundError):
                    about = os.stat(name, dir_fd=shelf, follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode):
                        found.append((match[1], about))
        return found

    def clear(self, older_than: int) -> int:
        """Remove files that were being written when their writer died."""
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
        """A folder; the root itself may be a link, nothing below it."""
        folder = os.open(name, (_FOLDER & ~os.O_NOFOLLOW) | nofollow, dir_fd=inside)
        try:
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _made(self, name: str, inside: int, above: str = "") -> Iterator[int]:
        """A folder, made if it is not there, and durable: another process may have made it and not synced it yet."""
        known = f"{above}/{name}"
        try:
            os.mkdir(name, 0o700, dir_fd=inside)
            self._durable.discard(known)
        except FileExistsError:
            pass
        if known not in self._durable:
            os.fsync(inside)
            self._durable.add(known)
        with self._opened(name, inside) as folder:
            yield folder

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Files are put into place under a shared lock and removed under an exclusive one: what is removed is what was
        looked at, never what a writer just put there.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with self._root() as root:
                lock = os.open(_LOCK, flags, 0o600, dir_fd=root)
        except FileNotFoundError:  # no root: nothing to remove
            yield
            return
        try:
            fcntl.flock(lock, how)
            yield
        finally:
            os.close(lock)


def _in_use(name: str, folder: int) -> bool:
    """Whether the writer of a new file lives."""
    try:
        file = os.open(name, _READ, dir_fd=folder)
    except OSError:  # no plain file: nobody writes it
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
