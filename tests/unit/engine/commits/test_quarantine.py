"""What servers of one store know of each other's deaths. Real ones die in tests/e2e/test_quarantine.py."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from arclog.core.boundary.inputs import Signal, TimerFired
from arclog.engine.commits.quarantine import REPEATED, work_of
from arclog.model.errors import StoreUnavailable
from arclog.ports.storage.marks import Crash
from arclog.ports.storage.store import Append, Appended
from arclog.testing.harness import Life, World
from arclog.testing.virtual import run_virtually

WAITING = "metadata: {name: waiting}\nworkflow: [{step: start, spec: {policy: {lifecycle: {timeout_s: 600}}}, tool: {kind: noop}}]"


class Book:
    """Crashes that all servers know of."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], Crash] = {}

    async def add_crashes(self, work: Sequence[tuple[int, int]], at: int, since: int) -> list[Crash]:
        for key in work:
            self.rows.setdefault(key, Crash(*key, 0)).count += 1
        return [Crash(row.execution_id, row.work, row.count, row.paused_at) for row in self.rows.values()]

    @property
    def runs(self) -> dict[tuple[int, int], Crash]:
        """The rows of runs; the one of run 0 counts servers that are gone."""
        return {key: crash for key, crash in self.rows.items() if key[0]}

    async def set_crash(self, execution_id: int, work: int, count: int, at: int) -> None:
        row = self.rows.setdefault((execution_id, work), Crash(execution_id, work, 0))
        row.count = max(row.count, count)

    async def pause_crash(self, crash: Crash, at_head: int) -> bool:
        row = self.rows[crash.execution_id, crash.work]
        if row.paused_at != crash.paused_at:
            return False
        row.paused_at = at_head
        return True

    async def forget_crash(self, execution_id: int, work: int = 0) -> None:
        for key in [key for key in self.rows if key[0] == execution_id and work in (0, key[1])]:
            del self.rows[key]


class NoMarks:
    def begin(self, slot: int, execution_id: int, work: int) -> None: ...
    def end(self, slot: int) -> None: ...
    def save(self, crashes: Sequence[Crash]) -> None: ...
    def crashes(self) -> list[Crash]:
        return []

    def left(self) -> list[tuple[int, int]]:
        return []


async def serving(world: World, book: Book) -> Life:
    life = world.begin_life()
    await life.engine.keep_marks(NoMarks(), book)
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
            assert [len(each) for each in recorded] == [0, 1], "the note stands while it is at work"
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
            given = TimerFired("t")
            # A server that had taken over from one that was gone died while it was at this.
            await book.add_crashes([(run, work_of(given) | 0x80)], 1, 0)
            assert not life.engine.is_held(run)
            await life.engine.take_care()
            answer = await life.engine.put(run, given)
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


def test_a_request_that_is_repeated_waits_for_a_server_that_is_alive() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            given = Signal("PAUSE", "p1", "", "me")
            begun = (run, work_of(given) | 0x80)
            await book.add_crashes([begun], 1, 0)
            REPEATED.set(True)
            repeated = asyncio.ensure_future(life.engine.put(run, given))
            for _ in range(20):
                await asyncio.sleep(1.0)
                await book.add_crashes([begun], 1, 0)  # the other server renews its record
            assert not repeated.done()
            await book.forget_crash(*begun)
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
            assert recorded == [set(), {work_of(Signal("RESUME", "", "", "")) | 0x80}]
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
            assert recorded == [{work_of(TimerFired(timer)) | 0x80}]

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
            await book.add_crashes([(0, 0x80)], 1, 0)
            await seconds_pass(life, 2)
            life.engine.live.drop(run)
            await life.engine.put(run, Signal("RESUME", "p2", "", "me"))
            assert [len(each) for each in recorded] == [0, 1]

    run_virtually(story())


class SlowBook(Book):
    """A book in a database: others have their turn while it is asked."""

    async def add_crashes(self, work: Sequence[tuple[int, int]], at: int, since: int) -> list[Crash]:
        await asyncio.sleep(0)
        return await super().add_crashes(work, at, since)


def test_what_a_server_that_is_gone_had_begun_is_counted_once() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = SlowBook()
            life = await serving(world, book)
            run = await world.start()
            await book.add_crashes([(run, work_of(TimerFired("t")) | 0x80)], 1, 0)
            await asyncio.gather(*(life.engine.take_care() for _ in range(3)))
            await asyncio.gather(seconds_pass(life, 8), *(life.engine.put(run, TimerFired("t")) for _ in range(3)))
            assert [crash.count for crash in book.runs.values()] == [2]

    run_virtually(story())


class FailingBook(Book):
    """A book whose database is away when a record is to be deleted."""

    is_away = True

    async def forget_crash(self, execution_id: int, work: int = 0) -> None:
        if self.is_away:
            raise StoreUnavailable("away")
        await super().forget_crash(execution_id, work)


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
            given = TimerFired("t")
            await book.add_crashes([(run, work_of(given) | 0x80)], 1, 0)
            lives = (first, second)
            await asyncio.gather(*(seconds_pass(life, 8) for life in lives))
            for life in lives * 2:
                answer = await life.engine.put(run, given)
                assert answer.refused is not None
                assert answer.refused.reason == "poison"
                await seconds_pass(life, 2)
            assert [stored.event.type for stored in await world.stored()].count("signal.received") == 1

    run_virtually(story())
