"""Positions of the log are commit-safe: also when transactions end in another order than they began in."""

import asyncio

from arclog.stores.postgres.connection.pipeline import packed
from arclog.stores.postgres.queries import queries
from tests.unit.stores.support import change, creation

SQL = queries("arclog")
NAIVE = "SELECT pos FROM arclog.log WHERE pos > %s ORDER BY pos"


async def positions(store, after=0):
    return [batch.position for batch in await store.tail(after=after)]


def hold_a_transaction(database, execution_id):
    """A transaction that has written a log row, as an append on another server does, and is not committed yet."""
    connection = database.connect(autocommit=False)
    connection.execute(
        """INSERT INTO arclog.log
           SELECT %s, 1, 1, 1, 1, 1, (SELECT base FROM arclog.positions) + (pg_current_xact_id()::text::int8 << 19), '[]'""",
        (execution_id,),
    )
    return connection


async def test_a_row_that_is_committed_late_is_not_passed_over(postgres, opened):
    store = await opened(postgres)
    await store.append(creation(1))
    seen = (await positions(store))[-1]
    slow = hold_a_transaction(postgres, 77)
    await store.append(creation(2))  # began later, is committed earlier

    # A reader that takes the newest committed position goes past the row that is still to come …
    naive = postgres.rows(NAIVE.replace("%s", str(seen)))[-1][0]
    ours = await positions(store, seen)
    slow.commit()
    slow.close()
    assert postgres.rows(NAIVE.replace("%s", str(naive))) == [], "nothing comes after what the naive reader saw"
    assert postgres.rows(f"SELECT count(*) FROM arclog.log WHERE pos > {seen} AND pos < {naive}") == [(1,)]

    # … ours waited, and now sees both.
    assert ours == []
    assert [batch.execution_id for batch in await store.tail(after=seen)] == [77, 2]


async def test_a_transaction_that_is_rolled_back_holds_nothing_back(postgres, opened):
    store = await opened(postgres)
    await store.append(creation(1))
    slow = hold_a_transaction(postgres, 77)
    await store.append(creation(2))
    slow.rollback()
    slow.close()
    async with asyncio.timeout(60):
        # PostgreSQL's own transactions, such as those of autovacuum, hold rows back until they end.
        while [batch.execution_id for batch in await store.tail()] != [1, 2]:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.05)


async def test_positions_go_on_after_a_restore_into_a_younger_server(postgres, opened):
    store = await opened(postgres)
    await store.append(creation(1))
    # As if the rows came from a server that had carried out far more transactions.
    postgres.rows("UPDATE arclog.log SET pos = pos + (1000000000::int8 << 19)")
    restored = (postgres.rows("SELECT max(pos) FROM arclog.log"))[0][0]
    again = await opened(postgres)
    assert await positions(again) == [restored]
    await again.append(creation(2))
    await again.append(change(1, 1))
    later = await positions(again, restored)
    assert len(later) == 2
    assert later[0] > restored
    third = await opened(postgres)
    await third.append(change(1, 2))
    assert len(await positions(third, later[-1])) == 1


def test_numbers_are_eight_bytes_whatever_their_size():
    assert [len(value or b"") for value in packed((0, -1, 1 << 62))] == [8, 8, 8]
