"""Rows that a task made before: a list in the outcome itself, or a stored result, read as it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from itertools import chain, islice
from typing import Any

from arclog.model.refs import LIST, ResultRef
from arclog.ports.results import ResultSink
from arclog.tools.sql.failures import SqlFailure
from arclog.tools.transfer.files import as_rows, columns_of
from arclog.tools.transfer.rows import Column, Row

_SHOWN = "rows"


class ResultSource:
    """Items that are maps with the same keys. It is read on a thread, the result store on the event loop."""

    def __init__(self, rows: Any, results: ResultSink, loop: asyncio.AbstractEventLoop) -> None:
        if isinstance(rows, ResultRef):
            if rows.kind != LIST:
                raise SqlFailure("config", "rows: the stored result is not a list of rows")
            self.total = rows.meta.rows
        elif isinstance(rows, list):
            self.total = len(rows)
        else:
            raise SqlFailure("config", f"rows: a list of maps is needed, this is {type(rows).__name__}")
        self._rows = rows
        self._results = results
        self._loop = loop
        self._columns: list[Column] = []
        self._items: Iterator[Any] = iter(())
        self._reading: AsyncIterator[list[Any]] | None = None
        self._at_a_time = 1
        self._first: list[dict[str, Any]] = []

    def open(self, at_a_time: int) -> list[Column]:
        self._at_a_time = at_a_time
        if isinstance(self._rows, ResultRef):
            self._reading = self._results.read_items(self._rows)
            self._items = chain.from_iterable(self._batches(self._reading))
        else:
            self._items = iter(self._rows)
        self._first = self._some(0)
        self._columns = columns_of(self._first)
        return self._columns

    def chunks(self) -> Iterator[list[Row]]:
        done = 0
        while found := self._first or self._some(done):
            self._first = []
            yield as_rows(found, self._columns, done, _SHOWN)
            done += len(found)

    def interrupt(self) -> None:
        """Reading some items is short."""

    def close(self) -> None:
        """What was read is left to the event loop."""

    def _some(self, done: int) -> list[dict[str, Any]]:
        found = list(islice(self._items, self._at_a_time))
        for number, row in enumerate(found, start=done + 1):
            if not isinstance(row, dict):
                raise SqlFailure("config", f"rows: row {number} is {type(row).__name__}; a map of columns is needed")
        return found

    def _batches(self, reading: AsyncIterator[list[Any]]) -> Iterator[list[Any]]:
        while (batch := self._wait(_next(reading))) is not None:
            yield batch

    def _wait(self, coming: Coroutine[Any, Any, list[Any] | None]) -> list[Any] | None:
        return asyncio.run_coroutine_threadsafe(coming, self._loop).result()


async def _next(reading: AsyncIterator[list[Any]]) -> list[Any] | None:
    async for batch in reading:
        return batch
    return None
