"""Starts a coroutine at once: it runs up to its first wait in the caller's step, and the rest is a task.

`asyncio.Task` does this itself from Python 3.12 on (`eager_start`). On Python 3.11 the first part runs inside the
caller's task, so it must not use `asyncio.current_task`, which `asyncio.timeout` does.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator
from typing import Any


def start(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Run a coroutine up to its first wait. Return the task for the rest; None if it ended without a wait."""
    if sys.version_info >= (3, 12):
        task = asyncio.Task(work, loop=loop, eager_start=True)
        return None if task.done() else task
    try:
        awaited = work.send(None)
    except StopIteration:
        return None
    return loop.create_task(_Rest(work, awaited))


class _Rest(Coroutine[Any, Any, None]):
    """A coroutine that has begun. Its task first waits for the future at which it stopped."""

    __slots__ = ("_awaited", "_work")

    def __init__(self, work: Coroutine[Any, Any, None], awaited: asyncio.Future[Any] | None) -> None:
        self._work = work
        self._awaited = awaited

    def send(self, value: Any) -> Any:
        awaited, self._awaited = self._awaited, None
        if awaited is not None and not awaited.done():
            return awaited
        return self._work.send(value)

    def throw(self, *problem: Any) -> Any:
        self._awaited = None
        return self._work.throw(*problem)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._work.__await__()
