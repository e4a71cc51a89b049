"""Two engines on one store, joined by a bus that loses, repeats, delays and reorders what is told, by seed: the run comes to
what it comes to with one engine, however much of the bus is lost. With a sound bus nobody needs to look by himself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Self

import pytest
from msgspec.structs import replace

from arclog.buses.local import Exchange
from arclog.core.boundary.inputs import Request
from arclog.engine.commits.relay import Relay
from arclog.model.config.settings import Settings
from arclog.ports.control import WorkerInfo
from arclog.ports.views.api import SignalRequest
from arclog.testing.harness import Life, World
from arclog.testing.laws import check_log
from arclog.testing.playbooks import by_seed
from arclog.testing.virtual import run_virtually
from tests.simulation.support import LEAN, assert_same, ending, run, seeds

#: Longer than any run here: whoever has to look by himself never ends.
NEVER = 1_000_000.0
BLIND = Settings(
    {"engine.look_again_s": NEVER, "engine.idle_look_s": NEVER, "engine.sweep_s": NEVER, "leases.seconds": NEVER}
)

#: How often a worker looks that hears nothing.
IDLE_S = 20.0

SLOW = """
metadata: {name: slow}
workflow:
  - step: start
    tool: {name: work, kind: act, returns: 1, takes: 500}
"""
TIMED = """
metadata: {name: timed}
workflow:
  - step: start
    tool:
      - {name: rest, kind: wait, for_s: 30}
      - {name: work, kind: act, returns: 1}
"""


class Unreliable:
    """Carries notices as it likes."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        #: of each, how often
        self.lost = self.repeated = self.late = 0
        self.is_cut = False
        #: draws that come first: three seeds in a row begin with one fault of each kind
        self.first = [(0.0, 0.4, 0.7)[seed % 3]]

    def __call__(self, deliver: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        drawn = self.first.pop() if self.first else self.chance.random()
        if self.is_cut or drawn < 0.3:
            self.lost += 1
        elif drawn < 0.5:
            self.repeated += 1
            loop.call_soon(deliver)
            loop.call_later(self.chance.random() * 5, deliver)
        elif drawn < 0.8:
            self.late += 1
            loop.call_later(self.chance.random() * 5, deliver)
        else:
            loop.call_soon(deliver)


class Pair:
    """A world with a second engine beside its own, each with workers of its own."""

    def __init__(self, text: str, settings: Settings, exchange: Exchange, **options: Any) -> None:
        self.world = World(text, settings=settings, **options)
        self.exchange = exchange
        self.relays: list[Relay] = []

    async def join(self, life: Life) -> Life:
        relay = Relay(life.engine, life.control, self.exchange.bus())
        await relay.open()
        self.relays.append(relay)
        return life

    async def __aenter__(self) -> Self:
        await self.world.__aenter__()
        self.first = await self.join(self.world.begin_life())
        self.second = await self.join(Life(self.world, 2, None, None))
        return self

    async def __aexit__(self, *_: object) -> None:
        for relay in self.relays:
            await relay.close()
        await self.second.end()
        await self.world.__aexit__(None, None, None)


@pytest.mark.parametrize("group", seeds(64, 4, first=70_000), ids=str)
def test_a_run_comes_to_the_same_whatever_the_bus_does(group: range) -> None:
    seen = [0, 0, 0]
    for seed in group:
        drawn = by_seed(seed)

        async def plain(drawn: Any = drawn) -> Any:
            async with World(drawn.text, settings=LEAN) as world:
                return await ending(world, await world.run())

        async def paired(drawn: Any = drawn, seed: int = seed) -> Any:
            bus = Unreliable(seed)
            async with Pair(drawn.text, LEAN, Exchange(bus), workers=seed % 2) as pair:
                pair.second.start_sweeper()
                pair.second.start_worker("other")
                state = await pair.world.run()
                check_log(await pair.world.stored(), pair.world.program.plan.name)
                for index, count in enumerate((bus.lost, bus.repeated, bus.late)):
                    seen[index] += count
                return await ending(pair.world, state)

        assert_same(drawn, run(drawn, plain()), run(drawn, paired()))
    assert all(seen) or len(group) < 3, "each fault of the bus has happened"


def test_a_bus_that_is_cut_in_the_middle_costs_time_only() -> None:
    async def main() -> None:
        bus = Unreliable(1)
        async with Pair(TIMED, LEAN, Exchange(bus), workers=0) as pair:
            for life in (pair.first, pair.second):
                life.start_sweeper()
            pair.second.start_worker("other")
            going = asyncio.ensure_future(pair.world.run())
            await asyncio.sleep(10)
            bus.is_cut = True
            assert (await going).status == "COMPLETED"

    run_virtually(main())


def test_an_offer_is_claimed_and_an_end_is_known_at_the_other_engine_without_looking() -> None:
    async def main() -> None:
        async with Pair(
            "metadata: {name: one}\nworkflow: [{step: start, tool: {kind: noop}}]", BLIND, Exchange()
        ) as pair:
            pair.second.start_worker("other")
            await asyncio.sleep(1)  # it waits for a command by now
            number = str(await pair.world.start())
            async with asyncio.timeout(5):
                assert await pair.first.api.ended(number)
                assert await pair.second.api.ended(number)

    run_virtually(main())


def test_without_a_bus_the_same_would_wait_for_the_next_look() -> None:
    looking = BLIND.replaced(engine__idle_look_s=IDLE_S)

    async def main() -> None:
        async with Pair(
            "metadata: {name: one}\nworkflow: [{step: start, tool: {kind: noop}}]", looking, Exchange()
        ) as pair:
            pair.exchange.carry = lambda _: None
            pair.second.start_worker("other")
            await asyncio.sleep(1)
            number = str(await pair.world.start())
            assert not await pair.first.api.ended(number, timeout_s=IDLE_S / 2)
            await asyncio.sleep(IDLE_S)
            assert await pair.first.api.ended(number, timeout_s=0)

    run_virtually(main())


def test_a_timer_set_at_one_engine_is_fired_in_time_by_the_other() -> None:
    async def main() -> None:
        async with Pair(TIMED, BLIND, Exchange()) as pair:
            # The second engine fires timers, the first one has the worker.
            pair.second.start_sweeper()
            pair.first.start_worker("here")
            await asyncio.sleep(1)
            number = str(await pair.world.start())
            async with asyncio.timeout(40):
                assert await pair.first.api.ended(number)

    run_virtually(main())


@pytest.mark.parametrize("signal", ["CANCEL", "PAUSE"])
def test_a_worker_at_one_engine_hears_of_a_signal_that_the_other_took(signal: str) -> None:
    async def main() -> None:
        async with Pair(SLOW, BLIND, Exchange()) as pair:
            number = str(await pair.world.start())
            control = pair.second.control
            (claimed,) = await control.claim(WorkerInfo("other", ("act",)), 1)
            notice_task = asyncio.ensure_future(control.revoked("other", NEVER))
            await asyncio.sleep(1)
            answer = await pair.first.api.signal(number, SignalRequest(signal, reason="enough"))
            assert answer.accepted
            async with asyncio.timeout(5):
                revoked = await notice_task
            assert [(command.command_id, command.pause) for command in revoked] == [
                (claimed.command_id, signal == "PAUSE")
            ]

    run_virtually(main())


def test_a_free_slot_is_taken_at_the_other_engine_at_once() -> None:
    text = SLOW.replace("metadata: {name: slow}", "metadata: {name: slow}\nexecutor: {spec: {concurrency: {max: 1}}}")

    async def main() -> None:
        async with Pair(text, BLIND, Exchange()) as pair:
            keeping = asyncio.ensure_future(pair.second.slots.keep(0, NEVER))
            first = await pair.world.start()
            pair.world.life = pair.first
            second = await _again(pair)
            await asyncio.sleep(10)
            record = await pair.world.store.execution(second)
            assert record is not None
            assert record.now.state == "PENDING"
            await pair.first.api.cancel(str(first), "enough")
            await asyncio.sleep(10)
            record = await pair.world.store.execution(second)
            assert record is not None
            assert record.now.state == "RUNNING"
            keeping.cancel()

    run_virtually(main())


async def _again(pair: Pair) -> int:
    """A second run of the same playbook."""
    world = pair.world
    record = await world.store.execution(world.execution_id)
    assert record is not None
    new = replace(record.new, run_id="00000000-0000-4000-8000-000000000002")
    request = Request(new.path, new.version, {}, "tenant/project/test")
    return await pair.first.engine.start(world.program, new, request)
