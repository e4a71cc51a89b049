"""The base class of the PostgreSQL store's parts: runs their statements on a pool of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from arclog.stores.postgres.connection.pipeline import columns, ints, texts
from arclog.stores.postgres.connection.pool import Pool
from arclog.stores.postgres.partitions import Spans
from arclog.stores.sql.part import Call, Rows, SqlPart

# ── batching ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Combines look-ups by id within one turn of the event loop into one request.

Record = TypeVar("Record")
Waiting = dict[int, list["asyncio.Future[Record | None]"]]


class Lookups(Generic[Record]):
    """Look-ups by execution id."""

    def __init__(self, read: Callable[[Sequence[int]], Awaitable[Mapping[int, Record]]]) -> None:
        self._read = read
        self._asked: Waiting[Record] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def get(self, execution_id: int) -> Record | None:
        loop = asyncio.get_running_loop()
        if not self._asked:
            loop.call_soon(self._ask)
        future: asyncio.Future[Record | None] = loop.create_future()
        self._asked.setdefault(execution_id, []).append(future)
        return await future

    def _ask(self) -> None:
        asked, self._asked = self._asked, {}
        task = asyncio.ensure_future(self._answer(asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, asked: Waiting[Record]) -> None:
        try:
            records = await self._read(list(asked))
        except Exception as error:  # noqa: BLE001 - it is raised where the record is awaited
            for futures in asked.values():
                _fail(futures, error)
            return
        for execution_id, futures in asked.items():
            for future in futures:
                if not future.done():  # the caller was cancelled
                    future.set_result(records.get(execution_id))


Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Shared(Generic[Key, Result]):
    """Requests that several callers make with the same key. One is in progress for each key. A caller that comes later waits for
    the next one, which begins after its call and serves all that wait.
    """

    def __init__(self) -> None:
        self._waiting: dict[Key, list[asyncio.Future[Result]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def get(self, key: Key, request: Callable[[], Awaitable[Result]]) -> Result:
        """Return the result of a request that began after this call. `request` must do the same for all callers with this key."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = [future]
            task = asyncio.ensure_future(self._serve(key, request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            waiting.append(future)
        return await future

    async def _serve(self, key: Key, request: Callable[[], Awaitable[Result]]) -> None:
        while waiting := self._waiting[key]:
            self._waiting[key] = []
            try:
                result = await request()
            except Exception as error:  # noqa: BLE001 - it is raised where the result is awaited
                _fail(waiting, error)
            else:
                for future in waiting:
                    if not future.done():  # the caller was cancelled
                        future.set_result(result)
        del self._waiting[key]


def _fail(waiting: Iterable[asyncio.Future[Any]], error: Exception) -> None:
    for future in waiting:
        if not future.done():
            future.set_exception(type(error)(*error.args))  # each caller gets its own exception object


# ── part ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class PostgresPart(SqlPart):
    _pool: Pool
    #: statements by name
    _sql: dict[str, str]
    _spans: Spans

    async def _read(self, name: str, *values: Any) -> Rows:
        return await self._pool.read(self._sql[name], *values)

    _look_up = _list = _read

    async def _write(self, name: str, *values: Any) -> Rows:
        return await self._pool.write(self._sql[name], *values)

    async def _run(self, calls: Sequence[Call], *, again: bool = False) -> list[Rows]:
        return [*await self._pool.run([(self._sql[name], values) for name, values in calls], again=again)]

    def _calls_for(self, name: str, kinds: str, rows: Sequence[Sequence[Any]], *first: Any) -> list[Call]:
        """Return one statement for all rows, whose columns are arrays."""
        return [(name, (*first, *columns(kinds, map(tuple, rows))))]

    def _ints(self, values: Iterable[int]) -> bytes:
        return ints(values)

    def _texts(self, values: Iterable[str]) -> bytes:
        return texts(values)

    def _shown(self, text: str) -> str:
        return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
