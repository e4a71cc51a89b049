"""A pool of connections for all requests except appends. Connections are opened when they are needed.

A request goes to the connection with the fewest pending requests. A lost connection is replaced at the next request;
reads are retried while the server is unavailable, for at most `store.patience_s`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from arclog.drivers.backoff import Patience
from arclog.drivers.postgres.refusals import is_away, is_conflict
from arclog.model.errors import StoreUnavailable
from arclog.stores.postgres.connection.pipeline import Call, Lost, Pipeline, Rows, translated

#: maximum number of immediate retries of a transaction that a conflict rolled back
_TANGLES = 5


class Pool:
    def __init__(
        self, place: str, open_pipeline: Callable[[], Awaitable[Pipeline]], most: int, patience_s: float
    ) -> None:
        self.place = place
        self._open_pipeline = open_pipeline
        self._most = most
        self.patience_s = patience_s
        self._pipelines: list[Pipeline] = []
        self._opening = 0
        self._lent = 0
        self._is_open = False
        self._busy = 0
        self._opened = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        """Close after the pending requests are done."""
        self._is_open = False
        await self._idle.wait()
        self.abandon()

    def abandon(self) -> None:
        """Close at once; pending requests fail."""
        self._is_open = False
        for pipeline in self._pipelines:
            pipeline.close()
        self._pipelines.clear()

    async def read(self, text: str, *values: Any) -> Rows:
        """Run a read-only statement."""
        return (await self.run([(text, values)], again=True))[-1]

    async def write(self, text: str, *values: Any) -> Rows:
        """Run a statement that may write. If the connection is lost, it is unknown whether it was executed."""
        return (await self.run([(text, values)]))[-1]

    async def run(self, calls: Sequence[Call], *, again: bool = False) -> list[Rows]:
        """Run statements as one transaction. `again` means that it may be executed twice."""
        if not self._is_open:
            raise closed(self.place)
        self._busy += 1
        self._idle.clear()
        try:
            return await self._run(calls, again=again)
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Pipeline]:
        """Return a connection for exclusive use, for a transaction of several requests. After an exception the
        connection is closed, which ends an open transaction.
        """
        if not self._is_open:
            raise closed(self.place)
        self._busy += 1
        self._idle.clear()
        try:
            pipeline = await self._pipeline()
            self._pipelines.remove(pipeline)
            self._lent += 1
            try:
                yield pipeline
            except BaseException:
                pipeline.close("a transaction was left")
                raise
            finally:
                self._lent -= 1
                if pipeline.lost is None:
                    self._pipelines.append(pipeline)
                self._opened.set()  # a connection is free, or another may be opened
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def _run(self, calls: Sequence[Call], *, again: bool) -> list[Rows]:
        patience: Patience | None = None
        tangles = 0
        while True:
            try:
                pipeline = await self._pipeline()
                return await pipeline.request(calls)
            except Exception as error:
                if is_conflict(error) and tangles < _TANGLES:
                    tangles += 1
                    continue
                if not is_away(error) or (isinstance(error, Lost) and not again):
                    raise translated(error, self.place) from error
                patience = patience or Patience(self.patience_s)
                if not await patience.more():
                    raise translated(error, self.place) from error

    def best(self) -> Pipeline | None:
        """Return the connection with the fewest pending requests, or None if there is none."""
        self._pipelines = [pipeline for pipeline in self._pipelines if pipeline.lost is None]
        return min(self._pipelines, key=lambda pipeline: pipeline.waiting, default=None)

    async def _pipeline(self) -> Pipeline:
        while True:
            best = self.best()
            full = len(self._pipelines) + self._opening + self._lent >= self._most
            if best is not None and (full or not best.waiting):
                return best
            if not full:
                break
            self._opened.clear()
            await self._opened.wait()  # all permitted connections are being opened or in exclusive use
        self._opening += 1
        try:
            pipeline = await self._open_pipeline()
        except Exception:
            if (best := self.best()) is not None:
                return best  # no further connection is available; use this one
            raise
        finally:
            self._opening -= 1
            self._opened.set()
        self._pipelines.append(pipeline)
        return pipeline


def closed(place: str) -> StoreUnavailable:
    return StoreUnavailable(f"{place} is not open: call open() first, and nothing after close()")
