"""SQLite on a server: databases are opened below a folder that is held open, so that links added to the path have no
effect.

SQLite opens files by path and resolves links before. Meanwhile, a task of the same tenant could replace a folder of the
path by a link. Therefore SQLite gets every name (also of ATTACH) as `/proc/self/fd/N/name`, where N is the folder,
which was opened and then checked. Files with other names are neither opened nor removed: SQLite also takes names from
journals, which tasks can write. No file is mapped into memory (`unmapped_files`).
"""

from __future__ import annotations

import itertools
import os
import re
from contextlib import suppress

import apsw

from arclog.sandbox.confinement_settings import Reach
from arclog.sandbox.opened import is_swapped
from arclog.tools.sql.files import located
from arclog.tools.unmapped_files import Alone, Shared, Unmapped, open_database

_HELD = "/proc/self/fd/"
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_numbers = itertools.count()
#: What SQLite appends to the name of a database for its other files: journal, write-ahead log, and the journal of a
#: transaction on several files.
_BESIDE = re.compile(r"-(?:journal|wal|mj[0-9A-F]{9})\Z")


class _Files(apsw.VFS):
    """The files of one connection. SQLite's additional files (journal, write-ahead log) are in the same folder."""

    def __init__(self, reach: Reach) -> None:
        self.name = f"arclog-held-{next(_numbers)}"
        self._reach = reach
        self._folders: list[int] = []
        #: the names that SQLite got, and whether tasks may write to the file
        self._given: dict[str, bool] = {}
        #: the databases that other processes may use meanwhile, by name
        self._shared: dict[str, Shared] = {}
        super().__init__(self.name, "")

    def xFullPathname(self, name: str) -> str:  # noqa: N802 - SQLite's name
        if name in self._given or not name:
            return name
        real = located(name, self._reach, write=False)
        folder, _, own = real.rpartition("/")
        try:
            descriptor = os.open(folder or "/", _FOLDER)
        except OSError:
            raise apsw.CantOpenError("unable to open database file") from None
        self._folders.append(descriptor)
        if is_swapped(descriptor, folder or "/"):
            raise apsw.CantOpenError(f"{name} was replaced while it was opened")
        given = f"{_HELD}{descriptor}/{own}"
        self._given[given] = not self._reach.refusal(real)
        return given

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> Alone | Unmapped:  # type: ignore[override] # noqa: N802 - apsw takes any object with these methods
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if not self._is_given(path):
            raise apsw.CantOpenError("unable to open database file")
        if not (name and path and flags[0] & apsw.SQLITE_OPEN_MAIN_DB):
            return Unmapped(super().xOpen(name, flags))
        file = open_database(name, flags, writable=self._given[path])
        if isinstance(file, Shared):
            self._shared[path] = file
        return file

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: N802 - as above
        return self._is_given(pathname) and super().xAccess(pathname, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - as above
        if not self._is_given(filename):
            raise apsw.PermissionsError("not a file of this connection")
        super().xDelete(filename, syncdir)

    def shared(self, path: str) -> Shared | None:
        return self._shared.get(path)

    def _is_given(self, name: str | None) -> bool:
        """Return whether a file is one of this connection's databases or belongs to one. Temporary files have no name."""
        return not name or name in self._given or _BESIDE.sub("", name) in self._given

    def close(self) -> None:
        self.unregister()
        while self._folders:
            with suppress(OSError):
                os.close(self._folders.pop())


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


def prepare_write_ahead(connection: apsw.Connection, schema: str | None) -> None:
    """Let the next statement change a database to write-ahead mode, or all databases if none is named. The connection
    then has them for itself until it is closed.
    """
    if not isinstance(connection, _Connection):
        return
    for name in connection.db_names() if schema is None else [schema]:
        if file := connection.files.shared(connection.db_filename(name) or ""):
            quoted = name.replace('"', '""')
            connection.execute(f'PRAGMA "{quoted}".locking_mode = exclusive')
            file.is_exclusive = True
