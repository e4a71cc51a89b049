"""Inputs that are put to many runs together: each run gets what it would have got alone, whoever comes between and whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from arclog.core.boundary.inputs import Request, Signal, TimerFired
from arclog.engine.commits import decisions
from arclog.engine.commits.batch import Answer
from arclog.engine.commits.groups import Start
from arclog.engine.duties.timers import Timers
from arclog.expr import OutOfTurn
from arclog.model.errors import Conflict, InvariantBroken, StoreUnavailable
from arclog.ports.storage.store import Append, Appended
from arclog.ports.views.api import ExecuteRequest
from arclog.testing.harness import Life, World
from arclog.testing.laws import check_log
from arclog.testing.virtual import run_virtually

WAITING = """
metadata: {name: waiting}
workflow:
  - step: start
    tool: {kind: wait, for_s: 600}
"""
COUNT = 20


def with_due_runs(story: Callable[[World, Life, list[int], str], Coroutine[Any, Any, None]]) -> None:
    """A story about runs whose timers are due, and that nobody fires."""

    async def prepared() -> None:
        async with World(WAITING) as world:
            life = world.begin_life()
            started = [int((await life.api.execute(ExecuteRequest(WAITING))).execution_id) for _ in range(COUNT)]
            life.start_worker()
            for run in started:
                head = 0
                while not (await life.engine.seen(run)).state.timers:
                    head = await life.api.wait(str(run), after=head)
            (timer,) = (await life.engine.seen(started[0])).state.timers
            await asyncio.sleep(700)
            await story(world, life, started, timer)

    run_virtually(prepared())


async def fired(life: Life, runs: Sequence[int], timer: str) -> list[Answer | Exception]:
    return await life.engine.put_all([(run, TimerFired(timer)) for run in runs])


async def types(world: World, run: int) -> list[str]:
    return [entry.event.type for entry in await world.store.events(run)]


def is_taken(answer: Answer | Exception) -> bool:
    return isinstance(answer, Answer) and answer.refused is None


def test_an_input_that_comes_while_a_group_is_committed_is_decided_after_it() -> None:
    async def story(world: World, life: Life, runs: list[int], timer: str) -> None:
        committing, go_on = asyncio.Event(), asyncio.Event()
        append_all = life.engine.store.append_all

        async def slowly(appends: Sequence[Append]) -> list[Appended | Exception]:
            committing.set()
            await go_on.wait()
            return await append_all(appends)

        life.engine.store.append_all = slowly  # type: ignore[method-assign]  # a slow disk
        group = asyncio.ensure_future(fired(life, runs, timer))
        await committing.wait()
        signal = asyncio.ensure_future(life.engine.put(runs[3], Signal("CANCEL", "late", "too late", "me")))
        await asyncio.sleep(1)
        assert not signal.done()
        go_on.set()
        assert all(map(is_taken, await group))
        refused = (await signal).refused
        assert refused is not None
        assert refused.reason == "ended"
        assert (await types(world, runs[3])).count("playbook.finished") == 1

    with_due_runs(story)


def test_what_reached_a_run_first_is_respected_by_the_group() -> None:
    async def story(world: World, life: Life, runs: list[int], timer: str) -> None:
        first = asyncio.ensure_future(life.engine.put(runs[0], Signal("CANCEL", "early", "in time", "me")))
        await asyncio.sleep(0)
        answers = await fired(life, runs, timer)
        assert (await first).refused is None
        assert isinstance(answers[0], Answer)
        assert answers[0].refused is not None
        assert all(map(is_taken, answers[1:]))
        assert "execution.cancelled" in await types(world, runs[0])

    with_due_runs(story)


def test_a_run_that_comes_twice_in_a_group_is_decided_on_twice() -> None:
    async def story(world: World, life: Life, runs: list[int], timer: str) -> None:
        answers = await fired(life, [*runs, runs[0]], timer)
        assert all(map(is_taken, answers[:-1]))
        assert isinstance(answers[-1], Answer)
        assert answers[-1].refused is not None
        assert (await types(world, runs[0])).count("timer.fired") == 1

    with_due_runs(story)


def test_a_group_on_states_that_another_process_has_moved_on_takes_the_new_ones() -> None:
    async def story(world: World, life: Life, runs: list[int], timer: str) -> None:
        other = Life(world, 2, None, None)
        for run in runs[:5]:
            assert (await other.engine.put(run, Signal("PAUSE", "p", "", "me"))).refused is None
        assert all(map(is_taken, await fired(life, runs, timer)))
        for run in runs:
            event_types = await types(world, run)
            assert event_types.count("timer.fired") == 1
            assert ("playbook.paused" in event_types) == (run in runs[:5])
        await other.end()

    with_due_runs(story)


def test_of_a_group_that_is_given_up_no_run_is_lost() -> None:
    async def story(world: World, life: Life, runs: list[int], timer: str) -> None:
        committing = asyncio.Event()
        append_all = life.engine.store.append_all

        async def never(_: Sequence[Append]) -> list[Appended | Exception]:
            committing.set()
            await asyncio.Event().wait()
            return []

        life.engine.store.append_all = never  # type: ignore[method-assign, assignment]  # it is away
        group = asyncio.ensure_future(fired(life, runs, timer))
        await committing.wait()
        waiting = asyncio.ensure_future(life.engine.put(runs[1], TimerFired(timer)))
        await asyncio.sleep(0)
        group.cancel()
        await asyncio.gather(group, return_exceptions=True)
        assert is_taken(await waiting)
        life.engine.store.append_all = append_all  # type: ignore[method-assign]  # it is back
        left = [run for run in runs if run != runs[1]]
        assert all(map(is_taken, await fired(life, left, timer)))

    with_due_runs(story)


@pytest.mark.parametrize("whole", [True, False])
def test_a_store_that_fails_in_the_middle_of_a_group_is_asked_again(whole: bool) -> None:
    async def story(world: World, life: Life, runs: list[int], timer: str) -> None:
        append_all, failures = life.engine.store.append_all, 3

        async def failing(appends: Sequence[Append]) -> list[Appended | Exception]:
            nonlocal failures
            if not failures:
                return await append_all(appends)
            failures -= 1
            kept = [] if whole else await append_all(appends[::2])
            lost = [StoreUnavailable("the disk is full") for _ in appends]
            return [kept[index // 2] if kept and index % 2 == 0 else lost[index] for index in range(len(appends))]

        life.engine.store.append_all = failing  # type: ignore[method-assign]  # as a full disk
        firing = asyncio.ensure_future(Timers(life.engine).run())
        await asyncio.sleep(60)
        for run in runs:
            event_types = await types(world, run)
            assert event_types.count("timer.fired") == event_types.count("playbook.finished") == 1
        firing.cancel()
        await asyncio.gather(firing, return_exceptions=True)

    with_due_runs(story)


def test_a_decision_that_breaks_ends_its_own_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World, life: Life, runs: list[int], timer: str) -> None:
        decide: Any = vars(decisions)["decide"]

        def breaking(program: Any, state: Any, given: Any, *more: Any) -> Any:
            if state.execution_id == runs[7] and isinstance(given, TimerFired):
                raise InvariantBroken("a bug")
            return decide(program, state, given, *more)

        monkeypatch.setattr(decisions, "decide", breaking)
        answers = await fired(life, runs, timer)
        assert [is_taken(answer) for answer in answers] == [run != runs[7] for run in runs]
        record = await world.store.execution(runs[7])
        assert record is not None
        assert record.now.state == "FAILED"
        check_log(await world.store.events(runs[6]), "waiting")

    with_due_runs(story)


def test_a_decision_that_is_too_heavy_for_its_turn_is_made_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World, life: Life, runs: list[int], timer: str) -> None:
        decide: Any = vars(decisions)["decide"]
        heavy = [runs[7]]

        def out_of_turn(program: Any, state: Any, given: Any, *more: Any) -> Any:
            if state.execution_id in heavy and isinstance(given, TimerFired):
                heavy.remove(state.execution_id)
                raise OutOfTurn
            return decide(program, state, given, *more)

        monkeypatch.setattr(decisions, "decide", out_of_turn)
        assert all(map(is_taken, await fired(life, runs, timer)))
        assert not heavy
        check_log(await world.store.events(runs[7]), "waiting")

    with_due_runs(story)


def test_runs_that_are_started_together_are_as_those_that_are_started_alone() -> None:
    async def story(world: World, life: Life, runs: list[int], timer: str) -> None:
        live = await life.engine.seen(runs[0])
        new, request = live.record.new, Request("waiting", 1, {}, "a/b/c")

        def start(number: int) -> Start:
            key = "" if number == 3 else f"key {number % 10}"
            return Start(live.program, replace(new, idempotency_key=key, run_id=f"run {number}"), request, {})

        started = await life.engine.start_all([start(number) for number in range(12)])
        assert [isinstance(result, int) for result in started] == [True] * 10 + [False] * 2
        assert all(isinstance(result, Conflict) for result in started[10:])
        alone = await types(world, await life.engine.start(*start(3)))
        for run in started[:10]:
            assert isinstance(run, int)
            assert await types(world, run) == alone

    with_due_runs(story)
