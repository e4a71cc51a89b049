"""SQLite's files without memory maps, so that truncating a file that a task has open cannot end the worker.

Invariant: no file of these connections is mapped. SQLite maps the shared memory (`-shm`) of a database in write-ahead
mode. If another process truncates it, the next access ends the worker's process (SIGBUS).

A database is therefore opened in one of two ways, and this process uses a file in one way at a time:

- `Shared`: beside other processes. SQLite then offers write-ahead mode only to a connection that has the file for
  itself (`PRAGMA locking_mode = exclusive`), which keeps the index of the log in its own memory.
- `Alone`: a database in write-ahead mode, by SQLite's own `unix-excl`. The connections of this process share the index
  in its memory, and other processes are locked out until all of them are closed.

Locks of files belong to the process, not to a connection: a `Shared` file that releases its lock would release that of
`Alone` files too. `_Use` keeps them apart.
"""

from __future__ import annotations

import os
import threading

import apsw

from arclog.tools.sql.failures import SqlFailure

_NONE, _SHARED, _RESERVED = apsw.SQLITE_LOCK_NONE, apsw.SQLITE_LOCK_SHARED, apsw.SQLITE_LOCK_RESERVED
_READ_ONLY, _READ_WRITE = apsw.SQLITE_OPEN_READONLY, apsw.SQLITE_OPEN_READWRITE
#: Asks for maps of a file. SQLite does so for large sorts, whatever `PRAGMA mmap_size` says.
_MAP = apsw.SQLITE_FCNTL_MMAP_SIZE
#: The byte of a database's header by which SQLite knows write-ahead mode, and its value.
_MODE_AT, _WRITE_AHEAD = 19, b"\2"

#: Protects `_uses`. It is held while databases are opened, closed and locked, which never waits for another connection.
#: Reentrant, since garbage collection may close a connection meanwhile.
_guard = threading.RLock()
#: How this process uses the databases that it has open, by device and inode.
_uses: dict[tuple[int, int], _Use] = {}


class _Use:
    """How this process uses a database file."""

    def __init__(self, key: tuple[int, int]) -> None:
        self._key = key
        #: number of open files
        self.opened = 0
        #: number of `Shared` files that hold a lock
        self.locked = 0
        #: whether other processes are locked out. SQLite keeps that lock until all files are closed.
        self.alone = False

    def begin(self) -> None:
        self.opened += 1
        _uses[self._key] = self

    def end(self) -> None:
        self.opened -= 1
        if not self.opened:
            del _uses[self._key]


class Unmapped:
    """A file that cannot be mapped. It has the methods of SQLite's first interface for files: apsw offers the later
    ones, with maps, only for instances of `apsw.VFSFile`.
    """

    def __init__(self, file: apsw.VFSFile) -> None:
        self._file = file
        self.xRead = file.xRead
        self.xWrite = file.xWrite
        self.xTruncate = file.xTruncate
        self.xSync = file.xSync
        self.xFileSize = file.xFileSize
        self.xCheckReservedLock = file.xCheckReservedLock
        self.xSectorSize = file.xSectorSize
        self.xDeviceCharacteristics = file.xDeviceCharacteristics

    def xLock(self, level: int) -> None:  # noqa: N802 - SQLite's name
        self._file.xLock(level)

    def xUnlock(self, level: int) -> None:  # noqa: N802 - as above
        self._file.xUnlock(level)

    def xFileControl(self, op: int, pointer: int) -> bool:  # noqa: N802 - as above
        return op != _MAP and self._file.xFileControl(op, pointer)

    def xClose(self) -> None:  # noqa: N802 - as above
        self._file.xClose()


class Shared(Unmapped):
    """A database that other processes may use meanwhile."""

    def __init__(self, file: apsw.VFSFile, use: _Use, name: str, *, is_write_ahead: bool) -> None:
        super().__init__(file)
        self._use = use
        self._name = name
        #: whether the database was in write-ahead mode when it was opened
        self._was_write_ahead = is_write_ahead
        self._is_locked = False
        #: whether its connection has it alone, which lets it use write-ahead mode
        self.is_exclusive = False
        use.begin()

    def xLock(self, level: int) -> None:  # noqa: N802 - as above
        if level != _SHARED:
            self._file.xLock(level)
            return
        with _guard:
            if not self._use.alone:
                self._file.xLock(level)
                # The lock keeps others from changing the mode.
                if self.is_exclusive or not _is_write_ahead(self._file):
                    self._use.locked += not self._is_locked
                    self._is_locked = True
                    return
                self._file.xUnlock(_NONE)
        raise self._refusal()

    def xUnlock(self, level: int) -> None:  # noqa: N802 - as above
        with _guard:
            self._file.xUnlock(level)
            if level == _NONE:
                self._release()

    def xClose(self) -> None:  # noqa: N802 - as above
        with _guard:
            try:
                self._file.xClose()
            finally:
                self._release()
                self._use.end()

    def _release(self) -> None:
        self._use.locked -= self._is_locked
        self._is_locked = False

    def _refusal(self) -> SqlFailure:
        own = self._name.rpartition("/")[2]
        if not self._was_write_ahead:
            message = (
                f"{own}: another task changed the database to write-ahead mode while this one had it open; try again"
            )
            return SqlFailure("serialization", message, "SQLITE_BUSY", retryable=True)
        message = (
            f"{own}: the database is in write-ahead mode and cannot be written here, so this worker cannot open it. Use a copy "
            "(VACUUM INTO), change its mode (PRAGMA journal_mode = delete), or let tasks write to it (setting "
            "tasks.allow_write, permissions of the file)"
        )
        return SqlFailure("connection", message, "SQLITE_CANTOPEN", retryable=False)


class Alone(apsw.VFSFile):
    """A database in write-ahead mode, which this process uses alone."""

    def __init__(self, name: str | apsw.URIFilename, flags: list[int], use: _Use) -> None:
        super().__init__("unix-excl", name, flags)
        self._use = use
        self._locks_out = False
        use.begin()

    def xLock(self, level: int) -> None:  # noqa: N802 - as above
        if self._locks_out:
            super().xLock(level)
            return
        with _guard:
            if self._use.locked:
                raise apsw.BusyError("database is locked")
            super().xLock(level)
            # SQLite only counts a lock that another file of this process holds already. A lock of the next level is
            # certain to lock other processes out; if nothing did, SQLite would map the shared memory.
            try:
                super().xLock(_RESERVED)
            except BaseException:
                super().xUnlock(_NONE)
                raise
            super().xUnlock(_SHARED)
            self._use.alone = self._locks_out = True

    def xCheckReservedLock(self) -> bool:  # noqa: N802 - as above
        with _guard:  # not while a first lock is taken, which would count as a writer's
            return super().xCheckReservedLock()

    def xFileControl(self, op: int, pointer: int) -> bool:  # noqa: N802 - as above
        return op != _MAP and super().xFileControl(op, pointer)

    def xClose(self) -> None:  # noqa: N802 - as above
        with _guard:
            try:
                super().xClose()
            finally:
                self._use.end()


def open_database(name: str | apsw.URIFilename, flags: list[int], *, writable: bool) -> Shared | Alone:
    """Open a database. `flags` are those that SQLite asks for; the second becomes what it got.

    `writable`: whether tasks may write to the file, even if this connection only reads.
    """
    path = name.filename() if isinstance(name, apsw.URIFilename) else name
    with _guard:
        # Only SQLite may open and close the file: closing another descriptor of it would release all locks on it.
        file = apsw.VFSFile("unix", name, flags)
        try:
            use = _use_of(path)
            if not (use.alone or _is_write_ahead(file)):
                return Shared(file, use, path, is_write_ahead=False)
            alone = _open_alone(name, flags, use) if writable else None
            if alone is None:
                return Shared(file, use, path, is_write_ahead=True)
        except BaseException:
            file.xClose()
            raise
        file.xClose()
        return alone


def _open_alone(name: str | apsw.URIFilename, flags: list[int], use: _Use) -> Alone | None:
    """Open a database, and also its log, for writing. Return None if it can only be read: `unix-excl` maps such a one."""
    got = [flags[0] & ~_READ_ONLY | _READ_WRITE, 0]
    try:
        alone = Alone(name, got, use)
    except apsw.CantOpenError:
        return None
    if got[1] & _READ_ONLY:
        alone.xClose()
        return None
    flags[1] = got[1] & ~_READ_WRITE | _READ_ONLY if flags[0] & _READ_ONLY else got[1]
    return alone


def _use_of(path: str) -> _Use:
    try:
        status = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - SQLite's name, not a path of ours
    except OSError:
        raise apsw.CantOpenError("the database was removed while it was opened") from None
    key = status.st_dev, status.st_ino
    return _uses.get(key) or _Use(key)


def _is_write_ahead(file: apsw.VFSFile) -> bool:
    return file.xRead(1, _MODE_AT) == _WRITE_AHEAD
