"""Quarantine: a run on which the process died twice is paused until an operator resumes it.

Servers that share a store count crashes together. If a server gets work at which another server may have died (it took
over a duty, a client repeats an unanswered request, or a command was claimed before), it cannot know why that server
died. It records in the store what it begins. If it dies as well, the record stays and does not change any more: two
servers died, and the run is in quarantine before a third server tries it. That another server died of this run before
is presumed until the servers that died are back: their own marks show what they were executing. If that was something
else, nothing is presumed any more: the one recorded death stays counted, and the run is resumed.

Invariants: before work on a run begins, a mark is written where it outlives the process (`ports.storage.marks`);
afterwards it is removed. A mark that a dead process left counts as a crash of that run at that work. Work that ends
normally resets its count, so only consecutive crashes count. After two crashes a run is in quarantine: it accepts
nothing but RESUME. Its pause is appended to its log without reading the log, since reading it may be what kills the
process. What is presumed is withdrawn once: the next recorded death at the same work is the second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from arclog.core.boundary.inputs import Continue, Input, LeaseEnded, Refused, Signal, TimerFired, WorkReported
from arclog.core.transitions.state import State
from arclog.engine.commits.marked_work import (
    ENDS,
    READING,
    SNAPSHOT,
    Steps,
    Stepwise,
    activity,
    was_claimed_before,
    work_of,
)
from arclog.model.errors import ArclogError, Conflict
from arclog.model.events import Event
from arclog.model.ids import MICROS
from arclog.model.status import PENDING
from arclog.ports.storage.marks import ATTEMPT, HELD_SLOTS, Crash, CrashBook, Marks
from arclog.ports.storage.store import Append, ExecutionRecord

if TYPE_CHECKING:
    from arclog.engine.commits.engine import Engine

T = TypeVar("T")

log = logging.getLogger("arclog.engine")

#: Consecutive crashes after which a run is in quarantine.
MAX_CRASHES = 2
#: Interval in seconds at which a server reads the crashes that other servers counted.
_LOOK_S = 1.0
#: Crashes that are further apart are not consecutive.
_IN_A_ROW_US = 86_400 * MICROS
#: Duration of the cautious period after a takeover from a dead server, and interval at which runs in quarantine are
#: checked for their end.
_CAREFUL_S = 60.0
#: A record with this run's id counts the servers that are known to be gone.
_NO_RUN = 0
#: Recorded work is done one after another, so that the records of a dead server name one run. It waits at most this
#: long.
_ALONE_S = 5.0
#: Pause of work that waits for the work of another server.
_WAIT_S = 0.2
#: Time limit at the end of the process for a store that is unavailable.
_CLOSE_S = 2.0
#: Work of a duty: the server that takes over the duty repeats it, whether the run is in memory or not.
_OF_DUTIES = (TimerFired, LeaseEnded, Continue)
#: Whether the current request was sent before and not answered.
REPEATED: ContextVar[bool] = ContextVar("repeated", default=False)


class BegunElsewhere(Exception):
    """Another server has a record of the same work."""


def _pause_id(execution_id: int, head: int) -> str:
    """The id of the PAUSE of a run in quarantine, by its head before."""
    return f"quarantine-{execution_id}-{head}"


def _in_quarantine(crashes: Iterable[Crash]) -> dict[int, Crash]:
    """Return the runs in quarantine, and why. A run whose log must not be read is there for that reason. Inputs that
    shared a commit are counted alike; the run is paused because of one of them.
    """
    held = [crash for crash in crashes if crash.count >= MAX_CRASHES and not crash.work & ATTEMPT]
    held.sort(key=lambda crash: (crash.work == READING, crash.paused_at, crash.work))
    return {crash.execution_id: crash for crash in held}


def _deaths(crash: Crash) -> str:
    unrecorded = ", the first time without a record of its work" if crash.presumed else ""
    return f"poison: arclog died {crash.count} times in a row while it {activity(crash.work)}{unrecorded}"


class Quarantine:
    """The runs in quarantine and the known crashes."""

    def __init__(self, engine: Engine, marks: Marks, book: CrashBook | None = None, owner: str = "") -> None:
        self._engine = engine
        self._marks = marks
        self._book = book
        self._owner = owner
        self._looked_at = self._checked_at = engine.clock.monotonic()
        self._writing: set[asyncio.Task[Any]] = set()
        #: end of this server's cautious period; 0 if there is none
        self._careful_until = 0.0
        #: recorded work in progress here
        self._attempts: set[tuple[int, int]] = set()
        #: records of this server that are to be deleted, and whether their work had begun
        self._ended: dict[tuple[int, int], bool] = {}
        #: the attempts to delete them
        self._ending: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._free_slots = list(HELD_SLOTS)
        self._steps = Steps(marks)
        #: records of other servers: how often they were renewed, and since when that has not changed
        self._others: dict[tuple[int, int], tuple[int, float]] = {}
        #: when the records of others were last read
        self._read_at = self._looked_at
        #: runs that are being resumed because nothing is presumed of them any more
        self._resuming: set[int] = set()
        #: how often a server was found to be gone
        self._gone = -1
        #: a server that does not renew its records for this long is gone
        self._gone_after_s = engine.settings.number("engine.duty_lease_s")
        self._look_s = min(_LOOK_S, self._gone_after_s / 3)
        self._alone = asyncio.Lock()
        #: records are written one after another: a statement that is sent later may be executed first, on another
        #: connection, and a record that is written after it was deleted would look like a crash
        self._in_order = asyncio.Lock()
        #: several callers may find the same record, which is counted once
        self._counting = asyncio.Lock()
        self.begin = marks.begin
        self.end = marks.end
        #: by run and work; almost always empty
        self._crashes: dict[tuple[int, int], Crash] = {
            (crash.execution_id, crash.work): crash for crash in marks.crashes()
        }
        self._held = _in_quarantine(self._crashes.values())

    async def open(self) -> None:
        """Count what processes died of here, and pause the runs that are in quarantine now."""
        if self._book is not None:
            dead, now = self._marks.dead(), self._engine.clock.now()
            died_of = await self._judge(self._book, dead, self._marks.left())
            for owner in dead:  # nobody has to wait for the end of its lease
                await self._engine.store.lease_node(owner, now, now)
            if dead:
                await self._book.vouch(dead, died_of, now)
            self._marks.judged()
            await self._look()
        await self._pause_held()

    async def _judge(
        self, book: CrashBook, dead: Sequence[str], left: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Decide what the recorded work of processes that died here had to do with their deaths. Returns the marks of
        other work, each of which is a crash. It may be called again for the same processes.
        """
        now = self._engine.clock.now()
        recorded = [crash for crash in await book.add_crashes((), now, 0) if crash.owner in dead]
        running = {run for run, _ in left}
        for record in recorded:
            run, work = record.execution_id, record.work
            was = "while its code was running" if run in running else "between two steps of that work"
            log.warning("execution %s: a process of this server that %s died %s", run, activity(work), was)
            if run not in running:
                await book.excuse_attempt(run, work | ATTEMPT, now)
            elif work & ATTEMPT:
                await book.count_attempt(run, work, 0, now, MAX_CRASHES)
        counted = {(crash.execution_id, work) for crash in recorded for work in (crash.work & ~ATTEMPT, READING)}
        return [mark for mark in left if mark not in counted]

    async def _pause_held(self) -> None:
        for crash in list(self._held.values()):
            try:
                await self._pause(crash)
            except ArclogError as problem:
                log.warning(
                    "execution %s: %s. This is not recorded in its log: %s",
                    crash.execution_id,
                    self.reason(crash),
                    problem,
                )

    async def look(self) -> None:
        """Read the crashes that other servers counted, and renew the records of work in progress here. Does so at
        intervals, and only if there are other servers.
        """
        now = self._engine.clock.monotonic()
        if self._book is None or now - self._looked_at < self._look_s:
            return
        self._looked_at = now
        for key in [key for key in self._ended if key not in self._ending]:
            self._end_later(self._book, key)
        began = self._engine.clock.monotonic()
        self._learn(await asyncio.shield(self._later(self._renew(self._book))), began)
        await self._count_attempts(self._book)
        if any(crash.presumed for crash in self._crashes.values()):
            await self._book.vouch([self._owner], (), self._engine.clock.now())
            await self._look()
        if self._held and now - self._checked_at >= _CAREFUL_S:
            self._checked_at = now
            await self._pause_held()
        for crash in [crash for crash in self._crashes.values() if crash.paused_at and crash.count < MAX_CRASHES]:
            # In the background, since the resumption is recorded, and the record has to be renewed here.
            if crash.execution_id not in self._held and crash.execution_id not in self._resuming:
                self._resuming.add(crash.execution_id)
                self._later(self._resume(self._book, crash))

    async def _renew(self, book: CrashBook) -> list[Crash]:
        """Renew the records of work in progress here. Returns all crashes and records."""
        async with self._in_order:
            now = self._engine.clock.now()
            return await book.renew_attempts(list(self._attempts), self._owner, now, now - _IN_A_ROW_US)

    async def _look(self) -> None:
        """Read all crashes and records."""
        if self._book is not None:
            now, began = self._engine.clock.now(), self._engine.clock.monotonic()
            self._learn(await self._book.renew_attempts((), self._owner, now, now - _IN_A_ROW_US), began)

    def _learn(self, known: Sequence[Crash], began: float) -> None:
        if began < self._read_at:
            return  # a later read has answered first; an older one may not know yet that a server is gone
        self._crashes = {(crash.execution_id, crash.work): crash for crash in known if crash.execution_id != _NO_RUN}
        self._held = _in_quarantine(self._crashes.values())
        others = {key: crash.count for key, crash in self._crashes.items() if self._is_elsewhere(crash)}
        # A server that could not look for a while does not know whether the others could renew their records meanwhile.
        before = self._others if began - self._read_at < self._gone_after_s else {}
        self._read_at = began
        self._others = {
            key: before[key] if key in before and before[key][0] == count else (count, began)
            for key, count in others.items()
        }
        gone = next((crash.count for crash in known if crash.execution_id == _NO_RUN), 0)
        if gone > self._gone >= 0:
            self._careful_until = began + _CAREFUL_S
            log.warning("another server is gone; what this server begins is recorded for %g s", _CAREFUL_S)
        elif gone < self._gone or began >= self._careful_until:
            self._careful_until = 0.0
        self._gone = gone

    def _is_elsewhere(self, crash: Crash) -> bool:
        """Return whether this is a record of another server."""
        return bool(crash.work & ATTEMPT) and crash.owner != self._owner

    @property
    def is_careful(self) -> bool:
        """Whether a server was found to be gone recently."""
        return self._careful_until > 0 and self._engine.clock.monotonic() < self._careful_until

    @property
    def is_idle(self) -> bool:
        """Return whether inputs need no check: no crash is known, and no request was sent twice."""
        return not (self._crashes or self._held or self._others or self._careful_until or REPEATED.get())

    async def must_record(self, execution_id: int, given: Input | None, *, is_kept: bool = False) -> bool:
        """Return whether work may have killed another server, after that server has finished it or is known to be gone.
        `given` is None if the log is read. `is_kept` means that the run is in memory, or that nobody else begins it.
        """
        records = self._may_have_killed(execution_id, given, is_kept=is_kept)
        if not records and not self.is_begun_elsewhere(execution_id):
            return False
        await self.settled(execution_id)
        # The server that had begun the work may have died meanwhile.
        return records or self._may_have_killed(execution_id, given, is_kept=is_kept)

    def _may_have_killed(self, execution_id: int, given: Input | None, *, is_kept: bool) -> bool:
        if self._book is None:
            return False
        if (
            REPEATED.get()
            or was_claimed_before(given)
            or (self.is_careful and (not is_kept or isinstance(given, _OF_DUTIES)))
        ):
            return True
        if not self._crashes:
            return False
        return ((execution_id, READING) in self._crashes and not is_kept) or (
            given is not None and (execution_id, work_of(given)) in self._crashes
        )

    async def take_care(self) -> None:
        """Handle the loss of another server. This server, and the others once they look, record what they begin."""
        if self._book is None:
            return
        began, now = self._engine.clock.monotonic(), self._engine.clock.now()
        self._careful_until = began + _CAREFUL_S
        self._learn(await self._book.add_crashes([(_NO_RUN, ATTEMPT)], now, now - _IN_A_ROW_US), began)

    async def is_back(self) -> None:
        """Handle the case that this server was considered gone, but was only slow: the others need not be cautious."""
        if self._book is not None:
            await self._book.forget_crash(_NO_RUN, ATTEMPT)
            await self._look()

    async def _count_attempts(self, book: CrashBook) -> None:
        """Count the work that a lost server had begun as the cause of its crash and, if no earlier crash of that work is
        known, of the one before.
        """
        async with self._counting:
            now = self._engine.clock.monotonic()
            left = [(key, count) for key, (count, since) in self._others.items() if now - since >= self._gone_after_s]
            for (execution_id, attempt), count in left:
                await book.count_attempt(execution_id, attempt, count, self._engine.clock.now(), MAX_CRASHES)
            if left:
                await self._look()
            if any(not crash.paused_at for crash in self._held.values()):
                await self._pause_held()

    def stepwise(self, marks: Sequence[tuple[int, int]], doing: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Return what runs work with marks while its code runs, so that this server, if it is killed and comes back, knows
        whether it died of it. Without other servers, only decisions, appends and the reading of logs have marks.
        """
        if self._book is None:
            return doing
        return Stepwise(self._steps, marks, doing)

    @property
    def step_marks(self) -> Sequence[tuple[int, int]]:
        """The marks of the commit, or of the reading of a log, whose code runs now."""
        return self._steps.current

    @contextmanager
    def throughout(self) -> Iterator[None]:
        """Keep the marks of the work whose code runs now while it waits: for a thread that does a part of it, or for what it
        reads, which is received and decoded meanwhile.
        """
        marks = self.step_marks
        if not marks or not self._free_slots:
            yield
            return
        slot = self._free_slots.pop()
        self.begin(slot, *marks)
        try:
            yield
        finally:
            self.end(slot)
            self._free_slots.append(slot)

    @property
    def is_shared(self) -> bool:
        """Return whether servers count crashes together."""
        return self._book is not None

    @asynccontextmanager
    async def attempt(self, execution_id: int, work: int) -> AsyncIterator[None]:
        """Begin work that may have killed another server. It is recorded first, for later servers. Raises BegunElsewhere if
        another server was first, or if the run is in quarantine meanwhile.
        """
        key = (execution_id, work | ATTEMPT)
        if self._book is None or self._is_recorded(key):
            yield
            return
        alone = await self._acquired()
        try:
            if self._is_recorded(key):  # meanwhile
                yield
                return
            # An older record of the same work must not be deleted after the new one is written.
            if (ending := self._ending.pop(key, None)) is not None:
                await asyncio.wait({ending})
            self._ended.pop(key, None)
            has_begun = False
            try:
                # It is written even if the caller is cancelled, so that it can be deleted afterwards.
                known = await asyncio.shield(self._later(self._begin(self._book, key)))
                if not self._may_begin(key, known):
                    raise BegunElsewhere
                self._attempts.add(key)
                has_begun = True
                yield
            finally:
                self._attempts.discard(key)
                self._crashes.pop(key, None)
                self._ended[key] = has_begun
                ending = self._end_later(self._book, key)
                if work == READING:  # another record follows, and only one may remain if this process dies
                    await asyncio.wait({ending})
        finally:
            if alone:
                self._alone.release()

    def _is_recorded(self, key: tuple[int, int]) -> bool:
        """Return whether work has a record already. A log is also read as a part of other work on its run."""
        return key in self._attempts or (
            key[1] == READING | ATTEMPT and any(run == key[0] for run, _ in self._attempts)
        )

    def _may_begin(self, key: tuple[int, int], known: Sequence[Crash]) -> bool:
        """Return whether this server has the record of some work, and the run is not in quarantine since it was checked."""
        of_run = [crash for crash in known if crash.execution_id == key[0]]
        is_mine = any(crash.work == key[1] and crash.owner == self._owner for crash in of_run)
        # What is done to a run that is known to be in quarantine (a cancellation) was permitted before.
        return is_mine and (key[0] in self._held or not _in_quarantine(of_run))

    async def _acquired(self) -> bool:
        """Wait until no other recorded work is in progress here. Return False if that takes too long."""
        try:
            async with asyncio.timeout(_ALONE_S):
                return await self._alone.acquire()
        except TimeoutError:
            return False

    async def _begin(self, book: CrashBook, key: tuple[int, int]) -> list[Crash]:
        async with self._in_order:
            return await book.begin_attempt(*key, self._owner, self._engine.clock.now())

    def _end_later(self, book: CrashBook, key: tuple[int, int]) -> asyncio.Task[None]:
        self._ending[key] = ending = self._later(self._end(book, key))
        ending.add_done_callback(lambda _: self._ending.pop(key, None))
        return ending

    async def _end(self, book: CrashBook, key: tuple[int, int]) -> None:
        """Delete the record of finished work. If the store is unavailable, `look` tries again."""
        async with self._in_order:
            await book.end_attempt(*key, self._owner, withdraw=self._ended.get(key, False))
        self._ended.pop(key, None)

    async def settled(self, execution_id: int) -> None:
        """Wait while another server works on a run, until it has finished or is known to be gone."""
        if self._book is None:
            return
        await self._look()
        while any(key[0] == execution_id for key in self._others):
            await asyncio.sleep(min(_WAIT_S, self._look_s))
            await self._look()
            await self._count_attempts(self._book)

    def is_begun_elsewhere(self, execution_id: int) -> bool:
        """Return whether another server recorded that it is working on a run, as far as is known here."""
        return bool(self._others) and any(key[0] == execution_id for key in self._others)

    def knows(self, execution_id: int) -> bool:
        """Return whether a run is in quarantine, or any process died while it processed it."""
        return self.is_held(execution_id) or (
            bool(self._crashes) and any(key[0] == execution_id for key in self._crashes)
        )

    def ended(self, execution_id: int, given: Input, state: State) -> None:
        """Record that an input to a run was processed without a crash. The reports of a command count together until it is
        over: after a crash, the next worker sends those again that did not kill.
        """
        if self._crashes and not (isinstance(given, WorkReported) and given.command_id in state.commands):
            self._forget(execution_id, work_of(given))

    def began_reading(self, execution_id: int) -> None:
        self.begin(0, (execution_id, READING))

    def read_on(self) -> None:
        """Record that a page of a log was read."""
        self.end(0)

    def was_read(self, execution_id: int) -> None:
        """Record that the log of a run was read without a crash."""
        if self._crashes:
            self._forget(execution_id, READING)

    def _forget(self, execution_id: int, work: int) -> None:
        crash = self._crashes.get((execution_id, work))
        # A run that is paused has to be resumed before its crash is forgotten (`_resume`).
        if crash is not None and not (crash.paused_at and self._book is not None):
            del self._crashes[execution_id, work]
            self._save()
            if self._book is not None:
                self._later(self._book.forget_crash(execution_id, work))

    def snapshot(self, execution_id: int, encode: Callable[[], T]) -> T:
        """Encode a snapshot with a mark."""
        self.begin(0, (execution_id, SNAPSHOT))
        try:
            return encode()
        finally:
            self.end(0)
            if self._crashes:
                self._forget(execution_id, SNAPSHOT)

    def unread(self, execution_id: int) -> str:
        """Return why a run's log is not read; '' if it is."""
        crash = self._held.get(execution_id) if self._held else None
        return "" if crash is None or crash.work != READING else self.reason(crash)

    def is_held(self, execution_id: int) -> bool:
        return bool(self._held) and execution_id in self._held

    async def refusal(self, execution_id: int, given: Input) -> Refused | None:
        """Return why an input to a run in quarantine is refused. A RESUME releases it, also one that another process
        handled.
        """
        crash = self._held.get(execution_id)
        signal = given.signal if isinstance(given, Signal) else ""
        if crash is None:
            return None
        if signal in ENDS and crash.work != READING:
            own = self._crashes.get((execution_id, work_of(given)))
            if own is None or own.count < MAX_CRASHES:
                return None  # it has not killed anything twice
        if signal != "RESUME" and not await self._was_resumed(crash):
            return Refused("poison", self.reason(crash))
        self.release(execution_id)
        return None

    async def _was_resumed(self, crash: Crash) -> bool:
        """Return whether a run is no longer paused by its quarantine: another process has resumed it."""
        execution_id = crash.execution_id
        record = await self._engine.store.execution(execution_id) if crash.paused_at else None
        if record is None or record.head <= crash.paused_at:
            return False
        if crash.work == READING:
            return True  # its log must not be read
        # A server that had not heard of the quarantine may have written to the log as well.
        pause = (await self._engine.seen(execution_id)).state.pause
        return pause is None or pause.signal_id != _pause_id(execution_id, crash.paused_at - 1)

    def release(self, execution_id: int) -> None:
        """Release a run and reset its count of crashes."""
        self._held.pop(execution_id, None)
        for key in [key for key in self._crashes if key[0] == execution_id]:
            del self._crashes[key]
        self._save()
        if self._book is not None:
            self._later(self._book.forget_crash(execution_id))
        log.warning("execution %s was released from quarantine", execution_id)

    @staticmethod
    def reason(crash: Crash) -> str:
        """The message for an operator."""
        return f"{_deaths(crash)}; the run is in quarantine, and `arclog resume {crash.execution_id}` continues it"

    def start_refusal(self, start: int) -> str:
        """Return why a run is not begun, by its `start_id`; '' if it is."""
        crash = self._held.get(start) if self._held else None
        return "" if crash is None else f"{_deaths(crash)}; the run is not begun again"

    def _save(self) -> None:
        # Crashes that all servers share are in the store; the file in the home is for installations without a shared
        # store.
        self._marks.save([] if self._book is not None else list(self._crashes.values()))

    def _later(self, writing: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Write to the store in the background. If that fails, the crash expires eventually."""
        task = asyncio.ensure_future(writing)
        self._writing.add(task)
        task.add_done_callback(self._written)
        return task

    def _written(self, task: asyncio.Task[Any]) -> None:
        self._writing.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.warning("crashes of runs: %s", problem)

    async def close(self) -> None:
        """Wait until the records of finished work are deleted, since a remaining record would look like a crash."""
        if self._writing:
            await asyncio.wait(list(self._writing), timeout=_CLOSE_S)

    async def _pause(self, crash: Crash) -> None:
        engine, execution_id = self._engine, crash.execution_id
        if execution_id < 0:
            return  # the run was never begun
        record = await engine.store.execution(execution_id)
        if record is None or record.now.terminal_event is not None:
            self.release(execution_id)
            return
        if crash.paused_at or record.now.state == PENDING:
            return
        for _ in range(3):
            # One server pauses it. For the others, a head beyond the pause means that the run was resumed.
            if self._book is not None and not await self._book.pause_crash(crash, record.head + 1, MAX_CRASHES):
                await self._look()
                return
            crash.paused_at = record.head + 1
            try:
                await self._append_pause(record, crash)
                break
            except Conflict:
                record = await engine.store.execution(execution_id) or record
        self._save()
        log.error("execution %s: %s", execution_id, self.reason(crash))

    async def _resume(self, book: CrashBook, crash: Crash) -> None:
        """Continue a run of which nothing is presumed any more. Several servers may do this; the signal has one id."""
        engine, execution_id = self._engine, crash.execution_id
        try:
            record = await engine.store.execution(execution_id)
            if record is not None and record.now.terminal_event is None:
                if record.head < crash.paused_at:
                    return  # another server is about to pause it; the next look finds that
                await self._resume_paused(crash)
            await book.resume_crash(crash)
            await self._look()
        finally:
            self._resuming.discard(execution_id)

    async def _resume_paused(self, crash: Crash) -> None:
        engine, execution_id = self._engine, crash.execution_id
        pause_id = _pause_id(execution_id, crash.paused_at - 1)
        pause = (await engine.seen(execution_id)).state.pause
        if pause is None or pause.signal_id != pause_id:
            return  # an operator was first
        if await self._was_paused(execution_id, crash.paused_at - 1):
            log.warning("execution %s: it was paused before it was in quarantine, and stays paused", execution_id)
            return
        why = (
            "no two servers died while they executed it" if crash.count else "the server that was executing it is alive"
        )
        reason = f"released from quarantine: {why}"
        await engine.put(execution_id, Signal("RESUME", f"{pause_id}-withdrawn", reason, "arclog"))
        log.warning("execution %s: %s", execution_id, reason)

    async def _was_paused(self, execution_id: int, head: int) -> bool:
        """Return whether a run was paused at some head, other than by a quarantine."""
        while True:
            pause = (await self._engine.live.folded(execution_id, head)).state.pause
            if pause is None:
                return False
            before = pause.signal_id.rpartition("-")[2]
            if not before.isdecimal() or int(before) >= head or pause.signal_id != _pause_id(execution_id, int(before)):
                return True
            head = int(before)

    async def _append_pause(self, record: ExecutionRecord, crash: Crash) -> None:
        engine = self._engine
        commands = await engine.store.commands(record.execution_id)
        idle = [command for command in commands if command.state == "issued"]
        payload = {
            "signal": "PAUSE",
            "signal_id": _pause_id(record.execution_id, record.head),
            "reason": self.reason(crash),
            "by": "arclog",
            "held": [held.command_id for held in idle],
        }
        base = engine.minter.next_id()
        event = Event("signal.received", engine.clock.now(), payload=payload)
        appended = await engine.store.append(
            Append(
                record.execution_id,
                record.head,
                [event],
                base,
                record.now,
                hold=[(held.command_id, held.fence) for held in idle],
            )
        )
        engine.hints.appended(record.execution_id, appended.last_seq)
