"""The folders of tasks that run as processes (python, shell). No other module decides them.

Every task has a working directory, which it starts in, and a scratch folder ($ARCLOG_SCRATCH) for temporary files. The
setting `worker.workdir` names the working directory of all tasks; with `fresh` each task gets an empty one. Scratch
folders and fresh working directories are removed when their task has ended.
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
    """The folders of one task, or of one process that runs task after task."""

    #: contains what is removed with the task
    folder: Path
    scratch: Path
    #: where tasks start
    workdir: Path
    #: the working directory lies in `folder`, and each task gets a new one
    fresh: bool

    def make(self) -> None:
        """Create what belongs in `folder`; a fresh working directory is created for each task."""
        self.folder.mkdir(mode=0o700, parents=True)
        self.scratch.mkdir(mode=0o700)

    def identity(self) -> tuple[int, int]:
        """The identity (device and inode) of the working directory; (0, 0) for a fresh one, or none."""
        if self.fresh:
            return 0, 0
        try:
            status = self.workdir.stat()
        except OSError:
            return 0, 0
        return status.st_dev, status.st_ino


def scratch_parent() -> Path:
    """The folder that holds the scratch folders of all of this user's workers, so that tasks can be kept out of it."""
    return Path(tempfile.gettempdir()) / f"arclog-{os.getuid()}"


class Folders:
    """Names the folders of a worker's tasks."""

    def __init__(self, settings: Settings, scratch: Path) -> None:
        self._scratch = scratch
        self._workdir = workdir_of(settings)
        self._numbers = count(1)

    def of_next(self, kind: str) -> TaskFolders:
        """New, unused folders; they are not created yet."""
        folder = self._scratch / f"{kind}-{next(self._numbers)}"
        return TaskFolders(folder, folder / "scratch", self._workdir or folder / "work", self._workdir is None)


def workdir_of(settings: Settings) -> Path | None:
    """The folder that all tasks start in; None if each starts in a fresh one. Raises SettingsError if it does not
    exist.
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
    """The settings of a server's worker: its start folder has no meaning, so tasks do not share it by default."""
    return settings if settings.text("worker.workdir") else settings.replaced(worker__workdir=FRESH)
