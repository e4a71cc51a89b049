"""Rules of pools: shares of tenants, order within a tenant, limits, resources, and registered workers."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from arclog.ports.storage.pools import Contest, Limit, Resource, ResourceRecord, Share, WorkerRecord
from arclog.ports.storage.store import Grant
from arclog.testing.conformance.store.base import SECOND, Rules, World, command, event, ids

_WORKER = WorkerRecord("w1", ("gpu", "default"), ("noop", "http"), "", "box", "1.2", 8, 3, 500, 100, leaves=True)


class PoolRules(Rules):
    # -- shares -------------------------------------------------------------------------------------------------------

    async def test_tenants_take_turns_however_many_one_has_waiting(self, world: World) -> None:
        big = await _issued(world, "big", 30)
        small = await _issued(world, "small", 3)
        claimed = [await _claim_single(world) for _ in range(8)]
        assert [command_id in small for command_id in claimed] == [False, True, False, True, False, True, False, False]
        assert claimed == [big[0], small[0], big[1], small[1], big[2], small[2], big[3], big[4]]

    async def test_turns_count_when_each_command_is_over_at_once(self, world: World) -> None:
        await _issued(world, "big", 20)
        small = await _issued(world, "small", 5)
        claimed = []
        for _ in range(10):
            claimed.append(await _claim_single(world))
            await _close(world, claimed[-1])
        assert [command_id in small for command_id in claimed] == [False, True] * 5

    async def test_one_claim_of_many_is_shared_too(self, world: World) -> None:
        await _issued(world, "big", 20)
        small = await _issued(world, "small", 3)
        claimed = await _claim(world, 8)
        assert len(claimed) == 8
        assert set(small) <= set(claimed)

    async def test_a_new_tenant_starts_with_the_current_turn(self, world: World) -> None:
        await _issued(world, "a", 40)
        await _issued(world, "b", 40)
        for _ in range(20):
            await _close(world, await _claim_single(world))
        new = await _issued(world, "new", 40)
        claimed = []
        for _ in range(9):
            claimed.append(await _claim_single(world))
            await _close(world, claimed[-1])
        assert sum(command_id in new for command_id in claimed) == 3, "no more than its share: it has saved nothing up"

    async def test_the_tenant_with_fewer_claims_comes_first(self, world: World) -> None:
        slow = await _issued(world, "slow", 4)
        assert await _claim(world, 3) == slow[:3]
        quick = await _issued(world, "quick", 3)
        assert await _claim(world, 3) == quick, "each of them leaves it with no more than the other has"
        assert await _claim(world, 1) == slow[3:]

    async def test_a_share_is_of_one_pool(self, world: World) -> None:
        held = await _issued(world, "a", 3, pool="gpu")
        assert await _claim(world, 3, pools=["gpu"]) == held
        first = await _issued(world, "a", 1)
        await _issued(world, "b", 1)
        assert await _claim_single(world) == first[0]

    async def test_a_worker_of_one_tenant_gets_that_tenants_alone(self, world: World) -> None:
        await _issued(world, "a", 3)
        mine = await _issued(world, "b", 3)
        assert await _claim(world, 9, tenant="b") == mine

    async def test_what_a_worker_cannot_run_is_nobodys_turn(self, world: World) -> None:
        await _issued(world, "a", 3, kind="gpu")
        mine = await _issued(world, "b", 4)
        assert await _claim(world, 4) == mine

    # -- order --------------------------------------------------------------------------------------------------------

    async def test_the_smallest_order_comes_first_then_the_oldest(self, world: World) -> None:
        work = [world.ids() for _ in range(5)]
        orders = (7, 7, -3, 100, 7)
        await world.create(
            issue=[command(command_id, order=order) for command_id, order in zip(work, orders, strict=True)]
        )
        assert await _claim(world, 9) == [work[2], work[0], work[1], work[4], work[3]]

    async def test_order_is_between_commands_of_one_tenant(self, world: World) -> None:
        pushy = await _issued(world, "pushy", 6, order=-1000)
        modest = await _issued(world, "modest", 6)
        assert await _claim(world, 4) == [pushy[0], modest[0], pushy[1], modest[1]]

    async def test_order_counts_across_kinds_and_pools(self, world: World) -> None:
        late, first, second = (world.ids() for _ in range(3))
        await world.create(
            issue=[command(late, order=9), command(first, "http", order=1), command(second, pool="gpu", order=5)]
        )
        claim = world.store.claim("w", limit=9, lease_until=9, kinds=["noop", "http"], pools=["default", "gpu"])
        assert ids(await claim) == [first, second, late]

    async def test_a_record_has_its_order_and_resources(self, world: World) -> None:
        work = world.ids()
        execution_id = await world.create(issue=[command(work, order=-5, resources=("api", "db"))])
        (record,) = await world.store.commands(execution_id)
        assert (record.order, record.resources) == (-5, ("api", "db"))
        (record,) = await world.store.claim("w", limit=1, lease_until=9, kinds=["noop"])
        assert (record.order, record.resources) == (-5, ("api", "db"))

    async def test_how_many_come_before(self, world: World) -> None:
        work = [world.ids() for _ in range(4)]
        execution_id = await world.create(
            issue=[
                command(work[0], order=5),
                command(work[1], order=1),
                command(work[2], order=5),
                command(work[3], order=0, pool="gpu"),
            ]
        )
        await _issued(world, "other", 3, order=-9)
        assert [await world.store.ahead(execution_id, command_id) for command_id in work] == [1, 0, 2, 0]
        assert await world.store.ahead(execution_id, 999) == 0

    # -- limits -------------------------------------------------------------------------------------------------------

    async def test_a_pool_holds_no_more_than_its_limit(self, world: World) -> None:
        work = await _issued(world, "a", 5)
        elsewhere = await _issued(world, "a", 2, pool="gpu")
        await world.store.set_limit(Limit("default", "", 2))
        assert await _claim(world, 9) == work[:2]
        assert await _claim(world, 9) == []
        assert await _claim(world, 9, pools=["gpu"]) == elsewhere
        await _close(world, work[0])
        assert await _claim(world, 9) == work[2:3]
        await world.store.set_limit(Limit("default", "", 1))
        await _close(world, work[1])
        assert await _claim(world, 9) == [], "a limit that was lowered takes nothing away, and gives nothing"
        assert await world.store.remove_limit("default", "")
        assert await _claim(world, 9) == work[3:]

    async def test_a_limit_of_nothing_stops_a_pool(self, world: World) -> None:
        await _issued(world, "a", 1)
        await world.store.set_limit(Limit("default", "", 0))
        assert await _claim(world, 9) == []

    async def test_tenants_have_limits_of_their_own(self, world: World) -> None:
        a = await _issued(world, "a", 5)
        b = await _issued(world, "b", 5)
        await world.store.set_limit(Limit("default", "*", 1))
        await world.store.set_limit(Limit("default", "b", 3))
        claimed = await _claim(world, 9)
        assert sorted(claimed) == sorted([a[0], *b[:3]])
        assert await _claim(world, 9) == []

    async def test_a_limit_may_be_of_all_pools_together(self, world: World) -> None:
        first = await _issued(world, "a", 2)
        second = await _issued(world, "a", 2, pool="gpu")
        other = await _issued(world, "b", 2, pool="gpu")
        await world.store.set_limit(Limit("", "a", 3))
        assert await _claim(world, 9, pools=["default"]) == first
        assert sorted(await _claim(world, 9, pools=["gpu"])) == sorted([second[0], *other])
        await world.store.set_limit(Limit("", "", 5))
        await _issued(world, "c", 1)
        assert await _claim(world, 9) == []

    async def test_a_tenant_at_its_limit_does_not_delay_others(self, world: World) -> None:
        a = await _issued(world, "a", 3)
        b = await _issued(world, "b", 3)
        await world.store.set_limit(Limit("default", "a", 1))
        assert await _claim(world, 9) == [a[0], *b]

    async def test_a_limit_binds_a_claim_for_one_execution_too(self, world: World) -> None:
        work = [world.ids() for _ in range(3)]
        execution_id = await world.create(issue=[command(command_id) for command_id in work])
        await world.store.set_limit(Limit("default", "", 1))
        assert await _claim(world, 9, execution_id=execution_id) == work[:1]
        assert await _claim(world, 9, execution_id=execution_id) == []

    async def test_a_granted_command_counts(self, world: World) -> None:
        work, waiting = world.ids(), world.ids()
        await world.create(issue=[command(work, grant=Grant("w", 60, (1, 1, 1))), command(waiting)])
        await world.store.set_limit(Limit("default", "", 1))
        assert await _claim(world, 9) == []

    async def test_many_claims_at_once_do_not_pass_a_limit(self, world: World) -> None:
        await _issued(world, "a", 30)
        await world.store.set_limit(Limit("default", "", 7))
        taken = await asyncio.gather(*(_claim(world, 2) for _ in range(20)))
        assert len({command_id for some in taken for command_id in some}) == sum(map(len, taken)) == 7

    async def test_limits_are_kept_by_place(self, world: World) -> None:
        store = world.store
        assert await store.limits() == []
        for limit in (Limit("gpu", "b", 3), Limit("gpu", "", 5), Limit("", "*", 9), Limit("gpu", "b", 4)):
            await store.set_limit(limit)
        assert await store.limits() == [Limit("", "*", 9), Limit("gpu", "", 5), Limit("gpu", "b", 4)]
        assert await store.remove_limit("gpu", "b")
        assert not await store.remove_limit("gpu", "b")
        await store.close()
        await store.open()
        assert await store.limits() == [Limit("", "*", 9), Limit("gpu", "", 5)]

    # -- resources ----------------------------------------------------------------------------------------------------

    async def test_a_command_takes_a_token_of_its_resource(self, world: World) -> None:
        start = await world.store.time()
        await world.store.set_resource(Resource("api", interval=_LONG, burst=2))
        work = await _issued(world, "a", 4, resources=("api",))
        free = await _issued(world, "a", 1)
        assert await _claim(world, 9) == [*work[:2], *free], "what waits for a token keeps nobody back"
        assert await _claim(world, 9) == []
        (record,) = await world.store.resources()
        assert record.held == 2
        assert 2 * _LONG <= record.full_at - start <= 2 * _LONG + 600 * SECOND

    async def test_tokens_come_back_with_time(self, world: World) -> None:
        if not await _follows(world):
            return  # this store has its own clock; tokens at a slower pace are tested elsewhere
        await world.store.set_resource(Resource("api", interval=10 * SECOND, burst=2))
        work = await _issued(world, "a", 6, resources=("api",))
        assert await _claim(world, 9) == work[:2]
        world.clock.advance(9)
        assert await _claim(world, 9) == []
        world.clock.advance(1)
        assert await _claim(world, 9) == work[2:3]
        world.clock.advance(1000)
        assert await _claim(world, 9) == work[3:5], "they are saved up to the burst"

    async def test_a_resource_is_held_by_so_many(self, world: World) -> None:
        await world.store.set_resource(Resource("db", concurrency=2))
        work = await _issued(world, "a", 3, resources=("db",))
        other = await _issued(world, "b", 2, resources=("db", "x"))
        assert await _claim(world, 9) == [work[0], other[0]], "whoever holds it, and in whatever company"
        await _close(world, work[0])
        await _close(world, other[0])
        assert len(await _claim(world, 9)) == 2

    async def test_a_resource_that_nobody_set_has_no_limit(self, world: World) -> None:
        work = await _issued(world, "a", 5, resources=("unheard-of",))
        assert await _claim(world, 9) == work

    async def test_a_lost_lease_gives_its_place_back(self, world: World) -> None:
        await world.store.set_resource(Resource("db", concurrency=1))
        work = world.ids()
        execution_id = await world.create(issue=[command(work, resources=("db",))])
        assert await _claim(world, 9) == [work]
        await world.add(execution_id, 1, event("command.issued"), release=[work])
        assert (await world.store.resources())[0].held == 0
        assert await _claim(world, 9) == [work]

    async def test_many_claims_at_once_take_no_token_twice(self, world: World) -> None:
        await world.store.set_resource(Resource("api", interval=_LONG, burst=5))
        await _issued(world, "a", 30, resources=("api",))
        taken = await asyncio.gather(*(_claim(world, 2) for _ in range(20)))
        assert sum(map(len, taken)) == 5

    async def test_resources_are_kept_by_name(self, world: World) -> None:
        store = world.store
        assert await store.resources() == []
        await store.set_resource(Resource("b", interval=5, burst=3))
        await store.set_resource(Resource("a", concurrency=4))
        await store.close()
        await store.open()
        assert await store.resources() == [
            ResourceRecord(Resource("a", concurrency=4)),
            ResourceRecord(Resource("b", interval=5, burst=3)),
        ]
        assert await store.remove_resource("a")
        assert not await store.remove_resource("a")
        assert [view.resource.name for view in await store.resources()] == ["b"]

    async def test_new_terms_keep_what_is_owed_up_to_the_burst(self, world: World) -> None:
        store = world.store
        await store.set_resource(Resource("api", interval=_LONG, burst=10))
        await _issued(world, "a", 10, resources=("api",))
        await _claim(world, 10)
        await store.set_resource(Resource("api", interval=SECOND, burst=3))
        (record,) = await store.resources()
        assert 0 < record.full_at - await store.time() <= 3 * SECOND

    # -- figures ------------------------------------------------------------------------------------------------------

    async def test_shares_count_what_is_open(self, world: World) -> None:
        a = await _issued(world, "a", 3)
        await _issued(world, "b", 1, pool="gpu")
        await world.create(issue=[command(world.ids(), held=True)])
        assert await _claim(world, 1) == a[:1]
        gpu = (await world.store.shares())[1]
        assert await world.store.shares() == [Share("default", "a", 2, 1, a[1]), gpu]
        assert replace(gpu, oldest=0) == Share("gpu", "b", 1)
        assert gpu.oldest

    async def test_a_contest_lists_the_waiting_tenants(self, world: World) -> None:
        store = world.store
        assert await store.contest("default") == Contest()
        await _issued(world, "b", 2)
        assert await store.contest("default") == Contest(("b",))
        await _issued(world, "a", 2)
        await _issued(world, "c", 2)
        assert len((await store.contest("default")).tenants) == 2
        await _claim(world, 9)
        assert await store.contest("default") == Contest()
        await store.set_limit(Limit("gpu", "", 5))
        assert await store.contest("default") == Contest()
        assert await store.contest("gpu") == Contest(limited=True)
        await store.set_limit(Limit("", "a", 5))
        assert await store.contest("default") == Contest(limited=True)

    # -- workers ------------------------------------------------------------------------------------------------------

    async def test_a_worker_is_known_as_it_was_last_seen(self, world: World) -> None:
        store = world.store
        assert not await store.see_worker(_WORKER, 0)
        assert not await store.see_worker(replace(_WORKER, worker_id="w0", pools=(), tenant="acme"), 0)
        later = replace(_WORKER, busy=0, seen_at=200)
        assert not await store.see_worker(later, 0)
        assert list(await store.workers()) == [
            replace(_WORKER, worker_id="w0", pools=(), tenant="acme"),
            later,
        ]

    async def test_a_worker_that_shall_leave_hears_it_when_it_is_seen(self, world: World) -> None:
        store = world.store
        await store.see_worker(_WORKER, 0)
        assert await store.drain_worker("w1")
        assert not await store.drain_worker("w2")
        assert await store.see_worker(replace(_WORKER, seen_at=200), 0)
        assert list(await store.workers()) == [replace(_WORKER, seen_at=200, draining=True)]

    async def test_workers_that_were_long_gone_are_forgotten(self, world: World) -> None:
        store = world.store
        await store.see_worker(_WORKER, 0)
        await store.see_worker(replace(_WORKER, worker_id="w2", seen_at=300), 101)
        assert [worker.worker_id for worker in await store.workers()] == ["w2"]


#: So slow that no token is refilled while a test runs.
_LONG = 3600 * SECOND


async def _issued(
    world: World, tenant: str, count: int, *, pool: str = "default", kind: str = "noop", **more: Any
) -> list[int]:
    """Issue new commands of a tenant, oldest first, each in its own execution."""
    new = world.new()
    new = replace(new, scope=replace(new.scope, tenant=tenant))
    work = [world.ids() for _ in range(count)]
    for command_id in work:
        await world.create(new=new, issue=[command(command_id, kind, pool=pool, **more)])
    return work


async def _claim(world: World, limit: int, **more: Any) -> list[int]:
    return ids(await world.store.claim("w", limit=limit, lease_until=1 << 60, kinds=["noop"], **more))


async def _claim_single(world: World) -> int:
    (only,) = await _claim(world, 1)
    return only


async def _close(world: World, command_id: int) -> None:
    """The command is over."""
    for record in await world.store.executions(limit=1000):
        if command_id in ids(await world.store.commands(record.execution_id)):
            await world.add(record.execution_id, record.head, event("task.done"), close=[command_id])
            return
    raise AssertionError(f"no command {command_id}")


async def _follows(world: World) -> bool:
    """Return whether the store's clock is the test's."""
    before = await world.store.time()
    world.clock.advance(7)
    return await world.store.time() - before == 7 * SECOND
