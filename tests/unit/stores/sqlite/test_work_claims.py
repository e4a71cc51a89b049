"""What a claim costs on SQLite, in statements: one tenant pays for nothing that several need."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from arclog.ports.storage.pools import Limit, Resource
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite.queries import SQL
from arclog.testing.conformance.store.base import World, command
from arclog.testing.virtual import FakeClock

NAMES = {text: name for name, text in SQL.items()}


class Counted:
    """A world that tells which statements a claim runs."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def claim(self, limit: int = 1, **more: Any) -> tuple[int, list[str]]:
        """How many commands it got, and the statements."""
        store = self.world.store
        assert isinstance(store, SqliteStore)
        tx = store._writer._tx
        plain, ran = tx.execute, list[str]()

        def execute(text: str, *given: Any) -> Any:
            ran.append(NAMES.get(text, text.split(maxsplit=1)[0]))
            return plain(text, *given)

        tx.execute = execute
        try:
            claimed = await store.claim("w", limit=limit, lease_until=9, kinds=["noop"], **more)
        finally:
            tx.execute = plain
        return len(claimed), [name for name in ran if name not in ("BEGIN", "COMMIT")]

    async def issue(self, tenant: str, count: int, *resources: str) -> None:
        from msgspec.structs import replace

        new = self.world.new()
        new = replace(new, scope=replace(new.scope, tenant=tenant))
        work = [command(self.world.ids(), resources=resources) for _ in range(count)]
        await self.world.create(new=new, issue=work)


@pytest.fixture
async def counted(tmp_path: Path) -> AsyncIterator[Counted]:
    clock = FakeClock()
    store = SqliteStore(tmp_path / "arclog.db", clock=clock)
    await store.open()
    yield Counted(World(store, clock))
    await store.close()


async def test_one_tenant_costs_a_look_at_each_lane_and_one_more(counted: Counted) -> None:
    await counted.issue("a", 20)
    assert await counted.claim() == (1, ["next_lane", "next_lane", "take"])
    assert await counted.claim(3) == (3, ["next_lane", "next_lane", "in_lane", "take", "take", "take"])
    await counted.world.store.set_limit(Limit("gpu", "", 1))
    await counted.world.store.remove_limit("gpu", "")
    await counted.world.store.set_resource(Resource("api", concurrency=1))
    assert await counted.claim() == (1, ["next_lane", "next_lane", "take"]), "a resource that nobody needs"


async def test_an_empty_pool_costs_one_look(counted: Counted) -> None:
    assert await counted.claim() == (0, ["next_lane"])


async def test_several_tenants_limits_and_resources_cost_what_they_need(counted: Counted) -> None:
    await counted.issue("a", 5)
    await counted.issue("b", 5)
    lanes = ["next_lane"] * 3
    shared = ["serve", "serve", "forget_service"]
    assert await counted.claim() == (1, [*lanes, "held", "service", *shared, "take"])
    await counted.world.store.set_limit(Limit("default", "", 9))
    assert await counted.claim(tenant="a") == (1, ["next_lane", "next_lane", "limits", "held", "take"])
    await counted.world.store.remove_limit("default", "")
    await counted.claim(9)
    await counted.issue("a", 1, "api")
    assert await counted.claim() == (1, ["next_lane", "next_lane", "resources", "take"])
