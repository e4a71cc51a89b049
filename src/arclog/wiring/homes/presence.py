"""The live workers of a home, and the work of dead ones."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from arclog.model.errors import StoreUnavailable
from arclog.ports.storage.marks import ALL_SLOTS, ATTEMPT, MARKS_PER_SLOT, Crash

# ── presence ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# The live workers of a home on this machine: each holds a lock on its own file while its process runs.
#
# The kernel releases the lock however the process ends, so the end of a killed worker is known at once.


class Presence:
    """The lock files below one home."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "workers"
        self._mine: dict[str, int] = {}

    def enter(self, worker_id: str, execution_id: int = 0) -> None:
        """Register as alive until the process ends or `leave`; with an id, for that execution only."""
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
        """Create the file; a process that leaves may remove the folder just before it is opened."""
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
        """The live worker of another process that serves only this execution; '' if there is none."""
        for path in sorted(self._folder.glob("*")) if self._folder.is_dir() else ():
            worker_id = path.name
            try:
                serves_run = path.read_text() == str(execution_id)
            except OSError:
                continue
            if serves_run and worker_id not in self._mine and self.is_alive(worker_id):
                return worker_id
        return ""

    def is_served(self, execution_ids: Collection[int]) -> bool:
        """Return whether a live process runs all executions of this home, or one of these (and their descendants)."""
        contents = {"0", *map(str, execution_ids)}
        for path in sorted(self._folder.glob("*")) if self._folder.is_dir() else ():
            try:
                serves = path.read_text() in contents
            except OSError:
                continue
            if serves and self.is_alive(path.name):
                return True
        return False

    def is_alive(self, worker_id: str) -> bool:
        """Return whether the worker's process is alive. A file without a lock is removed."""
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


# ── marks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Marks in a memory-mapped file of the home: the kernel keeps them if the process is killed.
#
# Each process has its own file, locked while it runs. The next process that starts counts the marks of dead ones.

_MARK = struct.Struct("=qq")
_SLOT_SIZE = _MARK.size * MARKS_PER_SLOT
_SIZE = _SLOT_SIZE * ALL_SLOTS
_CRASHES = "crashes.json"


class FileMarks:
    """Implements `ports.storage.marks.Marks` below a home."""

    def __init__(self, home: Path, owner: str, *, is_shared: bool = False) -> None:
        """`is_shared` means that crashes are counted in a store. What dead processes left is kept until `judged` then, in
        case the store cannot be reached.
        """
        self._folder = home / "under-way"
        self._is_shared = is_shared
        #: the files of dead processes, locked by this one
        self._dead: dict[Path, BinaryIO] = {}
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._left: list[tuple[int, int]] = []
        #: slots that hold several marks
        self._shared: set[int] = set()
        with self._alone():
            self._crashes = self._counted()
            self._path = self._folder / owner
            self._file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                # Space is written, not reserved (ftruncate): with a full disk a signal would kill the process later.
                if os.write(self._file, bytes(_SIZE)) < _SIZE:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                os.close(self._file)
                raise StoreUnavailable(
                    f"{self._path} cannot be written ({error.strerror}); free space there"
                ) from error
            self._marks = mmap.mmap(self._file, _SIZE)

    def begin(self, slot: int, *marks: tuple[int, int]) -> None:
        if len(marks) == 1 and slot not in self._shared:
            _MARK.pack_into(self._marks, slot * _SLOT_SIZE, *marks[0])
        else:
            self._shared.add(slot)
            self._fill(slot, b"".join([_MARK.pack(*mark) for mark in marks]))

    def end(self, slot: int) -> None:
        if slot in self._shared:
            self._shared.remove(slot)
            self._fill(slot, b"")
        else:
            _MARK.pack_into(self._marks, slot * _SLOT_SIZE, 0, 0)

    def _fill(self, slot: int, body: bytes) -> None:
        start = slot * _SLOT_SIZE
        self._marks[start : start + _SLOT_SIZE] = body.ljust(_SLOT_SIZE, b"\0")

    def crashes(self) -> list[Crash]:
        return list(self._crashes)

    def left(self) -> list[tuple[int, int]]:
        return list(self._left)

    def dead(self) -> list[str]:
        return [path.name for path in self._dead]

    def judged(self) -> None:
        for path, file in self._dead.items():
            path.unlink(missing_ok=True)
            file.close()
        self._dead.clear()

    def save(self, crashes: Sequence[Crash]) -> None:
        """Save the crashes. Those that other processes of this home have counted meanwhile are kept."""
        ours = {(crash.execution_id, crash.work) for crash in self._crashes}
        with self._alone():
            theirs = [crash for crash in self._read() if (crash.execution_id, crash.work) not in ours]
            self._write([*theirs, *crashes])

    def close(self) -> None:
        """A process that ends normally leaves no marks of its own."""
        for file in self._dead.values():
            file.close()
        self._path.unlink(missing_ok=True)
        self._marks.close()
        os.close(self._file)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        lock = os.open(self._folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _counted(self) -> list[Crash]:
        """Known crashes, including those that dead processes left."""
        crashes = {(earlier.execution_id, earlier.work): earlier for earlier in self._read()}
        self._left = list(self._left_behind())
        for key in self._left:
            crash = crashes.setdefault(key, Crash(*key, 0))
            crash.count += 1
        if self._left and not self._is_shared:
            self._write(list(crashes.values()))
        return list(crashes.values())

    def _left_behind(self) -> Iterator[tuple[int, int]]:
        for path in sorted(self._folder.iterdir()):
            if path.name.startswith((".", _CRASHES.partition(".")[0])):
                continue
            with suppress(OSError):
                yield from self._taken(path)

    def _taken(self, path: Path) -> Collection[tuple[int, int]]:
        """Return the marks of a process. Raises OSError if it is alive."""
        file = path.open("rb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            body = file.read(_SIZE)
            if not self._is_shared:
                path.unlink()
        except OSError:
            file.close()
            raise
        if self._is_shared:
            self._dead[path] = file
        else:
            file.close()
        marks = _MARK.iter_unpack(body[: len(body) // 16 * 16])
        # Older releases marked their records, too, which says nothing about what killed them.
        return {mark for mark in marks if mark[0] and not mark[1] & ATTEMPT}

    def _read(self) -> list[Crash]:
        try:
            return msgspec.json.decode((self._folder / _CRASHES).read_bytes(), type=list[Crash])
        except (OSError, msgspec.MsgspecError):
            return []

    def _write(self, crashes: Sequence[Crash]) -> None:
        path = self._folder / _CRASHES
        if not crashes:
            path.unlink(missing_ok=True)
            return
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(crashes))
        new.replace(path)
