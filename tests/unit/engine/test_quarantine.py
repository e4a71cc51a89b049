"""What servers of one store know of each other's deaths. Real ones die in tests/e2e/test_quarantine.py."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from arclog.core.boundary.inputs import Signal, TimerFired
from arclog.engine.commits.quarantine import work_of
from arclog.ports.storage.marks import Crash
from arclog.testing.harness import Life, World
from arclog.testing.virtual import run_virtually

WAITING = "metadata: {name: waiting}\nworkflow: [{step: start, tool: {kind: wait, for_s: 600}}]"


class Book:
    """Crashes that all servers know of."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], Crash] = {}

    async def add_crashes(self, work: Sequence[tuple[int, int]], at: int, since: int) -> list[Crash]:
        for key in work:
            self.rows.setdefault(key, Crash(*key, 0)).count += 1
        return [Crash(row.execution_id, row.work, row.count, row.paused_at) for row in self.rows.values()]

    async def pause_crash(self, crash: Crash) -> None:
        self.rows[crash.execution_id, crash.work].paused_at = crash.paused_at

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


def test_what_a_careful_server_begins_is_noted_and_taken_back() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            await life.engine.take_care()
            noted: list[int] = []
            append = life.engine.store.append

            async def watched(what: object) -> object:
                noted.append(len(book.rows))
                return await append(what)  # type: ignore[arg-type]  # as it came

            life.engine.store.append = watched  # type: ignore[method-assign, assignment]  # watched
            pause = Signal("PAUSE", "p1", "", "me")
            await life.engine.put(run, pause)
            assert noted == [0], "it worked on this run before: no note is needed"
            life.engine.live.drop(run)
            await life.engine.put(run, Signal("RESUME", "p2", "", "me"))
            assert noted == [0, 1], "the note stands while it is at work"
            await world.free(life)
            assert book.rows == {}

    run_virtually(story())


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
            assert life.engine.is_held(run)
            answer = await life.engine.put(run, given)
            assert answer.refused is not None
            assert answer.refused.reason == "poison"
            state = await world.state()
            assert state.pause is not None
            assert "died 2 times in a row while it fired a timer" in state.pause.reason
            # Somebody lets it go on, and nothing is left of it.
            await life.engine.put(run, Signal("RESUME", "r", "", "me"))
            await world.free(life)
            assert book.rows == {}

    run_virtually(story())


class SlowBook(Book):
    """A book in a database: others have their turn while it is asked."""

    async def add_crashes(self, work: Sequence[tuple[int, int]], at: int, since: int) -> list[Crash]:
        await asyncio.sleep(0)
        return await super().add_crashes(work, at, since)


def test_a_server_that_takes_several_duties_over_counts_once() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = SlowBook()
            life = await serving(world, book)
            run = await world.start()
            await book.add_crashes([(run, work_of(TimerFired("t")) | 0x80)], 1, 0)
            await asyncio.gather(*(life.engine.take_care() for _ in range(3)))
            assert [crash.count for crash in book.rows.values()] == [2]

    run_virtually(story())
