"""Many timers, and many schedules, that are due at the same moment: each fires once, whoever dies and however many servers look."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from arclog.core.transitions.state import State
from arclog.engine.duties import timers
from arclog.engine.duties.timers import Timers
from arclog.engine.runs.schedules import EngineSchedules, Scheduler
from arclog.model.config.settings import Settings
from arclog.model.events import Event
from arclog.model.ids import MAX_ID
from arclog.ports.boundary import Boundary
from arclog.ports.storage.schedules import NewSchedule
from arclog.ports.storage.store import Append, ExecutionFilter
from arclog.ports.views.api import ExecuteRequest, RegisterRequest
from arclog.testing.harness import Life, World
from arclog.testing.virtual import LoopClock, run_virtually
from arclog.wiring.clocks import SteadyClock

WAITING = """
metadata: {name: waiting}
workflow:
  - step: start
    tool: {kind: wait, for_s: 600}
"""
SHORT = "metadata: {name: short, path: flows/short}\nworkflow: [{step: start, tool: {kind: noop}}]"
COUNT = 150


async def waiting_runs(world: World, life: Life) -> list[int]:
    """Runs that wait, all for the same moment."""
    started = [await life.api.execute(ExecuteRequest(WAITING)) for _ in range(COUNT)]
    life.start_worker()
    for started_run in started:
        head = 0
        while not (await life.engine.seen(int(started_run.execution_id))).state.timers:
            head = await life.api.wait(started_run.execution_id, after=head)
    return [int(run.execution_id) for run in started]


async def fired(world: World, runs: list[int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for run in runs:
        counts.update(entry.event.type for entry in await world.store.events(run))
    return counts


async def ended(world: World) -> int:
    return len(await world.store.executions(ExecutionFilter(states=("COMPLETED",)), limit=1000))


def test_timers_of_one_moment_fire_together() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            life = world.begin_life()
            runs = await waiting_runs(world, life)
            sizes: list[int] = []
            append_all = life.engine.store.append_all

            async def counted(appends: Sequence[Append]) -> object:
                sizes.append(len(appends))
                return await append_all(appends)

            life.engine.store.append_all = counted  # type: ignore[method-assign, assignment]  # watched
            life.tasks.append(asyncio.ensure_future(Timers(life.engine).run()))
            await asyncio.sleep(700)
            assert await ended(world) == COUNT
            assert (await fired(world, runs))["timer.fired"] == COUNT
            assert sum(sizes) == COUNT
            assert max(sizes) == Settings().integer("engine.fired_at_once")

    run_virtually(story())


@pytest.mark.parametrize(("room", "read_late"), [(1000, 0), (100, COUNT - 100), (0, COUNT)])
def test_the_states_of_runs_whose_timers_come_due_are_read_before_into_free_room(room: int, read_late: int) -> None:
    async def story() -> None:
        settings = Settings({"engine.cache_executions": max(room, 1), "engine.load_ahead_s": 5 if room else 0})
        async with World(WAITING, settings=settings) as world:
            first = world.begin_life()
            runs = await waiting_runs(world, first)
            await world.crash()
            life = world.begin_life()
            read: list[float] = []
            events = life.engine.store.events

            async def noted(*batch: object, **more: object) -> object:
                read.append(world.clock.now())
                return await events(*batch, **more)  # type: ignore[arg-type]  # as it came

            life.engine.store.events = noted  # type: ignore[method-assign, assignment]  # watched
            due = await world.store.next_due() or 0
            life.tasks.append(asyncio.ensure_future(Timers(life.engine).run()))
            await asyncio.sleep(700)
            assert await ended(world) == COUNT
            assert (await fired(world, runs))["timer.fired"] == COUNT
            assert len(read) == COUNT  # each once
            assert all(at >= due - 5_000_000 for at in read)
            assert sum(at >= due for at in read) == read_late

    run_virtually(story())


def test_states_that_one_look_ahead_has_no_time_for_are_read_in_the_next() -> None:
    async def story() -> None:
        settings = Settings({"engine.cache_executions": COUNT, "engine.load_ahead_s": 5})
        async with World(WAITING, settings=settings) as world:
            first = world.begin_life()
            runs = await waiting_runs(world, first)
            await world.crash()
            life = world.begin_life()
            read: list[float] = []
            events = life.engine.store.events

            async def slow(*batch: object, **more: object) -> object:
                read.append(world.clock.now())
                await asyncio.sleep(0.2)
                return await events(*batch, **more)  # type: ignore[arg-type]  # as it came

            life.engine.store.events = slow  # type: ignore[method-assign, assignment]  # a slow disk
            due = await world.store.next_due() or 0
            life.tasks.append(asyncio.ensure_future(Timers(life.engine).run()))
            await asyncio.sleep(700)
            assert (await fired(world, runs))["timer.fired"] == COUNT
            assert sum(at < due for at in read) == COUNT
            assert len(read) == COUNT  # each once

    run_virtually(story())


@pytest.mark.parametrize("at", [1, 40, 149])
def test_a_process_that_dies_in_the_middle_leaves_the_rest_to_the_next(at: int) -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            life = world.begin_life()
            runs = await waiting_runs(world, life)
            append, left = life.engine.store.append, at

            async def until_then(*batch: object) -> object:
                nonlocal left
                left -= 1
                if left < 0:
                    await asyncio.get_running_loop().create_future()
                return await append(*batch)  # type: ignore[arg-type]  # as it came

            life.engine.store.append = until_then  # type: ignore[method-assign, assignment]  # it dies there
            life.tasks.append(asyncio.ensure_future(Timers(life.engine).run()))
            await asyncio.sleep(700)
            assert await ended(world) == at
            await world.crash()
            life = world.begin_life()
            life.tasks.append(asyncio.ensure_future(Timers(life.engine).run()))
            await asyncio.sleep(10)
            assert await ended(world) == COUNT
            assert (await fired(world, runs))["timer.fired"] == COUNT

    run_virtually(story())


@pytest.mark.parametrize("by", [-3600, -1, 1, 3600])
def test_a_clock_that_is_set_in_the_middle_fires_each_once_and_none_early(by: int) -> None:
    class Set(LoopClock):
        ahead = 0

        def now(self) -> int:
            return super().now() + self.ahead * 1_000_000

    async def story() -> None:
        clock = Set()
        async with World(WAITING, clock=clock, settings=Settings({"engine.fired_at_once": 16})) as world:
            life = world.begin_life()
            runs = await waiting_runs(world, life)
            due = await world.store.next_due() or 0
            append, left = life.engine.store.append, 40

            async def until_then(*batch: object) -> object:
                nonlocal left
                left -= 1
                if left == 0:
                    clock.ahead = by
                return await append(*batch)  # type: ignore[arg-type]  # as it came

            life.engine.store.append = until_then  # type: ignore[method-assign, assignment]  # it is set there
            life.tasks.append(asyncio.ensure_future(Timers(life.engine).run()))
            await asyncio.sleep(700)
            assert (await ended(world) == COUNT) == (by > -3600)
            await asyncio.sleep(3600)
            assert await ended(world) == COUNT
            events = [entry.event for run in runs for entry in await world.store.events(run, types=["timer.fired"])]
            assert len(events) == COUNT
            assert all(event.at >= due for event in events)

    run_virtually(story())


@pytest.mark.parametrize("by", [-3600, 3600])
def test_timers_of_a_home_stay_on_time_when_the_machines_clock_is_set_in_the_middle(by: int) -> None:
    class Machine(LoopClock):
        ahead = 0

        def now(self) -> int:
            return super().now() + self.ahead * 1_000_000

    async def story() -> None:
        machine, settings = Machine(), Settings({"engine.fired_at_once": 16})
        clock = SteadyClock(machine, settings.number("engine.max_clock_step_s"))
        async with World(WAITING, clock=clock, settings=settings) as world:
            life = world.begin_life()
            runs = await waiting_runs(world, life)
            await asyncio.sleep(30)
            runs += await waiting_runs(world, life)  # due half a minute after the others
            due = {timer.execution_id: timer.due for timer in await world.store.due_timers(MAX_ID, 1000)}
            first, last = min(due.values()), max(due.values())
            assert last >= first + 30_000_000
            fired_at: dict[int, int] = {}
            set_at = 0
            append = life.engine.store.append

            async def slowly(*batch: object) -> object:
                nonlocal set_at
                await asyncio.sleep(0.002)
                if len(fired_at) >= 40 and not set_at:
                    set_at, machine.ahead = LoopClock.now(machine), by
                return await append(*batch)  # type: ignore[arg-type]  # as it came

            def note(state: State, events: Sequence[Event]) -> None:
                if any(event.type == "timer.fired" for event in events):
                    assert state.execution_id not in fired_at
                    fired_at[state.execution_id] = LoopClock.now(machine)

            life.engine.store.append = slowly  # type: ignore[method-assign, assignment]  # it is set there
            life.engine.hints.on_committed.append(note)
            life.tasks.append(asyncio.ensure_future(Timers(life.engine).run()))
            await asyncio.sleep(700)
            assert await ended(world) == len(runs) == len(fired_at) == 2 * COUNT
            assert first <= set_at < last, "it was set between two timers"
            assert min(fired_at.values()) < set_at < sorted(fired_at.values())[COUNT - 1], "in the middle of a burst"
            # By the time that passed. The clock follows the machine's at 1 %.
            poll = round(settings.number("engine.sweep_s") * 1_000_000)
            for run in runs:
                drift = max(due[run] - set_at, 0) // 100 + 1
                assert -drift <= fired_at[run] - due[run] <= poll + drift
                (entry,) = await world.store.events(run, types=["timer.fired"])
                assert entry.event.at >= due[run], "never early by its own clock"

    run_virtually(story())


def test_servers_share_what_one_cannot_fire_in_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "_PAGE", 20)
    monkeypatch.setattr(timers, "_HELPED", 20)

    async def story() -> None:
        async with World(WAITING) as world:
            first = world.begin_life()
            runs = await waiting_runs(world, first)
            second = Life(world, 2, None, None)
            by: Counter[int] = Counter()
            for life in (first, second):
                append = life.engine.store.append

                async def slowly(*batch: object, number: int = life.number, append: object = append) -> object:
                    await asyncio.sleep(5)
                    by[number] += 1
                    return await append(*batch)  # type: ignore[operator]  # bound above

                life.engine.store.append = slowly  # type: ignore[method-assign, assignment]  # a slow disk

            async def never() -> bool:
                return False

            first.tasks.append(asyncio.ensure_future(Timers(first.engine).run()))
            second.tasks.append(asyncio.ensure_future(Timers(second.engine, never).run()))
            await asyncio.sleep(700)
            assert await ended(world) == COUNT
            assert (await fired(world, runs))["timer.fired"] == COUNT
            assert by[2] > COUNT // 5
            await second.end()

    run_virtually(story())


def test_schedules_of_one_moment_start_one_run_each() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            life = world.begin_life()
            await life.api.register(RegisterRequest(SHORT))
            schedules = EngineSchedules(life.engine, Boundary.owner(life.engine.settings, "default"))
            for number in range(COUNT):
                await schedules.add(NewSchedule(f"s{number}", "0 * * * *", "flows/short"))
            for name in ("a", "b"):
                life.tasks.append(asyncio.ensure_future(Scheduler(life.engine, name).run()))
            await asyncio.sleep(3700)
            records = await world.store.executions(ExecutionFilter(path="flows/short"), limit=1000)
            names = Counter(record.new.idempotency_key for record in records)
            assert len(names) == len(records) == COUNT

    run_virtually(story())


@pytest.mark.parametrize("at", [1, 40, 149])
def test_a_process_that_dies_while_it_fires_schedules_starts_none_twice(at: int) -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            life = world.begin_life()
            await life.api.register(RegisterRequest(SHORT))
            schedules = EngineSchedules(life.engine, Boundary.owner(life.engine.settings, "default"))
            for number in range(COUNT):
                await schedules.add(NewSchedule(f"s{number}", "0 * * * *", "flows/short"))
            append, left = life.engine.store.append, at

            async def until_then(*batch: object) -> object:
                nonlocal left
                left -= 1
                if left < 0:
                    await asyncio.get_running_loop().create_future()
                return await append(*batch)  # type: ignore[arg-type]  # as it came

            life.engine.store.append = until_then  # type: ignore[method-assign, assignment]  # it dies there
            life.tasks.append(asyncio.ensure_future(Scheduler(life.engine, "first").run()))
            await asyncio.sleep(3700)
            assert len(await world.store.executions(ExecutionFilter(path="flows/short"), limit=1000)) == at
            await world.crash()
            life = world.begin_life()
            life.tasks.append(asyncio.ensure_future(Scheduler(life.engine, "second").run()))
            await asyncio.sleep(1800)
            records = await world.store.executions(ExecutionFilter(path="flows/short"), limit=1000)
            names = Counter(record.new.idempotency_key for record in records)
            assert len(names) == len(records) == COUNT

    run_virtually(story())
