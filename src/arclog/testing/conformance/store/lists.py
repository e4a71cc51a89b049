"""Rules of what a console lists: runs by filter, runs by hour, approvals that are waited for, commands that are next."""

from __future__ import annotations

import random
from typing import Any

from msgspec.structs import replace

from arclog.ports.storage.pools import QueueHead
from arclog.ports.storage.statistics import HOUR, RunCount
from arclog.ports.storage.store import ExecutionFilter, ExecutionState, Scope
from arclog.testing.conformance.store.base import DONE, RUNNING, Rules, World, command, event

FAILED = ExecutionState("FAILED", ended_at=9, terminal_event="playbook.finished", error="boom")
CANCELLED = ExecutionState("CANCELLED", ended_at=9, terminal_event="execution.cancelled")
PENDING = ExecutionState("PENDING")
ALL = ("PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED")


async def run(world: World, now: ExecutionState, *, tenant: str = "t1", path: str = "a", parent: int = 0) -> int:
    """A run in this state: one that has ended did so in an append of its own."""
    new = replace(world.new(scope=Scope(tenant, "p", "e"), path=path), parent_execution_id=parent)
    execution_id = await world.create(new=new, now=now if now.terminal_event is None else RUNNING)
    if now.terminal_event is not None:
        await world.add(execution_id, 1, event(now.terminal_event), now=now)
    return execution_id


class ListRules(Rules):
    # -- runs ---------------------------------------------------------------------------------------------------------

    async def test_any_filter_finds_what_a_search_of_all_runs_finds(self, world: World) -> None:
        dice = random.Random(7)
        made: list[tuple[int, dict[str, Any]]] = []
        for _ in range(60):
            about: dict[str, Any] = {
                "tenant": dice.choice(("t1", "t2")),
                "path": dice.choice(("a", "b")),
                "parent": dice.choice((0, 0, 77)),
            }
            now = dice.choice((PENDING, RUNNING, DONE, DONE, FAILED, CANCELLED))
            made.append((await run(world, now, **about), {**about, "state": now.state}))
        for _ in range(150):
            states = tuple(dice.sample(ALL, dice.randint(0, 3)))
            which = ExecutionFilter(
                states=states,
                path=dice.choice(("", "a", "b", "c")),
                tenant=dice.choice(("t1", "t1", "t2", "")),
                level=dice.choice(("", "", "called", "top")),
                name=dice.choice(("", "", "nothing of the kind")),
                parent=dice.choice((0, 0, 0, 77)),
                since=dice.choice((0, 0, made[20][0])),
            )
            before, limit = dice.choice((0, 0, made[40][0])), dice.choice((3, 50))
            expected = [
                execution_id
                for execution_id, about in reversed(made)
                if (not states or about["state"] in states)
                and which.path in ("", about["path"])
                and which.tenant in ("", about["tenant"])
                and (not which.level or (which.level == "called") is bool(about["parent"]))
                and which.parent in (0, about["parent"])
                and not which.name
                and execution_id >= which.since
                and (not before or execution_id < before)
            ]
            found = await world.store.executions(which, before=before, limit=limit)
            assert [each.execution_id for each in found] == expected[:limit], which

    async def test_a_state_that_there_is_not_has_no_runs(self, world: World) -> None:
        await run(world, DONE)
        assert await world.store.executions(ExecutionFilter(states=("ODD",), tenant="t1")) == []

    async def test_runs_that_wait_for_approvals_are_listed_oldest_first(self, world: World) -> None:
        store = world.store
        waiting = replace(RUNNING, approvals=2)
        first, second = await run(world, waiting), await run(world, replace(PENDING, approvals=1))
        await run(world, RUNNING)
        other = await run(world, waiting, tenant="t2")

        async def found(tenant: str = "t1", **more: int) -> list[int]:
            return [each.execution_id for each in await store.awaiting_approval(tenant, **more)]

        assert await found() == [first, second]
        assert await found(limit=1) == [first]
        assert await found(after=first) == [second]
        assert await found("t2") == [other]
        assert (await store.awaiting_approval("t1"))[0].now == waiting
        await world.add(first, 1, event("step.started"), now=RUNNING)  # which says nothing of approvals
        assert await found() == [first, second]
        await world.add(first, 2, event("signal.received"), now=RUNNING, asks=True)
        await world.add(second, 1, event("execution.cancelled"), now=CANCELLED, asks=True)
        assert await found() == []

    # -- counts -------------------------------------------------------------------------------------------------------

    async def test_runs_are_counted_once_in_the_hour_in_which_they_end(self, world: World) -> None:
        store, clock = world.store, world.clock
        begin = clock.now() - clock.now() % HOUR
        clock.advance(HOUR / 1_000_000)
        for now in (DONE, FAILED, DONE, CANCELLED, RUNNING):
            await run(world, now)
        await run(world, FAILED, tenant="t2")
        await run(world, FAILED, parent=77)
        clock.advance(2 * HOUR / 1_000_000)
        late = await run(world, RUNNING)
        await world.add(late, 1, event("playbook.finished"), now=FAILED)
        await world.add(late, 2, event("playbook.processed"), now=FAILED)
        await world.create(event("playbook.finished"), new=world.new(scope=Scope("t1", "q", "e")), now=DONE)
        first, last = RunCount(begin + HOUR, 2, 1, 1), RunCount(begin + 3 * HOUR, 1, 1, 0)
        assert await store.run_counts("t1") == [first, last]
        assert await store.run_counts("t1", since=begin + 2 * HOUR) == [last]
        assert await store.run_counts("t1", since=begin + 3 * HOUR + 5) == [last]
        assert await store.run_counts("t1", limit=1) == [first]
        assert await store.run_counts("t1", project="q") == [RunCount(begin + 3 * HOUR, 1, 0, 0)]
        assert await store.run_counts("t1", project="p", environment="e", since=begin + 3 * HOUR) == [
            RunCount(begin + 3 * HOUR, 0, 1, 0)
        ]
        assert await store.run_counts("t2") == [RunCount(begin + HOUR, 0, 1, 0)]
        assert await store.run_counts("t3") == []

    # -- queues -------------------------------------------------------------------------------------------------------

    async def test_the_next_command_of_each_lane_is_told(self, world: World) -> None:
        store = world.store
        ids = [world.ids() for _ in range(7)]
        mine = world.new(scope=Scope("t1", "p", "e"))
        a = await world.create(
            new=mine,
            issue=[
                command(ids[0], "http", order=5),
                command(ids[1], "http", order=3),
                command(ids[2], "http", "noop"),
                command(ids[3], "http", pool="gpu"),
                command(ids[4], "http", resources=("db",)),
                command(ids[5], "sql", held=True),
            ],
        )
        b = await world.create(new=world.new(scope=Scope("t2", "p", "e")), issue=[command(ids[6], "http", order=1)])
        lanes = [
            QueueHead("default", ("http",), ids[1], a, "s"),
            QueueHead("default", ("http",), ids[4], a, "s"),
            QueueHead("default", ("http", "noop"), ids[2], a, "s"),
            QueueHead("gpu", ("http",), ids[3], a, "s"),
        ]
        found = await store.queue_heads("t1")
        assert sorted(found, key=lambda each: each.command_id) == sorted(lanes, key=lambda each: each.command_id)
        assert len(await store.queue_heads("t1", limit=2)) == 2
        assert await store.queue_heads("t2") == [QueueHead("default", ("http",), ids[6], b, "s")]
        assert await store.queue_heads("t3") == []
        await store.claim("w", limit=10, lease_until=world.clock.now() + 10, kinds=("http", "noop"), tenant="t1")
        assert await store.queue_heads("t1") == [QueueHead("gpu", ("http",), ids[3], a, "s")]
