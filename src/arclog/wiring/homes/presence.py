"""Who of the workers on this machine is alive: each holds a lock on a file of its own for as long as it lives.

The kernel gives the lock up when the process ends, however it ends, so a killed worker is known at once.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from arclog.model.errors import StoreUnavailable


class Presence:
    """The lock files below one home."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "workers"
        self._mine: dict[str, int] = {}

    def enter(self, worker_id: str, execution_id: int = 0) -> None:
        """Be seen as alive until the process ends or `leave`; with an id, as there for that execution alone."""
        if worker_id in self._mine:
            return
        descriptor = self._opened(worker_id)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            os.write(descriptor, str(execution_id).encode())
        except OSError as error:
            os.close(descriptor)
            place = self._folder / worker_id
            raise StoreUnavailable(f"{place} cannot be written ({error.strerror}); free space there") from error
        self._mine[worker_id] = descriptor

    def _opened(self, worker_id: str) -> int:
        """A file of its own; somebody who leaves may remove the folder just before it is opened."""
        while True:
            self._folder.mkdir(0o700, parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                return os.open(self._folder / worker_id, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

    def leave(self, worker_id: str) -> None:
        descriptor = self._mine.pop(worker_id, None)
        if descriptor is not None:
            (self._folder / worker_id).unlink(missing_ok=True)
            os.close(descriptor)
            with suppress(OSError):
                self._folder.rmdir()

    def serving(self, execution_id: int) -> str:
        """Another process's live worker that is there for this execution alone, '' when there is none."""
        for path in sorted(self._folder.glob("*")) if self._folder.is_dir() else ():
            worker_id = path.name
            try:
                wanted = path.read_text() == str(execution_id)
            except OSError:
                continue
            if wanted and worker_id not in self._mine and self.is_alive(worker_id):
                return worker_id
        return ""

    def is_served(self, execution_ids: Collection[int]) -> bool:
        """Whether a process is there that runs all executions of this home, or one of these (and those below it)."""
        wanted = {"0", *map(str, execution_ids)}
        for path in sorted(self._folder.glob("*")) if self._folder.is_dir() else ():
            try:
                serves = path.read_text() in wanted
            except OSError:
                continue
            if serves and self.is_alive(path.name):
                return True
        return False

    def is_alive(self, worker_id: str) -> bool:
        """Whether the worker's process is there; a file without a holder is cleared away."""
        if worker_id in self._mine:
            return True
        path = self._folder / worker_id
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            path.unlink(missing_ok=True)
            return False
        finally:
            os.close(descriptor)
