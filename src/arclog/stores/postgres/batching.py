"""What comes in one turn of the event loop becomes one request: look-ups by id, and changes to rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

Found = TypeVar("Found")
Asked = dict[int, list["asyncio.Future[Found | None]"]]
Key = tuple[str, str]
Change = tuple[Any, ...]


class Lookups(Generic[Found]):
    """What is known of executions, by their ids."""

    def __init__(self, read: Callable[[Sequence[int]], Awaitable[Mapping[int, Found]]]) -> None:
        self._read = read
        self._asked: Asked[Found] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def one(self, execution_id: int) -> Found | None:
        loop = asyncio.get_running_loop()
        if not self._asked:
            loop.call_soon(self._ask)
        future: asyncio.Future[Found | None] = loop.create_future()
        self._asked.setdefault(execution_id, []).append(future)
        return await future

    def _ask(self) -> None:
        asked, self._asked = self._asked, {}
        task = asyncio.ensure_future(self._answer(asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, asked: Asked[Found]) -> None:
        try:
            found = await self._read(list(asked))
        except Exception as error:  # noqa: BLE001 - it is raised where the record is awaited
            for futures in asked.values():
                for future in futures:
                    if not future.done():
                        future.set_exception(type(error)(*error.args))  # a raised exception belongs to one raiser
            return
        for execution_id, futures in asked.items():
            for future in futures:
                if not future.done():  # its caller was cancelled
                    future.set_result(found.get(execution_id))


class Changes:
    """Changes to rows of one table."""

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
