"""Runs that kill the process in a commit that they share: with other inputs of the run, or (SQLite) with other runs.

The process dies while events of a step `doomed` are encoded, or while a group is written. Real processes die in
tests/e2e/test_quarantine.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from arclog.core.boundary.inputs import (
    ChildEnded,
    GivenBack,
    Input,
    LeaseEnded,
    Observed,
    Signal,
    TimerFired,
    WorkReported,
)
from arclog.engine.commits.batch import Answer
from arclog.engine.commits.marked_work import work_of
from arclog.model.errors import StoreUnavailable
from arclog.model.events import Event
from arclog.ports.storage.marks import ATTEMPT, Crash
from arclog.ports.storage.store import Append, Appended
from arclog.stores import rows
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite import log as sqlite_log
from arclog.testing.harness import Life, World
from arclog.testing.virtual import FakeClock, run_virtually
from arclog.wiring.homes.presence import FileMarks
from tests.unit.engine.commits.test_quarantine import WAITING, Book

PARALLEL = """
metadata: {name: parallel}
workflow:
- step: start
  tool: {kind: noop}
  next: {spec: {mode: inclusive}, arcs: [{step: first}, {step: second}, {step: doomed}]}
- {step: first, tool: {kind: noop}}
- {step: second, tool: {kind: noop}}
- {step: doomed, tool: {kind: noop}}
"""


class Died(BaseException):
    """The process is dead."""


class Process:
    """The marks of a process, which stay as they are when it dies."""

    def __init__(self, home: Path, number: int, book: Book | None) -> None:
        self.owner = f"process-{number}"
        self._is_dead = False
        self._file = FileMarks(home, self.owner, is_shared=book is not None)
        self.crashes, self.left = self._file.crashes, self._file.left
        self.dead, self.judged = self._file.dead, self._file.judged

    def begin(self, slot: int, *marks: Any) -> None:
        if not self._is_dead:
            self._file.begin(slot, *marks)

    def end(self, slot: int) -> None:
        if not self._is_dead:
            self._file.end(slot)

    def save(self, crashes: Sequence[Crash]) -> None:
        if not self._is_dead:
            self._file.save(crashes)

    def die(self) -> None:
        self._is_dead = True
        self._file._marks.close()
        os.close(self._file._file)
        raise Died


class Processes:
    """The successive processes of one home, each of which dies at the events of the step `doomed`."""

    def __init__(self, world: World, home: Path, book: Book | None) -> None:
        self._world, self._home, self._book = world, home, book
        self._current: Process | None = None
        self.deaths = 0

    def encode(self, append: Append) -> None:
        """Die if these are such events."""
        if self._current is not None and any(event.step == "doomed" for event in append.events):
            self.die()

    def die(self, with_mark: tuple[int, int] | None = None) -> None:
        assert self._current is not None
        self.deaths += 1
        if with_mark is not None:
            self._current.begin(0, with_mark)
        self._current.die()

    async def next(self) -> Life:
        await self._world.crash()
        life = self._world.begin_life()
        number = self._world.lives
        process = Process(self._home, number, self._book)
        if self._book is not None:
            self._book.owners.add(process.owner)
        await life.engine.keep_marks(process, self._book, process.owner)
        self._current = process
        return life


async def put_together(life: Life, run: int, inputs: Sequence[Input]) -> None:
    """Put inputs that share a commit, until they are processed or the process is dead."""
    putting = [asyncio.ensure_future(life.engine.put(run, given)) for given in inputs]
    await asyncio.wait(putting, timeout=30)
    for task in putting:
        task.cancel()


@pytest.mark.parametrize("is_shared", [False, True], ids=["home", "servers"])
@pytest.mark.parametrize("order", ["as before", "apart", "with another"])
def test_an_input_that_kills_in_a_shared_commit_kills_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool, order: str
) -> None:
    async def story() -> None:
        async with World(PARALLEL) as world:
            processes = Processes(world, tmp_path, Book() if is_shared else None)
            encode = rows.Codec._derived

            def encode_or_die(codec: rows.Codec, append: Append) -> rows.Derived:
                processes.encode(append)
                return encode(codec, append)

            life = world.begin_life()
            run = await world.start()
            skip = Signal("SKIP_STEP", "k", "enough", "me", step="start")
            assert (await life.engine.put(run, skip)).refused is None
            commands = {it.step: it.id for it in (await world.state()).commands.values()}
            first, second, doomed = (GivenBack(commands[step], 1, "w") for step in ("first", "second", "doomed"))
            monkeypatch.setattr(rows.Codec, "_derived", encode_or_die)
            await put_together(await processes.next(), run, [first, doomed])
            assert processes.deaths == 1
            life = await processes.next()
            assert not life.engine.is_held(run), "once is not enough"
            if order != "as before":
                assert (await life.engine.put(run, first)).refused is None
            await put_together(
                life, run, {"as before": [first, doomed], "apart": [doomed], "with another": [second, doomed]}[order]
            )
            assert processes.deaths == 2
            for _ in range(2):
                life = await processes.next()
                await asyncio.sleep(20)
                await life.engine.look_at_crashes()
                assert life.engine.is_held(run)
                await put_together(life, run, [second, doomed])
            assert processes.deaths == 2
            signals = [stored.event for stored in await world.store.events(run)]
            assert sum(event.type == "signal.received" for event in signals) == 2, "it is paused once"

    run_virtually(story())


def test_the_reports_of_a_command_count_together_until_it_is_over(tmp_path: Path) -> None:
    """The second report kills. After each crash the next worker sends both again, and the first one succeeds."""

    async def story() -> None:
        async with World(WAITING) as world:
            processes = Processes(world, tmp_path, None)
            world.begin_life()
            run = await world.start()
            (command,) = (await world.state()).commands
            for fence in (1, 2):
                life = await processes.next()
                assert not life.engine.is_held(run)
                events = [Event("step.started", 1, step="start", run=1)]
                if fence == 2:
                    task = world.program.plan.steps[0].tasks[0].name
                    events = [Event("task.started", 1, step="start", run=1, task=task, task_run=1)]
                report = WorkReported(command, fence, 1, "w", events)
                assert (await life.engine.put(run, report)).refused is None
                with pytest.raises(Died):
                    processes.die(with_mark=(run, work_of(WorkReported(command, fence, 2, "w", []))))
                if fence == 1:
                    life = await processes.next()
                    assert (await life.engine.put(run, LeaseEnded(command, 1, "w", 5))).refused is None
            assert (await processes.next()).engine.is_held(run)

    run_virtually(story())


def test_the_crash_of_a_command_is_forgotten_when_it_is_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            processes = Processes(world, tmp_path, None)
            world.begin_life()
            run = await world.start()
            (command,) = (await world.state()).commands
            await processes.next()
            with pytest.raises(Died):
                processes.die(with_mark=(run, work_of(WorkReported(command, 1, 1, "w", []))))
            life = await processes.next()
            assert life.engine.is_watched(run)
            life.start_worker()
            await life.api.ended(str(run))
            assert not life.engine.is_watched(run)

    run_virtually(story())


def test_work_of_the_same_kind_is_told_apart() -> None:
    inputs: list[Input] = [
        ChildEnded("wait", 1, {}),
        ChildEnded("wait", 2, {}),
        Observed([], {1: "digest"}),
        Observed([], {2: "digest"}),
        Signal("SIGNAL", "a", data={"n": 1}),
        Signal("SIGNAL", "b", data={"n": 2}),
        Signal("SIGNAL", "b", step="other"),
        Signal("SIGNAL", "b", data=object()),
    ]
    assert len({work_of(given) for given in inputs}) == len(inputs)
    assert work_of(Signal("PAUSE", "a", "why", "me")) == work_of(Signal("PAUSE", "b", idle=(1,)))


def test_recorded_work_has_a_commit_of_its_own(tmp_path: Path) -> None:
    async def story() -> None:
        async with World(PARALLEL) as world:
            book = Book()
            life = await Processes(world, tmp_path, book).next()
            run = await world.start()
            skip = Signal("SKIP_STEP", "k", "enough", "me", step="start")
            await life.engine.put(run, skip)
            first, second, third = (GivenBack(command, 1, "w") for command in (await world.state()).commands)
            shared: list[set[int]] = []
            append = life.engine.store.append

            async def append_slowly(what: Append) -> Appended:
                shared.append({work for _, work in what.marks})
                await asyncio.sleep(10)
                return await append(what)

            life.engine.store.append = append_slowly  # type: ignore[method-assign, assignment]  # watched
            await book.add_crashes([(run, work_of(second))], 1, 0)
            await asyncio.sleep(5)
            await life.engine.look_at_crashes()
            putting: list[asyncio.Task[Answer]] = []
            for given in (first, second, third, GivenBack(first.command_id, 2, "w")):
                putting.append(asyncio.ensure_future(life.engine.put(run, given)))
                await asyncio.sleep(1)
            assert [answer.refused for answer in await asyncio.gather(*putting)] == [None] * 4
            assert shared == [{work_of(first)}, {work_of(second)}, {work_of(third), work_of(first)}]

    run_virtually(story())


def test_other_work_that_was_running_beside_recorded_work_counts_as_well(tmp_path: Path) -> None:
    """The record belongs to an input that was waiting for its turn. What ran instead must not lose its count."""

    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            world.begin_life()
            run = await world.start()
            timer, report = work_of(TimerFired("t")), work_of(WorkReported(1, 1, 1, "w", []))
            processes = Processes(world, tmp_path, book)
            await processes.next()
            await book.begin_attempt(run, report | ATTEMPT, f"process-{world.lives}", 1)
            with pytest.raises(Died):
                processes.die(with_mark=(run, timer))
            await processes.next()
            assert book.rows[run, timer].count == 1
            assert book.rows[run, report].count == 2

    run_virtually(story())


@pytest.mark.parametrize("group", [10, 100])
def test_a_run_that_kills_while_its_group_is_written_kills_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int
) -> None:
    """SQLite writes the appends of a group with statements for all of them."""

    async def story() -> None:
        clock = FakeClock()
        store = SqliteStore(tmp_path / "arclog.db", clock=clock)
        async with World(WAITING, store=store, clock=clock) as world:
            processes = Processes(world, tmp_path, None)
            world.begin_life()
            runs = [await world.start() for _ in range(group)]
            (timer,) = (await world.state()).timers
            clock.advance(601)
            poison = runs[-1]

            def die_of(name: str) -> None:
                write = getattr(sqlite_log, name)

                def write_or_die(tx: object, appends: Any, *derived: Any) -> Any:
                    written = [appends] if isinstance(appends, Append) else [append for append, _ in appends]
                    if any(append.execution_id == poison and append.marks for append in written):
                        with suppress(Died):
                            processes.die()
                        raise StoreUnavailable("the process is dead")
                    return write(tx, appends, *derived)

                monkeypatch.setattr(sqlite_log, name, write_or_die)

            die_of("write_group")
            die_of("write_append")
            inputs = [(run, TimerFired(timer)) for run in runs]
            for deaths in (1, 2):
                life = await processes.next()
                life.engine.store.append_all = store.append_all  # type: ignore[method-assign]  # the harness has no groups
                assert not any(map(life.engine.is_held, runs))
                await life.engine.put_all(inputs)
                assert processes.deaths == deaths
            life = await processes.next()
            assert [run for run in runs if life.engine.is_held(run)] == [poison]
            answers = await life.engine.put_all(inputs)
            assert processes.deaths == 2
            refused = answers[-1]
            assert isinstance(refused, Answer)
            assert refused.refused is not None
            assert refused.refused.reason == "poison"
            assert not any(isinstance(answer, Exception) for answer in answers)
            assert not any(map(life.engine.is_watched, runs[:-1])), "what the others shared with it is forgotten"

    asyncio.run(story())
