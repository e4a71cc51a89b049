"""Small private files, read and written atomically and readable by their owner only."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from arclog.sandbox.child.opened import is_swapped


class Replaced(OSError):
    """A link was put in the place of a file between the check of its path and the opening."""


def read_small(path: Path, most: int, *, is_real: bool = False) -> bytes:
    """Return the content of a regular file. Raises OSError if it is larger than `most` bytes or not a regular file, and
    Replaced if the path is a real path that was checked, and has become another one.
    """
    return read_owned(path, most, is_real=is_real)[0]


def read_owned(path: Path, most: int, *, is_real: bool = False) -> tuple[bytes, int, int]:
    """Return the content of a regular file, its mode and its owner."""
    # Opening a pipe without a writer would otherwise block.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        if is_real and is_swapped(handle, path):
            raise Replaced("it was replaced while it was opened")
        parts: list[bytes] = []
        remaining = most + 1
        while remaining > 0 and (part := os.read(handle, remaining)):
            parts.append(part)
            remaining -= len(part)
    finally:
        os.close(handle)
    if remaining <= 0:
        raise OSError(f"it is larger than {most} bytes")
    return b"".join(parts), status.st_mode, status.st_uid


def signature(path: Path) -> tuple[int, ...] | None:
    """Return a value that changes when the file is replaced; None if it cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_mode


def write_new(path: Path, body: bytes) -> None:
    """Write a new file atomically."""
    _written(path, body, lambda made: os.link(made, path))


def replace(path: Path, body: bytes) -> None:
    """Replace a file atomically and durably."""
    _written(path, body, lambda made: Path(made).replace(path))


def _written(path: Path, body: bytes, into_place: Callable[[str], object]) -> None:
    handle, made = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        into_place(made)
        _sync_folder(path.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made)  # noqa: PTH108 - as mkstemp named it


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
