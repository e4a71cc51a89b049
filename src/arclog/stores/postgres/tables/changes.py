"""Changes to rows of one table: those that come in one turn of the loop are one request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

Key = tuple[str, str]
Change = tuple[Any, ...]


class Changes:
    def __init__(self, carry_out: Callable[[Sequence[Change]], Awaitable[Collection[Key]]]) -> None:
        """`carry_out` returns the keys of the rows that were changed."""
        self._carry_out = carry_out
        self._waiting: dict[Key, tuple[Change, asyncio.Future[bool]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, key: Key, change: Change) -> bool:
        """Whether the row was changed. A second change to the same row is a request of its own."""
        if key in self._waiting:
            return key in await self._carry_out([change])
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._send)
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting[key] = change, future
        return await future

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, {}
        task = asyncio.ensure_future(self._answer(waiting))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, waiting: dict[Key, tuple[Change, asyncio.Future[bool]]]) -> None:
        changed: Collection[Key] = ()
        problem: Exception | None = None
        try:
            # Always in the same order: two requests that meet wait for each other once, and not in a circle.
            changed = await self._carry_out([waiting[key][0] for key in sorted(waiting)])
        except Exception as error:  # noqa: BLE001 - it is raised where the change is awaited
            problem = error
        for key, (_, future) in waiting.items():
            if future.done():  # its caller was cancelled
                continue
            if problem is None:
                future.set_result(key in changed)
            else:
                future.set_exception(type(problem)(*problem.args))  # a raised exception belongs to one raiser
