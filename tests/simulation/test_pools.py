"""Shares of tenants, priorities, limits and resources through the real engine and worker, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from arclog.core.boundary.inputs import Request
from arclog.engine.dispatch.pools import EnginePools
from arclog.model.config.settings import Settings
from arclog.model.errors import NotFound
from arclog.plan.program import Program
from arclog.ports.control import WorkerInfo
from arclog.ports.storage.pools import Limit, NewResource, Resource
from arclog.ports.storage.store import NewExecution, Scope
from arclog.testing.harness import Life, World
from arclog.testing.virtual import run_virtually

#: Of all tasks in these tests.
TASK_S = 1.0
ONE = f"""
metadata: {{name: one}}
workflow:
  - {{step: start, tool: {{kind: act, takes: {TASK_S}}}}}
"""
MANY = f"""
metadata: {{name: many}}
workflow:
  - step: start
    loop: {{in: "{{{{ range(1000) | list }}}}", iterator: n, spec: {{mode: parallel, max_in_flight: 1000}}}}
    tool: {{kind: act, takes: {TASK_S}}}
"""
CHAIN = f"""
metadata: {{name: chain}}
workflow:
  - step: start
    tool: {{kind: act, takes: {TASK_S}}}
    next: {{arcs: [{{step: start}}]}}
"""


def virtually(main: Callable[[], Awaitable[None]]) -> None:
    run_virtually(main())  # type: ignore[arg-type] # a coroutine, in each of these tests


def with_slots(slots: int, **more: object) -> Settings:
    return Settings({"worker.slots": slots, **{name.replace("__", "."): value for name, value in more.items()}})


async def start(life: Life, program: Program, tenant: str, *, priority: int | None = None) -> int:
    scope = Scope(tenant, "project", "test")
    name = program.plan.name
    now = life.engine.clock.now()
    new = NewExecution(f"{tenant}-{now}", name, name, 1, program.digest, scope, now)
    return await life.engine.start(program, new, Request(name, 1, {}, scope.label, priority=priority))


async def seconds_until_ended(life: Life, ids: list[int]) -> float:
    began = life.engine.clock.monotonic()
    for event_id in ids:
        assert await life.api.ended(str(event_id), timeout_s=100_000)
    return life.engine.clock.monotonic() - began


async def are_open(world: World, ids: list[int]) -> bool:
    records = [await world.store.execution(event_id) for event_id in ids]
    return any(record is not None and record.now.terminal_event is None for record in records)


def contended(slots: int, crowd: str, runs: int) -> float:
    """Seconds that a tenant's 10 tasks take beside `runs` runs of a crowd."""
    took = 0.0

    async def main() -> None:
        nonlocal took
        async with World(ONE, settings=with_slots(slots)) as world:
            life = world.begin_life()
            await world.start()
            big = await world.register(crowd) if crowd else None
            life.engine.live.keep(world.program)
            for _ in range(runs if big is not None else 0):
                assert big is not None
                life.engine.live.keep(big)
                await start(life, big, "big")
            life.start_sweeper()
            life.start_worker()
            await life.api.ended(str(world.execution_id))
            await asyncio.sleep(5 * TASK_S + TASK_S / 2)  # the crowd is well under way
            small = [await start(life, world.program, "small") for _ in range(10)]
            took = await seconds_until_ended(life, small)

    virtually(main)
    return took


@pytest.mark.parametrize("slots", [1, 4])
def test_ten_thousand_tasks_of_one_tenant_delay_ten_of_another_by_twice_at_most(slots: int) -> None:
    """What the small tenant's tasks take beside the crowd is at most twice what they take alone, on as many slots; and
    a task more: what is under way when they come is not stopped.
    """
    alone = contended(slots, "", 0)
    assert alone == pytest.approx(-(-10 // slots) * TASK_S, rel=0.01)
    beside = contended(slots, MANY, 10)
    assert alone < beside <= 2 * alone + TASK_S + 0.01


@pytest.mark.parametrize("slots", [1, 4])
def test_a_run_that_goes_from_step_to_step_gives_way(slots: int) -> None:
    """Its next command comes with the answer to its report, past the queue: not while another tenant waits there."""
    alone = contended(slots, "", 0)
    assert contended(slots, CHAIN, 2 * slots) <= 2 * alone + TASK_S + 0.01


def test_what_another_process_offers_is_found_after_some_commands() -> None:
    async def main() -> None:
        async with World(CHAIN, settings=with_slots(1, pools__grants_in_a_row=5)) as world:
            life = world.begin_life()
            await world.start()
            life.start_worker()
            other = Life(world, 7, None, None)
            program = await world.register(ONE)
            other.engine.live.keep(program)
            await asyncio.sleep(2.5 * TASK_S)
            life.engine.queues.emptied((), life.engine.queues.offers)  # as far as this engine knows, nobody waits
            mine = await start(other, program, "small")
            life.engine.live.keep(program)
            assert await other.api.ended(str(mine), timeout_s=9 * TASK_S)
            await other.end()

    virtually(main)


def test_a_higher_priority_comes_first_and_waiting_raises_it() -> None:
    async def main() -> None:
        async with World(ONE, settings=with_slots(1, pools__aging_s=10)) as world:
            life = world.begin_life()
            await world.start()
            low = [await start(life, world.program, "a", priority=0) for _ in range(30)]
            life.start_worker()
            await asyncio.sleep(0.5)
            high = [await start(life, world.program, "a", priority=2) for _ in range(3)]
            assert await seconds_until_ended(life, high) == pytest.approx(3.5 * TASK_S, abs=0.1)
            await asyncio.sleep(17 * TASK_S)
            # Two levels are worth 20 s: those that have waited longer go first.
            late = await start(life, world.program, "a", priority=2)
            await seconds_until_ended(life, [late])
            assert await seconds_until_ended(life, low) == 0.0

    virtually(main)


def test_priorities_stand_in_the_playbook() -> None:
    text = """
metadata: {name: levels}
executor: {spec: {priority: 5}}
workflow:
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: own}, {step: shared}]}
  - {step: own, spec: {priority: -7}, tool: {kind: act}}
  - {step: shared, tool: {kind: act}}
"""

    async def main() -> None:
        async with World(text, settings=Settings({"pools.aging_s": 1})) as world:
            life = world.begin_life()
            for requested, expected in ((None, 5), (9, 9), (-3, -3)):
                run = await start(life, world.program, "a", priority=requested)
                worker = WorkerInfo("w", ("noop",), execution_id=run)
                (command,) = await life.control.claim(worker, 1)
                assert (command.step, command.execution_id) == ("start", run)
                base = (await world.store.commands(run))[0]
                assert base.order == (base.command_id >> 22) + 1_704_067_200_000 - expected * 1000
        async with World(text, settings=Settings({"pools.aging_s": 1})) as world:
            life = world.begin_life()
            await world.start()
            life.start_worker()
            await life.api.ended(str(world.execution_id))
            issued = [event for event in await world.events() if event.type == "step.scheduled"]
            assert {event.step for event in issued} == {"start", "own", "shared"}
            steps = {step.name: step.priority for step in world.program.plan.steps}
            assert steps == {"start": None, "own": -7, "shared": None}

    virtually(main)


def test_a_pool_and_a_tenant_hold_no_more_than_their_limits() -> None:
    async def main() -> None:
        running: dict[str, int] = {}
        most: dict[str, int] = {}

        async with World(ONE, settings=with_slots(20)) as world:
            life = world.begin_life()
            await world.start()
            pools = EnginePools(life.engine)
            await pools.set_limit("default", "", 6)
            await pools.set_limit("default", "a", 2)
            life.start_sweeper()
            life.start_worker()
            ids = [await start(life, world.program, tenant) for tenant in "aaaaaabbbbbbbbbb"]
            while await are_open(world, ids):
                for share in await world.store.shares():
                    running[share.tenant] = share.claimed
                    most[share.tenant] = max(most.get(share.tenant, 0), share.claimed)
                assert sum(running.values()) <= 6
                running.clear()
                await asyncio.sleep(TASK_S / 10)
            assert most["a"] == 2
            assert most["b"] >= 4

    virtually(main)


def test_a_run_that_goes_on_in_a_limited_pool_stays_within_the_limit() -> None:
    text = """
metadata: {name: over}
workflow:
  - step: start
    tool: {kind: act, takes: 1}
    next: {arcs: [{step: there}]}
  - {step: there, spec: {pool: narrow}, tool: {kind: act, takes: 1}}
"""

    async def main() -> None:
        async with World(text, settings=with_slots(8)) as world:
            life = world.begin_life()
            await world.start()
            await world.store.set_limit(Limit("narrow", "", 1))  # by somebody else: this engine was not told
            ids = [world.execution_id, *[await start(life, world.program, "a") for _ in range(5)]]
            info = WorkerInfo("w", ("noop", "act", "peek"), ("default", "narrow"))
            life.start_worker().info = info
            while await are_open(world, ids):
                held = {share.pool: 0 for share in await world.store.shares()}
                for share in await world.store.shares():
                    held[share.pool] += share.claimed
                assert held.get("narrow", 0) <= 1
                await asyncio.sleep(0.1)

    virtually(main)


RATED = """
metadata: {name: rated}
workflow:
  - step: start
    spec: {resources: [api]}
    loop: {in: "{{ range(8) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 8}}
    tool: {kind: act}
"""


def test_each_item_of_a_loop_takes_its_token_when_it_comes() -> None:
    """2 at once, then one every 7.5 s; and a worker that waits for one does not wait longer than for the token."""

    async def main() -> None:
        begun: list[float] = []

        async def note(*_: object) -> None:
            begun.append(round(world.clock.monotonic() - zero, 2))

        async with World(RATED, settings=with_slots(8), hook=note) as world:
            zero = world.clock.monotonic()
            life = world.begin_life()
            await EnginePools(life.engine).set_resource("api", NewResource("8/m", 2))
            await world.start()
            life.start_worker()
            await life.api.ended(str(world.execution_id))
        assert begun == [0.0, 0.0, 7.5, 15.0, 22.5, 30.0, 37.5, 45.0]

    virtually(main)


def test_a_step_that_follows_another_takes_its_token_too() -> None:
    """Its command does not come with the answer to the report of the one before."""
    text = """
metadata: {name: rated_chain}
workflow:
  - {step: start, spec: {resources: [api]}, tool: {kind: act}, next: {arcs: [{step: then}]}}
  - {step: then, spec: {resources: [api]}, tool: {kind: act}, next: {arcs: [{step: last}]}}
  - {step: last, spec: {resources: [api]}, tool: {kind: act}}
"""

    async def main() -> None:
        begun: list[float] = []

        async def note(*_: object) -> None:
            begun.append(round(world.clock.monotonic() - zero))

        async with World(text, hook=note) as world:
            zero = world.clock.monotonic()
            life = world.begin_life()
            await EnginePools(life.engine).set_resource("api", NewResource("6/m", 2))
            await world.start()
            life.start_worker()
            await life.api.ended(str(world.execution_id))
        assert begun == [0, 0, 10]

    virtually(main)


def test_a_resource_is_held_by_so_many_at_a_time() -> None:
    text = RATED.replace("kind: act", "kind: act, takes: 1")

    async def main() -> None:
        async with World(text, settings=with_slots(8)) as world:
            life = world.begin_life()
            await world.store.set_resource(Resource("api", concurrency=3))
            await world.start()
            life.start_worker()
            began = world.clock.monotonic()
            await life.api.ended(str(world.execution_id))
            took = world.clock.monotonic() - began
        assert 3.0 <= took <= 3.0 + 3.5, "8 items, 3 at a time; places that are free again are found within a second"

    virtually(main)


def test_why_tells_what_a_command_waits_for() -> None:
    async def main() -> None:
        async with World(RATED.replace("range(8)", "range(1)"), settings=with_slots(1)) as world:
            life = world.begin_life()
            pools = EnginePools(life.engine)
            await pools.set_resource("api", NewResource("1/m", 1, 4))
            runs = [await start(life, world.program, "a") for _ in range(4)]
            other = await start(life, world.program, "b")

            async def why(run: int = runs[0]) -> str:
                return (await life.api.why(str(run))).summary

            # A loop's first command is its expansion or its start; whoever is first waits for a worker alone.
            assert "waits for a worker that supports act" in await why()
            assert "(4 before it)" in await why(runs[3])
            worker = WorkerInfo("w", ("act", "noop"), slots=1)
            await life.control.claim(worker, 1)
            await asyncio.sleep(29)
            assert "resource api: next token in 31.0 s" in await why(runs[3])
            await pools.set_resource("api", NewResource("1000/s", 1000, 1))
            await asyncio.sleep(0.1)
            assert "resource api is in use: 1 of 1" in await why(runs[3])
            await pools.remove_resource("api")
            await pools.set_limit("default", "", 1)
            assert "pool default is full: 1 of 1" in await why(other)
            await pools.set_limit("default", "*", 1)
            await pools.set_limit("default", "", 9)
            assert "tenant a has 1 of 1 slots of pool default" in await why(runs[3])
            await pools.remove_limit("default", "*")
            await asyncio.sleep(100)
            assert "no worker of pool default has been seen since" in await why(other)
            with pytest.raises(NotFound, match="each tenant in pool default has no limit"):
                await pools.remove_limit("default", "*")

    virtually(main)


def test_a_worker_that_shall_leave_takes_nothing_new_and_ends() -> None:
    async def main() -> None:
        async with World(ONE, settings=with_slots(1)) as world:
            life = world.begin_life()
            await world.start()
            worker = life.start_worker("w")
            worker.info = WorkerInfo("w", worker.info.kinds, slots=1, leaves=True)
            (task,) = life.tasks
            later = await start(life, world.program, "a")
            await asyncio.sleep(TASK_S / 2)
            assert [pool.workers for pool in await EnginePools(life.engine).pools()] == [1]
            drained = await EnginePools(life.engine).drain("w")
            assert [pool.workers for pool in await EnginePools(life.engine).pools()] == [0]
            assert [(drained_worker.worker_id, drained_worker.state) for drained_worker in drained] == [
                ("w", "draining")
            ]
            await asyncio.wait_for(task, timeout=TASK_S)
            assert (await world.state()).terminal == "playbook.finished", "what it had begun is done"
            (waiting,) = await world.store.commands(later)
            assert waiting.state == "issued"
            await asyncio.sleep(100)
            (seen,) = await EnginePools(life.engine).workers()
            assert seen.state == "silent"

    virtually(main)


def test_another_process_tells_a_worker_to_leave_by_the_store() -> None:
    async def main() -> None:
        async with World(ONE, settings=with_slots(1)) as world:
            life = world.begin_life()
            await world.start()
            worker = life.start_worker("w")
            worker.info = WorkerInfo("w", worker.info.kinds, slots=1, leaves=True)
            (task,) = life.tasks
            await asyncio.sleep(5)
            assert await world.store.drain_worker("w")
            await asyncio.wait_for(task, timeout=60)

    virtually(main)
