"""The folders of arclog on this machine: its home, which only its owner can enter, and the folder for files of running tasks."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from arclog.model.errors import StoreUnavailable
from arclog.sandbox.folders import scratch_parent

# ── home ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Creates a home that only its owner can enter, and restricts one that others could read.

log = logging.getLogger("arclog.home")

_OTHERS = 0o077
#: Prefixes of the names in a home: arclog.db, results, workers, secrets.json, …
_OWN = ("arclog.", "results", "workers", "secret", "environments", "under-way", ".")


def prepare_home(home: Path) -> None:
    """Create the home if necessary. Raises StoreUnavailable."""
    try:
        home.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as problem:
        message = f"cannot make the home {home}: {problem.strerror}; set ARCLOG_HOME to a folder that you may write"
        raise StoreUnavailable(message) from None
    with suppress(OSError):
        _close(home)


def _close(home: Path) -> None:
    """Remove the permissions of other users from a home and its files. A folder with other files than arclog's keeps
    its own permissions.
    """
    entries = list(home.iterdir())
    own = [path for path in entries if path.name.startswith(_OWN)]
    if len(own) == len(entries):
        own.append(home)
    closed = [path for path in own if _closed(path)]
    if closed and entries:
        log.warning("other users of this machine could read %s; now its owner alone can", home)


def _closed(path: Path) -> bool:
    """Restrict a file or folder of ours to its owner; returns whether it was open to others."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.geteuid() or not status.st_mode & _OTHERS:
        return False
    path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
    return True


# ── scratch ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# The folder for files of running tasks: one for each process, below one folder of the user, removed with the process.
#
# Its owner holds a lock on the folder itself. The kernel releases it however the owner ends, so a folder that can be
# locked has no owner, and the next process that starts removes it. It gets its name only once it is locked.

_PREFIX = "arclog-scratch-"
#: while it is not locked yet
_UNNAMED = ".arclog-scratch-"


class Scratch:
    """This process's folder."""

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = _shared_folder(scratch_parent()) if parent is None else parent
        draft = Path(tempfile.mkdtemp(prefix=_UNNAMED, dir=self._parent))
        self._lock = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.folder = draft.rename(self._parent / f"{_PREFIX}{draft.name.removeprefix(_UNNAMED)}")

    def has_others(self) -> bool:
        """Return whether there are folders of other processes, alive or not, that may have to be removed."""
        return any(name != self.folder.name for name in _names(self._parent))

    def remove(self) -> None:
        _remove(self.folder)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def remove_abandoned(parent: Path | None = None) -> int:
    """Remove the folders of ended processes of this user. Return their number."""
    removed = 0
    place = _shared_folder(scratch_parent()) if parent is None else parent
    for name in _names(place):
        with suppress(OSError):
            removed += _removed(place / name)
    return removed


def _shared_folder(parent: Path) -> Path:
    """Return the folder that all of this user's workers share. In a shared folder another user may have taken its name,
    and tasks that call arclog cannot enter it: then each worker's folder is created next to it.
    """
    parent.mkdir(mode=0o700, exist_ok=True)
    status = parent.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or not os.access(parent, os.W_OK):
        return parent.parent
    if stat.S_IMODE(status.st_mode) != stat.S_IRWXU:
        parent.chmod(stat.S_IRWXU)
    return parent


def _names(place: Path) -> list[str]:
    with os.scandir(place) as listing:
        return [entry.name for entry in listing if entry.name.startswith(_PREFIX)]


def _removed(folder: Path) -> bool:
    # O_NOFOLLOW: a link with this name that another user created in a shared folder is not followed.
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(lock).st_uid != os.getuid():
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(folder)
        return not folder.exists()
    finally:
        os.close(lock)


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()  # most are empty
    except OSError:
        import shutil  # loads three compressors

        shutil.rmtree(folder, ignore_errors=True)
