"""SQLite on a server: a database is opened below a folder that is held open, so that no link that is put into its path counts.

SQLite opens files by path, and resolves links before. A task of the same tenant may replace a folder of that path by a link while this
happens. Here, SQLite gets every name (also of ATTACH) as `/proc/self/fd/N/name`, where N is the folder: it was opened, then judged.
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress

import apsw

from arclog.sandbox.confinement_settings import Reach
from arclog.sandbox.opened import is_swapped
from arclog.tools.sql.files import located

_HELD = "/proc/self/fd/"
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_numbers = itertools.count()


class _Files(apsw.VFS):
    """The files of one connection. What SQLite adds to a name (a journal, a write-ahead log) is in the same folder."""

    def __init__(self, reach: Reach) -> None:
        self.name = f"arclog-held-{next(_numbers)}"
        self._reach = reach
        self._folders: list[int] = []
        super().__init__(self.name, "")

    def xFullPathname(self, name: str) -> str:  # noqa: N802 - SQLite's name
        if name.startswith(_HELD) or not name:
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
        return f"{_HELD}{descriptor}/{own}"

    def close(self) -> None:
        self.unregister()
        while self._folders:
            with suppress(OSError):
                os.close(self._folders.pop())


class _Connection(apsw.Connection):
    """Closes what it holds."""

    def __init__(self, database: str, flags: int, files: _Files) -> None:
        self._files = files
        super().__init__(database, flags=flags, vfs=files.name)

    def close(self, force: bool = False) -> None:
        super().close(force)
        self._files.close()


def connect(database: str, flags: int, reach: Reach) -> apsw.Connection:
    """A connection to a file whose path was judged."""
    files = _Files(reach)
    try:
        return _Connection(database, flags | apsw.SQLITE_OPEN_NOFOLLOW, files)
    except BaseException:
        files.close()
        raise
