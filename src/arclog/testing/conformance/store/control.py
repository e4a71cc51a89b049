"""Rules of what controls a run: held commands, slots, and live executions in their order."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from arclog.model.errors import Conflict
from arclog.ports.storage.store import Appended, ExecutionState, NoSlot, Scope
from arclog.testing.conformance.store.base import DONE, SCOPE, SECOND, Rules, World, command, event, ids

PENDING = ExecutionState("PENDING")


class ControlRules(Rules):
    # -- held commands ------------------------------------------------------------------------------------------------

    async def test_nobody_claims_a_held_command(self, world: World) -> None:
        work = world.ids()
        execution_id = await world.create(issue=[command(work)])
        await world.add(execution_id, 1, event("signal.received"), hold=[(work, 0)])
        (held,) = await world.store.commands(execution_id)
        assert (held.state, held.fence, held.worker_id, held.lease_until) == ("held", 0, "", 0)
        assert await world.store.claim("w", limit=9, lease_until=99, kinds=["noop"]) == []
        assert await world.store.claim("w", limit=9, lease_until=99, kinds=["noop"], execution_id=execution_id) == []
        await world.add(execution_id, 2, event("signal.received"), unhold=[work])
        (taken,) = await world.store.claim("w", limit=9, lease_until=99, kinds=["noop"])
        assert (taken.command_id, taken.fence) == (work, 1)

    async def test_a_command_can_be_issued_held(self, world: World) -> None:
        work = world.ids()
        execution_id = await world.create(issue=[command(work, held=True)])
        assert await world.store.claim("w", limit=9, lease_until=99, kinds=["noop"]) == []
        await world.add(execution_id, 1, event("signal.received"), unhold=[work])
        assert ids(await world.store.claim("w", limit=9, lease_until=99, kinds=["noop"])) == [work]

    async def test_holding_takes_a_command_from_its_worker(self, world: World) -> None:
        work = world.ids()
        execution_id = await world.create(issue=[command(work)])
        now = world.clock.now()
        await world.store.claim("w", limit=1, lease_until=now + SECOND, kinds=["noop"])
        await world.add(execution_id, 1, event("command.issued"), hold=[(work, 1)])
        assert await world.store.heartbeat("w", [(work, 1)], now + 9 * SECOND) == [work]
        assert await world.store.expired(now + 99 * SECOND) == []
        await world.add(execution_id, 2, event("signal.received"), unhold=[work])
        (taken,) = await world.store.claim("v", limit=1, lease_until=99, kinds=["noop"])
        assert taken.fence == 2

    async def test_holding_what_was_claimed_meanwhile_is_a_conflict_and_changes_nothing(self, world: World) -> None:
        first, second = world.ids(), world.ids()
        execution_id = await world.create(issue=[command(first), command(second)])
        await world.store.claim("w", limit=1, lease_until=99, kinds=["noop"])
        before = await world.everything(execution_id)
        with pytest.raises(Conflict):
            await world.add(execution_id, 1, event("signal.received"), hold=[(second, 0), (first, 0)])
        with pytest.raises(Conflict):
            await world.add(execution_id, 1, event("signal.received"), hold=[(world.ids(), 0)])
        assert await world.everything(execution_id) == before

    async def test_hold_and_unhold_in_one_append_leave_it_issued(self, world: World) -> None:
        work = world.ids()
        execution_id = await world.create(issue=[command(work)])
        await world.add(execution_id, 1, event("signal.received"), hold=[(work, 0)], unhold=[work])
        assert ids(await world.store.claim("w", limit=1, lease_until=99, kinds=["noop"])) == [work]

    async def test_unhold_touches_only_what_is_held(self, world: World) -> None:
        work = world.ids()
        execution_id = await world.create(issue=[command(work)])
        await world.store.claim("w", limit=1, lease_until=99, kinds=["noop"])
        await world.add(execution_id, 1, event("signal.received"), unhold=[work, world.ids()])
        (kept,) = await world.store.commands(execution_id)
        assert (kept.state, kept.worker_id) == ("claimed", "w")

    async def test_an_ending_takes_held_commands_along(self, world: World) -> None:
        work = world.ids()
        execution_id = await world.create(issue=[command(work, held=True)])
        await world.add(execution_id, 1, event("execution.cancelled"), now=DONE)
        assert await world.store.commands(execution_id) == []

    # -- slots --------------------------------------------------------------------------------------------------------

    async def test_a_slot_is_held_from_the_start_to_the_end(self, world: World) -> None:
        first, second = await world.create(now=PENDING), await world.create(now=PENDING)
        await world.add(first, 1, event("playbook.started"), slots=1)
        before = await world.everything(second)
        with pytest.raises(NoSlot) as refused:
            await world.add(second, 1, event("playbook.started"), slots=1)
        assert refused.value.holders == (first,)
        assert await world.everything(second) == before
        await world.add(first, 2, event("playbook.finished"), now=DONE)
        await world.add(second, 1, event("playbook.started"), slots=1)

    async def test_only_the_same_path_and_tenant_count(self, world: World) -> None:
        await world.create(new=world.new(path="flows/b"))
        await world.create(new=world.new(scope=Scope("other", "shop", "test")))
        await world.create(now=PENDING)
        await world.create(event("playbook.finished"), now=DONE)
        mine = await world.create(now=PENDING)
        await world.add(mine, 1, event("playbook.started"), slots=1)
        await world.add(mine, 2, event("step.scheduled", "s", 1), slots=1)  # its own slot is not an obstacle

    async def test_never_more_than_so_many_start(self, world: World) -> None:
        waiting = [await world.create(now=PENDING) for _ in range(12)]
        results = await asyncio.gather(
            *(world.add(one, 1, event("playbook.started"), slots=3) for one in waiting), return_exceptions=True
        )
        assert Counter(type(each) for each in results) == {Appended: 3, NoSlot: 9}

    async def test_a_new_execution_that_runs_at_once_needs_a_slot(self, world: World) -> None:
        results = await asyncio.gather(*(world.create(slots=2) for _ in range(6)), return_exceptions=True)
        started = tuple(sorted(each for each in results if isinstance(each, int)))
        refused = [each for each in results if isinstance(each, NoSlot)]
        assert (len(started), len(refused)) == (2, 4), results
        assert await world.create(new=world.new(path="flows/b"), slots=1)
        with pytest.raises(NoSlot) as problem:
            await world.create(slots=2)
        assert problem.value.holders == started

    # -- live ---------------------------------------------------------------------------------------------------------

    async def test_live_executions_of_a_path_come_oldest_first(self, world: World) -> None:
        first = await world.create(now=PENDING)
        await world.create(event("playbook.finished"), now=DONE)
        running = await world.create()
        await world.create(now=PENDING, new=world.new(path="flows/b"))
        await world.create(now=PENDING, new=world.new(scope=Scope("other", "p", "e")))
        second = await world.create(now=PENDING)
        tenant, path = SCOPE.tenant, "flows/a"

        async def found(state: str, **page: int) -> list[int]:
            return [each.execution_id for each in await world.store.live_in_path(tenant, path, state, **page)]

        assert await found("PENDING") == [first, second]
        assert await found("RUNNING") == [running]
        assert await found("PENDING", after=first) == [second]
        assert await found("PENDING", limit=1) == [first]

    async def test_paths_with_pending_executions(self, world: World) -> None:
        store, mine = world.store, SCOPE.tenant
        assert await store.pending_paths() == []
        pairs = [(mine, "flows/a"), (mine, "flows/b"), (mine, "flows/c"), ("other", "flows/a")]
        for tenant, path in reversed(pairs):
            for _ in range(2):
                await world.create(now=PENDING, new=world.new(path=path, scope=Scope(tenant, "p", "e")))
        await world.create(new=world.new(path="flows/running"))
        await world.create(event("playbook.finished"), now=DONE, new=world.new(path="flows/over"))
        pairs.sort()
        assert await store.pending_paths() == pairs
        assert await store.pending_paths(limit=2) == pairs[:2]
        assert await store.pending_paths(after=pairs[1]) == pairs[2:]
