"""Database files that transfers write. Writers in one process take turns, and a new file appears when it is complete.

A new database is written as a draft next to its destination and linked there at the commit. So a failed transfer
removes only its own draft, and if two processes create the same file, the second one notices it.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from weakref import WeakValueDictionary

from arclog.tools.object.folder import TEMPORARY
from arclog.tools.sql.failures import SqlFailure

#: Suffixes of the files of one database.
_BESIDE = ("", ".wal", "-wal", "-shm", "-journal")
#: Errors of filesystems without hard links.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
#: Interval at which a waiting transfer checks whether it was cancelled.
_LOOK_S = 0.05


class MadeMeanwhile(Exception):
    """Another process created the file. The transfer has to be repeated with that file."""


class _Lock:
    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()


_locks: WeakValueDictionary[tuple[str, str], _Lock] = WeakValueDictionary()
_guard = threading.Lock()


class Turn:
    """The right to write a database file, or one table of it. One transfer of this process has it at a time."""

    def __init__(self, database: str, table: str = "") -> None:
        name = (str(Path(database).resolve()), table.casefold())
        with _guard:
            self._lock = _locks.setdefault(name, _Lock())
        self._taken = False

    def take(self, stopped: threading.Event) -> None:
        """Wait for the right. Raises SqlFailure if the transfer is `stopped`."""
        while not self._lock.lock.acquire(timeout=_LOOK_S):
            if stopped.is_set():
                raise SqlFailure("cancelled", "the transfer was stopped")
        self._taken = True

    def give(self) -> None:
        """Release the right. May be called again."""
        if self._taken:
            self._taken = False
            self._lock.lock.release()


class Draft:
    """A database file that is not in its place yet."""

    def __init__(self, database: str) -> None:
        self._place = Path(database).resolve()
        self.path = str(self._place.with_name(f"{TEMPORARY}{os.urandom(8).hex()}"))

    def publish(self) -> None:
        """Put the file in place. It must be closed. Raises MadeMeanwhile if a file exists there."""
        try:
            os.link(self.path, self._place, follow_symlinks=False)
        except FileExistsError:
            raise MadeMeanwhile from None
        except OSError as problem:
            if problem.errno not in _NO_LINKS:
                raise SqlFailure("connection", f"cannot create the database: {problem.strerror}", "IO") from None
            if self._place.exists():
                raise MadeMeanwhile from None
            Path(self.path).rename(self._place)
        folder = os.open(self._place.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self) -> None:
        """Remove the draft and the other files of its database."""
        for ending in _BESIDE:
            Path(f"{self.path}{ending}").unlink(missing_ok=True)
