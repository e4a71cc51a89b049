"""Objects that are files, confined to one root folder: nothing outside it is read, written or listed.

A path is checked after its symbolic links are resolved. The folder of arclog's own data is excluded. An object is
written under another name, synced, and then renamed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path, PurePath
from typing import TypeVar

from arclog.model.config.settings import Settings
from arclog.model.outcome import error
from arclog.sandbox.child.opened import is_swapped
from arclog.sandbox.child.reach import NO_FILES, Reach
from arclog.sandbox.confinement_settings import data_root
from arclog.tools.object.location import PIECE, ObjectMeta, OpenedObject, Pieces, Range, Refused, refuse, resolved

_TYPES = {
    ".json": "application/json",
    ".ndjson": "application/x-ndjson",
    ".jsonl": "application/x-ndjson",
    ".csv": "text/csv",
    ".txt": "text/plain",
    ".log": "text/plain",
    ".md": "text/markdown",
    ".html": "text/html",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".gz": "application/gzip",
    ".zip": "application/zip",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".parquet": "application/vnd.apache.parquet",
}
#: Unfinished files begin with this prefix, and are never listed.
TEMPORARY = ".arclog-put-"
_LISTED_AT_A_TIME = 1000

T = TypeVar("T")


def type_of(name: str) -> str | None:
    """Return the content type for a file name, or None if it is unknown."""
    return _TYPES.get(PurePath(name).suffix.lower())


def local_files(key: str, settings: Settings, reach: Reach) -> Folder:
    """Return the folder with all local files of a worker's tasks. Raises Refused if they have none; `key` is the path of the
    file that a task asked for.
    """
    root = data_root(settings)
    if root is None:
        raise refuse("config", f"{key or '.'}: {NO_FILES}")
    return Folder(Path(root), reach)


class Folder:
    """The objects below one root folder."""

    def __init__(self, root: Path, reach: Reach) -> None:
        self.root = Path(os.path.realpath(root))
        self._reach = reach

    def path_of(self, key: str) -> Path:
        """Return the real path of a file. Raises Refused if it lies outside of the root."""
        real = Path(os.path.realpath(self.root / key))
        if not real.is_relative_to(self.root):
            raise refuse(
                "config", f"{key}: lies outside of {self.root}, the folder for objects (setting object.file_root)"
            )
        if refusal := self._reach.refusal(str(real)):
            raise refuse("config", refusal.replace(str(real), key, 1))
        return real

    async def put(self, key: str, pieces: Pieces, content_type: str, *, if_absent: bool) -> ObjectMeta:  # noqa: ARG002 - a file has no content type
        path = self.path_of(key)
        descriptor, temporary = await _do(key, lambda: _begin(path), _give_up)
        try:
            async for piece in pieces:
                for at in range(0, len(piece), PIECE):
                    part = piece[at : at + PIECE]
                    await _do(key, lambda part=part: _write(descriptor, part))  # type: ignore[misc]  # mypy cannot type a lambda's default
            return await _do(key, lambda: self._finish(key, descriptor, temporary, path, if_absent))
        finally:
            _give_up((descriptor, temporary))

    async def get(self, key: str, part: Range | None) -> OpenedObject:
        path = self.path_of(key)
        descriptor = await _do(key, lambda: _open(path), os.close)
        try:
            meta = self._meta(key, os.fstat(descriptor))
            start, end = resolved(part, meta.size)
        except BaseException:
            os.close(descriptor)
            raise
        return OpenedObject(meta, start, end, _pieces(key, descriptor, start, end))

    async def head(self, key: str) -> ObjectMeta:
        path = self.path_of(key)

        def look() -> ObjectMeta:
            if path.is_dir():
                raise IsADirectoryError
            return self._meta(key, path.stat())

        return await _do(key, look)

    async def listing(self, prefix: str, *, recursive: bool) -> AsyncIterator[tuple[list[ObjectMeta], list[str]]]:
        top = self.path_of(prefix)
        if not recursive:
            objects, folders = await _do(prefix, lambda: self._entries(top, prefix))
            yield objects, folders
            return
        walk = self._walk(top, prefix)
        while chunk := await _do(prefix, lambda: list(islice(walk, _LISTED_AT_A_TIME))):
            yield chunk, []

    async def delete(self, keys: list[str]) -> None:
        paths = [(key, self.path_of(key)) for key in keys]
        for key, path in paths:
            await _do(key, lambda path=path: path.unlink(missing_ok=True))  # type: ignore[misc]  # as above

    def _walk(self, top: Path, prefix: str) -> Iterator[ObjectMeta]:
        objects, folders = self._entries(top, prefix)
        merged = sorted([(meta.key, meta) for meta in objects] + [(name + "/", None) for name in folders])
        for key, meta in merged:
            if meta is not None:
                yield meta
            else:
                yield from self._walk(self.root / key, key)

    def _entries(self, top: Path, prefix: str) -> tuple[list[ObjectMeta], list[str]]:
        """Return the files and folders directly in a folder. Links that lead out of the root and special files are left
        out.
        """
        objects: list[ObjectMeta] = []
        folders: list[str] = []
        base = prefix.rstrip("/")
        base = base + "/" if base and base != "." else ("/" if prefix.startswith("/") else "")
        try:
            entries = sorted(os.scandir(top), key=lambda entry: entry.name)
        except FileNotFoundError:
            return [], []
        for entry in entries:
            key = base + entry.name
            if entry.name.startswith(TEMPORARY) or not self._inside(key):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(key)
            elif entry.is_file():
                objects.append(self._meta(key, entry.stat()))
        return objects, folders

    def _inside(self, key: str) -> bool:
        try:
            self.path_of(key)
        except Refused:
            return False
        return True

    def _finish(self, key: str, descriptor: int, temporary: str, path: Path, if_absent: bool) -> ObjectMeta:
        os.fsync(descriptor)
        if if_absent:
            os.link(temporary, path)
        else:
            Path(temporary).replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return self._meta(key, os.fstat(descriptor))

    @staticmethod
    def _meta(key: str, status: os.stat_result) -> ObjectMeta:
        modified = datetime.fromtimestamp(status.st_mtime_ns // 1000 / 1_000_000, UTC)
        etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
        return ObjectMeta(key, status.st_size, etag, modified.isoformat().replace("+00:00", "Z"), type_of(key))


def _begin(path: Path) -> tuple[int, str]:
    if path.is_dir():
        raise IsADirectoryError
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError from None
    descriptor, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
    if is_swapped(descriptor, temporary):
        _give_up((descriptor, temporary))
        raise NotADirectoryError
    mask = os.umask(0)
    os.umask(mask)
    os.fchmod(descriptor, 0o666 & ~mask)
    return descriptor, temporary


def _give_up(unfinished: tuple[int, str]) -> None:
    """Close the file, and remove it unless it was renamed."""
    os.close(unfinished[0])
    Path(unfinished[1]).unlink(missing_ok=True)


def _write(descriptor: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(descriptor, view) :]


def _open(path: Path) -> int:
    # Non-blocking: opening a FIFO would wait for a writer forever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        if is_swapped(descriptor, path):
            raise FileNotFoundError
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise IsADirectoryError
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


async def _pieces(key: str, descriptor: int, start: int, end: int) -> AsyncIterator[bytes]:
    try:
        while start < end:
            length = min(PIECE, end - start)
            piece = await _do(key, lambda at=start, length=length: os.pread(descriptor, length, at))  # type: ignore[misc]  # as above
            if not piece:
                raise refuse("conflict", f"{key}: was cut at {start} of {end} bytes while it was read", "CUT")
            start += len(piece)
            yield piece
    finally:
        os.close(descriptor)


async def _do(key: str, work: Callable[[], T], undo: Callable[[T], None] | None = None) -> T:
    """Run file work in a thread. If the task is cancelled, the work still finishes and `undo` is called. Converts
    errors.
    """
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        # The work is short, and clean-up must not run while it is in progress.
        await asyncio.wait({doing})
        if doing.exception() is None and undo is not None:
            undo(doing.result())
        raise
    except OSError as problem:
        raise _translated(key, problem) from problem


def _translated(key: str, problem: OSError) -> Refused:
    reason = problem.strerror or type(problem).__name__
    if isinstance(problem, FileNotFoundError):
        return refuse("not_found", f"{key}: there is no such object", "NOT_FOUND")
    if isinstance(problem, FileExistsError):
        return refuse("conflict", f"{key}: already exists (if_absent)", "EXISTS")
    if isinstance(problem, (IsADirectoryError, NotADirectoryError)):
        return refuse("config", f"{key}: is a folder or is below a file, so it cannot be an object")
    if isinstance(problem, PermissionError):
        return refuse("auth", f"{key}: {reason}; the worker's user is not allowed to do this", "PERMISSION")
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return refuse(
            "limit", f"{key}: {reason}; nothing was kept. Make room and try again", errno.errorcode[problem.errno]
        )
    if problem.errno == errno.ENAMETOOLONG:
        return refuse("config", f"{key[:100]}…: {reason}")
    return Refused(error("exception", f"{key}: {reason}", code=errno.errorcode.get(problem.errno or 0)))
