"""Makes a home that only its owner can enter, and closes one that others could read."""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from pathlib import Path

from arclog.model.errors import StoreUnavailable

log = logging.getLogger("arclog.home")

_OTHERS = 0o077
#: What the names in a home begin with: arclog.db, results, workers, secrets.json, …
_OWN = ("arclog.", "results", "workers", "secret", "environments", "under-way", ".")


def prepare_home(home: Path) -> None:
    """Make the home if need be. Raises StoreUnavailable."""
    try:
        home.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as problem:
        message = f"cannot make the home {home}: {problem.strerror}; set ARCLOG_HOME to a folder that you may write"
        raise StoreUnavailable(message) from None
    with suppress(OSError):
        _close(home)


def _close(home: Path) -> None:
    """Take the rights of others from a home and its files. A folder that holds other things than arclog's keeps its own."""
    entries = list(home.iterdir())
    own = [path for path in entries if path.name.startswith(_OWN)]
    if len(own) == len(entries):
        own.append(home)
    closed = [path for path in own if _closed(path)]
    if closed and entries:
        log.warning("other users of this machine could read %s; now its owner alone can", home)


def _closed(path: Path) -> bool:
    """Whether a file or folder of ours was open to others; it no longer is."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.geteuid() or not status.st_mode & _OTHERS:
        return False
    path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
    return True
