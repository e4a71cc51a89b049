"""Rules of commands: claims, fences, leases, grants."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from arclog.model.errors import Conflict
from arclog.ports.storage.pools import Limit
from arclog.ports.storage.store import Appended, CommandRecord, ExecutionState, Grant, NewCommand, NoSlot, Scope
from arclog.testing.conformance.store.base import DONE, SCOPE, SECOND, Rules, World, command, event, ids

# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class CommandRules(Rules):
    async def test_an_issued_command_is_there_as_it_was_handed_in(self, world: World) -> None:
        work = world.ids()
        execution_id = await world.create(issue=[command(work, "b", "a", pool="gpu", items=(3, 9))])
        assert await world.store.commands(execution_id) == [
            CommandRecord(work, execution_id, "s", 1, ("b", "a"), "gpu", (3, 9), "issued", 0, "", 0)
        ]

    async def test_a_claim_raises_the_fence(self, world: World) -> None:
        work = world.ids()
        execution_id = await world.create(issue=[command(work)])
        claimed = await world.store.claim("w", limit=5, lease_until=70, kinds=["noop", "http"])
        assert claimed == [
            CommandRecord(work, execution_id, "s", 1, ("noop",), "default", (0, 0), "claimed", 1, "w", 70)
        ]
        assert await world.store.commands(execution_id) == claimed
        assert await world.store.claim("v", limit=5, lease_until=80, kinds=["noop"]) == []
        await world.add(execution_id, 1, event("command.issued"), release=[work])
        assert (await world.store.commands(execution_id))[0].state == "issued"
        assert (await world.store.commands(execution_id))[0].fence == 1
        again = await world.store.claim("v", limit=5, lease_until=80, kinds=["noop"])
        assert [(claimed.fence, claimed.worker_id, claimed.lease_until) for claimed in again] == [(2, "v", 80)]

    async def test_a_worker_gets_only_what_it_knows(self, world: World) -> None:
        http, both, noop, none = (world.ids() for _ in range(4))
        await world.create(
            issue=[command(http, "http"), command(both, "http", "noop"), command(noop), NewCommand(none, "s", 1, ())]
        )

        async def claim(*kinds: str) -> list[int]:
            return ids(await world.store.claim("w", limit=9, lease_until=9, kinds=kinds))

        assert await claim("noop", "shell") == [noop, none]
        assert await claim("htt", "ttp", "") == []
        assert await claim("noop", "http") == [http, both]

    async def test_a_worker_gets_what_its_pools_offer(self, world: World) -> None:
        plain, gpu, big = (world.ids() for _ in range(3))
        await world.create(issue=[command(plain), command(gpu, pool="gpu"), command(big, pool="big")])

        async def claim(*pools: str, limit: int = 9) -> list[int]:
            return ids(await world.store.claim("w", limit=limit, lease_until=9, kinds=["noop"], pools=pools))

        assert await claim("none", "Gpu") == []
        assert await claim("gpu", "none") == [gpu]
        assert await claim(limit=1) == [plain], "no pools are all of them, oldest first"
        assert await claim() == [big]

    async def test_a_claim_for_one_tenant(self, world: World) -> None:
        mine, theirs = world.ids(), world.ids()
        await world.create(issue=[command(mine)])
        new = world.new()
        await world.create(new=replace(new, scope=replace(new.scope, tenant="other")), issue=[command(theirs)])

        async def claim(tenant: str) -> list[int]:
            return ids(await world.store.claim("w", limit=9, lease_until=9, kinds=["noop"], tenant=tenant))

        assert await claim("nobody") == []
        assert await claim("other") == [theirs]
        assert await claim(new.scope.tenant) == [mine]

    @pytest.mark.parametrize(
        "limits", [{}, {"pool": "default", "tenant": "", "concurrency": 9}], ids=["free", "limited"]
    )
    async def test_a_claim_for_a_project_and_an_environment(self, world: World, limits: dict[str, Any]) -> None:
        """With a limit, stores choose among lanes that they read first."""
        if limits:
            await world.store.set_limit(Limit(**limits))
        work: dict[tuple[str, str], list[int]] = {}
        for _ in range(3):
            for place in (("shop", "prod"), ("shop", "dev"), ("bakery", "prod")):
                work.setdefault(place, []).append(world.ids())
                await world.create(new=world.new(scope=Scope("acme", *place)), issue=[command(work[place][-1])])

        async def claim(project: str, environment: str, limit: int = 9, **more: Any) -> list[int]:
            where: dict[str, Any] = {"tenant": "acme", "project": project, "environment": environment}
            return ids(await world.store.claim("w", limit=limit, lease_until=9, kinds=["noop"], **where, **more))

        assert await claim("shop", "test") == await claim("", "none") == []
        assert await claim("shop", "dev", 2) == work["shop", "dev"][:2]
        assert await claim("shop", "dev", pools=()) == work["shop", "dev"][2:]
        assert await claim("shop", "dev") == []
        assert await claim("", "prod", 1) == work["shop", "prod"][:1]
        assert await claim("bakery", "") == work["bakery", "prod"]
        assert await claim("", "") == work["shop", "prod"][1:]

    async def test_a_claim_for_one_execution_keeps_to_its_environment(self, world: World) -> None:
        work = world.ids()
        root = await world.create(new=world.new(scope=Scope("acme", "shop", "prod")), issue=[command(work)])

        async def claim(project: str, environment: str) -> list[int]:
            where: dict[str, Any] = {"execution_id": root, "project": project, "environment": environment}
            return ids(await world.store.claim("w", limit=9, lease_until=9, kinds=["noop"], **where))

        assert await claim("shop", "dev") == await claim("bakery", "") == []
        assert await claim("shop", "prod") == [work]

    async def test_a_claim_for_one_execution_reaches_those_below_it(self, world: World) -> None:
        work = [world.ids() for _ in range(4)]
        root = await world.create(issue=[command(work[0])])
        child = await world.create(new=replace(world.new(), parent_execution_id=root), issue=[command(work[1])])
        await world.create(new=replace(world.new(), parent_execution_id=child), issue=[command(work[2])])
        await world.create(issue=[command(work[3])])

        async def claim(execution_id: int) -> list[int]:
            return ids(await world.store.claim("w", limit=9, lease_until=9, kinds=["noop"], execution_id=execution_id))

        assert await claim(child) == work[1:3]
        assert await claim(root) == work[:1]
        assert await claim(0) == work[3:]

    async def test_a_kind_may_have_any_name(self, world: World) -> None:
        odd = ["a,b", '"', "a", "b", "ü\x00", "%", "]"]
        work = [world.ids() for _ in odd]
        await world.create(issue=[command(command_id, kind) for command_id, kind in zip(work, odd, strict=True)])
        for command_id, kind in zip(work, odd, strict=True):
            assert ids(await world.store.claim("w", limit=9, lease_until=9, kinds=[kind])) == [command_id]

    async def test_pools_are_apart(self, world: World) -> None:
        first, second, third = (world.ids() for _ in range(3))
        await world.create(issue=[command(first, pool="gpu"), command(second), command(third, pool="gpu")])
        claim = world.store.claim
        assert ids(await claim("w", limit=9, lease_until=9, kinds=["noop"], pools=["cpu"])) == []
        assert ids(await claim("w", limit=9, lease_until=9, kinds=["noop"])) == [second]
        assert ids(await claim("w", limit=9, lease_until=9, kinds=["noop"], pools=["gpu", "default"])) == [first, third]

    async def test_a_claim_may_be_for_one_execution(self, world: World) -> None:
        first, second, third = (world.ids() for _ in range(3))
        await world.create(issue=[command(first)])
        execution_id = await world.create(issue=[command(third, "http"), command(second)])
        claim = world.store.claim
        assert ids(await claim("w", limit=9, lease_until=9, kinds=["noop"], execution_id=execution_id)) == [second]
        assert (
            ids(await claim("w", limit=9, lease_until=9, kinds=["noop"], pools=["x"], execution_id=execution_id)) == []
        )
        assert ids(await claim("w", limit=9, lease_until=9, kinds=["noop", "http"], execution_id=execution_id)) == [
            third
        ]

    @pytest.mark.parametrize("limit", [0, 1, 3, 10, 50])
    async def test_the_oldest_come_first_up_to_the_limit(self, world: World, limit: int) -> None:
        work = [world.ids() for _ in range(12)]
        kinds = ["noop", "http", "shell"]
        for i in range(4):
            mine = reversed(work[i::4])
            await world.create(
                issue=[
                    command(command_id, kinds[command_id % 3], pool=("default", "gpu")[command_id % 2])
                    for command_id in mine
                ]
            )
        claimed = await world.store.claim("w", limit=limit, lease_until=9, kinds=kinds, pools=["gpu", "default"])
        assert ids(claimed) == work[:limit]

    async def test_a_heartbeat_extends_what_is_held_and_names_what_is_not(self, world: World) -> None:
        mine, old, others, gone, issued = (world.ids() for _ in range(5))
        execution_id = await world.create(issue=[command(command_id) for command_id in (mine, old, others, gone)])
        claim, store = world.store.claim, world.store
        await claim("w", limit=9, lease_until=50, kinds=["noop"])
        await world.add(
            execution_id, 1, event("command.issued"), release=[old, others], close=[gone], issue=[command(issued)]
        )
        await claim("w", limit=1, lease_until=50, kinds=["noop"])  # `old` again: fence 2
        await claim("v", limit=1, lease_until=50, kinds=["noop"])  # `others`, claimed by another worker
        lost = await store.heartbeat("w", [(mine, 1), (old, 1), (others, 2), (gone, 1), (issued, 0), (12345, 1)], 90)
        assert lost == [old, others, gone, issued, 12345]
        leases = {command.command_id: command.lease_until for command in await store.commands(execution_id)}
        assert leases == {mine: 90, old: 50, others: 50, issued: 0}
        assert await store.heartbeat("w", [(mine, 1), (old, 2)], 95) == []
        assert await store.heartbeat("w", [], 95) == []

    async def test_expired_are_the_claims_whose_lease_ended(self, world: World) -> None:
        work = [world.ids() for _ in range(4)]
        await world.create(issue=[command(command_id) for command_id in work])
        for lease_until in (30, 10, 20):
            await world.store.claim("w", limit=1, lease_until=lease_until, kinds=["noop"])
        assert ids(await world.store.expired(10)) == []
        assert ids(await world.store.expired(11)) == [work[1]]
        assert ids(await world.store.expired(1000)) == [work[1], work[2], work[0]]
        assert ids(await world.store.expired(1000, limit=2)) == [work[1], work[2]]
        await world.store.heartbeat("w", [(work[1], 1)], 2000)
        assert ids(await world.store.expired(1000)) == [work[2], work[0]]

    async def test_an_append_extends_only_with_the_right_fence(self, world: World) -> None:
        work, idle = world.ids(), world.ids()
        execution_id = await world.create(issue=[command(work), command(idle, "http")])
        await world.store.claim("w", limit=1, lease_until=50, kinds=["noop"])
        await world.add(execution_id, 1, event("task.started"), extend=[(work, 1, 80)])
        assert (await world.store.commands(execution_id))[0].lease_until == 80
        await world.add(execution_id, 2, event("task.done"), extend=[(work, 2, 99), (idle, 0, 99), (5, 1, 99)])
        assert [command.lease_until for command in await world.store.commands(execution_id)] == [80, 0]

    async def test_closed_commands_are_gone(self, world: World) -> None:
        first, second = world.ids(), world.ids()
        execution_id = await world.create(issue=[command(first), command(second)])
        await world.store.claim("w", limit=1, lease_until=50, kinds=["noop"])
        await world.add(execution_id, 1, event("task.done"), close=[first, 999])
        assert ids(await world.store.commands(execution_id)) == [second]
        assert await world.store.expired(1000) == []
        await world.add(execution_id, 2, event("task.done"), close=[second])
        assert await world.store.claim("w", limit=9, lease_until=9, kinds=["noop"]) == []

    async def test_an_append_touches_only_its_own_executions_commands(self, world: World) -> None:
        work = world.ids()
        owner = await world.create(issue=[command(work)])
        other = await world.create()
        before = await world.store.claim("w", limit=1, lease_until=50, kinds=["noop"])
        await world.add(other, 1, event("task.done"), close=[work], release=[work], extend=[(work, 1, 99)])
        assert await world.store.commands(owner) == before

    async def test_a_grant_is_a_claim_in_the_same_commit(self, world: World) -> None:
        first, second, third = (world.ids() for _ in range(3))
        execution_id = await world.create(issue=[command(first)])
        await world.store.claim("w", limit=1, lease_until=50, kinds=["noop"])
        grant = Grant("w", 60, (first, 1, 4))
        await world.add(
            execution_id,
            1,
            event("step.done", "s", 1),
            close=[first],
            issue=[command(second, grant=grant), command(third)],
        )
        granted = await world.store.granted((first, 1, 4))
        assert [
            (
                granted_command.command_id,
                granted_command.state,
                granted_command.fence,
                granted_command.worker_id,
                granted_command.lease_until,
            )
            for granted_command in granted
        ] == [(second, "claimed", 1, "w", 60)]
        assert ids(await world.store.claim("v", limit=9, lease_until=9, kinds=["noop"])) == [third]
        assert await world.store.heartbeat("w", [(second, 1)], 70) == []
        for by in ((first, 1, 3), (first, 2, 4), (second, 1, 4), (0, 0, 0)):
            assert await world.store.granted(by) == []

    async def test_a_grant_ends_when_its_lease_is_lost(self, world: World) -> None:
        work = world.ids()
        by = (1, 1, 1)
        execution_id = await world.create(issue=[command(work, grant=Grant("w", 60, by))])
        assert ids(await world.store.granted(by)) == [work]
        assert ids(await world.store.expired(61)) == [work]
        await world.add(execution_id, 1, event("command.issued"), release=[work])
        assert await world.store.granted(by) == []
        claimed = await world.store.claim("v", limit=1, lease_until=90, kinds=["noop"])
        assert [record.fence for record in claimed] == [2]
        assert await world.store.granted(by) == []  # it belongs to another worker now
        assert await world.store.heartbeat("w", [(work, 1)], 99) == [work]

    async def test_a_closed_commands_id_may_be_issued_in_the_same_append(self, world: World) -> None:
        work = world.ids()
        execution_id = await world.create(issue=[command(work)])
        await world.add(execution_id, 1, event("task.done"), close=[work], issue=[command(work, "http")])
        assert [command.kinds for command in await world.store.commands(execution_id)] == [("http",)]


# ── control ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of controlling runs: held commands, slots, and live executions in their order.

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
        (stored,) = await world.store.commands(execution_id)
        assert (stored.state, stored.worker_id) == ("claimed", "w")

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
            *(world.add(execution_id, 1, event("playbook.started"), slots=3) for execution_id in waiting),
            return_exceptions=True,
        )
        assert Counter(type(result) for result in results) == {Appended: 3, NoSlot: 9}

    async def test_a_new_execution_that_runs_at_once_needs_a_slot(self, world: World) -> None:
        results = await asyncio.gather(*(world.create(slots=2) for _ in range(6)), return_exceptions=True)
        started = tuple(sorted(result for result in results if isinstance(result, int)))
        refused = [result for result in results if isinstance(result, NoSlot)]
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

        async def execution_ids(state: str, **page: int) -> list[int]:
            return [execution.execution_id for execution in await world.store.live_in_path(tenant, path, state, **page)]

        assert await execution_ids("PENDING") == [first, second]
        assert await execution_ids("RUNNING") == [running]
        assert await execution_ids("PENDING", after=first) == [second]
        assert await execution_ids("PENDING", limit=1) == [first]

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
