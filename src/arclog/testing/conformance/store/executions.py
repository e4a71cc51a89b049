"""Rules of executions: lists of them, results stored outside the log, and retention."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from arclog.model.errors import Conflict, RequestRejected
from arclog.model.events import Event
from arclog.model.refs import ref_text
from arclog.ports.storage.outbox import DELIVERED
from arclog.ports.storage.pools import QueueHead
from arclog.ports.storage.statistics import HOUR, RunCount
from arclog.ports.storage.store import ExecutionFilter, ExecutionState, RunOrigin, Scope
from arclog.ports.storage.stored_results import ResultRecord
from arclog.ports.storage.task_logs import LogLine
from arclog.testing.conformance.store.administration import HOOK
from arclog.testing.conformance.store.base import DONE, RUNNING, SECOND, Rules, World, command, event

# ── lists ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of lists for the console: runs by filter, runs by hour, pending approvals, the next commands.

FAILED = ExecutionState("FAILED", ended_at=9, terminal_event="playbook.finished", error="boom")
CANCELLED = ExecutionState("CANCELLED", ended_at=9, terminal_event="execution.cancelled")
PENDING = ExecutionState("PENDING")
ALL = ("PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED")


async def run(
    world: World, now: ExecutionState, *, tenant: str = "t1", path: str = "a", parent: int = 0, origin: int = 0
) -> int:
    """Create a run in this state. An ended run gets its terminal event in a separate append."""
    source = RunOrigin(origin, 5, "retry") if origin else None
    new = replace(world.new(scope=Scope(tenant, "p", "e"), path=path), parent_execution_id=parent, origin=source)
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
                **dice.choice(({"parent": 0}, {"parent": 0, "origin": 55}, {"parent": 77})),
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
                origin=dice.choice((0, 0, 0, 55, 56)),
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
                and which.origin in (0, about.get("origin"))
                and not which.name
                and execution_id >= which.since
                and (not before or execution_id < before)
            ]
            records = await world.store.executions(which, before=before, limit=limit)
            assert [record.execution_id for record in records] == expected[:limit], which

    async def test_a_retry_or_fork_is_listed_with_its_origin(self, world: World) -> None:
        store, new = world.store, world.new()
        retry = await world.create(new=replace(new, origin=RunOrigin(77, 5, "retry")))
        fork = await world.create(new=replace(new, origin=RunOrigin(77, 1 << 40, "fork")))
        other = await world.create(new=replace(new, origin=RunOrigin(78, 1, "fork")))
        plain = await world.create(new=new)
        expected = {retry: RunOrigin(77, 5, "retry"), fork: RunOrigin(77, 1 << 40, "fork"), plain: None}
        for execution_id, origin in expected.items():
            record = await store.execution(execution_id)
            assert record is not None
            assert record.new.origin == origin
        listed = {record.execution_id: record.new.origin for record in await store.executions()}
        assert listed == {**expected, other: RunOrigin(78, 1, "fork")}
        assert [run.execution_id for run in await store.executions(ExecutionFilter(origin=77))] == [fork, retry]
        assert [run.execution_id for run in await store.executions(ExecutionFilter(origin=77), limit=1)] == [fork]
        older = await store.executions(ExecutionFilter(origin=77, tenant=new.scope.tenant), before=fork)
        assert [run.execution_id for run in older] == [retry]
        assert await store.executions(ExecutionFilter(origin=77, tenant="another")) == []
        first = event("playbook.execution.requested")
        origins = [RunOrigin(79, seq, "fork") for seq in (1, 2)]
        await store.append_all(
            [world.change(world.ids(), 0, first, new=replace(new, origin=origin)) for origin in origins]
        )
        assert [run.new.origin for run in await store.executions(ExecutionFilter(origin=79))] == origins[::-1]

    async def test_a_state_that_there_is_not_has_no_runs(self, world: World) -> None:
        await run(world, DONE)
        assert await world.store.executions(ExecutionFilter(states=("ODD",), tenant="t1")) == []

    async def test_runs_that_wait_for_approvals_are_listed_oldest_first(self, world: World) -> None:
        store = world.store
        waiting = replace(RUNNING, approvals=2)
        first, second = await run(world, waiting), await run(world, replace(PENDING, approvals=1))
        await run(world, RUNNING)
        other = await run(world, waiting, tenant="t2")

        async def execution_ids(tenant: str = "t1", **more: int) -> list[int]:
            return [execution.execution_id for execution in await store.awaiting_approval(tenant, **more)]

        assert await execution_ids() == [first, second]
        assert await execution_ids(limit=1) == [first]
        assert await execution_ids(after=first) == [second]
        assert await execution_ids("t2") == [other]
        assert (await store.awaiting_approval("t1"))[0].now == waiting
        await world.add(first, 1, event("step.started"), now=RUNNING)  # without a change of approvals
        assert await execution_ids() == [first, second]
        await world.add(first, 2, event("signal.received"), now=RUNNING, asks=True)
        await world.add(second, 1, event("execution.cancelled"), now=CANCELLED, asks=True)
        assert await execution_ids() == []

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

    async def test_the_next_command_of_each_lane_is_returned(self, world: World) -> None:
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
        heads = await store.queue_heads("t1")
        assert sorted(heads, key=lambda head: head.command_id) == sorted(lanes, key=lambda head: head.command_id)
        assert len(await store.queue_heads("t1", limit=2)) == 2
        assert await store.queue_heads("t2") == [QueueHead("default", ("http",), ids[6], b, "s")]
        assert await store.queue_heads("t3") == []
        await store.claim("w", limit=10, lease_until=world.clock.now() + 10, kinds=("http", "noop"), tenant="t1")
        assert await store.queue_heads("t1") == [QueueHead("gpu", ("http",), ids[3], a, "s")]


# ── stored ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of results stored outside the log: recorded with their append, found, listed, released.

SHA = {name: f"{number:x}" * 64 for number, name in enumerate("abcdef", 1)}


def stored_event(execution_id: int, name: str, content: str, **more: Any) -> Event:
    """Return an event that announces stored content."""
    kind = more.pop("kind", "result.stored")
    informative = more.pop("informative", False)
    meta = {"bytes": 70_000, "sha256": SHA[content], "rows": more.pop("rows", None)}
    ref = {"kind": "data", "store": "files", "ref": ref_text(execution_id, name, SHA[content]), "meta": meta}
    payload = {"result_ref": ref, "preview": "…", **more}
    return Event(kind, 1_000, "s", 2, task="t", informative=informative, payload=payload)


def names(records: list[ResultRecord]) -> list[tuple[int, str, str]]:
    return [
        (record.execution_id, record.name, next(key for key in SHA if SHA[key] == record.sha256)) for record in records
    ]


class StoredRules(Rules):
    async def test_a_stored_result_is_known_with_its_append(self, world: World) -> None:
        execution_id = await world.create()
        world.clock.advance(5)
        done = await world.add(
            execution_id, 1, event("task.started"), stored_event(execution_id, "s.t", "a", rows=3, ttl_s=60)
        )
        record = await world.store.result(execution_id, "s.t", SHA["a"])
        at = done.persisted_at
        assert record == ResultRecord(
            execution_id, "s.t", SHA["a"], 70_000, 3, "application/json", "acme", "execution", at, at + 60 * SECOND,
            "s", 2, "t", 3,
        )  # fmt: skip
        assert await world.store.results(execution_id) == [record]
        assert await world.store.result(execution_id, "s.t", SHA["b"]) is None
        assert await world.store.result(execution_id, "s.u", SHA["a"]) is None
        assert await world.store.result(execution_id + 1, "s.t", SHA["a"]) is None

    async def test_with_the_first_append_too(self, world: World) -> None:
        execution_id = world.ids() + 1
        await world.create(event("playbook.execution.requested"), stored_event(execution_id, "s.t", "a"))
        assert names(await world.store.results(execution_id)) == [(execution_id, "s.t", "a")]

    async def test_a_refused_append_leaves_nothing(self, world: World) -> None:
        execution_id = await world.create()
        with pytest.raises(Conflict):
            await world.add(execution_id, 7, stored_event(execution_id, "s.t", "a"))
        assert await world.store.results(execution_id) == []

    async def test_informative_events_do_not_count(self, world: World) -> None:
        execution_id = await world.create()
        await world.add(
            execution_id,
            1,
            stored_event(execution_id, "s.results", "a"),
            stored_event(execution_id, "s.t", "b", informative=True),
        )
        assert names(await world.store.results(execution_id)) == [(execution_id, "s.results", "a")]

    async def test_what_is_not_its_own_is_refused(self, world: World) -> None:
        execution_id = await world.create()
        other = await world.create()
        lying = stored_event(execution_id, "s.t", "a")
        lying.payload["result_ref"]["meta"]["sha256"] = SHA["b"]
        nowhere = stored_event(execution_id, "s.t", "a")
        nowhere.payload["result_ref"]["ref"] = "noetl://execution/../../etc/passwd"
        for odd in (
            stored_event(other, "s.t", "a"),
            lying,
            nowhere,
            stored_event(execution_id, "s.t", "a", scope="galaxy"),
            stored_event(execution_id, "s.t", "a", ttl_s="soon"),
            stored_event(execution_id, "s.t", "a", ttl_s=-1),
            stored_event(execution_id, "s.t", "a", ttl_s=float("inf")),
            event("result.stored", payload={}),
        ):
            with pytest.raises(RequestRejected):
                await world.add(execution_id, 1, odd)
        assert await world.head(execution_id) == 1
        assert await world.store.results(execution_id) == []

    async def test_results_are_listed_in_order_of_their_events(self, world: World) -> None:
        execution_id = await world.create()
        for head, (name, content) in enumerate([("z", "a"), ("a", "b"), ("m", "a"), ("a", "c")], 1):
            await world.add(execution_id, head, stored_event(execution_id, name, content))
        listed = await world.store.results(execution_id)
        assert [result.name for result in listed] == ["z", "a", "m", "a"]
        assert await world.store.results(execution_id, after=listed[0].seq, limit=2) == listed[1:3]

    async def test_the_same_content_again_is_one_record_with_the_longer_life(self, world: World) -> None:
        execution_id = await world.create()
        head = 1
        lives: list[tuple[str, int | None]] = []
        for scope, ttl in (("workflow", 100), ("step", 20), ("step", 500), ("permanent", None), ("execution", 1)):
            more = {} if ttl is None else {"ttl_s": ttl}
            at = (
                await world.add(execution_id, head, stored_event(execution_id, "s.t", "a", scope=scope, **more))
            ).persisted_at
            head += 1
            (result,) = await world.store.results(execution_id)
            assert (result.stored_at, result.seq) == (at, head)
            lives.append((result.scope, None if result.expires_at is None else (result.expires_at - at) // SECOND))
            world.clock.advance(1)
        # the first ttl still counts from when it was stored first
        assert lives == [
            ("workflow", 100),
            ("workflow", 99),
            ("workflow", 500),
            ("permanent", None),
            ("permanent", None),
        ]

    async def test_all_that_is_kept_is_paged(self, world: World) -> None:
        first, second = await world.create(), await world.create()
        await world.add(
            first, 1, stored_event(first, "b", "b"), stored_event(first, "b", "a"), stored_event(first, "a", "c")
        )
        await world.add(second, 1, stored_event(second, "a", "a"))
        everything = [(first, "a", "c"), (first, "b", "a"), (first, "b", "b"), (second, "a", "a")]
        assert names(await world.store.kept_results()) == everything
        paged: list[tuple[int, str, str]] = []
        after = (0, "", "")
        while page := await world.store.kept_results(after=after, limit=2):
            paged += names(page)
            after = (page[-1].execution_id, page[-1].name, page[-1].sha256)
        assert paged == everything

    async def test_the_executions_that_refer_to_a_content(self, world: World) -> None:
        first, second = await world.create(), await world.create()
        foreign = await world.create(new=world.new(scope=Scope("other", "p", "e")))
        for execution_id in (first, second, foreign):
            await world.add(
                execution_id,
                1,
                stored_event(execution_id, "x", "a"),
                stored_event(execution_id, "y", "a"),
                stored_event(execution_id, "y", "b"),
            )
        kept_by = await world.store.keepers("acme", SHA["a"])
        assert names(kept_by) == [(first, "x", "a"), (first, "y", "a"), (second, "x", "a"), (second, "y", "a")]
        assert await world.store.keepers("acme", SHA["a"], after=(first, "y"), limit=1) == kept_by[2:3]
        assert names(await world.store.keepers("other", SHA["b"])) == [(foreign, "y", "b")]
        assert await world.store.keepers("nobody", SHA["a"]) == []
        assert await world.store.keepers("acme", SHA["c"]) == []

    async def test_a_removed_result_is_listed_without_its_content(self, world: World) -> None:
        execution_id = await world.create()
        await world.add(execution_id, 1, stored_event(execution_id, "x", "a"), stored_event(execution_id, "y", "a"))
        x, y = await world.store.results(execution_id)
        assert await world.store.remove_results([x], 77) == 1
        assert await world.store.remove_results([x], 99) == 0
        assert await world.store.results(execution_id) == [replace(x, removed_at=77), y]
        assert await world.store.kept_results() == [y]
        assert await world.store.keepers("acme", SHA["a"]) == [y]
        assert await world.store.remove_results([], 99) == 0

    async def test_what_was_stored_again_meanwhile_is_not_removed(self, world: World) -> None:
        execution_id = await world.create()
        await world.add(execution_id, 1, stored_event(execution_id, "x", "a", scope="permanent"))
        (outdated,) = await world.store.results(execution_id)
        await world.add(execution_id, 2, stored_event(execution_id, "x", "a"))
        assert await world.store.remove_results([outdated], 77) == 0
        (now,) = await world.store.results(execution_id)
        assert await world.store.remove_results([now], 77) == 1
        # stored once more after its removal, it lives the life that it is given now
        await world.add(execution_id, 3, stored_event(execution_id, "x", "a", scope="step", ttl_s=1))
        (again,) = await world.store.results(execution_id)
        assert (again.removed_at, again.scope) == (None, "step")
        assert again.expires_at is not None

    async def test_results_outlive_their_execution(self, world: World) -> None:
        execution_id = await world.create()
        await world.add(execution_id, 1, stored_event(execution_id, "x", "a"), event("playbook.finished"), now=DONE)
        assert names(await world.store.kept_results()) == [(execution_id, "x", "a")]


# ── retention ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of retention: runs that ended long ago can be removed, and no others.


async def end(world: World, execution_id: int, head: int, **more: Any) -> None:
    over = ExecutionState("COMPLETED", ended_at=world.clock.now(), terminal_event="playbook.finished")
    await world.add(execution_id, head, event("playbook.finished"), now=over, **more)


async def forget(world: World, before: int) -> int:
    """Remove runs until none is left to remove. Return their number."""
    total = 0
    while count := await world.store.retire(before):
        total += count
    return total


class RetentionRules(Rules):
    async def test_a_run_that_ended_long_ago_is_removed_completely(self, world: World) -> None:
        store = world.store
        old = [
            await world.create(event("playbook.started"), new=replace(world.new(f"k{n}"), run_id=f"r{n}"))
            for n in range(3)
        ]
        for old_id in old:
            await world.add(old_id, 1, event("step.scheduled", "a", 1), event("step.done", "a", 1))
            await store.append_logs([LogLine(old_id, 1, "a", 1, "t", 1, 1, "stdout", "hello")])
            await store.put_snapshot(old_id, 2, "v", b"state")
            await end(world, old_id, 3)
        world.clock.advance(60)
        before = world.clock.now()
        assert await store.retire(before, dry_run=True) in (2, 3)
        assert len(await store.executions()) == 3
        assert await forget(world, before) in (2, 3), "a store may keep the newest, for the sake of its position"
        assert await forget(world, before) == 0
        for old_id in old[:2]:
            assert await store.execution(old_id) is None
            assert await store.events(old_id) == []
            assert await store.step_runs(old_id) == []
            assert await store.logs(old_id) == []
            assert await store.snapshot(old_id, "v") is None
        assert await store.by_run_id("r0") is None
        assert {mark.execution_id for mark in await store.marks("playbook.finished")} <= {old[2]}
        assert {batch.execution_id for batch in await store.tail()} <= {old[2]}
        await world.create(new=world.new("k0"))  # its key may be used again

    async def test_positions_are_not_given_again(self, world: World) -> None:
        first = await world.create()
        await end(world, first, 1)
        position = (await world.store.tail())[-1].position
        world.clock.advance(60)
        await forget(world, world.clock.now())
        second = await world.create()
        assert [batch.execution_id for batch in await world.store.tail(after=position)] == [second]

    async def test_what_is_still_needed_stays(self, world: World) -> None:
        store = world.store
        live = await world.create()
        called = await world.create(new=replace(world.new(), parent_execution_id=live))
        keeps = await world.create()
        await world.add(keeps, 1, stored_event(keeps, "s.t", "a"))
        with_delivery = await world.create()
        await end(world, called, 1)
        await end(world, keeps, 2)
        await end(world, with_delivery, 1, deliveries=[HOOK])
        world.clock.advance(60)
        before = world.clock.now()
        world.clock.advance(60)
        late = await world.create()
        await end(world, late, 1)
        assert await forget(world, before) == 0
        for execution_id in (live, called, keeps, with_delivery, late):
            assert await store.execution(execution_id) is not None
            assert len(await store.events(execution_id)) > 0

        # until no run needs it any more
        await end(world, live, 1)
        (result,) = await store.results(keeps)
        await store.remove_results([result], before)
        (delivery,) = await store.lease_deliveries(before, before + SECOND)
        await store.attempted(replace(delivery, state=DELIVERED))
        await store.settle_deliveries(with_delivery)
        await end(world, await world.create(), 1)
        world.clock.advance(60)
        await forget(world, world.clock.now())
        for execution_id in (live, called, keeps, with_delivery):
            assert await store.execution(execution_id) is None
        assert await store.deliveries(with_delivery) == []
        assert await store.results(keeps) == []

    async def test_results_that_are_kept_for_ever_outlive_the_record(self, world: World) -> None:
        execution_id = await world.create()
        await world.add(execution_id, 1, stored_event(execution_id, "s.t", "a", scope="permanent"))
        await end(world, execution_id, 2)
        other = await world.create()
        await end(world, other, 1)
        world.clock.advance(60)
        await forget(world, world.clock.now())
        assert await world.store.execution(execution_id) is None
        assert [result.name for result in await world.store.results(execution_id)] == ["s.t"]
