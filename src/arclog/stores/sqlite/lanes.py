"""How SQLite is reached from asyncio: one writer, one reader.

Group commit: the writer takes everything that is pending, carries it out in one transaction, commits, then answers all.
Under load a commit carries many pieces of work; without load nobody waits. One that refuses (any ArclogError) does so
before its first write, so the others of its group stand. Any other error rolls the group back, and each then runs alone.

The writer's connection has one owner at a time. While commits are fast the event loop carries groups out itself, at the
end of the iteration that brought them: waking a thread and being woken by it costs half as much as a commit on a good
disk. Slow commits (`INLINE_MAX_S`), large groups, a busy file and checkpoints go to the writer's thread; until it answers
everything else waits in `_pending`, and reads go to the reader's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from time import perf_counter
from typing import Any, TypeVar

import apsw

from arclog.model.errors import ArclogError, StoreUnavailable
from arclog.ports.clock import Clock
from arclog.stores.sqlite import generation
from arclog.stores.sqlite.connect import open_reader, open_writer
from arclog.stores.sqlite.errors import Damaged, translated

R = TypeVar("R")
Execute = Callable[..., Any]
Work = tuple[Callable[[Any], Any], "asyncio.Future[Any]"]
#: a piece of work's future, result and error
Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Tx:
    """What a piece of work may use inside the writer's transaction."""

    __slots__ = ("at", "changes", "execute")

    def __init__(self, connection: apsw.Connection) -> None:
        self.execute: Execute = connection.cursor().execute
        #: rows that the last statement changed
        self.changes = connection.changes
        #: persisted_at of what is written now
        self.at = 0


class Hands:
    """A thread that runs calls one after another and brings the results back to the event loop."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]] | None]
        self._calls = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def run(self, call: Callable[[], R]) -> asyncio.Future[R]:
        future: asyncio.Future[R] = self._loop.create_future()
        self.send(call, lambda result, error: _resolve([(future, result, error)]))
        return future

    def send(self, call: Callable[[], Any], then: Callable[[Any, BaseException | None], None]) -> None:
        """Run `call` on the thread, then `then(result, error)` on the loop."""
        self._calls.put((call, then))

    def stop(self) -> None:
        self._calls.put(None)
        self._thread.join()

    def _main(self) -> None:
        while (item := self._calls.get()) is not None:
            call, then = item
            result, failure = None, None
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
                failure = error
            try:
                self._loop.call_soon_threadsafe(then, result, failure)
            except RuntimeError:
                pass  # the loop is closed: nobody is there to hear it


def _resolve(answers: list[Answer]) -> None:
    for future, result, error in answers:
        if future.done():
            continue  # its caller was cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _closed(path: str) -> StoreUnavailable:
    return StoreUnavailable(f"{path} is not open: call open() first, and nothing after close()")


class Reader:
    """Reads committed data on a thread and a connection of its own; never waits for the writer's disk."""

    def __init__(self, path: str, busy_timeout_s: float) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._is_open = False
        self._hands: Hands | None = None
        self._connection: apsw.Connection | None = None

    def open(self) -> None:
        self._is_open = True

    def do(self, work: Callable[[Execute], R]) -> asyncio.Future[R]:
        """Queue a read. The thread and the connection come with the first."""
        if not self._is_open:
            raise _closed(self._path)
        if self._hands is None:
            self._hands = Hands("arclog-reader")
        return self._hands.run(lambda: self._read(work))

    async def close(self) -> None:
        self._is_open = False
        if self._hands is not None:
            await self._hands.run(self._let_go)
            self._hands.stop()
            self._hands = None

    def _read(self, work: Callable[[Execute], R]) -> R:
        try:
            if self._connection is None:
                self._connection = open_reader(self._path, self._busy_timeout_s)
            return work(self._connection.execute)
        except Exception as error:
            raise translated(error, self._path, self._busy_timeout_s) from error

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Writer:
    """Carries out writes in groups. See the law of this file."""

    #: while a transaction takes less than this on average, the event loop runs it itself
    INLINE_MAX_S = 0.001
    #: larger groups go to the thread
    INLINE_MAX_JOBS = 64
    #: pages in the write-ahead log that call for a checkpoint (16 MiB)
    CHECKPOINT_PAGES = 4000

    def __init__(self, path: str, busy_timeout_s: float, clock: Clock) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._clock = clock
        self._pending: list[Work] = []
        self._flush_is_due = False
        #: the thread owns the connection
        self._away = False
        #: moving average of a transaction's seconds
        self._pace = 0.0
        self._wal_pages = 0
        self._checkpoint_at = self.CHECKPOINT_PAGES
        #: the next transaction raises the store's generation
        self._raises = True
        #: set once the disk or the file failed: nothing is written after that
        self._damage: Damaged | None = None
        self._is_open = False
        self._loop: asyncio.AbstractEventLoop
        self._hands: Hands
        self._connection: apsw.Connection
        self._tx: Tx

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._hands = Hands("arclog-writer")
        try:
            self._connection = await self._hands.run(lambda: open_writer(self._path, self._busy_timeout_s))
        except BaseException:
            self._hands.stop()
            raise
        self._connection.set_busy_timeout(0)
        self._connection.set_wal_hook(self._note_wal)
        self._tx = Tx(self._connection)
        self._is_open = True

    async def close(self) -> None:
        """Finish what was handed in; the last process to close the file empties its write-ahead log."""
        if not self._is_open:
            return
        last = self.do(lambda _: None)
        self._is_open = False
        try:
            await last
        except StoreUnavailable:
            pass  # those who wait for their own work hear it
        try:
            await self._hands.run(self._shut)  # after a checkpoint that may still be under way
        finally:
            self._hands.stop()

    def _shut(self) -> None:
        self._connection.close()
        generation.forget(self._path)

    def do(self, work: Callable[[Tx], R]) -> asyncio.Future[R]:
        """Queue a write; writes are carried out in the order of the calls."""
        if not self._is_open:
            raise _closed(self._path)
        future: asyncio.Future[R] = self._loop.create_future()
        self._pending.append((work, future))
        if not self._flush_is_due and not self._away:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)
        return future

    def peek(self, work: Callable[[Execute], R]) -> tuple[R] | None:
        """A quick read on the writer's own connection; None when it is not to be had now."""
        if self._away or not self._is_open:
            return None
        try:
            return (work(self._connection.execute),)
        except apsw.BusyError:
            return None
        except Exception as error:
            raise translated(error, self._path) from error

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._away or not self._pending:
            return
        group, self._pending = self._pending, []
        if self._pace < self.INLINE_MAX_S and len(group) <= self.INLINE_MAX_JOBS:
            try:
                _resolve(self._carry_out(group))
            except apsw.BusyError:
                self._send(group)
            else:
                if self._wal_pages >= self._checkpoint_at:
                    self._send([])
        else:
            self._send(group)

    def _send(self, group: list[Work]) -> None:
        """Lend the connection to the thread, for a group or for a checkpoint alone."""

        def back(answers: list[Answer] | None, error: BaseException | None) -> None:
            self._away = False
            _resolve(answers if answers is not None else self._refused(error or RuntimeError("no answer"), group))
            self._flush()

        self._away = True
        self._hands.send(lambda: self._patiently(group), back)

    def _patiently(self, group: list[Work]) -> list[Answer]:
        """On the thread: the same, but waiting for other processes, and with time for a checkpoint."""
        self._connection.set_busy_timeout(int(self._busy_timeout_s * 1000))
        try:
            answers = self._carry_out(group) if group else []
        except apsw.BusyError as error:
            answers = self._refused(error, group)
        finally:
            self._connection.set_busy_timeout(0)
        if self._wal_pages >= self._checkpoint_at:
            self._checkpoint()
        return answers

    def _carry_out(self, group: list[Work]) -> list[Answer]:
        """One transaction for the whole group; every piece's answer. A BusyError means that nothing was tried."""
        if self._damage is not None:
            return self._refused(self._damage, group)
        tx, total_changes = self._tx, self._connection.total_changes
        started, before = perf_counter(), total_changes()
        answers: list[Answer] = []
        try:
            tx.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            raise
        except apsw.Error as error:
            return self._refused(error, group)
        try:
            tx.at = self._clock.now()
            for work, future in group:
                try:
                    answers.append((future, work(tx), None))
                except ArclogError as refusal:
                    answers.append((future, None, refusal))
            raised = generation.raised(tx.execute) if self._raises and total_changes() != before else 0
            tx.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - it is raised where the work is awaited
            self._roll_back()
            if len(group) == 1 or isinstance(translated(error, self._path), Damaged):
                return self._refused(error, group)
            return [answer for work in group for answer in self._carry_out([work])]
        if raised:
            self._raises = False
            generation.note(self._path, raised)
        self._pace += (perf_counter() - started - self._pace) / 8
        return answers

    def _refused(self, error: BaseException, group: list[Work]) -> list[Answer]:
        known = translated(error, self._path, self._busy_timeout_s)
        if isinstance(known, Damaged):
            self._damage = known
        answers: list[Answer] = []
        for _, future in group:
            each = type(known)(*known.args)  # a raised exception belongs to one raiser
            each.__cause__ = error
            answers.append((future, None, each))
        return answers

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error as error:
                self._damage = Damaged(f"{self._path}: a transaction could not be rolled back ({error}); start again")

    def _note_wal(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """On the thread: copy what is committed into the file. What a long reader still needs waits for the next time."""
        try:
            total, done = self._connection.wal_checkpoint(None, apsw.SQLITE_CHECKPOINT_PASSIVE)
            left = total - done
        except apsw.Error as error:
            if isinstance(known := translated(error, self._path), Damaged):
                self._damage = known
            left = self._wal_pages
        self._raises = True
        self._wal_pages = 0
        self._checkpoint_at = left + self.CHECKPOINT_PAGES
