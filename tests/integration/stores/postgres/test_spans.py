"""Partitions: made ahead and at need, never one over another, and dropped as a whole."""

import asyncio

from arclog.model.config.settings import Settings
from arclog.model.events import Event
from arclog.model.ids import EPOCH_MS, compose
from arclog.ports.storage.store import ExecutionState
from arclog.stores.postgres import PostgresStore
from arclog.testing.virtual import FakeClock
from tests.unit.stores.support import change, creation

HOUR_MS = 3_600_000
HOURLY = {"store__partition_s": 3600}
OVER = ExecutionState("COMPLETED", ended_at=EPOCH_MS * 1000 + 1)


def minted(hour: float) -> int:
    return compose(EPOCH_MS + round(hour * HOUR_MS), 0, 0)


def spans(database):
    rows = database.rows("SELECT lower, upper FROM arclog.spans ORDER BY lower")
    tables = {name for (name,) in database.rows("SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r'")}
    assert tables == {f"{table}_{lower}" for lower, _ in rows for table in ("log", "task_logs")}
    return rows


async def made(store):
    """Until the next span stands, or was given up."""
    making = store._spans._making
    assert making is not None
    await asyncio.wait_for(making, 50)


async def finished(store, execution_id):
    await store.append(creation(execution_id))
    end = change(execution_id, 1, Event("playbook.finished", 1))
    await store.append(type(end)(end.execution_id, end.expected, end.events, execution_id + 1, OVER))


async def test_a_span_is_made_ahead(postgres):
    clock = FakeClock((EPOCH_MS + 10 * HOUR_MS) * 1000)
    store = PostgresStore(postgres.dsn, clock=clock, settings=Settings().replaced(**HOURLY))
    await store.open()
    assert [lower for lower, _ in spans(postgres)] == [minted(10), minted(11)]
    clock.advance(3600)
    await store.append(creation(minted(11.2)))
    await made(store)
    assert [lower for lower, _ in spans(postgres)] == [minted(10), minted(11), minted(12)]
    await store.close()


async def test_a_run_does_not_wait_for_the_next_span_nor_for_who_is_in_its_way(postgres, caplog):
    clock = FakeClock((EPOCH_MS + 10 * HOUR_MS) * 1000)
    store = PostgresStore(postgres.dsn, clock=clock, settings=Settings().replaced(**HOURLY, store__timeout_s=0.3))
    await store.open()
    clock.advance(3600)
    # As VACUUM and CREATE INDEX CONCURRENTLY do.
    with postgres.connect() as other, other.transaction():
        other.execute("LOCK TABLE arclog.log IN SHARE UPDATE EXCLUSIVE MODE")
        await store.append(creation(minted(11.2)))
        await made(store)
        assert "next partition could not be made" in caplog.text
        assert "a lock was not available" in caplog.text
    await store.append(creation(minted(11.3)))
    await made(store)
    assert [lower for lower, _ in spans(postgres)] == [minted(10), minted(11), minted(12)]
    await store.close()


async def test_servers_that_need_the_same_span_make_one(postgres, opened):
    stores = [await opened(postgres, **HOURLY) for _ in range(3)]
    await asyncio.gather(
        *(store.append(creation(minted(hour) + n)) for n, store in enumerate(stores, 1) for hour in (3, 4))
    )
    assert [lower for lower, _ in spans(postgres)][:2] == [minted(3), minted(4)]
    for store in stores:
        assert len(await store.executions()) == 6


async def test_spans_of_another_width_fit_in_between(postgres, opened):
    hourly = await opened(postgres, **HOURLY)
    await hourly.append(creation(minted(5)))
    daily = await opened(postgres, store__partition_s=86_400)
    for hour in (2, 5.5, 9):
        await daily.append(creation(minted(hour) + 1))
    assert spans(postgres)[:3] == [(0, minted(5)), (minted(5), minted(6)), (minted(6), minted(24))]
    assert [batch.execution_id for batch in await daily.tail()] == [
        minted(5),
        *(minted(hour) + 1 for hour in (2, 5.5, 9)),
    ]


async def test_retention_drops_spans_and_leaves_what_is_live(postgres, opened):
    store = await opened(postgres, **HOURLY)
    for hour in (1, 2, 3, 4):
        for n in range(3):
            await finished(store, minted(hour) + 10 * n)
    live = minted(2) + 500
    await store.append(creation(live))
    cut = (EPOCH_MS + 4 * HOUR_MS) * 1000
    assert await store.retire(cut, dry_run=True) == 6
    assert [await store.retire(cut) for _ in range(3)] == [3, 3, 0]
    assert [lower for lower, _ in spans(postgres)][:2] == [minted(2), minted(4)]
    remaining = {record.execution_id for record in await store.executions()}
    assert remaining == {live, *(minted(hour) + 10 * n for hour in (2, 4) for n in range(3))}
    for table in ("mark", "step_runs"):
        ours = {row[0] for row in postgres.rows(f"SELECT execution_id FROM arclog.{table}")}
        assert ours <= remaining
    assert len(await store.events(live)) == 1
    # Another server, whose idea of the spans is older, goes on.
    await store.append(change(live, 1))
