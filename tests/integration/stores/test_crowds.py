"""Pools where many tenants wait: a claim sees few lanes and takes what one would that sees them all."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.events import Event
from arclog.ports.storage.pools import EACH, Limit, Resource
from arclog.ports.storage.store import Append, ExecutionState, NewCommand, NewExecution, Scope, Store
from arclog.stores.memory import MemoryStore
from arclog.stores.postgres import PostgresStore
from arclog.stores.postgres import work as postgres_work
from arclog.stores.postgres.connection.pipeline import Pipeline
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite import work as sqlite_work
from arclog.testing.virtual import FakeClock
from tests.servers.postgres import Database, running_postgres
from tests.unit.stores.test_shares import check_lanes

RUNNING = ExecutionState("RUNNING")
FIRST = [Event("playbook.execution.requested", 1)]


class Work:
    """The same commands in any number of stores."""

    def __init__(self, *stores: Store) -> None:
        self.stores = stores
        self.last = 1 << 52
        #: executions of commands that are held
        self.held: dict[int, int] = {}
        self.waiting: set[int] = set()
        self.heads: dict[int, int] = {}

    def new_id(self) -> int:
        self.last += 1
        return self.last

    async def issue(self, tenant: str, count: int = 1, **more: Any) -> list[int]:
        execution_id = self.new_id()
        new = NewExecution("run", "a", "a", 1, "d" * 64, Scope(tenant, "x", "y"), 1)
        work = [NewCommand(self.new_id(), "s", 1, ("noop",), **more) for _ in range(count)]
        append = Append(execution_id, 0, FIRST, self.new_id(), RUNNING, new, work)
        for store in self.stores:
            await store.append(append)
        self.heads[execution_id] = 1
        self.waiting |= {command.command_id for command in work}
        return [command.command_id for command in work]

    async def claim(self, limit: int, **more: Any) -> list[int]:
        taken = []
        for store in self.stores:
            claimed = await store.claim("w", limit=limit, lease_until=9, kinds=["noop"], **more)
            taken.append([command.command_id for command in claimed])
            self.held.update((command.command_id, command.execution_id) for command in claimed)
        assert all(claimed_ids == taken[0] for claimed_ids in taken), taken
        self.waiting -= set(taken[0])
        return taken[0]

    async def change(self, execution_id: int, **changes: Any) -> None:
        append = Append(
            execution_id, self.heads[execution_id], [Event("task.done", 1)], self.new_id(), RUNNING, **changes
        )
        for store in self.stores:
            await store.append(append)
        self.heads[execution_id] += 1

    async def close(self, command_id: int) -> None:
        await self.change(self.held.pop(command_id), close=[command_id])


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "a.db", clock=FakeClock())
    await store.open()
    store._writer._connection.execute("PRAGMA synchronous = OFF")
    yield store
    await store.close()


@pytest.fixture
async def memory() -> AsyncIterator[MemoryStore]:
    store = MemoryStore(clock=FakeClock())
    await store.open()
    yield store
    await store.close()


#: how often each kind of step is drawn
STEPS = {"issue": 30, "claim": 30, "close": 35, "give": 5, "limit": 2, "resource": 1}
UNLIMITED = STEPS | {"issue": 70, "limit": 0, "resource": 0}


async def random_step(work: Work, chance: random.Random, tenants: list[str], steps: dict[str, int] = STEPS) -> None:
    match chance.choices(list(steps), list(steps.values()))[0]:
        case "issue":
            needs = ("r",) if chance.random() < 0.2 else ()
            pool = chance.choice(("p", "p", "q"))
            await work.issue(
                chance.choice(tenants), chance.randrange(1, 4), order=chance.randrange(5), pool=pool, resources=needs
            )
        case "claim":
            pools = chance.choice((["p"], ["q"], ["p", "q"], []))
            only = chance.choice(tenants) if chance.random() < 0.1 else ""
            await work.claim(chance.choice((1, 1, 2, 5, 12)), pools=pools, tenant=only)
        case "close" if work.held:
            await work.close(chance.choice(sorted(work.held)))
        case "give" if work.held:
            command_id = chance.choice(sorted(work.held))
            await work.change(work.held.pop(command_id), release=[command_id])
        case "limit":
            place = (chance.choice(("p", "q", "")), chance.choice(("", EACH, tenants[0], tenants[1])))
            sets = chance.random() < 0.5
            for store in work.stores:
                if sets:
                    await store.set_limit(Limit(*place, 12 if place[1] == "" else 2))
                else:
                    await store.remove_limit(*place)
        case "resource":
            for store in work.stores:
                await store.set_resource(Resource("r", concurrency=3))


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with running_postgres("autovacuum=off", unsafe=True) as server:
        yield server.create()


@pytest.fixture
async def postgres(database: Database) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(database.dsn, clock=FakeClock(), settings=Settings({"store.unsafe": True}))
    await store.open()
    yield store
    await store.close()
    database.rows(
        "TRUNCATE arclog.commands, arclog.executions, arclog.log, arclog.mark, arclog.limits, arclog.resources, arclog.service, "
        "arclog.crowded, arclog.lanes, arclog.lane_notes, arclog.holding"
    )


@pytest.mark.parametrize("seed", range(12))
async def test_a_crowd_is_served_as_if_all_of_it_were_seen(
    sqlite: SqliteStore, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(sqlite_work, "MANY", 4)
    monkeypatch.setattr(sqlite_work, "FEW", 2)
    chance = random.Random(seed)
    work = Work(sqlite, memory)
    tenants = [f"t{n:02}" for n in range(30 if seed % 2 else 8)]
    was_crowded = False
    for _ in range(250):
        await random_step(work, chance, tenants)
        check_lanes(sqlite)
        was_crowded = was_crowded or bool(sqlite._writer._connection.execute("SELECT 1 FROM crowded").get)
    assert was_crowded


@pytest.mark.parametrize("seed", range(4))
async def test_a_crowd_on_postgresql_too(
    postgres: PostgresStore, database: Database, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(postgres_work, "MANY", 4)
    monkeypatch.setattr(postgres_work, "FEW", 2)
    monkeypatch.setattr(postgres_work, "_STALE", 1)
    chance = random.Random(seed)
    work = Work(postgres, memory)
    tenants = [f"t{n:02}" for n in range(30 if seed % 2 else 8)]
    was_crowded = False
    for _ in range(150):
        await random_step(work, chance, tenants)
        was_crowded = was_crowded or bool(database.rows("SELECT 1 FROM arclog.crowded"))
    assert was_crowded


@pytest.mark.parametrize("seed", range(4))
async def test_a_crowd_without_limits_on_postgresql(
    postgres: PostgresStore, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """One statement chooses there: a function in the database."""
    monkeypatch.setattr(postgres_work, "MANY", 4)
    monkeypatch.setattr(postgres_work, "FEW", 2)
    monkeypatch.setattr(postgres_work, "_STALE", 1)
    taken_by_function = 0
    from_crowd = postgres_work.Claims._from_crowd

    async def counted(self: Any, *given: Any) -> Any:
        nonlocal taken_by_function
        rows = await from_crowd(self, *given)
        taken_by_function += len(rows or ())
        return rows

    monkeypatch.setattr(postgres_work.Claims, "_from_crowd", counted)
    chance = random.Random(seed)
    work = Work(postgres, memory)
    tenants = [f"t{n:02}" for n in range(30 if seed % 2 else 8)]
    for _ in range(250):
        await random_step(work, chance, tenants, UNLIMITED)
    assert taken_by_function > 20


async def test_a_claim_from_a_crowd_reads_few_rows(
    postgres: PostgresStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plans are made before the planner has statistics about the lanes."""
    work = Work(postgres)
    for n in range(200):
        await work.issue(f"t{n:03}", 2)
    counts = """
        SELECT coalesce(sum(seq_scan), 0)::int8, coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::int8
        FROM pg_stat_xact_user_tables WHERE relname IN ('commands', 'lanes', 'lane_notes', 'holding', 'service')
    """
    for _ in range(20):
        [command_id] = await work.claim(1)
        await work.close(command_id)
    await work.claim(1)  # leaves a note
    read = []
    request = Pipeline.request

    async def counting(self: Any, calls: Any) -> Any:
        [before], *answers, [after] = await request(self, [(counts, ()), *calls, (counts, ())])
        read.append((after[0] - before[0], after[1] - before[1]))
        return answers

    monkeypatch.setattr(Pipeline, "request", counting)
    await work.claim(1)
    [(scans, rows)] = read
    assert scans == 0
    assert rows < 50


async def test_a_pool_is_no_longer_crowded_when_few_lanes_are_left(postgres: PostgresStore, database: Database) -> None:
    work = Work(postgres)
    for n in range(40):
        await work.issue(f"t{n:02}", 40 if n < 2 else 1)
    for _ in range(40):
        await work.close(*await work.claim(1))
    assert database.rows("SELECT 1 FROM arclog.crowded")
    for _ in range(20):
        await work.close(*await work.claim(1))
    assert not database.rows("SELECT 1 FROM arclog.crowded")


# -- notes of changed commands ----------------------------------------------------------------------------------------


def leaves_notes(database: Database) -> bool:
    """Whether the triggers of `commands` are on. All of them are on or off."""
    lanes = "tgrelid = 'arclog.commands'::regclass AND tgname LIKE 'lane_%'"
    [(on,)] = database.rows(f"SELECT array_agg(DISTINCT tgenabled <> 'D') FROM pg_trigger WHERE {lanes}")
    assert len(on) == 1
    return bool(on[0])


async def test_changes_leave_notes_only_while_a_pool_is_crowded(postgres: PostgresStore, database: Database) -> None:
    await postgres._claims.stop_notes()  # other tests left pools that they truncated
    assert not leaves_notes(database)
    work = Work(postgres)
    for n in range(40):
        await work.issue(f"t{n:02}", 20 if n < 2 else 1)
    await work.claim(1)
    assert leaves_notes(database)
    await work.issue("late", 1, pool="q")  # no crowd there
    assert not database.rows("SELECT 1 FROM arclog.lane_notes WHERE pool = 'q'")
    await work.issue("late", 1)
    assert database.rows("SELECT tenant FROM arclog.lane_notes")[-1] == ("late",)
    while work.waiting and leaves_notes(database):
        await work.close(*await work.claim(1))
    assert not database.rows("SELECT 1 FROM arclog.crowded")
    assert work.waiting  # the rest does without


@pytest.mark.parametrize("limit", [1, 8])
async def test_a_pool_that_is_empty_is_no_longer_crowded(
    postgres: PostgresStore, database: Database, limit: int
) -> None:
    work = Work(postgres)
    for n in range(40):
        await work.issue(f"t{n:02}")
    while work.waiting:
        for command_id in await work.claim(limit, pools=["default"]):
            await work.close(command_id)
    await work.claim(limit, pools=["default"])
    assert not leaves_notes(database)


@pytest.mark.parametrize("built", [True, False])
async def test_notes_are_read_by_workers_of_one_tenant(
    postgres: PostgresStore, database: Database, monkeypatch: pytest.MonkeyPatch, built: bool
) -> None:
    """Their claims do not need the order of all tenants, so nobody else might read them."""
    monkeypatch.setattr(postgres_work, "_UNREAD", 4)
    work = Work(postgres)
    for n in range(40):
        await work.issue(f"t{n:02}")
    await work.claim(1)
    if built:
        await work.claim(1)
    for _ in range(30):
        await work.issue("t00")
        for command_id in await work.claim(1, tenant="t00"):
            await work.close(command_id)
    [(unread,)] = database.rows("SELECT count(*) FROM arclog.lane_notes")
    assert unread <= 4 * 3  # a command leaves three: when it is issued, claimed and closed
    for n in range(1, 40):
        for command_id in await work.claim(9, tenant=f"t{n:02}"):
            await work.close(command_id)
    for _ in range(4):
        await work.claim(1, tenant="t00")
    assert not leaves_notes(database)


async def test_a_server_of_the_release_before_makes_a_pool_crowded(postgres: PostgresStore, database: Database) -> None:
    """It takes a weaker lock, and knows of no triggers that are off."""
    await postgres._claims.stop_notes()
    with database.connect(autocommit=False) as connection:
        connection.execute("LOCK TABLE arclog.commands IN SHARE MODE")
        connection.execute("INSERT INTO arclog.crowded (pool, built) VALUES ('default', false) ON CONFLICT DO NOTHING")
        connection.commit()
    assert leaves_notes(database)
    await Work(postgres).issue("a")
    assert database.rows("SELECT tenant FROM arclog.lane_notes") == [("a",)]


async def test_it_does_so_with_an_outdated_snapshot(postgres: PostgresStore, database: Database) -> None:
    """As behind a pooler, where each transaction begins with a SELECT, if repeatable read is the database's default."""
    database.rows("ALTER TABLE arclog.commands ENABLE TRIGGER ALL")
    with database.connect(autocommit=False) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT set_config('jit', 'off', true)")
        await postgres._claims.stop_notes()
        assert not leaves_notes(database)
        connection.execute("LOCK TABLE arclog.commands IN SHARE MODE")
        connection.execute("INSERT INTO arclog.crowded (pool, built) VALUES ('default', false) ON CONFLICT DO NOTHING")
        connection.commit()
    assert leaves_notes(database)


async def test_notes_continue_while_a_transaction_changes_commands(postgres: PostgresStore, database: Database) -> None:
    """Whoever stops them waits briefly for changes in progress, then leaves it to the next server that opens the store."""
    database.rows("ALTER TABLE arclog.commands ENABLE TRIGGER ALL")
    with database.connect(autocommit=False) as connection:
        connection.execute("DELETE FROM arclog.commands")
        await postgres._claims.stop_notes()
        assert leaves_notes(database)
    other = PostgresStore(database.dsn, clock=FakeClock(), settings=Settings({"store.unsafe": True}))
    await other.open()
    await other.close()
    assert not leaves_notes(database)


async def test_notes_continue_where_a_snapshot_may_be_outdated(postgres: PostgresStore, database: Database) -> None:
    database.rows("ALTER TABLE arclog.commands ENABLE TRIGGER ALL")
    with database.connect(autocommit=False) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT 1 FROM arclog.crowded")
        connection.execute("SELECT arclog.stop_notes()")
        connection.commit()
    assert leaves_notes(database)
    name = database.rows("SELECT quote_ident(current_database())")[0][0]
    database.rows(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    try:
        other = PostgresStore(database.dsn, clock=FakeClock(), settings=Settings({"store.unsafe": True}))
        await other.open()
        await other.close()
    finally:
        database.rows(f"ALTER DATABASE {name} RESET default_transaction_isolation")
    assert not leaves_notes(database)
