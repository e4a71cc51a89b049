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

#: Minimum number of rows for which one statement for all costs less than a statement for each.
GROUPED = 8
#: The prefix of statements whose rows are one parameter, a JSON array.
_GROUP = "group."


class SqlitePart(SqlPart):
    _writer: Writer
    _reader: Readers
    #: for reads of a size that the caller chooses, so that quick ones do not wait for them
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

        # A statement for many rows takes long; the event loop continues meanwhile.
        return await self._writer.do(work, aside=any(name.startswith(_GROUP) for name, _ in calls))

    def _calls_for(self, name: str, kinds: str, rows: Sequence[Sequence[Any]], *first: Any) -> list[Call]:
        """Return one statement per row, or for many rows a single statement, if such a form of it exists."""
        if len(rows) < GROUPED or _GROUP + name not in SQL:
            return [(name, (*first, *row)) for row in rows]
        values = rows
        for column, kind in enumerate(kinds):
            if kind == "b":
                values = [(*row[:column], row[column].hex(), *row[column + 1 :]) for row in values]
        return [(_GROUP + name, (*first, msgspec.json.encode(values).decode()))]

    def _ints(self, values: Iterable[int]) -> str:
        return msgspec.json.encode([*values]).decode()

    def _texts(self, values: Iterable[str]) -> str:
        return msgspec.json.encode([*values]).decode()

    async def _is_due(self, name: str, *values: Any) -> bool:
        return bool(await self._look_up(name, *values))  # avoids an empty commit


def _rows(name: str, values: Sequence[Any]) -> Callable[[Execute], Rows]:
    return lambda execute: execute(SQL[name], values).fetchall()
