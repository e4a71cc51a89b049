"""Rules of timers, plans, lists of executions, snapshots and node numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from arclog.model.errors import StoreUnavailable
from arclog.ports.storage.catalog import CatalogRecord, PlanRecord
from arclog.ports.storage.store import ExecutionFilter, ExecutionState, NewExecution, Scope, Timer
from arclog.testing.conformance.store.base import DONE, Rules, World, event


class TimerRules(Rules):
    # -- timers -------------------------------------------------------------------------------------------------------

    async def test_timers_are_due_in_order_and_never_early(self, world: World) -> None:
        store = world.store
        assert await store.next_due() is None
        first = await world.create(set_timers=[Timer(0, "late", 30), Timer(0, "soon", 10, {"n": [1, None]})])
        second = await world.create(set_timers=[Timer(0, "soon", 20)])
        assert await store.next_due() == 10
        assert await store.due_timers(9) == []
        assert await store.due_timers(10) == [Timer(first, "soon", 10, {"n": [1, None]})]
        assert [(timer.execution_id, timer.timer_id) for timer in await store.due_timers(99)] == [
            (first, "soon"),
            (second, "soon"),
            (first, "late"),
        ]
        assert len(await store.due_timers(99, limit=2)) == 2
        assert await store.due_timers(99, latest=True) == [*reversed(await store.due_timers(99))]
        assert await store.due_timers(99, limit=1, latest=True) == [Timer(first, "late", 30)]
        assert await store.coming_timers(0, 99) == [first, second, first]
        assert await store.coming_timers(10, 30) == [second, first]
        assert await store.coming_timers(10, 29, limit=5) == [second]
        assert await store.coming_timers(0, 99, limit=1) == [first]

    async def test_a_timer_is_replaced_and_cleared_by_name(self, world: World) -> None:
        execution_id = await world.create(set_timers=[Timer(0, "a", 10), Timer(0, "b", 20)])
        other = await world.create(set_timers=[Timer(0, "a", 15)])
        await world.add(execution_id, 1, event("timer.fired"), set_timers=[Timer(execution_id, "a", 40, {"x": 1})])
        assert await world.store.next_due() == 15
        await world.add(execution_id, 2, event("timer.fired"), clear_timers=["b", "unknown"])
        assert await world.store.due_timers(99) == [Timer(other, "a", 15), Timer(execution_id, "a", 40, {"x": 1})]

    async def test_a_timer_cleared_and_set_in_one_append_is_set(self, world: World) -> None:
        execution_id = await world.create(set_timers=[Timer(0, "a", 10)])
        await world.add(
            execution_id, 1, event("timer.fired"), clear_timers=["a"], set_timers=[Timer(execution_id, "a", 50)]
        )
        assert await world.store.due_timers(99) == [Timer(execution_id, "a", 50)]

    async def test_the_terminal_event_clears_timers(self, world: World) -> None:
        execution_id = await world.create(set_timers=[Timer(0, "a", 10)])
        await world.add(execution_id, 1, event("playbook.finished"), now=DONE, set_timers=[Timer(execution_id, "b", 5)])
        assert await world.store.next_due() is None

    # -- executions ---------------------------------------------------------------------------------------------------

    async def test_executions_are_listed_newest_first(self, world: World) -> None:
        made = [await world.create() for _ in range(7)]

        async def listed(before: int = 0, limit: int = 50) -> list[int]:
            return [execution.execution_id for execution in await world.store.executions(before=before, limit=limit)]

        assert await listed() == made[::-1]
        assert await listed(limit=3) == [made[6], made[5], made[4]]
        assert await listed(before=made[4], limit=2) == [made[3], made[2]]

    async def test_executions_are_found_by_state_path_and_tenant(self, world: World) -> None:
        def record(path: str, tenant: str) -> NewExecution:
            return world.new(scope=Scope(tenant, "p", "e"), path=path)

        a = await world.create(new=record("a", "t1"), now=ExecutionState("PENDING"))
        b = await world.create(new=record("b", "t1"))
        c = await world.create(new=record("a", "t2"))
        d = await world.create(event("playbook.finished"), new=record("a", "t1"), now=DONE)

        async def ids_of(**which: Any) -> list[int]:
            return [execution.execution_id for execution in await world.store.executions(ExecutionFilter(**which))]

        assert await ids_of(states=("PENDING", "RUNNING")) == [c, b, a]
        assert await ids_of(states=("RUNNING",), path="a") == [c]
        assert await ids_of(states=("COMPLETED",)) == [d]
        assert await ids_of(states=("COMPLETED", "PENDING"), tenant="t1") == [d, a]
        assert await ids_of(path="a", tenant="t1") == [d, a]
        assert await ids_of(states=("FAILED",)) == []
        assert await ids_of(tenant="t1") == [d, b, a]
        assert await ids_of(tenant="t1", name=world.new().name) == [d, b, a]
        assert await ids_of(tenant="t1", name=world.new().name, path="a") == [d, a]
        assert await ids_of(tenant="t2", states=("COMPLETED",)) == []
        pages = [await world.store.executions(ExecutionFilter(path="a"), before=before, limit=2) for before in (0, c)]
        assert [[record.execution_id for record in page] for page in pages] == [[d, c], [a]]

    async def test_executions_are_found_by_name_and_time(self, world: World) -> None:
        names = ("load_orders", "load_items", "report")
        a, b, c = [await world.create(new=replace(world.new(), name=name)) for name in names]

        async def ids_of(**which: Any) -> list[int]:
            return [execution.execution_id for execution in await world.store.executions(ExecutionFilter(**which))]

        assert await ids_of(name="load") == [b, a]
        assert await ids_of(name="LOAD") == []
        assert await ids_of(name="%") == []
        assert await ids_of(since=b) == [c, b]
        assert await ids_of(since=b, name="load", states=("RUNNING",)) == [b]
        assert await ids_of(since=c + 1) == []

    async def test_executions_are_found_by_project_and_environment(self, world: World) -> None:
        prod, dev, other = [
            await world.create(new=world.new(scope=Scope("t", *place)))
            for place in (("p", "prod"), ("p", "dev"), ("q", "prod"))
        ]
        over = await world.create(event("playbook.finished"), new=world.new(scope=Scope("t", "p", "prod")), now=DONE)

        async def ids_of(**which: Any) -> list[int]:
            return [execution.execution_id for execution in await world.store.executions(ExecutionFilter(**which))]

        for tenant in ("t", ""):
            assert await ids_of(tenant=tenant, project="p") == [over, dev, prod]
            assert await ids_of(tenant=tenant, environment="prod") == [over, other, prod]
            assert await ids_of(tenant=tenant, project="p", environment="prod", states=("RUNNING",)) == [prod]
            assert await ids_of(tenant=tenant, project="p", environment="none") == []
            assert await ids_of(tenant=tenant, project="q", path=world.new().path) == [other]
            assert await ids_of(tenant=tenant, project="q", name=world.new().name) == [other]

    async def test_executions_are_found_by_their_parent(self, world: World) -> None:
        root = await world.create()
        first, second = [await world.create(new=replace(world.new(), parent_execution_id=root)) for _ in range(2)]
        inner = await world.create(
            event("playbook.finished"), new=replace(world.new(), parent_execution_id=first), now=DONE
        )

        async def ids_of(**which: Any) -> list[int]:
            return [execution.execution_id for execution in await world.store.executions(ExecutionFilter(**which))]

        assert await ids_of(parent=root) == [second, first]
        assert await ids_of(parent=first) == [inner]
        assert await ids_of(parent=first, states=("RUNNING",)) == []
        assert await ids_of(children=True) == [second, first]
        assert await ids_of(children=True, states=("PENDING",)) == []
        assert await ids_of(parent=inner) == []

    # -- plans --------------------------------------------------------------------------------------------------------

    async def test_a_version_is_valid_where_it_was_registered(self, world: World) -> None:
        store = world.store

        async def register(digest: str, project: str = "", environment: str = "") -> int:
            where = {"tenant": "t1", "project": project, "environment": environment}
            return (await store.register_plan(digest, "flows/a", b"body", digest, 5, **where)).version

        async def versions(project: str = "", environment: str = "") -> list[int]:
            """The versions that are valid there, newest first; every way of reading agrees on them."""
            where: dict[str, Any] = {"tenant": "t1", "project": project, "environment": environment}
            numbers = [entry.version for entry in await store.versions("flows/a", **where)]
            newest = await store.registered("flows/a", **where)
            entry = await store.catalog_path("flows/a", **where)
            listed = await store.catalog(**where)
            assert [plan.version for plan in (newest, entry) if plan is not None] == numbers[:1] * 2
            assert [entry.version for entry in listed] == numbers[:1]
            for version in range(1, 6):
                registered = await store.registered("flows/a", version, **where)
                assert (registered is not None) == (version in numbers)
            return numbers

        assert [await register("everywhere"), await register("dev", "shop", "dev")] == [1, 2]
        assert [await register("shop", "shop"), await register("live", "", "live")] == [3, 4]
        assert await versions() == [4, 3, 2, 1]
        assert await versions("shop", "dev") == [3, 2, 1]
        assert await versions("shop", "live") == [4, 3, 1]
        assert await versions("bakery", "dev") == [1]
        assert await versions("shop") == [4, 3, 2, 1]
        assert await register("dev", "shop", "live") == 2
        assert await versions("shop", "live") == [4, 3, 2, 1]
        assert await versions("shop", "test") == [3, 1]
        assert await register("everywhere", "shop", "dev") == 1
        assert await versions("bakery", "dev") == [1], "what is valid everywhere stays so"
        assert await register("dev") == 2
        assert await versions("bakery", "test") == [2, 1]

    async def test_the_same_content_is_the_same_version(self, world: World) -> None:
        register = partial(world.store.register_plan, tenant="t1")
        first = await register("d1", "flows/a", b"\x00body", "source", 5)
        assert first == PlanRecord("d1", "flows/a", 1, b"\x00body", "source", 5)
        assert await register("d1", "flows/a", b"\x00body", "source", 9) == first
        second = await register("d2", "flows/a", b"other", "more", 6)
        assert second.version == 2
        assert await register("d1", "flows/a", b"\x00body", "source", 10) == first
        assert (await register("d3", "flows/b", b"b", "b", 7)).version == 1

    async def test_a_plan_is_found_by_its_digest(self, world: World) -> None:
        first = await world.store.register_plan("d1", "flows/a", b"body", "source", 5, tenant="t1")
        elsewhere = await world.store.register_plan("d1", "flows/b", b"body", "source", 6, tenant="t1")
        assert (elsewhere.path, elsewhere.version) == ("flows/b", 1)
        assert await world.store.plan("d1") == first
        assert await world.store.plan("unknown") is None

    async def test_a_plan_is_found_by_its_path(self, world: World) -> None:
        register = partial(world.store.register_plan, tenant="t1")
        first = await register("d1", "flows/a", b"body", "source", 5)
        second = await register("d2", "flows/a", b"more", "source 2", 6)
        assert await world.store.registered("flows/a", tenant="t1") == second
        assert await world.store.registered("flows/a", 1, tenant="t1") == first
        assert await world.store.registered("flows/a", 3, tenant="t1") is None
        assert await world.store.registered("flows/b", tenant="t1") is None

    async def test_every_tenant_has_paths_and_versions_of_its_own(self, world: World) -> None:
        store = world.store
        first = await store.register_plan("d1", "flows/a", b"body", "mine", 5, tenant="t1")
        await store.register_plan("d2", "flows/a", b"more", "mine, too", 6, tenant="t1")
        theirs = await store.register_plan("d1", "flows/a", b"body", "theirs", 7, tenant="t2")
        assert (theirs.version, theirs.source) == (1, "theirs")
        assert await store.registered("flows/a", tenant="t2") == theirs
        assert await store.registered("flows/a", 1, tenant="t1") == first
        assert await store.registered("flows/a", 2, tenant="t2") is None
        assert await store.registered("flows/a", tenant="t3") is None

    async def test_the_catalog_lists_paths_with_their_newest_version(self, world: World) -> None:
        store = world.store
        for number, path in enumerate(("flows/b", "flows/a", "flows/a", "other", "flows/a%", "flows/")):
            await store.register_plan(f"d{number}", path, b"body", f"source {number}", number, tenant="t1")
        listed = await store.catalog(tenant="t1")
        assert [record.path for record in listed] == ["flows/", "flows/a", "flows/a%", "flows/b", "other"]
        assert listed[1] == CatalogRecord("flows/a", 2, "d2", 2, None)
        assert await store.catalog_path("flows/a", tenant="t1") == listed[1]
        assert await store.catalog_path("flows", tenant="t1") is None
        assert [record.path for record in await store.catalog(prefix="flows/a", tenant="t1")] == ["flows/a", "flows/a%"]
        assert [record.path for record in await store.catalog(after="flows/a", limit=2, tenant="t1")] == [
            "flows/a%",
            "flows/b",
        ]
        versions = await store.versions("flows/a", tenant="t1")
        assert [(entry.version, entry.source, entry.body) for entry in versions] == [
            (2, "source 2", b""),
            (1, "source 1", b""),
        ]
        assert [entry.version for entry in await store.versions("flows/a", before=2, tenant="t1")] == [1]
        assert [entry.version for entry in await store.versions("flows/a", limit=1, tenant="t1")] == [2]
        assert await store.versions("none", tenant="t1") == []

    async def test_an_archived_path_is_put_away_and_can_be_brought_back(self, world: World) -> None:
        store = world.store
        await store.register_plan("d1", "flows/a", b"body", "source", 5, tenant="t1")
        await store.archive("flows/a", 7, tenant="t1")
        await store.archive("flows/a", 9, tenant="t1")  # it was away before
        assert await store.catalog(tenant="t1") == []
        assert await store.catalog(archived=True, tenant="t1") == [CatalogRecord("flows/a", 1, "d1", 5, 7)]
        assert await store.catalog_path("flows/a", tenant="t1") == CatalogRecord("flows/a", 1, "d1", 5, 7)
        assert await store.registered("flows/a", tenant="t1") is not None
        await store.archive("flows/a", None, tenant="t1")
        assert await store.catalog(tenant="t1") == [CatalogRecord("flows/a", 1, "d1", 5, None)]
        await store.archive("flows/a", 8, tenant="t2")  # another's path of the same name
        assert len(await store.catalog(tenant="t1")) == 1

    async def test_the_catalog_of_a_tenant_is_its_own(self, world: World) -> None:
        store = world.store
        await store.register_plan("d1", "flows/a", b"body", "source", 5, tenant="t1")
        await store.register_plan("d1", "flows/b", b"body", "source", 6, tenant="t2")
        assert [record.path for record in await store.catalog(tenant="t1")] == ["flows/a"]
        assert [record.path for record in await store.catalog(tenant="t2")] == ["flows/b"]
        assert await store.catalog(tenant="t3") == []
        assert await store.catalog_path("flows/a", tenant="t2") is None
        assert await store.versions("flows/a", tenant="t2") == []

    # -- snapshots ----------------------------------------------------------------------------------------------------

    async def test_the_newest_snapshot_of_a_code_version_is_kept(self, world: World) -> None:
        store = world.store
        assert await store.snapshot(5, "v1") is None
        await store.put_snapshot(5, 10, "v1", b"ten")
        await store.put_snapshot(5, 20, "v1", b"twenty")
        await store.put_snapshot(5, 15, "v1", b"fifteen")
        await store.put_snapshot(6, 1, "v1", b"")
        assert await store.snapshot(5, "v1") == (20, b"twenty")
        assert await store.snapshot(5, "v2") is None
        assert await store.snapshot(6, "v1") == (1, b"")
        await store.put_snapshot(5, 12, "v2", b"by newer code")
        assert await store.snapshot(5, "v2") == (12, b"by newer code")

    async def test_snapshots_before_the_newest_are_kept_on_demand(self, world: World) -> None:
        store = world.store
        for seq in (10, 20, 30, 40):
            await store.put_snapshot(5, seq, "v1", b"%d" % seq, [20] if seq == 40 else [])
            await store.put_snapshot(6, seq, "v1", b"", [])
        assert await store.past_snapshots(5, "v1") == [10, 30]
        assert await store.snapshot(5, "v1") == (40, b"40")
        assert await store.snapshot(5, "v1", 40) == (40, b"40")
        assert await store.snapshot(5, "v1", 39) == (30, b"30")
        assert await store.snapshot(5, "v1", 29) == (10, b"10")
        assert await store.snapshot(5, "v1", 9) is None
        assert await store.snapshot(5, "v2", 39) is None
        assert await store.past_snapshots(7, "v1") == []
        await store.put_snapshot(5, 50, "v2", b"by newer code", [])
        assert await store.past_snapshots(5, "v1") == []
        assert await store.snapshot(5, "v1") is None
        assert await store.past_snapshots(6, "v1") == [10, 20, 30]

    # -- node numbers -------------------------------------------------------------------------------------------------

    async def test_a_node_number_belongs_to_one_owner_until_its_lease_ends(self, world: World) -> None:
        lease = world.store.lease_node
        assert await lease("a", 0, 100) == 0
        assert await lease("b", 0, 200) == 1
        assert await lease("a", 50, 150) == 0  # renewed
        assert await lease("c", 100, 200) == 2
        assert await lease("d", 150, 300) == 0  # a's lease has ended
        assert await lease("a", 160, 300) == 3

    async def test_node_numbers_run_out(self, world: World) -> None:
        for n in range(1024):
            assert await world.store.lease_node(f"o{n}", 0, 100) == n
        with pytest.raises(StoreUnavailable):
            await world.store.lease_node("one more", 99, 200)
        assert await world.store.lease_node("o7", 99, 200) == 7
        assert await world.store.lease_node("one more", 100, 200) == 0
