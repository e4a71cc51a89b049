"""Rules of duties, of runs that nobody is at work on, and of the store's clock."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from arclog.ports.storage.duties import DutyRecord
from arclog.ports.storage.store import Timer
from arclog.testing.conformance.store.base import DONE, RUNNING, SECOND, Rules, World, command, event


class DutyRules(Rules):
    async def test_a_duty_has_one_owner_until_its_lease_ends(self, world: World) -> None:
        store = world.store
        assert await store.lease_duty("timers", "a", 100, 200)
        assert not await store.lease_duty("timers", "b", 199, 300)
        assert await store.lease_duty("timers", "a", 150, 250)
        assert not await store.lease_duty("timers", "b", 249, 300)
        assert await store.lease_duty("timers", "b", 250, 300)
        assert not await store.lease_duty("timers", "a", 260, 400)
        assert await store.lease_duty("sweeper", "a", 260, 400)

    async def test_a_duty_that_was_given_up_is_free_at_once(self, world: World) -> None:
        store = world.store
        assert await store.lease_duty("timers", "a", 100, 200)
        assert await store.lease_duty("timers", "a", 110, 110)
        assert await store.lease_duty("timers", "b", 110, 210)

    async def test_of_many_who_ask_at_once_one_gets_the_duty(self, world: World) -> None:
        asked = [world.store.lease_duty("timers", f"server-{n}", 100, 200) for n in range(20)]
        assert sum(await asyncio.gather(*asked)) == 1

    async def test_a_position_is_moved_by_its_owner_and_never_back(self, world: World) -> None:
        store = world.store
        assert await store.position("events") == 0
        assert not await store.move_position("events", "a", 100, 5)
        assert await store.lease_duty("events", "a", 100, 200)
        assert await store.move_position("events", "a", 150, 5)
        assert not await store.move_position("events", "b", 150, 9)
        assert not await store.move_position("events", "a", 150, 4)
        assert await store.position("events") == 5

    async def test_an_owner_that_slept_past_its_lease_moves_nothing(self, world: World) -> None:
        store = world.store
        assert await store.lease_duty("events", "a", 100, 200)
        assert not await store.move_position("events", "a", 200, 7)
        assert await store.lease_duty("events", "b", 200, 300)
        assert await store.move_position("events", "b", 210, 3)
        assert not await store.move_position("events", "a", 210, 7)
        assert await store.position("events") == 3

    async def test_every_duty_is_told_with_its_last_owner(self, world: World) -> None:
        store = world.store
        assert list(await store.duties()) == []
        await store.lease_duty("timers", "a", 100, 200)
        await store.lease_duty("events", "b", 100, 300)
        await store.move_position("events", "b", 150, 7)
        await store.lease_duty("timers", "c", 250, 400)
        expected = [DutyRecord("events", "b", 300, 7), DutyRecord("timers", "c", 400, 0)]
        assert list(await store.duties()) == expected

    async def test_duties_and_positions_outlive_the_process(self, world: World) -> None:
        store = world.store
        assert await store.lease_duty("events", "a", 100, 200)
        assert await store.move_position("events", "a", 110, 7)
        await store.close()
        await store.open()
        assert await store.position("events") == 7
        assert not await store.lease_duty("events", "b", 150, 300)

    async def test_idle_runs_are_those_that_nothing_will_move(self, world: World) -> None:
        clock = world.clock
        left = await world.create(event("playbook.started"))
        await world.create(issue=[command(world.ids())])
        timed = await world.create()
        await world.add(timed, 1, event("step.scheduled", "s", 1), set_timers=[Timer(timed, "t", 9 * SECOND)])
        await world.create(now=replace(RUNNING, paused=True))
        over = await world.create()
        await world.add(over, 1, event("playbook.finished"), now=DONE)
        pending = await world.create(now=replace(RUNNING, state="PENDING", started_at=None))
        clock.advance(10)
        since = clock.now()
        clock.advance(10)
        await world.create()
        moved = await world.create()
        await world.add(moved, 1, event("step.scheduled", "s", 1))
        assert [each.execution_id for each in await world.store.idle(since)] == [left, pending]
        assert [each.execution_id for each in await world.store.idle(since, after=left)] == [pending]
        assert [each.execution_id for each in await world.store.idle(since, limit=1)] == [left]

    async def test_the_store_tells_the_time(self, world: World) -> None:
        first = await world.store.time()
        assert first > 0
        assert await world.store.time() >= first
