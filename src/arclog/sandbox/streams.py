"""Reads the output of a process, splits it into lines and passes them on, with bounded memory.

Every line is passed on up to a limit; the rest is read and counted, and a note at the end reports the count.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

#: the longest part of a line that is passed on at a time, and the size of one read
PIECE = 64 * 1024
#: enough to read a full pipe: an unprivileged process can have one of 1 MiB at most
_PIPE_PIECES = 17
#: the two high bits of every byte of a UTF-8 character except its first
_CONTINUATION = 0x80


class Lines:
    """Splits bytes into lines of text and passes them to a log."""

    __slots__ = ("_cap", "_log", "_setting", "_stream", "_tail", "dropped", "passed")

    def __init__(self, stream: str, log: Callable[[str, str], None], cap: int, setting: str) -> None:
        self._stream = stream
        self._log = log
        self._cap = cap
        self._setting = setting
        self._tail = b""
        self.passed = 0
        self.dropped = 0

    def feed(self, data: bytes) -> None:
        room = self._cap - self.passed
        if len(data) > room:
            self.dropped += len(data) - room
            data = data[:room]
        if not data:
            return
        self.passed += len(data)
        lines = (self._tail + data).split(b"\n")
        self._tail = lines.pop()
        for line in lines:
            self._emit(line)
        while len(self._tail) > PIECE:
            cut = _character_boundary(self._tail, PIECE)
            self._emit(self._tail[:cut])
            self._tail = self._tail[cut:]

    def end(self) -> None:
        """Pass on an unfinished last line, and report the bytes that were dropped."""
        if self._tail:
            self._emit(self._tail)
            self._tail = b""
        if self.dropped:
            self._log(
                "log",
                f"{self._stream}: {self.dropped} bytes more were printed and not kept "
                f"({self._setting} = {self._cap} bytes)",
            )
            self.dropped = 0

    def _emit(self, line: bytes) -> None:
        self._log(self._stream, line.decode("utf-8", "replace"))


class Stream:
    """The reading end of a pipe, on an event loop. Without a listener, output is read and discarded."""

    __slots__ = ("_fd", "_loop", "listener")

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = loop
        self.listener: Callable[[bytes], None] | None = None
        loop.add_reader(fd, self.read)

    def read(self) -> bool:
        """Read one piece. Return False if there is no data now."""
        if self._fd < 0:
            return False
        try:
            data = os.read(self._fd, PIECE)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        if self.listener is not None:
            self.listener(data)
        return True

    def drain(self) -> None:
        """Read everything that was written so far, but no more than a pipe can hold, since a writer may continue."""
        for _ in range(_PIPE_PIECES):
            if not self.read():
                return

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


def _character_boundary(data: bytes, index: int) -> int:
    """Return the nearest index at or before `index` that does not split a UTF-8 character."""
    for back in range(min(4, index)):
        if data[index - back] & 0xC0 != _CONTINUATION:
            return index - back
    return index
