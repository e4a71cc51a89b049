"""Look-ups by id that come in one turn of the event loop become one request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

Found = TypeVar("Found")
Asked = dict[int, list["asyncio.Future[Found | None]"]]


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
