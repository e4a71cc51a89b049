"""The base class of the SQLite store's parts: runs their statements with one writer, and readers on threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from arclog.stores.sql.part import Call, Rows, SqlPart
from arclog.stores.sqlite.connection.readers import Execute, Readers
from arclog.stores.sqlite.connection.writer import Tx, Writer
from arclog.stores.sqlite.queries import SQL

R = TypeVar("R")


class SqlitePart(SqlPart):
    _writer: Writer
    _reader: Readers
    #: for reads whose length the caller decides, so that quick ones do not wait for them
    _lists: Readers

    async def _look_up(self, name: str, *values: Any) -> Rows:
        return await self._quickly(_rows(name, values))

    async def _quickly(self, work: Callable[[Execute], R]) -> R:
        """Read a few rows: at once if the writer's connection is free, else on a reader."""
        done = self._writer.peek(work)
        return done[0] if done is not None else await self._reader.do(work)

    async def _read(self, name: str, *values: Any) -> Rows:
        return await self._reader.do(_rows(name, values))

    async def _list(self, name: str, *values: Any) -> Rows:
        return await self._lists.do(_rows(name, values))

    async def _write(self, name: str, *values: Any) -> Rows:
        return (await self._run([(name, values)]))[0]

    async def _run(self, calls: Sequence[Call], *, again: bool = False) -> list[Rows]:  # noqa: ARG002 - nothing gets lost here
        def work(tx: Tx) -> list[Rows]:
            return [tx.execute(SQL[name], values).fetchall() for name, values in calls if not name.startswith("lock_")]

        return await self._writer.do(work)

    def _calls_for(self, name: str, kinds: str, rows: Sequence[Sequence[Any]], *first: Any) -> list[Call]:  # noqa: ARG002
        return [(name, (*first, *row)) for row in rows]

    def _ints(self, values: Iterable[int]) -> str:
        return msgspec.json.encode([*values]).decode()

    def _texts(self, values: Iterable[str]) -> str:
        return msgspec.json.encode([*values]).decode()

    async def _is_due(self, name: str, *values: Any) -> bool:
        return bool(await self._look_up(name, *values))  # no empty commit


def _rows(name: str, values: Sequence[Any]) -> Callable[[Execute], Rows]:
    return lambda execute: execute(SQL[name], values).fetchall()
