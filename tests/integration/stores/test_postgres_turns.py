"""Several servers on one PostgreSQL: limits, tokens and shares hold between them, and nobody keeps a turn for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import Conflict
from arclog.ports.storage.pools import Limit, Resource
from arclog.ports.storage.store import Append, ExecutionState, NewCommand, NewExecution, Scope
from arclog.stores.postgres import PostgresStore
from arclog.stores.postgres import work as postgres_work
from arclog.stores.postgres.work import Claims
from arclog.testing.conformance.store.base import event
from arclog.testing.virtual import FakeClock
from tests.servers.postgres import Database, running_postgres

SETTINGS = Settings({"store.unsafe": True, "store.connections": 4})


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with running_postgres(unsafe=True) as server:
        yield server.create()


@pytest.fixture
async def servers(database: Database) -> AsyncIterator[list[PostgresStore]]:
    clock = FakeClock()
    stores = [PostgresStore(database.dsn, clock=clock, settings=SETTINGS) for _ in range(4)]
    for store in stores:
        await store.open()
    yield stores
    for store in stores:
        await store.close()
    database.rows(
        "TRUNCATE arclog.commands, arclog.executions, arclog.limits, arclog.resources, arclog.service, arclog.crowded, "
        "arclog.lanes, arclog.lane_notes, arclog.holding"
    )


_last = 1 << 52


def new_id() -> int:
    global _last  # noqa: PLW0603 - ids that no test used before
    _last += 1
    return _last


async def issue(store: PostgresStore, tenant: str, count: int, *resources: str) -> list[int]:
    work = [new_id() for _ in range(count)]
    new = NewExecution("run", "a", "a", 1, "d" * 64, Scope(tenant, "x", "y"), 1)
    commands = [NewCommand(command, "s", 1, ("noop",), resources=resources) for command in work]
    first = [event("playbook.execution.requested")]
    await store.append(Append(new_id(), 0, first, new_id(), ExecutionState("RUNNING"), new, commands))
    return work


async def claim(store: PostgresStore, limit: int) -> list[int]:
    claimed = await store.claim("w", limit=limit, lease_until=1 << 60, kinds=["noop"])
    return [command.command_id for command in claimed]


async def test_a_limit_holds_between_servers(servers: list[PostgresStore]) -> None:
    await issue(servers[0], "a", 60)
    await servers[0].set_limit(Limit("default", "", 9))
    taken = await asyncio.gather(*(claim(servers[n % 4], 2) for n in range(40)))
    assert sum(map(len, taken)) == len({command_id for some in taken for command_id in some}) == 9


async def test_tokens_hold_between_servers(servers: list[PostgresStore]) -> None:
    await issue(servers[0], "a", 40, "api")
    await issue(servers[0], "b", 40, "api", "db")
    await servers[0].set_resource(Resource("api", interval=3_600_000_000, burst=7))
    taken = await asyncio.gather(*(claim(servers[n % 4], 3) for n in range(40)))
    assert sum(map(len, taken)) == 7


async def test_shares_hold_between_servers(servers: list[PostgresStore]) -> None:
    await issue(servers[0], "big", 200)
    small = await issue(servers[1], "small", 10)
    taken = [
        command_id
        for some in await asyncio.gather(*(claim(servers[n % 4], 1) for n in range(22)))
        for command_id in some
    ]
    assert len(set(taken)) == 22
    assert set(small) <= set(taken)


async def test_a_crowd_is_served_by_several_servers(
    servers: list[PostgresStore], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands are issued, claimed and closed everywhere at the same time: none is lost, none is given twice."""
    monkeypatch.setattr(postgres_work, "MANY", 4)
    issued: list[int] = []
    taken: list[int] = []

    async def issue_some(store: PostgresStore, number: int) -> None:
        for n in range(12):
            issued.extend(await issue(store, f"t{(7 * n + number) % 16}", 3))

    async def serve(store: PostgresStore, number: int) -> None:
        while len(taken) < 4 * 12 * 3:
            for record in await store.claim(f"w{number}", limit=4, lease_until=1 << 60, kinds=["noop"]):
                taken.append(record.command_id)
                if record.command_id % 3:
                    head = (await store.execution(record.execution_id)).head  # type: ignore[union-attr]  # it is there
                    over = [event("task.done")]
                    done = Append(
                        record.execution_id, head, over, new_id(), ExecutionState("RUNNING"), close=[record.command_id]
                    )
                    with suppress(Conflict):
                        await store.append(done)

    works = [issue_some(store, n) for n, store in enumerate(servers)]
    async with asyncio.timeout(60):
        await asyncio.gather(*works, *(serve(store, n) for n, store in enumerate(servers)))
    assert sorted(taken) == sorted(issued)
    assert await claim(servers[0], 9) == []


async def test_without_tenants_to_share_a_claim_is_one_statement(
    servers: list[PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object, **__: object) -> None:
        raise AssertionError("nobody needs a turn here")

    monkeypatch.setattr(Claims, "_in_turn", never)
    work = await issue(servers[0], "a", 30)
    await servers[0].set_limit(Limit("elsewhere", "", 1))
    taken = await asyncio.gather(*(claim(servers[n % 4], 3) for n in range(20)))
    assert sorted(command_id for some in taken for command_id in some) == work


async def test_who_gives_up_in_its_turn_lets_the_others_go_on(
    servers: list[PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between reading and taking, the lock is held: a caller that is cancelled there must not keep it."""
    await issue(servers[0], "a", 5)
    await issue(servers[0], "b", 5)
    holds, plain = asyncio.Event(), Claims._chosen

    def stop(*_: object, **__: object) -> None:
        holds.set()
        raise asyncio.CancelledError

    monkeypatch.setattr(Claims, "_chosen", stop)
    with pytest.raises(asyncio.CancelledError):
        await claim(servers[0], 2)
    assert holds.is_set()
    monkeypatch.setattr(Claims, "_chosen", plain)
    assert len(await claim(servers[1], 4)) == 4
    assert len(await claim(servers[0], 4)) == 4
