"""Quarantine: a run on which the process died twice is paused until an operator resumes it.

Servers that share a store count crashes together. If a server gets work at which another server may have died (it took
over a duty, or a client repeats an unanswered request), it cannot know why that server died. It records in the store
what it begins. If it dies as well, the record stays and does not change any more: two servers died, and the run is in
quarantine before a third server tries it.

Invariants: before work on a run begins, a mark is written where it outlives the process (`ports.storage.marks`);
afterwards it is removed. A mark that a dead process left counts as a crash of that run at that work. Work that ends
normally resets its count, so only consecutive crashes count. After two crashes a run is in quarantine: it accepts
nothing but RESUME. Its pause is appended to its log without reading the log, since reading it may be what kills the
process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from zlib import crc32

from arclog.core.boundary.inputs import (
    Continue,
    GivenBack,
    Input,
    LeaseEnded,
    Reclaimed,
    Refused,
    Signal,
    TimerFired,
    WorkReported,
)
from arclog.model.errors import ArclogError, Conflict
from arclog.model.events import Event
from arclog.model.ids import MICROS
from arclog.model.status import PENDING
from arclog.ports.storage.marks import Crash, CrashBook, Marks
from arclog.ports.storage.store import Append, ExecutionRecord

if TYPE_CHECKING:
    from arclog.engine.commits.engine import Engine

log = logging.getLogger("arclog.engine")

#: Consecutive crashes after which a run is in quarantine.
MAX_CRASHES = 2
#: Interval in seconds at which a server reads the crashes that other servers counted.
_LOOK_S = 1.0
#: Crashes that are further apart are not consecutive.
_IN_A_ROW_US = 86_400 * MICROS
#: Signals that end a run without evaluating anything.
_ENDS = ("CANCEL", "EMERGENCY_STOP")
#: Duration of the cautious period after a takeover from a dead server.
_CAREFUL_S = 60.0
#: Marks work as begun by a cautious server; it is a crash only if that server is gone.
_ATTEMPT = 0x80
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
#: Work that is not an input: reading the log.
READING = 1
_NAMES = {READING: "read its log"}
_KINDS: dict[type, tuple[int, str]] = {
    WorkReported: (2, "took in a worker's report"),
    TimerFired: (3, "fired a timer"),
    LeaseEnded: (4, "ended a lost lease"),
    Reclaimed: (5, "handed a command to another worker"),
    GivenBack: (6, "took a command back"),
    Continue: (7, "went on with it"),
    Signal: (8, "took in a signal"),
}
_OTHER = (9, "decided on it")


def work_of(given: Input) -> int:
    """Identify an input that is repeated after a crash: its kind, and its command or timer."""
    kind = _KINDS.get(type(given), _OTHER)[0]
    if isinstance(given, TimerFired):
        return kind | crc32(given.timer_id.encode()) << 8
    if isinstance(given, Signal):
        return kind | crc32(given.signal.encode()) << 8
    return kind | (getattr(given, "command_id", 0) & 0xFFFF_FFFF_FFFF) << 8


def _activity(work: int) -> str:
    kind = work & 0xFF & ~_ATTEMPT
    if kind in _NAMES:
        return _NAMES[kind]
    return next((name for number, name in _KINDS.values() if number == kind), _OTHER[1])


class Quarantine:
    """The runs in quarantine and the known crashes."""

    def __init__(self, engine: Engine, marks: Marks, book: CrashBook | None = None) -> None:
        self._engine = engine
        self._marks = marks
        self._book = book
        self._looked_at = engine.clock.monotonic()
        self._writing: set[asyncio.Task[None]] = set()
        #: end of this server's cautious period, and the runs that it began during it
        self._careful_until = 0.0
        self._attempts: set[tuple[int, int]] = set()
        #: work that other servers have begun: how often they have recorded it, and since when that has not changed
        self._others: dict[tuple[int, int], tuple[int, float]] = {}
        #: records to be deleted, and the attempt to delete each
        self._obsolete: dict[tuple[int, int], asyncio.Task[None] | None] = {}
        #: number of servers known to be gone
        self._gone = -1
        #: a server that does not renew its records for this long is gone
        self._gone_after_s = engine.settings.number("engine.duty_lease_s")
        self._look_s = min(_LOOK_S, self._gone_after_s / 3)
        self._alone = asyncio.Lock()
        #: several callers may find the same record, which is counted once
        self._counting = asyncio.Lock()
        self.begin = marks.begin
        self.end = marks.end
        #: by run and work; almost always empty
        self._crashes: dict[tuple[int, int], Crash] = {
            (crash.execution_id, crash.work): crash for crash in marks.crashes()
        }
        self._held = {crash.execution_id: crash for crash in self._crashes.values() if crash.count >= MAX_CRASHES}

    async def open(self) -> None:
        """Pause the runs that the last crash put in quarantine."""
        if self._book is not None:
            await self._look(self._marks.left())
        await self._pause_held()

    async def _pause_held(self) -> None:
        for crash in list(self._held.values()):
            try:
                await self._pause(crash)
            except ArclogError as problem:
                log.warning(
                    "execution %s is in quarantine, but this is not recorded in its log yet: %s",
                    crash.execution_id,
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
        for key, erasing in list(self._obsolete.items()):
            if erasing is None or erasing.done():
                await self._erase(self._book, key)
        await self._look(list(self._attempts))
        await self._count_attempts(self._book)

    async def _look(self, left: Sequence[tuple[int, int]]) -> None:
        if self._book is None:
            return
        now, began = self._engine.clock.now(), self._engine.clock.monotonic()
        known = await self._book.add_crashes(left, now, now - _IN_A_ROW_US)
        self._crashes = {(crash.execution_id, crash.work): crash for crash in known if crash.execution_id != _NO_RUN}
        self._held = {
            crash.execution_id: crash
            for crash in self._crashes.values()
            if crash.count >= MAX_CRASHES and not crash.work & _ATTEMPT
        }
        others = {key: crash.count for key, crash in self._crashes.items() if self._is_elsewhere(key)}
        before = self._others
        self._others = {
            key: before[key] if key in before and before[key][0] == count else (count, began)
            for key, count in others.items()
        }
        gone = next((crash.count for crash in known if crash.execution_id == _NO_RUN), 0)
        if gone > self._gone >= 0:
            self._careful_until = began + _CAREFUL_S
            log.warning("another server is gone; what this server begins is recorded for %g s", _CAREFUL_S)
        elif gone < self._gone:
            self._careful_until = 0.0
        self._gone = gone

    def _is_elsewhere(self, key: tuple[int, int]) -> bool:
        """Return whether a record belongs to work that another server has begun."""
        return bool(key[1] & _ATTEMPT) and key not in self._attempts and key not in self._obsolete

    @property
    def is_careful(self) -> bool:
        """Whether a server was found to be gone recently."""
        return self._careful_until > 0 and self._engine.clock.monotonic() < self._careful_until

    @property
    def is_idle(self) -> bool:
        """Return whether inputs need no check: no crash is known, and no request was sent twice."""
        return not (self._crashes or self._held or self._others or self._careful_until or REPEATED.get())

    def must_record(self, given: Input | None, *, is_kept: bool) -> bool:
        """Return whether work may have killed another server. `given` is None if the log is read."""
        if self._book is None:
            return False
        return REPEATED.get() or (self.is_careful and (not is_kept or isinstance(given, _OF_DUTIES)))

    async def take_care(self) -> None:
        """Handle the loss of another server. This server, and the others once they look, record what they begin."""
        if self._book is None:
            return
        self._careful_until = self._engine.clock.monotonic() + _CAREFUL_S
        await self._look([(_NO_RUN, _ATTEMPT)])

    async def is_back(self) -> None:
        """Handle the case that this server was considered gone, but was only slow: the others need not be cautious."""
        if self._book is not None:
            await self._book.forget_crash(_NO_RUN)
            await self._look(())

    async def _count_attempts(self, book: CrashBook) -> None:
        """Count the work that a lost server had begun as the cause of its crash and of the one before."""
        async with self._counting:
            now = self._engine.clock.monotonic()
            left = [key for key, (_, since) in self._others.items() if now - since >= self._gone_after_s]
            for execution_id, attempt in left:
                # Several servers may find this at the same time.
                await book.set_crash(execution_id, attempt & ~_ATTEMPT, MAX_CRASHES, self._engine.clock.now())
                await book.forget_crash(execution_id, attempt)
            if left:
                await self._look(())
                await self._pause_held()

    @asynccontextmanager
    async def attempt(self, execution_id: int, work: int) -> AsyncIterator[None]:
        """Begin work that may have killed another server. It is recorded first, for later servers."""
        key = (execution_id, work | _ATTEMPT)
        begun = {each for run, each in self._attempts if run == execution_id}
        # The log is also read as a part of other work, which is recorded.
        if self._book is None or key[1] in begun or (work == READING and begun):
            yield
            return
        alone = await self._acquired()
        try:
            # An older record of the same work must not be deleted after the new one is written.
            if (erasing := self._obsolete.pop(key, None)) is not None:
                await asyncio.wait({erasing})
            self._attempts.add(key)
            try:
                await self._book.add_crashes([key], self._engine.clock.now(), 0)
                yield
            finally:
                self._attempts.discard(key)
                self._crashes.pop(key, None)
                self._obsolete[key] = None
                if work == READING:  # another record follows, and only one may remain if this process dies
                    with suppress(ArclogError):
                        await self._erase(self._book, key)
                else:
                    self._obsolete[key] = self._later(self._erase(self._book, key))
        finally:
            if alone:
                self._alone.release()

    async def _acquired(self) -> bool:
        """Wait until no other recorded work is in progress here. Return False if that takes too long."""
        try:
            async with asyncio.timeout(_ALONE_S):
                return await self._alone.acquire()
        except TimeoutError:
            return False

    async def _erase(self, book: CrashBook, key: tuple[int, int]) -> None:
        """Delete the record of finished work. If the store is unavailable, `look` tries again."""
        await book.forget_crash(*key)
        if key not in self._attempts:
            self._obsolete.pop(key, None)

    async def settled(self, execution_id: int) -> None:
        """Wait while another server works on a run, until it has finished or is known to be gone."""
        if self._book is None:
            return
        await self._look(())
        while any(key[0] == execution_id for key in self._others):
            await asyncio.sleep(min(_WAIT_S, self._look_s))
            await self._look(())
            await self._count_attempts(self._book)

    def is_begun_elsewhere(self, execution_id: int) -> bool:
        """Return whether another server recorded that it is working on a run, as far as is known here."""
        return bool(self._others) and any(key[0] == execution_id for key in self._others)

    def is_suspect(self, execution_id: int) -> bool:
        """Return whether any server died while it processed a run."""
        return self._book is not None and bool(self._crashes) and any(key[0] == execution_id for key in self._crashes)

    def knows(self, execution_id: int) -> bool:
        """Return whether a run is in quarantine, or any process died while it processed it."""
        return self.is_held(execution_id) or (
            bool(self._crashes) and any(key[0] == execution_id for key in self._crashes)
        )

    async def try_again(self, execution_id: int, given: Input) -> None:
        """Begin work again that killed a server. It is recorded first, so that other servers do not try it at the same
        time.
        """
        work = work_of(given)
        if self._book is not None and (execution_id, work) in self._crashes:
            await self._book.add_crashes([(execution_id, work)], self._engine.clock.now(), 0)

    def ended(self, execution_id: int, given: Input) -> None:
        """Record that an input to a run was processed without a crash."""
        if self._crashes:
            self._forget(execution_id, work_of(given))

    def began_reading(self, execution_id: int) -> None:
        self.begin(0, execution_id, READING)

    def read_on(self) -> None:
        """Record that a page of a log was read."""
        self.end(0)

    def was_read(self, execution_id: int) -> None:
        """Record that the log of a run was read without a crash."""
        if self._crashes:
            self._forget(execution_id, READING)

    def _forget(self, execution_id: int, work: int) -> None:
        if self._crashes.pop((execution_id, work), None) is not None:
            self._save()
            if self._book is not None:
                self._later(self._book.forget_crash(execution_id, work))

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
        if crash is None or (signal in _ENDS and crash.work != READING):
            return None
        released = signal == "RESUME"
        if not released and crash.paused_at:
            record = await self._engine.store.execution(execution_id)
            released = record is not None and record.head > crash.paused_at
        if not released:
            return Refused("poison", self.reason(crash))
        self.release(execution_id)
        return None

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
        return (
            f"poison: arclog died {crash.count} times in a row while it {_activity(crash.work)}; the run is in quarantine, "
            f"and `arclog resume {crash.execution_id}` continues it"
        )

    def _save(self) -> None:
        # Crashes that all servers share are in the store; the file in the home is for installations without a shared
        # store.
        self._marks.save([] if self._book is not None else list(self._crashes.values()))

    def _later(self, writing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Write to the store in the background. If that fails, the crash expires eventually."""
        task = asyncio.ensure_future(writing)
        self._writing.add(task)
        task.add_done_callback(self._written)
        return task

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.warning("crashes of runs: %s", problem)

    async def close(self) -> None:
        """Wait until the records of finished work are deleted, since a remaining record would look like a crash."""
        if self._writing:
            await asyncio.wait(list(self._writing), timeout=_CLOSE_S)

    async def _pause(self, crash: Crash) -> None:
        engine, execution_id = self._engine, crash.execution_id
        record = await engine.store.execution(execution_id)
        if record is None or record.now.terminal_event is not None:
            self.release(execution_id)
            return
        if crash.paused_at or record.now.state == PENDING:
            return
        log.error("execution %s: %s", execution_id, self.reason(crash))
        for _ in range(3):
            # One server pauses it. For the others, a head beyond the pause means that the run was resumed.
            if self._book is not None and not await self._book.pause_crash(crash, record.head + 1):
                await self._look(())
                return
            crash.paused_at = record.head + 1
            try:
                await self._append_pause(record, crash)
                break
            except Conflict:
                record = await engine.store.execution(execution_id) or record
        self._save()

    async def _append_pause(self, record: ExecutionRecord, crash: Crash) -> None:
        engine = self._engine
        commands = await engine.store.commands(record.execution_id)
        idle = [command for command in commands if command.state == "issued"]
        payload = {
            "signal": "PAUSE",
            "signal_id": f"quarantine-{record.execution_id}-{record.head}",
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
