"""Work on long logs: in a thread, and with few garbage collections.

A log of 100,000 events has a million new objects, which all stay until the work is done. The collector would examine
them again and again without removing any, which takes a tenth of the time.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

#: Logs with up to this many events are processed on the event loop.
SHORT = 2_000
#: Number of new objects after which the collector runs during such work: of each event, and at least. It is not turned
#: off, since other work continues.
_OBJECTS_PER_EVENT = 50
_NEW_OBJECTS = 2_000_000


class _Thresholds:
    """Sets the thresholds of the collector, which are shared by the whole process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = gc.get_threshold()

    def raise_(self, objects: int) -> None:
        with self._lock:
            if self._users == 0:
                self._before = gc.get_threshold()
            if 0 < gc.get_threshold()[0] < objects:  # 0 means that the program has turned it off
                gc.set_threshold(objects, *self._before[1:])
            self._users += 1

    def restore(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                gc.set_threshold(*self._before)


_thresholds = _Thresholds()


@contextmanager
def few_collections(events: int) -> Iterator[None]:
    """Run the garbage collector rarely while this many events are processed; no change for a short log."""
    if events <= SHORT:
        yield
        return
    _thresholds.raise_(max(_NEW_OBJECTS, events * _OBJECTS_PER_EVENT))
    try:
        yield
    finally:
        _thresholds.restore()


async def aside(events: int, work: Callable[..., T], *args: Any) -> T:
    """Do some work on a log, in a thread if it is long, so that other work is not delayed."""
    return work(*args) if events <= SHORT else await asyncio.to_thread(work, *args)
