"""Templates are evaluated synchronously, stored data is read asynchronously: the bridge between the two."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from arclog.model.errors import InvariantBroken

T = TypeVar("T")


class Bridge(Protocol):
    async def run(self, compute: Callable[[], T]) -> T:
        """Compute something that may call `wait`."""

    def wait(self, reading: Coroutine[Any, Any, T]) -> T:
        """The value of a coroutine; only from inside `run`."""


class ThreadBridge:
    """Computes in a thread, so that it does not block the event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    async def run(self, compute: Callable[[], T]) -> T:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        return await asyncio.to_thread(compute)

    def wait(self, reading: Coroutine[Any, Any, T]) -> T:
        if self._loop is None or threading.get_ident() == self._thread:
            # On the event loop itself it would wait forever.
            reading.close()
            raise InvariantBroken("stored data was read outside a synchronous reader")
        return asyncio.run_coroutine_threadsafe(reading, self._loop).result()


class DirectBridge:
    """For stores that never wait, such as one in memory: everything happens at once, in a simulated world too."""

    async def run(self, compute: Callable[[], T]) -> T:
        return compute()

    def wait(self, reading: Coroutine[Any, Any, T]) -> T:
        try:
            reading.send(None)
        except StopIteration as over:
            value: T = over.value
            return value
        reading.close()
        raise InvariantBroken("a direct reader cannot wait for data")
