"""Threads for SQLite, and the reads that run on them.

Invariants: a read never waits for the writer's disk, and a quick read never waits for a list. Each kind has its own
threads and connections. A thread is started when reads of its kind would otherwise wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread, local
from typing import Any, TypeVar

import apsw

from arclog.model.errors import StoreUnavailable
from arclog.stores.sqlite.connection.connect import open_reader, translated

R = TypeVar("R")
Execute = Callable[..., Any]
#: the future, result and error of a piece of work
Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]
Then = Callable[[Any, BaseException | None], None]


class ThreadPool:
    """Threads that run calls in order of submission and return the results to the event loop."""

    def __init__(self, name: str, most: int = 1, at_end: Callable[[], None] | None = None) -> None:
        """`at_end` runs on each thread when it ends."""
        self._calls: SimpleQueue[tuple[Callable[[], Any], Then] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._most = most
        self._at_end = at_end
        self._threads: list[Thread] = []
        #: number of calls without a result
        self._open = 0
        #: number of threads that have not ended, and an event for the end of the last one
        self._left = 0
        self._ended = asyncio.Event()

    def run(self, call: Callable[[], R]) -> asyncio.Future[R]:
        future: asyncio.Future[R] = self._loop.create_future()
        self.send(call, lambda result, error: resolve([(future, result, error)]))
        return future

    def send(self, call: Callable[[], Any], then: Then) -> None:
        """Run `call` on a thread, then `then(result, error)` on the loop."""
        self._open += 1
        if self._open > len(self._threads) and len(self._threads) < self._most:
            self._threads.append(Thread(target=self._main, name=self._name, daemon=True))
            self._left += 1
            self._threads[-1].start()
        self._calls.put((call, then))

    async def stop(self) -> None:
        """Stop the threads after the pending calls."""
        if not self._threads:
            return
        for _ in self._threads:
            self._calls.put(None)
        await self._ended.wait()
        for thread in self._threads:
            thread.join()

    def _main(self) -> None:
        while (item := self._calls.get()) is not None:
            call, then = item
            result, failure = None, None
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
                failure = error
            self._bring(partial(self._answer, then, result, failure))
            del item, call, then, result, failure  # release the references while the thread waits
        if self._at_end is not None:
            self._at_end()
        self._bring(self._note_end)

    def _note_end(self) -> None:
        self._left -= 1
        if not self._left:
            self._ended.set()

    def _answer(self, then: Then, result: Any, failure: BaseException | None) -> None:
        self._open -= 1
        then(result, failure)

    def _bring(self, call: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            pass  # the loop is closed, and nothing waits for the result


def resolve(answers: list[Answer]) -> None:
    for future, result, error in answers:
        if future.done():
            continue  # the caller was cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def closed(path: str) -> StoreUnavailable:
    return StoreUnavailable(f"{path} is not open: call open() first, and nothing after close()")


class Readers:
    """Reads of one kind. Each thread has its own connection, which is opened at its first read."""

    def __init__(self, path: str, busy_timeout_s: float, name: str, most: int) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._name = name
        self._most = most
        self._is_open = False
        self._pool: ThreadPool | None = None
        self._own = local()

    def open(self) -> None:
        self._is_open = True

    def do(self, work: Callable[[Execute], R]) -> asyncio.Future[R]:
        """Queue a read."""
        return self.lend(lambda connection: work(connection.execute))

    def lend(self, work: Callable[[apsw.Connection], R]) -> asyncio.Future[R]:
        """Queue work that needs the connection itself."""
        if not self._is_open:
            raise closed(self._path)
        if self._pool is None:
            self._pool = ThreadPool(self._name, self._most, self._close_connection)
        return self._pool.run(lambda: self._read(work))

    async def close(self) -> None:
        self._is_open = False
        if self._pool is not None:
            await self._pool.stop()
            self._pool = None

    def _read(self, work: Callable[[apsw.Connection], R]) -> R:
        own = self._own
        try:
            if getattr(own, "connection", None) is None:
                own.connection = open_reader(self._path, self._busy_timeout_s)
            return work(own.connection)
        except Exception as error:
            raise translated(error, self._path, self._busy_timeout_s) from error

    def _close_connection(self) -> None:
        if getattr(self._own, "connection", None) is not None:
            self._own.connection.close()
            self._own.connection = None
