"""Retention on PostgreSQL: nobody waits for it, and whoever comes after a process that was killed does the rest."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import psycopg
import pytest

from arclog.model.errors import StoreUnavailable
from arclog.model.ids import EPOCH_MS
from arclog.stores.postgres import executions
from tests.integration.stores.postgres.test_spans import HOUR_MS, HOURLY, minted, spans
from tests.servers.postgres import Database
from tests.unit.stores.filling import whole_run
from tests.unit.stores.support import change, child, creation

CUT = (EPOCH_MS + 5 * HOUR_MS) * 1000
LIVE = minted(9)
TABLES = ("executions", "log", "mark", "step_runs", "ingested", "snapshots", "task_logs", "task_log_sizes", "outbox")


async def filled(store: Any, hours: int = 3, runs: int = 4) -> list[int]:
    ids = [minted(hour) + n for hour in range(1, hours + 1) for n in range(1, runs + 1)]
    await asyncio.gather(*(whole_run(store, event_id, steps=2) for event_id in ids))
    await store.append(creation(LIVE))
    return ids


def left(database: Database) -> set[int]:
    ids = set()
    for table in TABLES:
        ids |= {execution_id for (execution_id,) in database.rows(f"SELECT DISTINCT execution_id FROM arclog.{table}")}
    return ids


async def retire_all(store: Any) -> int:
    total = 0
    while count := await store.retire(CUT):
        total += count
    return total


async def test_runs_go_in_pieces_and_then_their_tables(
    postgres: Database, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executions, "_PIECE", 3)
    store = await opened(postgres, **HOURLY)
    ids = await filled(store)
    assert await store.retire(CUT, dry_run=True) == 12
    assert [await store.retire(CUT) for _ in range(7)] == [3, 1, 3, 1, 3, 1, 0]
    assert left(postgres) == {LIVE}
    assert not {minted(hour) for hour in (1, 2, 3)} & {lower for lower, _ in spans(postgres)}
    assert await store.execution(ids[0]) is None


async def test_appends_do_not_wait_for_a_table_that_is_being_detached(postgres: Database, opened: Any) -> None:
    store = await opened(postgres, **HOURLY)
    await filled(store, 1)
    assert await store.retire(CUT) == 4
    with postgres.connect(autocommit=False) as reader:  # as a dump has it open
        reader.execute("SELECT count(*) FROM arclog.log")
        retiring = asyncio.ensure_future(store.retire(CUT))
        pending = "SELECT 1 FROM pg_inherits WHERE inhdetachpending"
        async with asyncio.timeout(30):
            while not await asyncio.to_thread(postgres.rows, pending):  # noqa: ASYNC110 - another process's doing
                await asyncio.sleep(0.01)
        for head in range(1, 20):
            await store.append(change(LIVE, head))
        await store.append(creation(LIVE + 1))
        assert len(await store.events(LIVE)) == 20
        with pytest.raises(StoreUnavailable):
            await retiring
    assert await store.retire(CUT) == 0  # what was left half detached is finished
    assert minted(1) not in {lower for lower, _ in spans(postgres)}


async def test_a_run_that_came_meanwhile_keeps_its_span(
    postgres: Database, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(postgres, **HOURLY)
    await filled(store, 2)
    assert await store.retire(CUT) == 4
    late = minted(1) + 99
    await store.append(creation(late))
    assert await retire_all(store) == 4
    assert len(await store.events(late)) == 1
    assert {minted(1)} == {minted(1), minted(2)} & {lower for lower, _ in spans(postgres)}


@pytest.mark.parametrize("table", ["log", "task_logs"])
async def test_a_table_that_was_detached_is_dropped_by_the_next(postgres: Database, opened: Any, table: str) -> None:
    store = await opened(postgres, **HOURLY)
    await filled(store, 1)
    assert await store.retire(CUT) == 4
    part = f"arclog.{table}_{minted(1)}"
    postgres.rows(f"ALTER TABLE arclog.{table} DETACH PARTITION {part} CONCURRENTLY")
    other = await opened(postgres, **HOURLY)
    assert await other.retire(CUT) == 0
    with pytest.raises(psycopg.errors.UndefinedTable):
        postgres.rows(f"SELECT 1 FROM {part}")
    assert minted(1) not in {lower for lower, _ in spans(postgres)}


COLLECTOR = """
import asyncio, sys
from arclog.model.config.settings import Settings
from arclog.stores.postgres import PostgresStore, retention
from arclog.wiring.clocks import SystemClock
retention._PIECE = 2
async def main():
    store = PostgresStore(sys.argv[1], clock=SystemClock(), settings=Settings({"store.partition_s": 3600.0}))
    await store.open()
    while count := await store.retire(int(sys.argv[2])):
        print(count, flush=True)
    await store.close()
asyncio.run(main())
"""


async def test_killed_at_any_moment_the_next_does_the_rest(postgres: Database, opened: Any) -> None:
    store = await opened(postgres, **HOURLY)
    await filled(store, 4, 6)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    moments = random.Random(seed)
    for _ in range(3):
        collector = child(COLLECTOR, postgres.dsn, CUT)
        assert collector.stdout is not None
        for _ in range(moments.randrange(1, 5)):
            await asyncio.to_thread(collector.stdout.readline)
        collector.kill()
        await asyncio.to_thread(collector.communicate)
        halves = "SELECT count(*) FROM arclog.executions e WHERE head <> (SELECT max(seq1) FROM arclog.log WHERE execution_id = e.execution_id)"
        assert postgres.rows(halves) == [(0,)], "whoever finds a run finds all of it"
    await retire_all(store)
    assert left(postgres) == {LIVE}
    assert {lower for lower, _ in spans(postgres)} & {minted(hour) for hour in (1, 2, 3, 4)} == set()
