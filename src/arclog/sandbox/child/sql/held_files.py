"""SQLite on a server: databases are opened below a folder that is held open, so that links added to the path have no
effect.

SQLite opens files by path and resolves links before. Meanwhile, a task of the same tenant could replace a folder of the
path by a link. Therefore SQLite gets every name (also of ATTACH) as `/proc/self/fd/N/name`, where N is the folder,
which was opened and then checked. Files with other names are neither opened nor removed: SQLite also takes names from
journals, which tasks can write.
"""

# Stand-alone and light: the package has another name where it runs.
# ruff: noqa: TID252

from __future__ import annotations

import itertools
import os
import re
import threading
from contextlib import suppress

import apsw

from ..opened import is_swapped
from ..reach import Reach, located
from ..sql_errors import Refused

_HELD = "/proc/self/fd/"
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_numbers = itertools.count()
#: What SQLite appends to the name of a database for its other files: journal, write-ahead log, and the journal of a
#: transaction on several files.
_BESIDE = re.compile(r"-(?:journal|wal|mj[0-9A-F]{9})\Z")


#: The byte of a database's header by which SQLite knows write-ahead mode, and its value.
_MODE_AT, _WRITE_AHEAD = 19, b"\2"

#: Protects `_folders`. Reentrant, since garbage collection may close a connection meanwhile.
_guard = threading.RLock()
#: The folders that connections hold, by device and inode.
_folders: dict[tuple[int, int], _Folder] = {}


class _Folder:
    """A folder that is held open. The connections of this process share it, since they also share some files, which
    SQLite removes by the name that the first of them gave (`-shm`).
    """

    def __init__(self, descriptor: int, key: tuple[int, int]) -> None:
        self.descriptor = descriptor
        self._key = key
        self._users = 0

    @staticmethod
    def held(path: str) -> _Folder:
        """Hold a folder whose path was checked. Raises OSError, and apsw.CantOpenError if it was replaced."""
        descriptor = os.open(path, _FOLDER)
        with _guard:
            try:
                if is_swapped(descriptor, path):
                    raise apsw.CantOpenError(f"{path} was replaced while it was opened")
                status = os.fstat(descriptor)
                key = status.st_dev, status.st_ino
                folder = _folders.get(key)
                if folder is None:
                    folder = _folders[key] = _Folder(descriptor, key)
                    descriptor = -1
                folder._users += 1
            finally:
                if descriptor >= 0:
                    os.close(descriptor)
        return folder

    def release(self) -> None:
        with _guard:
            self._users -= 1
            if not self._users:
                del _folders[self._key]
                os.close(self.descriptor)


class _ReadOnly:
    """A database that tasks may only read. It has the methods of SQLite's first interface for files, which cannot share
    memory (apsw offers the later ones only for instances of `apsw.VFSFile`): SQLite would create its files beside the
    database.
    """

    def __init__(self, file: apsw.VFSFile, name: str) -> None:
        self._file = file
        self._name = name
        self.xRead = file.xRead
        self.xWrite = file.xWrite
        self.xTruncate = file.xTruncate
        self.xSync = file.xSync
        self.xClose = file.xClose
        self.xFileSize = file.xFileSize
        self.xUnlock = file.xUnlock
        self.xCheckReservedLock = file.xCheckReservedLock
        self.xSectorSize = file.xSectorSize
        self.xDeviceCharacteristics = file.xDeviceCharacteristics
        self.xFileControl = file.xFileControl

    def xLock(self, level: int) -> None:  # noqa: N802 - SQLite's name
        self._file.xLock(level)
        if level == apsw.SQLITE_LOCK_SHARED and self._file.xRead(1, _MODE_AT) == _WRITE_AHEAD:
            self._file.xUnlock(apsw.SQLITE_LOCK_NONE)
            message = (
                f"{self._name}: the database is in write-ahead mode and cannot be written here, so this worker cannot open it. "
                "Use a copy (VACUUM INTO), change its mode (PRAGMA journal_mode = delete), or let tasks write to it (setting "
                "tasks.allow_write)"
            )
            raise Refused("connection", message, "SQLITE_CANTOPEN", retryable=False)


class _Files(apsw.VFS):
    """The files of one connection. SQLite's additional files (journal, write-ahead log) are in the same folder."""

    def __init__(self, reach: Reach) -> None:
        self.name = f"arclog-held-{next(_numbers)}"
        self._reach = reach
        self._folders: list[_Folder] = []
        #: the names that SQLite got, and whether tasks may write to the file
        self._given: dict[str, bool] = {}
        super().__init__(self.name, "")

    def xFullPathname(self, name: str) -> str:  # noqa: N802 - SQLite's name
        if name in self._given or not name:
            return name
        real = located(name, self._reach, write=False)
        place, _, own = real.rpartition("/")
        try:
            folder = _Folder.held(place or "/")
        except OSError:
            raise apsw.CantOpenError("unable to open database file") from None
        self._folders.append(folder)
        given = f"{_HELD}{folder.descriptor}/{own}"
        self._given[given] = not self._reach.refusal(real)
        return given

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile | _ReadOnly:  # type: ignore[override] # noqa: N802 - apsw takes any object with these methods
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if not self._is_given(path):
            raise apsw.CantOpenError("unable to open database file")
        file = super().xOpen(name, flags)
        if path and flags[0] & apsw.SQLITE_OPEN_MAIN_DB and not self._given[path]:
            return _ReadOnly(file, path.rpartition("/")[2])
        return file

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: N802 - as above
        return self._is_given(pathname) and super().xAccess(pathname, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - as above
        if not self._is_given(filename):
            raise apsw.PermissionsError("not a file of this connection")
        super().xDelete(filename, syncdir)

    def _is_given(self, name: str | None) -> bool:
        """Return whether a file is one of this connection's databases or belongs to one. Temporary files have no name."""
        return not name or name in self._given or _BESIDE.sub("", name) in self._given

    def close(self) -> None:
        self.unregister()
        while self._folders:
            with suppress(OSError):
                self._folders.pop().release()


class _Connection(apsw.Connection):
    """A connection to files below held folders."""

    def __init__(self, database: str, flags: int, files: _Files) -> None:
        self.files = files
        super().__init__(database, flags=flags, vfs=files.name)

    def close(self, force: bool = False) -> None:
        super().close(force)
        self.files.close()


def connect(database: str, flags: int, reach: Reach) -> apsw.Connection:
    """Connect to a file whose path was checked, or to a database in memory."""
    files = _Files(reach)
    try:
        return _Connection(database, flags | apsw.SQLITE_OPEN_NOFOLLOW, files)
    except BaseException:
        files.close()
        raise
