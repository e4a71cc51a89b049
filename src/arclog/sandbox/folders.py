"""The folders of tasks that run as processes (python, shell). No other module chooses them.

Every task starts in a working directory, and has a scratch folder ($ARCLOG_SCRATCH) for temporary files. The setting
`worker.workdir` names the working directory of all tasks; with `fresh` each task gets an empty one. Scratch folders and
fresh working directories are removed when their task has ended.
"""

from __future__ import annotations

import os
import tempfile
from itertools import count
from pathlib import Path

from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError

#: The value of `worker.workdir` that gives each task an empty working directory.
FRESH = "fresh"


class TaskFolders(Struct, frozen=True):
    """The folders of one task, or of one process that runs one task after another."""

    #: contains everything that is removed with the task
    folder: Path
    scratch: Path
    #: where tasks start
    workdir: Path
    #: the working directory lies in `folder`, and each task gets a new one
    fresh: bool

    def make(self) -> None:
        """Create the folders in `folder`. A fresh working directory is created for each task."""
        self.folder.mkdir(mode=0o700, parents=True)
        self.scratch.mkdir(mode=0o700)

    def identity(self) -> tuple[int, int]:
        """Return device and inode of the working directory; (0, 0) if it is fresh or missing."""
        if self.fresh:
            return 0, 0
        try:
            status = self.workdir.stat()
        except OSError:
            return 0, 0
        return status.st_dev, status.st_ino


def scratch_parent() -> Path:
    """Return the folder with the scratch folders of all workers of this user. Tasks have no access to it."""
    return Path(tempfile.gettempdir()) / f"arclog-{os.getuid()}"


class Folders:
    """Names the folders of a worker's tasks."""

    def __init__(self, settings: Settings, scratch: Path) -> None:
        self._scratch = scratch
        self._workdir = workdir_of(settings)
        self._numbers = count(1)

    def of_next(self, kind: str) -> TaskFolders:
        """Return new, unused folders. They are not created yet."""
        folder = self._scratch / f"{kind}-{next(self._numbers)}"
        return TaskFolders(folder, folder / "scratch", self._workdir or folder / "work", self._workdir is None)


def workdir_of(settings: Settings) -> Path | None:
    """Return the folder that all tasks start in, or None if each starts in a fresh one. Raises SettingsError if it does
    not exist.
    """
    configured = settings.text("worker.workdir")
    if configured == FRESH:
        return None
    path = Path(configured or ".").absolute()
    if not path.is_dir():
        raise SettingsError(
            f"worker.workdir: there is no folder {path}; create it, or choose another one (`{FRESH}` gives each task its own)"
        )
    return path


def fresh_unless_named(settings: Settings) -> Settings:
    """Return the settings of a server's worker. Tasks do not share the folder in which it was started, unless
    configured.
    """
    return settings if settings.text("worker.workdir") else settings.replaced(worker__workdir=FRESH)
