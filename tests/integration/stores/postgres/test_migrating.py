"""A store of the release before is brought up to date while servers of that release go on."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import psycopg
import pytest

from arclog.stores.postgres.connection.connect import SCHEMA
from arclog.stores.postgres.queries import load_migrations
from arclog.stores.sql.files import is_online
from tests.servers.postgres import Database
from tests.unit.stores.support import change, creation

BEFORE = 3
BUILDING = "SELECT 1 FROM pg_stat_progress_create_index"
INDEXES = """
SELECT relname, indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE relnamespace = 'arclog'::regnamespace
"""
ROW = "1, 'RUNNING', NULL, 1, NULL, NULL, false, NULL, false, 'r', 'n', 'p', 1, 'd', 't', 'p', 'e', 1, '', 0"


def older(database: Database, runs: int = 50, schema: int = BEFORE) -> None:
    """As the release before left it."""
    database.rows("CREATE SCHEMA arclog")
    for _, script in load_migrations(0, "arclog")[:schema]:
        database.rows(script)
    database.rows("CREATE TABLE arclog.schema_version (version int8 NOT NULL, oldest int8 NOT NULL)")
    database.rows(f"INSERT INTO arclog.schema_version VALUES ({schema}, 2)")
    database.rows(f"INSERT INTO arclog.executions SELECT n, {ROW} FROM generate_series(1000001, {1_000_000 + runs}) n")


async def until(database: Database, query: str) -> None:
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(database.rows, query):  # noqa: ASYNC110 - another process's doing
            await asyncio.sleep(0.01)


def names(script: str) -> set[str]:
    return {line.split()[2] for line in script.splitlines() if line.startswith("CREATE INDEX")}


async def test_indexes_are_built_beside_whoever_writes(postgres: Database, opened: Any) -> None:
    older(postgres)
    with postgres.connect(autocommit=False) as writer:
        writer.execute(f"INSERT INTO arclog.executions VALUES (1, {ROW})")
        opening = asyncio.ensure_future(opened(postgres))
        await until(postgres, BUILDING)
        with postgres.connect() as other:  # of the release before
            other.execute("SET lock_timeout = '1s'")
            other.execute(f"INSERT INTO arclog.executions VALUES (2, {ROW})")
            other.execute("UPDATE arclog.executions SET head = 2 WHERE execution_id = 2")
        assert not opening.done()
        writer.commit()
    store = await opening
    assert postgres.rows("SELECT version, oldest FROM arclog.schema_version") == [(SCHEMA, 2)]
    built = dict(postgres.rows(INDEXES))
    for number, script in load_migrations(0, "arclog"):
        if is_online(script):
            assert number > BEFORE
            assert all(built[name] for name in names(script))
    await store.append(change(2, 2))
    await store.append(creation(5))
    assert len(await store.executions(limit=100)) == 53


async def test_an_index_that_a_dead_process_left_is_built_anew(postgres: Database, opened: Any) -> None:
    older(postgres)

    def build() -> None:
        with pytest.raises(psycopg.Error), postgres.connect() as connection:
            connection.execute(
                "CREATE INDEX CONCURRENTLY outbox_dead ON arclog.outbox (execution_id, n) WHERE state = 'dead'"
            )

    with postgres.connect(autocommit=False) as writer:
        writer.execute("LOCK TABLE arclog.outbox IN ROW EXCLUSIVE MODE")
        builder = threading.Thread(target=build)
        builder.start()
        await until(postgres, BUILDING)
        postgres.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_progress_create_index")
        await asyncio.to_thread(builder.join)
    assert ("outbox_dead", False) in postgres.rows(INDEXES)
    await opened(postgres)
    assert ("outbox_dead", True) in postgres.rows(INDEXES)


async def test_servers_that_start_at_once_build_each_index_once(postgres: Database, opened: Any) -> None:
    older(postgres)
    with postgres.connect(autocommit=False) as writer:
        writer.execute(f"INSERT INTO arclog.executions VALUES (1, {ROW})")
        opening = [asyncio.ensure_future(opened(postgres)) for _ in range(3)]
        await until(postgres, BUILDING)
        writer.commit()
    first, *others = await asyncio.gather(*opening)
    await first.append(creation(5))
    for other in others:
        assert len(await other.events(5)) == 1
    assert all(valid for _, valid in postgres.rows(INDEXES))


async def test_a_table_in_use_is_waited_for_without_holding_others_up(postgres: Database, opened: Any) -> None:
    older(postgres)
    with postgres.connect(autocommit=False) as writer:
        writer.execute("LOCK TABLE arclog.commands IN ROW EXCLUSIVE MODE")
        opening = asyncio.ensure_future(opened(postgres))
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'arclog.commands'::regclass"
        await until(postgres, waiting)
        with postgres.connect() as other:
            other.execute("SET lock_timeout = '2s'")
            other.execute("DELETE FROM arclog.commands")
        assert not opening.done()
        writer.rollback()
    await opening


@pytest.mark.parametrize("crowded", [True, False])
async def test_a_crowded_pool_goes_on_leaving_notes(postgres: Database, opened: Any, crowded: bool) -> None:
    older(postgres, runs=0, schema=15)
    if crowded:
        postgres.rows("INSERT INTO arclog.crowded VALUES ('default', true)")
    await opened(postgres)
    on = "SELECT tgenabled = 'O' FROM pg_trigger WHERE tgrelid = 'arclog.commands'::regclass"
    assert postgres.rows(on) == [(crowded,)] * 3
