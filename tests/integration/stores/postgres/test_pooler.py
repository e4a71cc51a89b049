"""Behind a pooler that gives every transaction another server connection."""

import asyncio

import pytest

from arclog.model.config.settings import Settings
from arclog.ports.storage.store import Appended, NewCommand
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
