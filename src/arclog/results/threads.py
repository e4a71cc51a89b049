"""A few threads for hashing, compression and I/O, started with the first work."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

#: more threads do not make one result faster, and the machine has other work
MOST = 4


class Threads:
    """Runs calls in threads, in order of submission."""

    def __init__(self) -> None:
        self.count = max(2, min(MOST, os.cpu_count() or 1))
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    def submit(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        if self._closed:  # late cleanup runs at once, so that nothing is left behind
            return _at_once(call, *args, **kwargs)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.count, "arclog-results")
        return self._pool.submit(call, *args, **kwargs)

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.result(self.submit(call, *args, **kwargs))

    async def result(self, work: Future[R]) -> R:
        """Return the result of some work. The work continues if the caller is cancelled meanwhile."""
        return await asyncio.shield(asyncio.wrap_future(work))

    async def close(self) -> None:
        """Wait for submitted work, then stop."""
        self._closed = True
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await asyncio.to_thread(pool.shutdown)


def _at_once(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
    done: Future[R] = Future()
    try:
        done.set_result(call(*args, **kwargs))
    except BaseException as problem:  # noqa: BLE001 - it is raised where the result is awaited
        done.set_exception(problem)
    return done


def over(work: Future[Any] | None) -> None:
    """Wait in a thread until work that was submitted before has ended, whatever its result. Work starts in order, so it
    has begun and waiting for it cannot hang.
    """
    if work is not None and not work.cancelled():
        work.exception()
