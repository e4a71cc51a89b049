"""What servers of one store know of each other's deaths. Real ones die in tests/e2e/test_quarantine.py."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from arclog.core.boundary.inputs import Signal, TimerFired
from arclog.engine.commits.marked_work import work_of
from arclog.engine.commits.quarantine import REPEATED
from arclog.model.errors import Poisoned, StoreUnavailable
from arclog.ports.storage.marks import ATTEMPT, Crash
from arclog.ports.storage.store import Append, Appended
from arclog.testing.harness import Life, World
from arclog.testing.virtual import run_virtually

WAITING = "metadata: {name: waiting}\nworkflow: [{step: start, spec: {policy: {lifecycle: {timeout_s: 600}}}, tool: {kind: noop}}]"

TWO_STEPS = """
metadata: {name: waiting}
workflow:
- {step: start, tool: {kind: noop}, next: {arcs: [{step: last}]}}
- {step: last, tool: {kind: noop}}
"""

#: A server that records work and dies.
LOST = "lost"


class Book:
    """Crashes that all servers know of."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], Crash] = {}
        #: how many of the crashes of some work happened while it was waiting
        self.waiting: Counter[tuple[int, int]] = Counter()
        #: processes that are registered, and those of which nothing is known, by run
        self.owners: set[str] = {LOST}
        self.suspects: dict[int, set[str]] = {}

    async def add_crashes(self, work: Sequence[tuple[int, int]], at: int, since: int) -> list[Crash]:
        for key in work:
            row = self.rows.setdefault(key, Crash(*key, 0))
            row.count, row.presumed = row.count + 1 - row.presumed, 0
        return [replace(row) for row in self.rows.values()]

    async def begin_attempt(self, execution_id: int, attempt: int, owner: str, at: int) -> list[Crash]:
        row = self.rows.setdefault((execution_id, attempt), Crash(execution_id, attempt, 0, owner=owner))
        row.count += row.owner == owner
        return [replace(row) for row in self.rows.values()]

    async def renew_attempts(self, attempts: Sequence[tuple[int, int]], owner: str, at: int, since: int) -> list[Crash]:
        for execution_id, attempt in attempts:
            await self.begin_attempt(execution_id, attempt, owner, at)
            self._withdraw(execution_id, attempt & ~ATTEMPT, 1)
        return [replace(row) for row in self.rows.values()]

    async def end_attempt(self, execution_id: int, attempt: int, owner: str, *, withdraw: bool) -> None:
        row = self.rows.get((execution_id, attempt))
        if row is not None and row.owner == owner:
            del self.rows[execution_id, attempt]
        if withdraw:
            self._withdraw(execution_id, attempt & ~ATTEMPT, 1)

    @property
    def runs(self) -> dict[tuple[int, int], Crash]:
        """The rows of runs; the one of run 0 counts servers that are gone."""
        return {key: crash for key, crash in self.rows.items() if key[0]}

    async def count_attempt(self, execution_id: int, attempt: int, seen: int, at: int, least: int) -> None:
        row = self.rows.get((execution_id, attempt))
        if row is None or seen not in (0, row.count):
            return
        del self.rows[execution_id, attempt]
        work = attempt & ~ATTEMPT
        crash = self.rows.setdefault((execution_id, work), Crash(execution_id, work, 0))
        if not crash.count:
            crash.presumed = least - 1
            self.suspects[execution_id] = set(self.owners)
        crash.count, crash.owner = max(crash.count + 1, least), row.owner

    async def excuse_attempt(self, execution_id: int, attempt: int, at: int) -> None:
        work = attempt & ~ATTEMPT
        self._withdraw(execution_id, work, 0)
        if (row := self.rows.pop((execution_id, attempt), None)) is not None:
            crash = self.rows.setdefault((execution_id, work), Crash(execution_id, work, 0))
            crash.count, crash.owner = crash.count + 1, row.owner
        self.waiting[execution_id, work] += 1

    async def vouch(self, owners: Sequence[str], died_of: Sequence[tuple[int, int]], at: int) -> None:
        await self.add_crashes(died_of, at, 0)
        for run, suspects in self.suspects.items():
            suspects.difference_update(owners)
            for key in [key for key in self.rows if key[0] == run and not suspects]:
                self._withdraw(*key, 0)

    def _withdraw(self, execution_id: int, work: int, deaths: int) -> None:
        row = self.rows.get((execution_id, work))
        others = [key for key in self.rows if key[0] == execution_id and key[1] != work and not key[1] & ATTEMPT]
        if row is not None and row.presumed and all(self.rows[key].count <= self.waiting[key] for key in others):
            row.count, row.presumed = row.count - row.presumed - deaths, 0

    async def pause_crash(self, crash: Crash, at_head: int, least: int) -> bool:
        row = self.rows[crash.execution_id, crash.work]
        if row.paused_at != crash.paused_at or row.count < least:
            return False
        row.paused_at = at_head
        return True

    async def resume_crash(self, crash: Crash) -> None:
        row = self.rows.get((crash.execution_id, crash.work))
        if row is not None and row.paused_at == crash.paused_at:
            row.paused_at = 0
            if not row.count:
                del self.rows[crash.execution_id, crash.work]

    async def forget_crash(self, execution_id: int, work: int = 0) -> None:
        for key in list(self.rows):
            if key[0] == execution_id and (key[1] == work or not (work or key[1] & ATTEMPT)):
                del self.rows[key]


class Slots:
    """Marks in memory, and what a process that died here left of its own."""

    def __init__(self, left: Sequence[tuple[int, int]] = (), dead: str = "") -> None:
        self._left = list(left)
        self._dead = [dead] if dead else []
        self.slots: dict[int, tuple[tuple[int, int], ...]] = {}

    @property
    def begun(self) -> set[tuple[int, int]]:
        return {mark for marks in self.slots.values() for mark in marks}

    def begin(self, slot: int, *marks: tuple[int, int]) -> None:
        self.slots[slot] = marks

    def end(self, slot: int) -> None:
        self.slots.pop(slot, None)

    def save(self, crashes: Sequence[Crash]) -> None: ...
    def crashes(self) -> list[Crash]:
        return []

    def left(self) -> list[tuple[int, int]]:
        return self._left

    def dead(self) -> list[str]:
        return self._dead

    def judged(self) -> None:
        self._left, self._dead = [], []


async def serving(world: World, book: Book, marks: Slots | None = None, owner: str = "") -> Life:
    life = world.begin_life()
    owner = owner or f"server-{len(book.owners)}"
    book.owners.add(owner)
    await life.engine.keep_marks(marks or Slots(), book, owner)
    return life


def watched(life: Life, book: Book) -> list[set[int]]:
    """Which work stands in the book at each append."""
    recorded: list[set[int]] = []
    append = life.engine.store.append

    async def append_and_look(what: Append) -> Appended:
        recorded.append({work for _, work in book.runs})
        return await append(what)

    life.engine.store.append = append_and_look  # type: ignore[method-assign, assignment]  # watched
    return recorded


def test_what_a_careful_server_begins_is_noted_and_taken_back() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            await life.engine.take_care()
            recorded = watched(life, book)
            await life.engine.put(run, Signal("PAUSE", "p1", "", "me"))
            assert recorded == [set()], "it worked on this run before: no note is needed"
            life.engine.live.drop(run)
            await life.engine.put(run, Signal("RESUME", "p2", "", "me"))
            assert [len(records) for records in recorded] == [0, 1], "the note stands while it is at work"
            await life.engine.close()
            assert book.runs == {}

    run_virtually(story())


async def due_timer(world: World) -> str:
    """The timer of the run's step."""
    return next(iter((await world.state()).timers))


async def seconds_pass(life: Life, seconds: float) -> None:
    """What a server does while it waits: it looks at what others recorded."""
    for _ in range(round(seconds)):
        await asyncio.sleep(1.0)
        await life.engine.look_at_crashes()


def test_what_two_servers_died_of_is_not_tried_by_a_third() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            fired = TimerFired("t")
            # A server that had taken over from one that was gone died while it was at this.
            await book.begin_attempt(run, work_of(fired) | ATTEMPT, LOST, 1)
            assert not life.engine.is_held(run)
            await life.engine.take_care()
            answer = await life.engine.put(run, fired)
            assert answer.refused is not None
            assert answer.refused.reason == "poison"
            assert life.engine.is_held(run)
            state = await world.state()
            assert state.pause is not None
            assert "died 2 times in a row while it fired a timer" in state.pause.reason
            # Somebody lets it go on, and nothing is left of it.
            await life.engine.put(run, Signal("RESUME", "r", "", "me"))
            await life.engine.close()
            assert book.runs == {}

    run_virtually(story())


def test_the_quarantine_is_logged_once_the_run_is_paused(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            await book.begin_attempt(run, work_of(TimerFired("t")) | ATTEMPT, LOST, 1)
            logged_before: list[bool] = []
            append = life.engine.store.append

            async def append_and_look(what: Append) -> Appended:
                logged_before.append("poison" in caplog.text)
                return await append(what)

            life.engine.store.append = append_and_look  # type: ignore[method-assign, assignment]  # watched
            await life.engine.take_care()
            await life.engine.put(run, TimerFired("t"))
            assert logged_before == [False]
            assert f"execution {run}: poison" in caplog.text

    run_virtually(story())


def test_a_request_that_is_repeated_waits_for_a_server_that_is_alive() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            signal = Signal("PAUSE", "p1", "", "me")
            begun = (run, work_of(signal) | ATTEMPT)
            await book.begin_attempt(*begun, LOST, 1)
            REPEATED.set(True)
            repeated = asyncio.ensure_future(life.engine.put(run, signal))
            for _ in range(20):
                await asyncio.sleep(1.0)
                await book.begin_attempt(*begun, LOST, 1)  # the other server renews its record
            assert not repeated.done()
            await book.end_attempt(*begun, LOST, withdraw=True)
            assert (await repeated).refused is None
            assert not life.engine.is_held(run)
            await life.engine.close()
            assert book.runs == {}

    run_virtually(story())


def test_a_repeated_request_is_recorded_though_the_run_is_in_memory() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            recorded = watched(life, book)
            await life.engine.put(run, Signal("PAUSE", "p1", "", "me"))
            REPEATED.set(True)
            await life.engine.put(run, Signal("RESUME", "p2", "", "me"))
            assert recorded == [set(), {work_of(Signal("RESUME", "", "", "")) | ATTEMPT}]
            await life.engine.close()
            assert book.runs == {}

    run_virtually(story())


def test_timers_are_recorded_by_a_careful_server_though_the_run_is_in_memory() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            recorded = watched(life, book)
            await life.engine.take_care()
            timer = await due_timer(world)
            await asyncio.sleep(601)
            (answer,) = await life.engine.put_all([(run, TimerFired(timer))])
            assert not isinstance(answer, Exception)
            assert answer.refused is None
            assert recorded == [set()], "a minute is over"

    run_virtually(story())


def test_a_group_of_timers_is_recorded_timer_by_timer() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            recorded = watched(life, book)
            timer = await due_timer(world)
            await asyncio.sleep(601)
            await life.engine.take_care()
            (answer,) = await life.engine.put_all([(run, TimerFired(timer))])
            assert not isinstance(answer, Exception)
            assert answer.refused is None
            assert recorded == [{work_of(TimerFired(timer)) | ATTEMPT}]

    run_virtually(story())


def test_servers_without_a_duty_take_care_too() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            other = Book()
            other.rows = book.rows
            run = await world.start()
            recorded = watched(life, book)
            life.engine.live.drop(run)
            await life.engine.put(run, Signal("PAUSE", "p1", "", "me"))
            # Another server took a duty over, and says that somebody is gone.
            await book.add_crashes([(0, ATTEMPT)], 1, 0)
            await seconds_pass(life, 2)
            life.engine.live.drop(run)
            await life.engine.put(run, Signal("RESUME", "p2", "", "me"))
            assert [len(records) for records in recorded] == [0, 1]

    run_virtually(story())


class SlowBook(Book):
    """A book in a database: others have their turn while it is asked."""

    async def renew_attempts(self, attempts: Sequence[tuple[int, int]], owner: str, at: int, since: int) -> list[Crash]:
        await asyncio.sleep(0)
        return await super().renew_attempts(attempts, owner, at, since)


def test_what_a_server_that_is_gone_had_begun_is_counted_once() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = SlowBook()
            life = await serving(world, book)
            run = await world.start()
            await book.begin_attempt(run, work_of(TimerFired("t")) | ATTEMPT, LOST, 1)
            await asyncio.gather(*(life.engine.take_care() for _ in range(3)))
            await asyncio.gather(seconds_pass(life, 8), *(life.engine.put(run, TimerFired("t")) for _ in range(3)))
            assert [crash.count for crash in book.runs.values()] == [2]

    run_virtually(story())


class DelayedBook(Book):
    """A book whose answers take a while to arrive."""

    async def renew_attempts(self, attempts: Sequence[tuple[int, int]], owner: str, at: int, since: int) -> list[Crash]:
        known = await super().renew_attempts(attempts, owner, at, since)
        await asyncio.sleep(0.1)
        return known


def test_an_answer_that_arrives_late_does_not_end_the_careful_period() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = DelayedBook()
            life = await serving(world, book)
            run = await world.start()
            await asyncio.sleep(5)
            looking = asyncio.ensure_future(life.engine.look_at_crashes())
            await asyncio.sleep(0.05)
            await life.engine.take_care()
            await looking
            recorded = watched(life, book)
            life.engine.live.drop(run)
            await life.engine.put(run, Signal("PAUSE", "p1", "", "me"))
            assert [len(records) for records in recorded] == [1]

    run_virtually(story())


class OvertakenBook(Book):
    """A book in a database with several connections: a write takes a while, also if its sender does not wait for it."""

    def __init__(self, slow: str) -> None:
        super().__init__()
        self._slow = slow
        self._writing: set[asyncio.Task[list[Crash]]] = set()

    async def _later(self, name: str, writing: Coroutine[Any, Any, list[Crash]]) -> list[Crash]:
        async def written() -> list[Crash]:
            await asyncio.sleep(1.0 if name == self._slow else 0.0)
            return await writing

        task = asyncio.ensure_future(written())
        self._writing.add(task)
        return await asyncio.shield(task)

    async def begin_attempt(self, execution_id: int, attempt: int, owner: str, at: int) -> list[Crash]:
        return await self._later("begin", super().begin_attempt(execution_id, attempt, owner, at))

    async def renew_attempts(self, attempts: Sequence[tuple[int, int]], owner: str, at: int, since: int) -> list[Crash]:
        writing = Book.renew_attempts(self, attempts, owner, at, since)
        return await self._later("renew" if attempts else "", writing)


def test_a_record_that_is_renewed_while_its_work_ends_is_deleted() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = OvertakenBook("renew")
            life = await serving(world, book)
            run = await world.start()
            quarantine = life.engine._quarantine
            assert quarantine is not None
            await asyncio.sleep(5)
            async with quarantine.attempt(run, 3):
                looking = asyncio.ensure_future(life.engine.look_at_crashes())
                await asyncio.sleep(0.5)
            looking.cancel()  # the server is stopped
            await asyncio.sleep(5)
            assert book.runs == {}

    run_virtually(story())


def test_a_record_whose_writing_is_cancelled_is_deleted() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = OvertakenBook("begin")
            life = await serving(world, book)
            run = await world.start()
            REPEATED.set(True)
            putting = asyncio.ensure_future(life.engine.put(run, Signal("PAUSE", "p1", "", "me")))
            await asyncio.sleep(0.5)
            putting.cancel()  # the client has gone
            await asyncio.sleep(5)
            assert book.runs == {}

    run_virtually(story())


class FailingBook(Book):
    """A book whose database is away when a record is to be deleted."""

    is_away = True

    async def end_attempt(self, execution_id: int, attempt: int, owner: str, *, withdraw: bool) -> None:
        if self.is_away:
            raise StoreUnavailable("away")
        await super().end_attempt(execution_id, attempt, owner, withdraw=withdraw)


def test_a_record_that_could_not_be_deleted_is_deleted_later() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = FailingBook()
            life = await serving(world, book)
            run = await world.start()
            REPEATED.set(True)
            await life.engine.put(run, Signal("PAUSE", "p1", "", "me"))
            REPEATED.set(False)
            assert len(book.runs) == 1
            book.is_away = False
            await seconds_pass(life, 2)
            assert book.runs == {}
            assert not life.engine.is_held(run)

    run_virtually(story())


def test_one_of_several_servers_pauses_a_run_and_the_others_do_not_take_that_for_a_resume() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = SlowBook()
            first = await serving(world, book)
            run = await world.start()
            second = await serving(world, book)
            fired = TimerFired("t")
            await book.begin_attempt(run, work_of(fired) | ATTEMPT, LOST, 1)
            lives = (first, second)
            await asyncio.gather(*(seconds_pass(life, 8) for life in lives))
            for life in lives * 2:
                answer = await life.engine.put(run, fired)
                assert answer.refused is not None
                assert answer.refused.reason == "poison"
                await seconds_pass(life, 2)
            assert [stored.event.type for stored in await world.stored()].count("signal.received") == 1

    run_virtually(story())


# -- evidence: a record alone does not show that its run killed the server ---------------------------------------------

TIMER = TimerFired("t")
BEGUN = work_of(TIMER) | ATTEMPT


async def signals(world: World) -> list[tuple[str, str]]:
    """The signals in the run's log, and who sent them."""
    events = [stored.event for stored in await world.stored()]
    return [(event.payload["signal"], event.payload["by"]) for event in events if event.type == "signal.received"]


def test_a_server_that_was_killed_while_its_recorded_work_waited_is_back_before_it_counts_as_gone() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            first = await serving(world, book)
            run = await world.start()
            await book.begin_attempt(run, BEGUN, LOST, 1)
            await seconds_pass(first, 2)
            back = await serving(world, book, Slots(dead=LOST))
            await seconds_pass(first, 20)
            for life in (first, back):
                answer = await life.engine.put(run, TIMER)
                assert answer.refused is not None
                assert answer.refused.message == "there is no open timer t"
            assert await signals(world) == []
            await asyncio.sleep(0)
            assert book.runs == {}, "the work went well, so its crash is forgotten"

    run_virtually(story())


def test_a_run_in_quarantine_is_resumed_when_the_server_is_back_and_was_not_working_on_it() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = SlowBook()
            first = await serving(world, book)
            run = await world.start()
            await book.begin_attempt(run, BEGUN, LOST, 1)
            await seconds_pass(first, 10)
            assert first.engine.is_held(run)
            state = await world.state()
            assert state.pause is not None
            assert "while it fired a timer, the first time without a record of its work" in state.pause.reason
            back = await serving(world, book, Slots(dead=LOST))
            await asyncio.gather(seconds_pass(first, 5), seconds_pass(back, 5))
            assert await signals(world) == [("PAUSE", "arclog"), ("RESUME", "arclog")]
            assert (await world.state()).pause is None
            assert [(crash.count, crash.paused_at) for crash in book.runs.values()] == [(1, 0)]
            for life in (first, back):
                answer = await life.engine.put(run, TIMER)
                assert answer.refused is not None
                assert answer.refused.message == "there is no open timer t"

    run_virtually(story())


def test_a_run_whose_code_was_running_is_in_quarantine_at_once_and_its_deaths_are_counted_once() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            await serving(world, book)
            run = await world.start()
            await book.begin_attempt(run, BEGUN, LOST, 1)
            back = await serving(world, book, Slots([(run, work_of(TIMER))], LOST))
            assert back.engine.is_held(run)
            await seconds_pass(back, 20)
            assert [crash.count for crash in book.runs.values()] == [2]
            assert await signals(world) == [("PAUSE", "arclog")]

    run_virtually(story())


def test_a_second_recorded_death_at_the_same_work_is_not_excused() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            first = await serving(world, book)
            run = await world.start()
            for died in range(2):
                await book.begin_attempt(run, BEGUN, LOST, 1)
                back = await serving(world, book, Slots(dead=LOST))
                assert back.engine.is_held(run) == (died == 1)
            await seconds_pass(first, 20)
            answer = await first.engine.put(run, TIMER)
            assert answer.refused is not None
            assert answer.refused.reason == "poison"
            assert await signals(world) == [("PAUSE", "arclog")]

    run_virtually(story())


def test_what_killed_a_server_before_is_recorded_whenever_it_is_tried_again() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            first = await serving(world, book)
            run = await world.start()
            timer = TimerFired(await due_timer(world))
            await asyncio.sleep(601)
            await serving(world, book, Slots([(run, work_of(timer))], "dead"))
            await seconds_pass(first, 2)
            recorded = watched(first, book)
            await first.engine.put(run, timer)
            assert recorded == [{work_of(timer), work_of(timer) | ATTEMPT}]

    run_virtually(story())


def test_a_server_that_was_only_slow_withdraws_its_crash_when_its_work_has_ended() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            slow = await serving(world, book)
            run = await world.start()
            other = await serving(world, book)
            async with slow.engine._quarantine.attempt(run, work_of(TIMER)):  # type: ignore[union-attr]
                await seconds_pass(other, 10)
                assert other.engine.is_held(run)
            await seconds_pass(other, 5)
            assert not other.engine.is_held(run)
            assert book.runs == {}
            assert await signals(world) == [("PAUSE", "arclog"), ("RESUME", "arclog")]

    run_virtually(story())


def test_a_server_that_is_slow_for_long_withdraws_its_crash_before_its_work_has_ended() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            slow = await serving(world, book)
            run = await world.start()
            other = await serving(world, book)
            async with slow.engine._quarantine.attempt(run, work_of(TIMER)):  # type: ignore[union-attr]
                await seconds_pass(other, 10)
                assert other.engine.is_held(run)
                await asyncio.gather(seconds_pass(slow, 5), seconds_pass(other, 5))
                assert not other.engine.is_held(run)
                await asyncio.gather(seconds_pass(slow, 20), seconds_pass(other, 20))
                assert not other.engine.is_held(run), "it renews its record"

    run_virtually(story())


def test_a_server_that_could_not_look_gives_the_others_time_to_renew_their_records() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            await book.begin_attempt(run, BEGUN, LOST, 1)
            await seconds_pass(life, 2)
            await asyncio.sleep(60)  # the store is away, for this server and for the one at work
            await seconds_pass(life, 1)
            await book.begin_attempt(run, BEGUN, LOST, 1)
            await seconds_pass(life, 3)
            assert not life.engine.is_held(run)
            await seconds_pass(life, 8)
            assert life.engine.is_held(run), "that one is gone after all"

    run_virtually(story())


def test_a_run_that_somebody_had_paused_stays_paused() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            await life.engine.put(run, Signal("PAUSE", "p", "", "me"))
            await book.begin_attempt(run, BEGUN, LOST, 1)
            await seconds_pass(life, 10)
            await serving(world, book, Slots(dead=LOST))
            await seconds_pass(life, 5)
            assert await signals(world) == [("PAUSE", "me"), ("PAUSE", "arclog")]
            assert (await world.state()).pause is not None
            assert [(crash.count, crash.paused_at) for crash in book.runs.values()] == [(1, 0)]

    run_virtually(story())


def test_the_mark_of_recorded_work_stands_while_its_code_runs_and_not_while_it_waits() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book, marks = Book(), Slots()
            life = await serving(world, book, marks)
            run = await world.start()
            seen: list[tuple[str, set[tuple[int, int]]]] = []
            append = life.engine.store.append

            async def append_and_wait(what: Append) -> Appended:
                seen.append(("runs", marks.begun))
                asyncio.get_running_loop().call_soon(lambda: seen.append(("waits", marks.begun)))
                await asyncio.sleep(1.0)
                seen.append(("runs", marks.begun))
                return await append(what)

            life.engine.store.append = append_and_wait  # type: ignore[method-assign, assignment]  # watched
            REPEATED.set(True)
            signal = Signal("PAUSE", "p1", "", "me")
            await life.engine.put(run, signal)
            running = {(run, work_of(signal))}
            assert seen == [("runs", running), ("waits", set()), ("runs", running)]
            await life.engine.close()
            assert marks.slots == {}

    run_virtually(story())


def test_recorded_work_that_is_cancelled_or_fails_leaves_no_mark() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            marks = Slots()
            life = await serving(world, Book(), marks)
            run = await world.start()
            quarantine = life.engine._quarantine
            assert quarantine is not None

            async def inner() -> set[tuple[int, int]]:
                await asyncio.sleep(0)
                return marks.begun

            async def nested() -> None:
                assert (run, 1) in await quarantine.stepwise([(run, 1)], inner())
                assert (run, 2) in marks.begun, "the mark of the outer work stands again"
                raise StoreUnavailable("away")

            async with quarantine.attempt(run, 3):
                with pytest.raises(StoreUnavailable):
                    await quarantine.stepwise([(run, 2)], nested())
                assert marks.slots == {}
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1):
                        await quarantine.stepwise([(run, 2)], asyncio.sleep(10))
                assert marks.slots == {}

    run_virtually(story())


def test_recorded_work_that_waits_for_a_thread_keeps_its_mark() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            marks = Slots()
            life = await serving(world, Book(), marks)
            run = await world.start()
            quarantine = life.engine._quarantine
            assert quarantine is not None
            seen: list[bool] = []

            async def compiling() -> None:
                with quarantine.throughout():
                    asyncio.get_running_loop().call_soon(lambda: seen.append((run, 3) in marks.begun))
                    await asyncio.sleep(1)
                asyncio.get_running_loop().call_soon(lambda: seen.append((run, 3) in marks.begun))
                await asyncio.sleep(1)

            async with quarantine.attempt(run, 3):
                await quarantine.stepwise([(run, 3)], compiling())
            assert seen == [True, False]

    run_virtually(story())


def test_what_was_presumed_is_withdrawn_once_every_process_is_alive_or_has_left_other_marks() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            book.owners = {"first", "second"}
            third = await serving(world, book, owner="third")
            run = await world.start()
            await book.begin_attempt(run, BEGUN, "second", 1)
            await seconds_pass(third, 10)
            assert book.suspects == {run: {"first", "second"}}, "the server that looks is alive"
            # The second one was killed while code of the run was running.
            await serving(world, book, Slots([(run, work_of(TIMER))], "second"))
            await seconds_pass(third, 3)
            assert third.engine.is_held(run)
            await serving(world, book, Slots([(run + 1, work_of(TIMER))], "first"))
            await seconds_pass(third, 3)
            assert not third.engine.is_held(run)
            assert await signals(world) == [("PAUSE", "arclog"), ("RESUME", "arclog")]
            assert book.rows[run, work_of(TIMER)].count == 1

    run_virtually(story())


@pytest.mark.parametrize("work", [work_of(TIMER), 1], ids=["the same work", "reading"])
def test_the_marks_of_the_first_server_keep_the_run_in_quarantine(work: int) -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            book.owners = {"first", "second"}
            third = await serving(world, book, owner="third")
            run = await world.start()
            await book.begin_attempt(run, BEGUN, "second", 1)
            await seconds_pass(third, 10)
            await serving(world, book, Slots([(run, work)], "first"))
            await serving(world, book, Slots(dead="second"))
            await seconds_pass(third, 20)
            assert third.engine.is_held(run)
            assert await signals(world) == [("PAUSE", "arclog")]
            assert book.rows[run, work_of(TIMER)].count == 2

    run_virtually(story())


def test_a_server_that_is_killed_while_it_resumes_a_run_does_not_keep_it_in_quarantine() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            await book.begin_attempt(run, BEGUN, LOST, 1)
            await seconds_pass(life, 10)
            await serving(world, book, Slots(dead=LOST))
            await book.begin_attempt(run, 1 | ATTEMPT, LOST, 1)  # it reads the log, and is killed
            await seconds_pass(life, 10)
            assert life.engine.is_held(run)
            await serving(world, book, Slots(dead=LOST))
            await seconds_pass(life, 5)
            assert not life.engine.is_held(run)
            assert (await world.state()).pause is None

    run_virtually(story())


def test_work_that_follows_on_recorded_work_counts_when_its_server_dies() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            await serving(world, book)
            run = await world.start()
            # The record is deleted already, and the server dies of the work after it.
            await serving(world, book, Slots([(run, 5)], LOST))
            assert {key: crash.count for key, crash in book.runs.items()} == {(run, 5): 1}

    run_virtually(story())


class RacingBook(Book):
    """Another server records the same work, and dies, just before this one does."""

    is_first = True

    async def begin_attempt(self, execution_id: int, attempt: int, owner: str, at: int) -> list[Crash]:
        if self.is_first:
            self.is_first = False
            await super().begin_attempt(execution_id, attempt, LOST, at)
        return await super().begin_attempt(execution_id, attempt, owner, at)


def test_work_that_another_server_records_at_the_same_moment_waits_for_it() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = RacingBook()
            life = await serving(world, book)
            run = await world.start()
            recorded = watched(life, book)
            REPEATED.set(True)
            signal = Signal("RETRY_STEP", "p1", "", "me")
            putting = asyncio.ensure_future(life.engine.put(run, signal))
            await seconds_pass(life, 10)
            answer = await putting
            assert answer.refused is not None
            assert answer.refused.reason == "poison"
            assert recorded == [{work_of(signal)}], "nothing but the pause was appended"
            await seconds_pass(life, 20)
            assert [(crash.count, crash.presumed) for crash in book.runs.values()] == [(2, 1)]

    run_virtually(story())


@pytest.mark.parametrize("signal", ["CANCEL", "RESUME"])
def test_a_run_in_quarantine_takes_a_repeated_signal(signal: str) -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = SlowBook()
            life = await serving(world, book)
            run = await world.start()
            await book.begin_attempt(run, BEGUN, LOST, 1)
            await seconds_pass(life, 10)
            assert life.engine.is_held(run)
            REPEATED.set(True)
            async with asyncio.timeout(60):
                assert (await life.engine.put(run, Signal(signal, "s", "why", "me"))).refused is None

    run_virtually(story())


def test_work_on_a_run_that_comes_into_quarantine_meanwhile_is_refused() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = QuickBook()
            life = await serving(world, book)
            run = await world.start()
            REPEATED.set(True)
            async with asyncio.timeout(60):
                answer = await life.engine.put(run, Signal("RETRY_STEP", "p1", "", "me"))
            assert answer.refused is not None
            assert answer.refused.reason == "poison"

    run_virtually(story())


class QuickBook(Book):
    """Another server counts a crash of the run just before this one records its work."""

    async def begin_attempt(self, execution_id: int, attempt: int, owner: str, at: int) -> list[Crash]:
        self.rows[execution_id, 1] = Crash(execution_id, 1, 2)
        return await super().begin_attempt(execution_id, attempt, owner, at)


@pytest.mark.parametrize("is_held_before", [False, True], ids=["running", "in quarantine for other work"])
def test_a_cancellation_that_two_servers_died_of_is_not_tried_by_a_third(is_held_before: bool) -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            if is_held_before:
                await book.add_crashes([(run, work_of(TIMER))] * 2, 1, 0)
                await seconds_pass(life, 2)
            for n in range(2):
                signal = Signal("CANCEL", "c", "enough", "me", data={"n": n})
                await book.add_crashes([(run, work_of(signal))], 1, 0)
            await seconds_pass(life, 2)
            answer = await life.engine.put(run, Signal("CANCEL", "c", "enough", "me"))
            assert answer.refused is not None
            assert answer.refused.reason == "poison"
            stop = Signal("EMERGENCY_STOP", "e", "enough", "me")
            assert (await life.engine.put(run, stop)).refused is None, "it can be ended in another way"

    run_virtually(story())


@pytest.mark.parametrize("works", [(1, 3), (3, 1)], ids=["reading first", "reading last"])
def test_a_log_that_two_servers_died_of_is_not_read_whatever_else_killed_servers(works: tuple[int, int]) -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            for work in works:
                await book.add_crashes([(run, work)] * 2, 1, 0)
            await seconds_pass(life, 2)
            life.engine.live.drop(run)
            with pytest.raises(Poisoned):
                await life.engine.live.folded(run)

    run_virtually(story())


def test_what_a_server_writes_that_has_not_heard_of_the_quarantine_does_not_end_it() -> None:
    async def story() -> None:
        async with World(TWO_STEPS) as world:
            book = Book()
            first = await serving(world, book)
            run = await world.start()
            unaware = await serving(world, book)
            await book.add_crashes([(run, work_of(TIMER))] * 2, 1, 0)
            await seconds_pass(first, 2)
            assert first.engine.is_held(run)
            head = (await world.state()).head
            assert (
                await unaware.engine.put(run, Signal("SKIP_STEP", "k", "enough", "me", step="start"))
            ).refused is None
            assert (await world.state()).head > head
            answer = await first.engine.put(run, TIMER)
            assert answer.refused is not None
            assert answer.refused.reason == "poison"

    run_virtually(story())


def test_the_crashes_of_a_run_that_was_cancelled_in_quarantine_are_forgotten() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            await book.add_crashes([(run, work_of(TIMER))] * 2, 1, 0)
            await seconds_pass(life, 2)
            assert (await life.engine.put(run, Signal("CANCEL", "c", "enough", "me"))).refused is None
            await seconds_pass(life, 120)
            assert book.runs == {}

    run_virtually(story())


def test_a_server_that_cannot_record_its_work_leaves_the_record_of_another_one_alone() -> None:
    """The request is cancelled, or the store is away, while both record the same work."""

    async def story() -> None:
        async with World(WAITING) as world:
            book = InterruptedBook()
            life = await serving(world, book)
            run = await world.start()
            REPEATED.set(True)
            with pytest.raises(StoreUnavailable):
                await life.engine.put(run, Signal("PAUSE", "p1", "", "me"))
            REPEATED.set(False)
            await asyncio.sleep(0)
            assert len(book.runs) == 1

    run_virtually(story())


def test_a_process_whose_store_goes_away_while_it_starts_counts_each_death_once() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book, marks = Book(), Slots([(1, 3)], "dead")
            away = world.begin_life().engine

            async def fail(*_: object) -> None:
                raise StoreUnavailable("away")

            away.store.lease_node = fail  # type: ignore[method-assign, assignment]  # it fails
            with pytest.raises(StoreUnavailable):
                await away.keep_marks(marks, book, "again")
            await serving(world, book, marks)
            assert [crash.count for crash in book.runs.values()] == [1]

    run_virtually(story())


class InterruptedBook(Book):
    """Another server records the same work; the database is away when this one does."""

    async def begin_attempt(self, execution_id: int, attempt: int, owner: str, at: int) -> list[Crash]:
        await super().begin_attempt(execution_id, attempt, LOST, at)
        raise StoreUnavailable("away")


def test_a_log_that_is_read_as_a_part_of_recorded_work_has_no_record_of_its_own() -> None:
    """Also if the work begins while the reader waits for its turn: two records of one run would be two reasons."""

    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            quarantine = life.engine._quarantine
            assert quarantine is not None
            order: list[set[int]] = []

            async def work(execution_id: int, number: int, seconds: float) -> None:
                async with quarantine.attempt(execution_id, number):
                    order.append({work for each, work in book.runs if each == run})
                    await asyncio.sleep(seconds)

            other = asyncio.ensure_future(work(run + 1, 3, 1))
            await asyncio.sleep(0.1)
            first = asyncio.ensure_future(work(run, 3, 10))
            await asyncio.sleep(0.1)
            await work(run, 1, 1)
            assert order == [set(), {3 | ATTEMPT}, {3 | ATTEMPT}]
            await asyncio.gather(other, first)

    run_virtually(story())
