"""The worker's side of the protocol with a sandbox: frames of three byte strings to and from a runner, one report from
its guard.

A runner answers a task with one frame. Frames with progress, or with items of the result, may come before it.

The child's side is `child/wire.py` and `child/guard.py`.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec
from msgspec import Struct

_LENGTHS = struct.Struct("<QQQ")
_SIZE = struct.Struct("<I")

Frame = tuple[bytes, bytes, bytes]


class Report(Struct, frozen=True):
    """A guard's report that its whole process tree is dead."""

    #: wait status of the runner
    status: int | None = None
    #: processes besides the runner that had to be killed
    killed: int = 0
    #: the number of processes when the limit was exceeded; 0 if it was not
    crowd: int = 0
    #: the total memory in bytes when the limit was exceeded; 0 if it was not
    memory: int = 0
    #: why the runner could not be started, as 'errno text'
    failed: str = ""
    #: the stack of a python runner when it was stopped, as `faulthandler` writes it
    stack: str = ""
    #: a relay connected it to a list of networks
    relayed: bool = False


def packed(first: bytes, second: bytes = b"", third: bytes = b"") -> bytes:
    """Encode a frame for a runner."""
    return b"".join((_LENGTHS.pack(len(first), len(second), len(third)), first, second, third))


def packed_spec(spec: dict[str, Any]) -> bytes:
    """Encode the first message to a guard."""
    body = msgspec.json.encode(spec)
    return _SIZE.pack(len(body)) + body


class OversizedFrameError(Exception):
    """The runner announced a larger frame than it may send."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(size)


class FrameReader:
    """Splits a byte stream into frames."""

    __slots__ = ("_limit", "_pending")

    def __init__(self, limit: int) -> None:
        self._pending = bytearray()
        self._limit = limit

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that these bytes complete. Raises OversizedFrameError."""
        self._pending += data
        frames: list[Frame] = []
        start = 0
        while len(self._pending) - start >= _LENGTHS.size:
            first, second, third = _LENGTHS.unpack_from(self._pending, start)
            if first + second + third > self._limit:
                raise OversizedFrameError(first + second + third)
            begin = start + _LENGTHS.size
            end = begin + first + second + third
            if len(self._pending) < end:
                break
            with memoryview(self._pending) as view:
                middle, last = begin + first, begin + first + second
                frames.append((bytes(view[begin:middle]), bytes(view[middle:last]), bytes(view[last:end])))
            start = end
        del self._pending[:start]
        return frames


def report_of(data: bytes) -> Report | None:
    """Return the guard's report, or None while it is incomplete."""
    if len(data) < _SIZE.size:
        return None
    end = _SIZE.size + _SIZE.unpack_from(data)[0]
    return msgspec.json.decode(data[_SIZE.size : end], type=Report) if len(data) >= end else None
