"""Signals of a playbook's own that come before anything waits for them: kept, taken once, in order, and after a crash."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.model.config.settings import Settings
from arclog.ports.views.api import SignalAnswer, SignalRequest
from arclog.testing.harness import World
from arclog.testing.laws import check_log
from arclog.testing.virtual import run_virtually

WAIT = {"name": "hold", "kind": "wait", "signal": "go"}


def book(*steps: dict[str, Any], **spec: Any) -> str:
    return json.dumps({"metadata": {"name": "signals"}, "executor": {"spec": spec}, "workflow": list(steps)})


def late(*waits: dict[str, Any], takes: float = 60.0) -> str:
    """A step that takes its time, then the waits in order."""
    names = [f"w{number}" for number, _ in enumerate(waits)]
    tasks = [{**wait, "name": name} for name, wait in zip(names, waits, strict=True)]
    data = ", ".join(f"({name}.data.data | default(none))" for name in names)
    last = {"name": "told", "kind": "act", "returns": f"{{{{ [{data}] }}}}"}
    begin = {"step": "start", "tool": {"kind": "act", "takes": takes}, "next": {"arcs": [{"step": "held"}]}}
    return book(begin, {"step": "held", "tool": [*tasks, last]})


class Sender:
    """A run, and somebody who sends it signals."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def send(self, name: str = "go", data: Any = None, **more: Any) -> SignalAnswer:
        api = self.world.current_life.api
        return await api.signal(str(self.world.execution_id), SignalRequest(name, data=data, **more))


@asynccontextmanager
async def running(text: str, **options: Any) -> AsyncIterator[tuple[Sender, asyncio.Task[State]]]:
    async with World(text, **options) as world:
        await world.start()
        task = asyncio.ensure_future(world.run())
        await world.clock.sleep(1.0)
        yield Sender(world), task
        await task
        check_log(await world.stored(), "x")
        await replays(world)


async def replays(world: World) -> None:
    state = State(execution_id=world.execution_id)
    for row in await world.stored():
        apply(world.program, state, row.event)
    live = (await world.current_life.engine.live.folded(world.execution_id)).state
    assert live == state


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtually(main())


def test_a_signal_before_its_wait_is_kept_and_ends_it_at_once() -> None:
    async def main() -> None:
        async with running(late(WAIT)) as (sender, task):
            answer = await sender.send(data={"n": 1})
            assert (answer.accepted, answer.waiting, answer.message) == (True, False, "")
            state = await sender.world.state()
            assert [(kept.signal, kept.data) for kept in state.kept_signals] == [("go", {"n": 1})]
            ended = await task
            assert (ended.status, ended.result, ended.kept_signals) == ("COMPLETED", [{"n": 1}], [])
            log = await sender.world.events()
            assert [event.payload["kept"] for event in log if event.type == "signal.received"] == [True]
            suspended = next(event for event in log if event.type == "command.completed")
            assert "until" not in suspended.payload
            assert (ended.ended_at or 0) - (ended.started_at or 0) < 61_000_000

    run(main)


def test_a_signal_that_something_waits_for_says_so() -> None:
    async def main() -> None:
        async with running(late(WAIT, takes=0.0)) as (sender, task):
            answer = await sender.send(data=5)
            assert (answer.accepted, answer.waiting) == (True, True)
            assert (await task).result == [5]

    run(main)


def test_the_same_signal_id_again_is_answered_as_before_and_kept_once() -> None:
    async def main() -> None:
        async with running(late(WAIT, {**WAIT, "timeout_s": 5, "spec": _goes_on()})) as (sender, task):
            first = await sender.send(data=1, signal_id="one")
            again = await sender.send(data=1, signal_id="one")
            assert (first.waiting, again) == (False, first)
            state = await task
            assert state.result == [1, None]
            # Long after it was taken, the answer has not changed.
            assert state.signals["one"].kept

    run(main)


def _goes_on() -> dict[str, Any]:
    return {"policy": {"rules": [{"else": {"then": {"do": "continue"}}}]}}


def test_two_signals_of_one_name_end_two_waits_in_order() -> None:
    async def main() -> None:
        async with running(late(WAIT, WAIT)) as (sender, task):
            for number in (1, 2):
                assert (await sender.send(data=number)).waiting is False
            assert (await task).result == [1, 2]

    run(main)


def test_a_kept_signal_is_for_its_name_and_its_step() -> None:
    async def main() -> None:
        async with running(late(WAIT)) as (sender, task):
            await sender.send("other", data=1)
            await sender.send(data=2, step="elsewhere")
            await sender.world.clock.sleep(100.0)
            waiting = await sender.world.state()
            assert (len(waiting.waits), len(waiting.kept_signals)) == (1, 2)
            assert (await sender.send(data=3, step="held")).waiting is True
            assert (await task).result == [3]

    run(main)


def test_iterations_that_wait_for_one_name_take_one_signal_each() -> None:
    loop = {"in": [1, 2, 3], "iterator": "x"}
    begin = {"step": "start", "tool": {"kind": "act", "takes": 60.0}, "next": {"arcs": [{"step": "held"}]}}
    text = book(begin, {"step": "held", "loop": loop, "tool": WAIT}, result="{{ held.results }}")

    async def main() -> None:
        async with running(text) as (sender, task):
            for number in range(3):
                await sender.send(data=number)
            assert [row["data"] for row in (await task).result] == [0, 1, 2]

    run(main)


def test_a_run_that_has_not_started_keeps_signals_too() -> None:
    text = json.loads(late(WAIT, takes=0.0))
    text["executor"] = {"spec": {"policy": {"approval": "required"}}}

    async def main() -> None:
        async with running(json.dumps(text)) as (sender, task):
            assert (await sender.send(data=1)).waiting is False
            approved = await sender.send("APPROVE")
            assert (approved.accepted, approved.waiting) == (True, True)
            assert (await task).result == [1]

    run(main)


def test_more_than_the_run_keeps_are_refused_and_recorded() -> None:
    async def main() -> None:
        async with running(late(WAIT), settings=Settings({"signals.max_kept": 2})) as (sender, task):
            for _ in range(2):
                assert (await sender.send()).accepted
            third = await sender.send("payd")
            assert not third.accepted
            assert "keeps 2 signals already (signals.max_kept)" in third.message
            await task
            refused = [event.payload["error"] for event in await sender.world.events() if event.status == "error"]
            assert [problem["code"] for problem in refused] == ["SIGNAL"]

    run(main)


def test_by_default_a_run_keeps_a_hundred() -> None:
    async def main() -> None:
        async with running(late(WAIT)) as (sender, task):
            answers = [await sender.send(f"s{number}") for number in range(101)]
            assert [answer.accepted for answer in answers] == [True] * 100 + [False]
            await sender.world.clock.sleep(100.0)
            assert (await sender.send()).waiting
            await task

    run(main)


def test_a_run_that_has_ended_takes_none() -> None:
    async def main() -> None:
        async with running(book({"step": "start", "tool": {"kind": "noop"}})) as (sender, task):
            await task
            head = len(await sender.world.events())
            answer = await sender.send()
            assert (answer.accepted, answer.waiting, answer.state) == (False, False, "COMPLETED")
            assert answer.message == "the execution has ended (COMPLETED)"
            assert len(await sender.world.events()) == head

    run(main)


@pytest.mark.parametrize("crash_at", [0.5, 30.0])
def test_a_kept_signal_survives_a_crash(crash_at: float) -> None:
    async def main() -> None:
        async with World(late(WAIT)) as world:
            await world.start()
            task = asyncio.ensure_future(world.run())
            await world.clock.sleep(0.1)
            await Sender(world).send(data="early")
            await world.clock.sleep(crash_at)
            world.crash_now()
            state = await task
            assert (state.status, state.result) == ("COMPLETED", ["early"])
            await replays(world)

    run(main)


def test_signals_that_an_older_release_recorded_are_not_taken() -> None:
    """Its runs had lost them: a log must mean what it meant."""

    async def main() -> None:
        async with World(late(WAIT)) as world:
            await world.start()
            stored = await world.stored()
            state = await world.state()
            received = {"signal": "go", "signal_id": "old", "data": 1}
            event = type(stored[0].event)(type="signal.received", at=1, payload=received)
            apply(world.program, state, event)
            assert state.kept_signals == []

    run(main)
