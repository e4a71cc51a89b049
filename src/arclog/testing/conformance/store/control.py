"""Rules of what controls a run: held commands, slots, and live executions in their order."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from arclog.model.errors import Conflict
from arclog.ports.store import Appended, ExecutionFilter, ExecutionState, NoSlot, Scope
from arclog.testing.conformance.store.base import DONE, SECOND, Rules, World, command, event, ids

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
        await world.add(mine, 2, event("step.scheduled", "s", 1), slots=1)  # its own slot is no obstacle

    async def test_never_more_than_so_many_start(self, world: World) -> None:
        waiting = [await world.create(now=PENDING) for _ in range(12)]
        results = await asyncio.gather(
            *(world.add(one, 1, event("playbook.started"), slots=3) for one in waiting), return_exceptions=True
        )
        assert Counter(type(each) for each in results) == {Appended: 3, NoSlot: 9}

    # -- live ---------------------------------------------------------------------------------------------------------

    async def test_live_executions_come_oldest_first(self, world: World) -> None:
        first = await world.create(now=PENDING)
        await world.create(event("playbook.finished"), now=DONE)
        second = await world.create()
        third = await world.create(now=PENDING, new=world.new(path="flows/b"))

        async def found(*states: str, path: str = "", **page: int) -> list[int]:
            which = ExecutionFilter(states=states, path=path)
            return [each.execution_id for each in await world.store.live(which, **page)]

        assert await found() == [first, second, third]
        assert await found("PENDING") == [first, third]
        assert await found("PENDING", path="flows/a") == [first]
        assert await found(after=first, limit=1) == [second]
