"""Writes to SQLite from asyncio, through one writer.

Group commit: the writer takes all pending work, executes it in one transaction, commits, then resolves all futures.
Under load a commit carries many pieces of work; without load nothing waits. Work that is refused (with any ArclogError)
is refused before its first write, so that the rest of its group is committed. Any other error rolls the group back, and
each piece then runs alone.

The writer's connection has one owner at a time. Usually the event loop executes groups itself, at the end of the
iteration in which they arrived: a thread that shares the interpreter with a busy loop waits for it after every
statement, and two thread switches cost half as much as a commit on a good disk. The writer's thread executes the commit
of a group if commits are slow (`INLINE_MAX_S`). It executes the whole group if its statements are slow
(`STATEMENTS_MAX_S`: pages come from the disk), if they are few and long (`do(…, aside=True)`: the appends of many
executions), or if the file is busy. Until it is done, other work waits in `_pending`, and reads go to the readers'
threads.

A checkpoint of the write-ahead log has two parts. A separate connection copies most of the log into the file while the
writer continues. Then the writer's thread copies the pages that were added meanwhile, and the next commit restarts the
log. So the writer waits for a few pages and one sync, not for the whole log. It waits for the copy as well if that is
so slow that the log has grown to `HOLD_PAGES` in the meantime.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from sys import getswitchinterval
from time import perf_counter
from typing import Any, TypeVar

import apsw

from arclog.model.errors import ArclogError
from arclog.ports.clock import Clock
from arclog.stores.sqlite.connection import generation
from arclog.stores.sqlite.connection.connect import Damaged, open_writer, translated
from arclog.stores.sqlite.connection.readers import Answer, Execute, Readers, ThreadPool, closed, resolve

R = TypeVar("R")
Work = tuple[Callable[[Any], Any], "asyncio.Future[Any]"]


class Tx:
    """The writer's transaction, as a piece of work uses it."""

    __slots__ = ("at", "changes", "execute")

    def __init__(self, connection: apsw.Connection) -> None:
        self.execute: Execute = connection.cursor().execute
        #: returns the number of rows that the last statement changed
        self.changes = connection.changes
        #: persisted_at of the rows that are written now
        self.at = 0


class _Tried:
    """A group whose statements were executed, but not committed."""

    __slots__ = ("answers", "began", "error", "raised")

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.began = False
        self.error: BaseException | None = None
        #: the store's new generation; 0 if it was not raised
        self.raised = 0


class Writer:
    """Executes writes in groups; see the module's docstring."""

    #: the event loop commits itself while a commit takes less than this on average
    INLINE_MAX_S = 0.001
    #: the event loop executes the statements of a group itself while they take less than this on average
    STATEMENTS_MAX_S = 0.01
    #: maximum number of pieces of work in a group on the event loop; the rest is the next group
    INLINE_MAX_JOBS = 64
    #: the same if the thread commits: the callers of the previous group continue meanwhile
    LENT_MAX_JOBS = 16
    #: number of pages in the write-ahead log that triggers a checkpoint (16 MiB)
    CHECKPOINT_PAGES = 4000
    #: number of pages (40 MiB) from which on writes wait for the copy in progress
    HOLD_PAGES = 10_000
    #: how long a checkpoint waits for readers of the old log once it has twice as many pages
    READERS_MS = 5
    #: minimum pause between two pieces of upkeep
    UPKEEP_REST_S = 0.002

    def __init__(self, path: str, busy_timeout_s: float, clock: Clock) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._clock = clock
        self._pending: list[Work] = []
        #: work that is executed aside, and whether the next of it runs before the pending work
        self._asides: deque[Work] = deque()
        self._is_aside_next = False
        self._upkeep: deque[Work] = deque()
        #: when the next piece may run, and since when it has been tried
        self._upkeep_at = 0.0
        self._upkeep_since = 0.0
        self._flush_is_due = False
        #: whether the thread owns the connection
        self._away = False
        #: moving averages in seconds: of a commit, and of a group's statements
        self._pace = 0.0
        self._statements_pace = 0.0
        self._wal_pages = 0
        self._checkpoint_at = self.CHECKPOINT_PAGES
        #: copies the write-ahead log into the file while the writer continues
        self._copier = Readers(path, busy_timeout_s, "arclog-checkpoint", 1)
        self._copying: asyncio.Future[None] | None = None
        #: a checkpoint starts when the thread is done
        self._copy_is_due = False
        self._finish_is_due = False
        #: whether the next transaction raises the store's generation
        self._raises = True
        #: set after the disk or the file failed; nothing is written after that
        self._damage: Damaged | None = None
        self._is_open = False
        self._loop: asyncio.AbstractEventLoop
        self._threads: ThreadPool
        self._connection: apsw.Connection
        self._tx: Tx

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPool("arclog-writer")
        try:
            self._connection = await self._threads.run(lambda: open_writer(self._path, self._busy_timeout_s))
        except BaseException:
            await self._threads.stop()
            raise
        self._connection.set_busy_timeout(0)
        self._connection.set_wal_hook(self._note_wal)
        self._tx = Tx(self._connection)
        self._copier.open()
        self._is_open = True

    async def close(self) -> None:
        """Finish the submitted work and close. The last process to close the file empties its write-ahead log."""
        if not self._is_open:
            return
        last = [self.do(lambda _: None), self.do(lambda _: None, aside=True)]
        self._is_open = False
        await asyncio.gather(*last, return_exceptions=True)  # errors go to the callers that wait for their own work
        resolve([(future, None, closed(self._path)) for _, future in self._upkeep])
        try:
            await self._copier.close()
            await self._threads.run(self._shut)  # after a checkpoint that may still be in progress
        finally:
            await self._threads.stop()

    @property
    def _raises_now(self) -> bool:
        # A commit during the copy may be the first one that the copy does not include.
        return self._raises or self._copying is not None

    def _shut(self) -> None:
        self._connection.close()
        generation.forget(self._path)

    def do(self, work: Callable[[Tx], R], *, aside: bool = False) -> asyncio.Future[R]:
        """Queue a write. Writes are executed in the order of the calls. With `aside` it is a group of its own on the
        writer's thread, while the event loop continues; this is for a few statements that take long. Such writes have a
        separate order and alternate with the others.
        """
        if not self._is_open:
            raise closed(self._path)
        future: asyncio.Future[R] = self._loop.create_future()
        (self._asides if aside else self._pending).append((work, future))
        self._schedule()
        return future

    def keep_up(self, work: Callable[[Tx], R]) -> asyncio.Future[R]:
        """Queue a piece of upkeep: a separate transaction between two groups, on the event loop, without a sync. It
        must be short, and may be lost in a power failure; the caller then repeats it.
        """
        if not self._is_open:
            raise closed(self._path)
        future: asyncio.Future[R] = self._loop.create_future()
        self._upkeep.append((work, future))
        self._schedule()
        return future

    def peek(self, work: Callable[[Execute], R]) -> tuple[R] | None:
        """Read quickly on the writer's own connection. Return None if the connection is not available."""
        if self._away or not self._is_open:
            return None
        try:
            return (work(self._connection.execute),)
        except apsw.BusyError:
            return None
        except Exception as error:
            raise translated(error, self._path) from error

    async def checkpoint(self) -> None:
        """Copy the write-ahead log into the file now, as far as readers allow."""
        if self._copying is None and self._away:
            # A commit in progress does not know of a copy that may not include it, so the copy waits for it.
            self._copying, self._copy_is_due = self._loop.create_future(), True
        elif self._copying is None:
            self._begin_checkpoint()
        if self._copying is not None:
            await asyncio.shield(self._copying)

    def _schedule(self) -> None:
        if not self._flush_is_due and not self._away:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    @property
    def _is_held(self) -> bool:
        """Whether writes wait for a checkpoint that has fallen behind."""
        is_copying = self._copying is not None and not self._finish_is_due
        return is_copying and self._wal_pages >= self.HOLD_PAGES and self._is_open

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._away or self._is_held:
            return
        if self._upkeep:
            self._carry_out_upkeep()
        if self._finish_is_due:
            self._finish_is_due = False
            self._send(self._next_group(), finish=True)
        elif self._asides and (self._is_aside_next or not self._pending):
            self._is_aside_next = False
            self._send([self._asides.popleft()])
        elif self._pending and self._statements_pace < self.STATEMENTS_MAX_S:
            is_quick = self._pace < self.INLINE_MAX_S
            group = self._next_group(self.INLINE_MAX_JOBS if is_quick else self.LENT_MAX_JOBS)
            try:
                tried = self._try(group)
            except apsw.BusyError:
                self._send(group)
                return
            if is_quick and tried.error is None:
                resolve(self._ended(group, tried))
                self._look_at_wal()
                if self._pending or self._asides:
                    self._schedule()
            else:
                self._send(group, tried)
        elif self._pending:
            self._send(self._next_group())

    def _next_group(self, most: int | None = None) -> list[Work]:
        self._is_aside_next = True
        group, self._pending = self._pending[:most], self._pending[most:] if most else []
        return group

    def _send(self, group: list[Work], tried: _Tried | None = None, *, finish: bool = False) -> None:
        """Pass the connection to the thread, for a group, for its commit alone, or for the end of a checkpoint."""

        def back(answers: list[Answer] | None, error: BaseException | None) -> None:
            self._away = False
            resolve(answers if answers is not None else self._refused(error or RuntimeError("no answer"), group))
            if finish and self._copying is not None:
                if not self._copying.done():
                    self._copying.set_result(None)
                self._copying = None
            self._look_at_wal()
            self._flush()

        self._away = True
        self._threads.send(lambda: self._patiently(group, tried=tried, finish=finish), back)

    def _patiently(self, group: list[Work], *, tried: _Tried | None, finish: bool) -> list[Answer]:
        """Execute a group in the thread, waiting for other processes."""
        self._connection.set_busy_timeout(int(self._busy_timeout_s * 1000))
        try:
            answers = self._ended(group, tried or self._try(group)) if group else []
        except apsw.BusyError as error:
            answers = self._refused(error, group)
        finally:
            self._connection.set_busy_timeout(0)
        if finish:
            self._finish_checkpoint()
        return answers

    def _carry_out(self, group: list[Work]) -> list[Answer]:
        """Execute the whole group in one transaction. Return all results. Raises BusyError if nothing was tried."""
        return self._ended(group, self._try(group))

    def _try(self, group: list[Work]) -> _Tried:
        """Begin a transaction and execute every piece in it. The result has any error, except BusyError, which is
        raised.
        """
        tried = _Tried()
        if self._damage is not None:
            tried.error = self._damage
            return tried
        tx, total_changes = self._tx, self._connection.total_changes
        started, before = perf_counter(), total_changes()
        try:
            tx.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            raise
        except apsw.Error as error:
            tried.error = error
            return tried
        tried.began = True
        try:
            tx.at = self._clock.now()
            for work, future in group:
                try:
                    tried.answers.append((future, work(tx), None))
                except ArclogError as refusal:
                    tried.answers.append((future, None, refusal))
            if self._raises_now and total_changes() != before:
                tried.raised = generation.raised(tx.execute)
        except Exception as error:  # noqa: BLE001 - it is raised where the work is awaited
            tried.error = error
        # In the thread, waiting for the disk looks like waiting for the interpreter; so it counts as 0, until the loop
        # tries again.
        took = 0.0 if self._away else perf_counter() - started
        self._statements_pace += (took - self._statements_pace) / 8
        return tried

    def _ended(self, group: list[Work], tried: _Tried) -> list[Answer]:
        """Commit an executed group. After an error each piece is executed alone."""
        error, started = tried.error, perf_counter()
        if not tried.began:
            return self._refused(error or RuntimeError("no answer"), group)
        if error is None:
            try:
                self._tx.execute("COMMIT")
            except Exception as problem:  # noqa: BLE001 - it is raised where the work is awaited
                error = problem
        if error is not None:
            self._roll_back()
            if len(group) == 1 or isinstance(translated(error, self._path), Damaged):
                return self._refused(error, group)
            return [self._alone(work) for work in group]
        if tried.raised:
            self._raises = False
            generation.note(self._path, tried.raised)
        # A thread waits for the interpreter once in the commit (`_note_wal`) and once after it.
        waited = 2 * getswitchinterval() if self._away else 0.0
        self._pace += (max(perf_counter() - started - waited, 0.0) - self._pace) / 8
        return tried.answers

    def _alone(self, work: Work) -> Answer:
        """Execute one piece in its own transaction."""
        try:
            [answer] = self._carry_out([work])
        except apsw.BusyError as error:
            [answer] = self._refused(error, [work])
        return answer

    def _carry_out_upkeep(self) -> None:
        """Run the next piece of upkeep, after a pause as long as the last piece took. While another process writes, it
        is retried for as long as any write is.
        """
        now = self._loop.time()
        if now < self._upkeep_at:
            self._loop.call_at(self._upkeep_at, self._schedule)
            return
        work = self._upkeep.popleft()
        self._upkeep_since = self._upkeep_since or now
        paces = self._pace, self._statements_pace
        try:
            resolve(self._carry_out_unsynced([work]))
            self._upkeep_since = 0.0
        except apsw.BusyError as error:
            if now - self._upkeep_since > self._busy_timeout_s:
                resolve(self._refused(error, [work]))
                self._upkeep_since = 0.0
            else:
                self._upkeep.appendleft(work)
        except apsw.Error as error:
            resolve(self._refused(error, [work]))
        self._pace, self._statements_pace = paces
        ended = self._loop.time()
        self._upkeep_at = ended + max(ended - now, self.UPKEEP_REST_S)
        if self._upkeep:
            self._loop.call_at(self._upkeep_at, self._schedule)
        self._look_at_wal()

    def _carry_out_unsynced(self, group: list[Work]) -> list[Answer]:
        self._connection.execute("PRAGMA synchronous = NORMAL")
        try:
            return self._carry_out(group)
        finally:
            self._connection.execute("PRAGMA synchronous = FULL")

    def _refused(self, error: BaseException, group: list[Work]) -> list[Answer]:
        failure = translated(error, self._path, self._busy_timeout_s)
        if isinstance(failure, Damaged):
            self._damage = failure
        answers: list[Answer] = []
        for _, future in group:
            problem = type(failure)(*failure.args)  # each caller gets its own exception object
            problem.__cause__ = error
            answers.append((future, None, problem))
        return answers

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error as error:
                self._damage = Damaged(f"{self._path}: a transaction could not be rolled back ({error}); start again")

    # -- the write-ahead log ------------------------------------------------------------------------------------------

    def _note_wal(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        if pages < self._wal_pages:  # it was restarted
            self._checkpoint_at = self.CHECKPOINT_PAGES
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _look_at_wal(self) -> None:
        is_due = self._wal_pages >= self._checkpoint_at and self._copying is None and self._is_open
        if is_due or self._copy_is_due:
            self._copy_is_due = False
            self._begin_checkpoint()

    def _begin_checkpoint(self) -> None:
        """Start the larger part of a checkpoint, next to the writer."""

        def copied(done: asyncio.Future[Any]) -> None:
            problem = None if done.cancelled() else done.exception()
            if isinstance(problem, Damaged):
                self._damage = self._damage or problem
            if self._is_open:
                self._finish_is_due = True
                self._schedule()
            elif not copying.done():
                copying.set_result(None)

        copying = self._copying = self._copying or self._loop.create_future()
        passive = apsw.SQLITE_CHECKPOINT_PASSIVE
        self._copier.lend(lambda connection: connection.wal_checkpoint(None, passive)).add_done_callback(copied)

    def _finish_checkpoint(self) -> None:
        """Copy the pages that were added meanwhile, in the thread. After that the next commit restarts the log, unless
        a reader still needs it; then the next attempt follows soon.
        """
        pages = self._wal_pages
        try:
            self._connection.set_busy_timeout(self.READERS_MS if pages > 2 * self.CHECKPOINT_PAGES else 0)
            self._connection.wal_checkpoint(None, apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.Error as error:
            if isinstance(failure := translated(error, self._path), Damaged):
                self._damage = failure
        finally:
            self._connection.set_busy_timeout(0)
        self._raises = True
        self._checkpoint_at = pages + self.CHECKPOINT_PAGES // 4
