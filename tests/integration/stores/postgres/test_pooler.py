"""Behind a pooler that gives every transaction another server connection."""

import asyncio

import pytest
from msgspec.structs import replace

from arclog.model.config.settings import Settings
from arclog.ports.storage.store import Appended, NewCommand, Scope
from arclog.stores.postgres import PostgresStore
from arclog.wiring.clocks import SystemClock
from tests.servers.pooler import Pooler
from tests.unit.stores.support import change, creation


@pytest.mark.parametrize("prepare", ["never", "auto"])
async def test_everything_works_by_transactions_alone(postgres_server, postgres, prepare):
    with Pooler(postgres_server, postgres) as pooler:
        settings = Settings().replaced(store__prepare=prepare)
        stores = [PostgresStore(pooler.dsn, clock=SystemClock(), settings=settings) for _ in range(2)]
        for store in stores:
            await store.open()

        async def run(store, number):
            await store.append(creation(number))
            for head in range(1, 6):
                work = NewCommand(number * 100 + head, "s", 1, ("noop",))
                assert isinstance(await store.append(change(number, head, issue=[work])), Appended)
                assert (await store.execution(number)).head == head + 1

        await asyncio.gather(*(run(store, 10 * n + i) for n, store in enumerate(stores, 1) for i in range(5)))
        taken = await asyncio.gather(
            *(store.claim("w", limit=30, lease_until=1 << 60, kinds=["noop"]) for store in stores)
        )
        assert len({command.command_id for claimed in taken for command in claimed}) == sum(map(len, taken)) == 50
        assert len(await stores[0].tail(limit=1000)) == 60
        for store in stores:
            await store.close()
        assert pooler.transactions > 50


async def test_a_request_that_got_lost_behind_a_pooler(postgres_server, postgres, monkeypatch):
    from tests.integration.stores.postgres.test_faults import lose_after_commit

    with Pooler(postgres_server, postgres) as pooler:
        settings = Settings().replaced(store__prepare="never")
        store = PostgresStore(pooler.dsn, clock=SystemClock(), settings=settings)
        await store.open()
        await store.append(creation(1))
        lose_after_commit(monkeypatch)
        assert (await store.append(change(1, 1))).last_seq == 2
        assert len(await store.events(1)) == 2
        await store.close()


async def test_a_pool_becomes_crowded_if_repeatable_read_is_the_default(postgres_server, postgres):
    """Each transaction begins with a SELECT behind a pooler, and its isolation cannot be changed after that."""
    [(name,)] = postgres.rows("SELECT quote_ident(current_database())")
    postgres.rows(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    with Pooler(postgres_server, postgres) as pooler:
        settings = Settings().replaced(store__prepare="never")
        store = PostgresStore(pooler.dsn, clock=SystemClock(), settings=settings)
        await store.open()
        for number in range(1, 41):
            begin = creation(number)
            assert begin.new is not None
            new = replace(begin.new, scope=Scope(f"t{number:02}", "x", "y"))
            await store.append(replace(begin, new=new, issue=[NewCommand(number * 100, "s", 1, ("noop",))]))
        await store.claim("w", limit=1, lease_until=1 << 60, kinds=["noop"])
        await store.close()
    assert postgres.rows("SELECT 1 FROM arclog.crowded")
