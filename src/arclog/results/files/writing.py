"""Packed parts on their way into a file. It has a name that nobody reads until it is whole and on the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

from arclog.model.errors import ResultUnavailable
from arclog.results.files.places import Places
from arclog.results.files.reading import is_whole_list
from arclog.results.threads import Threads

P = ParamSpec("P")
R = TypeVar("R")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class FileSink:
    """See `results.packing.Sink`. The file is made with the first part."""

    def __init__(self, places: Places, threads: Threads, tenant: str, *, listed: bool) -> None:
        self._places = places
        self._threads = threads
        self._tenant = tenant
        self._listed = listed
        self._file = -1
        self._name = ""

    async def put(self, frame: bytes) -> None:
        await self._run(self._write, frame)

    async def finish(self, end: bytes, sha256: str) -> None:
        await self._run(self._finish, end, sha256)

    async def discard(self) -> None:
        if self._file >= 0:
            await self._threads.run(self._discard)

    async def _run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await self._threads.run(call, *args, **kwargs)
        except OSError as problem:
            raise unwritable(self._places.root, problem) from problem

    def _write(self, frame: bytes) -> None:
        if self._file < 0:
            self._file, self._name = self._places.begin()
        view = memoryview(frame)
        while view:
            view = view[os.write(self._file, view) :]

    def _finish(self, end: bytes, sha256: str) -> None:
        """Make it durable, then readable."""
        self._write(end)
        os.fsync(self._file)
        with self._places.shelving():
            # Of two forms of the same bytes the list is kept: it can be read both ways.
            if not self._listed and is_whole_list(self._places, self._tenant, sha256):
                self._places.renew(self._tenant, sha256)
                self._places.forget(self._name)
            else:
                os.utime(self._file)
                self._places.shelve(self._name, self._tenant, sha256)
        os.close(self._file)
        self._file = -1

    def _discard(self) -> None:
        with suppress(OSError):
            self._places.forget(self._name)
        os.close(self._file)
        self._file = -1


def unwritable(root: str, problem: OSError) -> ResultUnavailable:
    """What a failed write means, and what to do."""
    if problem.errno in _FULL:
        return ResultUnavailable(
            f"disk full: a result could not be stored in {root}, and nothing of it is kept; free space (`arclog gc` removes "
            "results that are no longer needed), then run it again"
        )
    return ResultUnavailable(
        f"a result could not be stored in {root} ({problem.strerror or problem}), and nothing of it is kept; check the disk "
        "and whether the folder may be written"
    )
