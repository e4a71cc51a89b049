"""Connections for everything but appends, opened when they are needed.

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
from arclog.stores.postgres.connection.pipeline import Call, Link, Lost, Rows, translated

#: immediate retries of a transaction that a conflict rolled back
_TANGLES = 5


class Pool:
    def __init__(self, place: str, open_link: Callable[[], Awaitable[Link]], most: int, patience_s: float) -> None:
        self.place = place
        self._open_link = open_link
        self._most = most
        self.patience_s = patience_s
        self._links: list[Link] = []
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
        for link in self._links:
            link.close()
        self._links.clear()

    async def read(self, text: str, *values: Any) -> Rows:
        """Run a statement that changes nothing."""
        return (await self.run([(text, values)], again=True))[-1]

    async def write(self, text: str, *values: Any) -> Rows:
        """Run a statement that may change something; if the connection is lost, it is unknown whether it did."""
        return (await self.run([(text, values)]))[-1]

    async def run(self, calls: Sequence[Call], *, again: bool = False) -> list[Rows]:
        """Run these statements as one transaction. `again`: it may be carried out twice."""
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
    async def alone(self) -> AsyncIterator[Link]:
        """A connection for exclusive use, for a transaction of several requests. After an exception the transaction may
        be open, so the connection is closed, which ends it.
        """
        if not self._is_open:
            raise closed(self.place)
        self._busy += 1
        self._idle.clear()
        try:
            link = await self._link()
            self._links.remove(link)
            self._lent += 1
            try:
                yield link
            except BaseException:
                link.close("a transaction was left")
                raise
            finally:
                self._lent -= 1
                if link.lost is None:
                    self._links.append(link)
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
                link = await self._link()
                return await link.request(calls)
            except Exception as error:
                if is_conflict(error) and tangles < _TANGLES:
                    tangles += 1
                    continue
                if not is_away(error) or (isinstance(error, Lost) and not again):
                    raise translated(error, self.place) from error
                patience = patience or Patience(self.patience_s)
                if not await patience.more():
                    raise translated(error, self.place) from error

    def best(self) -> Link | None:
        """The connection with the fewest pending requests; None if there is none."""
        self._links = [link for link in self._links if link.lost is None]
        return min(self._links, key=lambda link: link.waiting, default=None)

    async def _link(self) -> Link:
        while True:
            best = self.best()
            full = len(self._links) + self._opening + self._lent >= self._most
            if best is not None and (full or not best.waiting):
                return best
            if not full:
                break
            self._opened.clear()
            await self._opened.wait()  # all connections that may be opened are being opened or in exclusive use
        self._opening += 1
        try:
            link = await self._open_link()
        except Exception:
            if (best := self.best()) is not None:
                return best  # no further connection is available: use this one
            raise
        finally:
            self._opening -= 1
            self._opened.set()
        self._links.append(link)
        return link


def closed(place: str) -> StoreUnavailable:
    return StoreUnavailable(f"{place} is not open: call open() first, and nothing after close()")
