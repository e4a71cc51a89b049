"""Entries of requests that are recorded at the same time: which transactions they share, and whose failure affects which request."""

import asyncio
from collections.abc import Sequence

import pytest

from arclog.model.errors import RequestRejected, StoreUnavailable
from arclog.ports.storage.access import AuditEntry
from arclog.server.auth.audit import Entries
from arclog.stores.memory import MemoryStore
from arclog.testing.virtual import FakeClock

UNAVAILABLE, INVALID = "unavailable", "invalid"


def entry(reason: str = "") -> AuditEntry:
    return AuditEntry(5, "granted", "ann", "t", "POST", "/api/executions", "", "127.0.0.1", reason)


class Book(MemoryStore):
    """A store whose transactions end when the test continues them, and fail because of some entries."""

    def __init__(self) -> None:
        super().__init__(clock=FakeClock())
        self.transactions: list[tuple[list[str], int]] = []
        self._running = asyncio.Semaphore(0)

    async def add_audit(self, entries: Sequence[AuditEntry], *, keep_from: int = 0) -> None:
        reasons = [added.reason for added in entries]
        self.transactions.append((reasons, keep_from))
        await self._running.acquire()
        if UNAVAILABLE in reasons:
            raise StoreUnavailable("away")
        if INVALID in reasons:
            raise RequestRejected("not a text")

    async def end(self, count: int = 1) -> None:
        for _ in range(count):
            await _turns()
            self._running.release()
        await _turns()


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def _begin(entries: Entries, *reasons: str) -> list[asyncio.Task[None]]:
    requests = [asyncio.ensure_future(entries.add([entry(reason)], 10 + n)) for n, reason in enumerate(reasons)]
    await _turns()
    return requests


def test_requests_that_come_during_a_transaction_share_the_next_one() -> None:
    async def run() -> None:
        book = Book()
        entries = Entries(book)
        requests = await _begin(entries, "a", "b", "c")
        assert book.transactions == [(["a"], 10)]
        await book.end()
        assert [request.done() for request in requests] == [True, False, False]
        assert book.transactions[1:] == [(["b", "c"], 12)]
        await book.end()
        assert all(request.done() for request in requests)
        [last] = await _begin(entries, "d")
        await book.end()
        await last
        assert book.transactions[2:] == [(["d"], 10)]

    asyncio.run(run())


def test_a_request_without_others_is_recorded_at_once() -> None:
    async def run() -> None:
        book = Book()
        for reason in "ab":
            [request] = await _begin(Entries(book), reason)
            await book.end()
            await request
        assert [reasons for reasons, _ in book.transactions] == [["a"], ["b"]]

    asyncio.run(run())


def test_an_unavailable_store_fails_each_request_with_its_own_exception() -> None:
    async def run() -> None:
        book = Book()
        first, *others = await _begin(Entries(book), "a", UNAVAILABLE, "c")
        await book.end(2)
        await first
        problems = [request.exception() for request in others]
        assert [type(problem) for problem in problems] == [StoreUnavailable, StoreUnavailable]
        assert problems[0] is not problems[1]

    asyncio.run(run())


def test_an_entry_that_the_store_refuses_fails_its_own_request_only() -> None:
    async def run() -> None:
        book = Book()
        requests = await _begin(Entries(book), "a", "b", INVALID, "c")
        await book.end(5)
        assert [reasons for reasons, _ in book.transactions[2:]] == [["b"], [INVALID], ["c"]]
        assert [type(request.exception()) for request in requests] == [
            *(type(None), type(None)),
            *(RequestRejected, type(None)),
        ]

    asyncio.run(run())


def test_a_cancelled_request_does_not_affect_the_others() -> None:
    async def run() -> None:
        book = Book()
        entries = Entries(book)
        first, second, third = await _begin(entries, "a", "b", "c")
        second.cancel()
        first.cancel()
        await _turns()
        await book.end()
        await third
        with pytest.raises(asyncio.CancelledError):
            await first
        [last] = await _begin(entries, "d")
        await book.end()
        await last

    asyncio.run(run())
