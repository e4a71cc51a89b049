"""Rules of retention: what ended long ago can be forgotten, and nothing else is."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from arclog.ports.storage.outbox import DELIVERED
from arclog.ports.storage.store import ExecutionState
from arclog.ports.storage.task_logs import LogLine
from arclog.testing.conformance.store.base import SECOND, Rules, World, event
from arclog.testing.conformance.store.operations import HOOK
from arclog.testing.conformance.store.stored import saying


async def end(world: World, execution_id: int, head: int, **more: Any) -> None:
    over = ExecutionState("COMPLETED", ended_at=world.clock.now(), terminal_event="playbook.finished")
    await world.add(execution_id, head, event("playbook.finished"), now=over, **more)


async def forget(world: World, before: int) -> int:
    """How many go, until none does."""
    total = 0
    while count := await world.store.retire(before):
        total += count
    return total


class RetentionRules(Rules):
    async def test_what_ended_long_ago_is_forgotten_as_a_whole(self, world: World) -> None:
        store = world.store
        old = [
            await world.create(event("playbook.started"), new=replace(world.new(f"k{n}"), run_id=f"r{n}"))
            for n in range(3)
        ]
        for each in old:
            await world.add(each, 1, event("step.scheduled", "a", 1), event("step.done", "a", 1))
            await store.append_logs([LogLine(each, 1, "a", 1, "t", 1, 1, "stdout", "hello")])
            await store.put_snapshot(each, 2, "v", b"state")
            await end(world, each, 3)
        world.clock.advance(60)
        before = world.clock.now()
        assert await store.retire(before, dry_run=True) in (2, 3)
        assert len(await store.executions()) == 3
        assert await forget(world, before) in (2, 3), "a store may keep the newest, for the sake of its position"
        assert await forget(world, before) == 0
        for each in old[:2]:
            assert await store.execution(each) is None
            assert await store.events(each) == []
            assert await store.step_runs(each) == []
            assert await store.logs(each) == []
            assert await store.snapshot(each, "v") is None
        assert await store.by_run_id("r0") is None
        assert {mark.execution_id for mark in await store.marks("playbook.finished")} <= {old[2]}
        assert {batch.execution_id for batch in await store.tail()} <= {old[2]}
        await world.create(new=world.new("k0"))  # its key may be used again

    async def test_positions_are_not_given_again(self, world: World) -> None:
        first = await world.create()
        await end(world, first, 1)
        seen = (await world.store.tail())[-1].position
        world.clock.advance(60)
        await forget(world, world.clock.now())
        second = await world.create()
        assert [batch.execution_id for batch in await world.store.tail(after=seen)] == [second]

    async def test_what_is_still_needed_stays(self, world: World) -> None:
        store = world.store
        live = await world.create()
        called = await world.create(new=replace(world.new(), parent_execution_id=live))
        keeps = await world.create()
        await world.add(keeps, 1, saying(keeps, "s.t", "a"))
        tells = await world.create()
        await end(world, called, 1)
        await end(world, keeps, 2)
        await end(world, tells, 1, tell=[HOOK])
        world.clock.advance(60)
        before = world.clock.now()
        world.clock.advance(60)
        late = await world.create()
        await end(world, late, 1)
        assert await forget(world, before) == 0
        for each in (live, called, keeps, tells, late):
            assert await store.execution(each) is not None
            assert len(await store.events(each)) > 0

        # … until nobody needs it any more
        await end(world, live, 1)
        (kept,) = await store.results(keeps)
        await store.remove_results([kept], before)
        (told,) = await store.lease_deliveries(before, before + SECOND)
        await store.attempted(replace(told, state=DELIVERED))
        await store.settle_deliveries(tells)
        await end(world, await world.create(), 1)
        world.clock.advance(60)
        await forget(world, world.clock.now())
        for each in (live, called, keeps, tells):
            assert await store.execution(each) is None
        assert await store.deliveries(tells) == []
        assert await store.results(keeps) == []

    async def test_results_that_are_kept_for_ever_outlive_the_record(self, world: World) -> None:
        execution_id = await world.create()
        await world.add(execution_id, 1, saying(execution_id, "s.t", "a", scope="permanent"))
        await end(world, execution_id, 2)
        other = await world.create()
        await end(world, other, 1)
        world.clock.advance(60)
        await forget(world, world.clock.now())
        assert await world.store.execution(execution_id) is None
        assert [each.name for each in await world.store.results(execution_id)] == ["s.t"]
