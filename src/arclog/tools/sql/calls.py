"""How calls into databases end when they are cancelled: interrupted and waited for, never left behind.

Databases that block have threads of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Given = TypeVar("Given")

#: An interrupt between two statements is lost: it is repeated this often until the call has ended.
_AGAIN_S = 0.02


async def cancellable(work: Coroutine[Any, Any, Given], grace_s: float) -> Given:
    """Await work that may want to be cancelled more than once: a driver that waits for a server's farewell, for one.

    Each `grace_s` without an end cancels it again, so that a server that says nothing holds nobody up.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            task.cancel()
            try:
                await asyncio.wait((task,), timeout=grace_s)
            except asyncio.CancelledError:
                continue  # there is no time left: at once
        if not task.cancelled():
            task.exception()  # taken note of: the cancellation is what counts
        raise


class Threads:
    def __init__(self, most: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)

    async def call(self, interrupt: Callable[[], Any], function: Callable[..., Given], *args: Any) -> Given:
        """Run a function on a thread. When cancelled: `interrupt` it, wait for its end, and let the cancellation pass."""
        running = self._pool.submit(function, *args)
        ended = asyncio.wrap_future(running)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            if not running.cancel():
                while not ended.done():
                    interrupt()
                    try:
                        await asyncio.wait((ended,), timeout=_AGAIN_S)
                    except asyncio.CancelledError:
                        continue  # there is no faster way: a thread cannot be killed
                ended.exception()  # taken note of: the cancellation is what counts
            raise

    def close(self) -> None:
        self._pool.shutdown(wait=True)
