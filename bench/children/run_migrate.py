"""HOME COUNT: a store of the schema before with so many runs (ARCLOG_STORE_URL: on PostgreSQL, else SQLite); how long this release
takes to bring it up to date, and how long a writer of the release before waits meanwhile at most.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from arclog.model.config.settings import Settings
from arclog.ports.storage.store import ExecutionFilter
from arclog.ports.views.api import ExecuteRequest
from arclog.wiring.clocks import SystemClock
from arclog.wiring.embedded import embedded
from arclog.wiring.process import run

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from bench.children import copied_runs  # noqa: E402 - its path is set above
from bench.children.run_growth import chain  # noqa: E402 - its path is set above

#: the schemas before statements had the indexes that they need
SQLITE_BEFORE, POSTGRES_BEFORE = 12, 3
OLDER = "older"
_COPIED = ("executions", "log", "mark", "step_runs")
#: between two writes of the release before
_PAUSE_S = 0.005


async def original(settings: Settings) -> int:
    """A run that this release made: the others are copies of its rows."""
    async with embedded(settings) as embedding:
        await embedding.start_worker()
        started = await embedding.api.execute(ExecuteRequest(chain("chain", 5)))
        await embedding.api.ended(started.execution_id)
        return int(started.execution_id)


async def sqlite(home: str, count: int) -> dict[str, Any]:
    import apsw

    from arclog.stores.sqlite import SqliteStore
    from arclog.stores.sqlite.connection.connect import APPLICATION
    from arclog.stores.sqlite.queries import load_migrations

    newer, older = os.path.join(home, "newer"), os.path.join(home, OLDER)
    first = await original(Settings({"home": newer}))
    os.makedirs(older, 0o700)
    file = os.path.join(older, "arclog.db")
    connection = apsw.Connection(file)
    connection.pragma("journal_mode", "wal")
    for version, script in load_migrations(0)[:SQLITE_BEFORE]:
        connection.execute(script).fetchall()
        connection.execute(f"PRAGMA user_version = {version}; PRAGMA application_id = {APPLICATION}")
    connection.execute("ATTACH ? AS newer", (os.path.join(newer, "arclog.db"),))
    for table in _COPIED:
        names = [
            [row[1] for row in connection.execute(f"PRAGMA {schema}.table_info({table})")]
            for schema in ("main", "newer")
        ]
        columns = ", ".join(name for name in names[0] if name in names[1] and name != "pos")
        connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM newer.{table}")
    connection.close()
    copied_runs.copy(older, {first: tuple(range(1, count))}, tables=_COPIED)
    store = SqliteStore(file, clock=SystemClock())
    began = time.perf_counter()
    await store.open()
    took = time.perf_counter() - began
    answer = {"took_s": took, "runs": await _runs(store)}
    await store.close()
    await original(Settings({"home": older}))  # it is in use again
    return answer


async def postgres(home: str, count: int, url: str) -> dict[str, Any]:
    import psycopg

    from arclog.stores.postgres.queries import load_migrations
    from arclog.stores.postgres.store import PostgresStore

    first = await original(Settings({"home": os.path.join(home, "newer"), "store.url": url}))
    settings = Settings({"store.schema": OLDER, "store.url": url, "store.partition_s": 3600.0})
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(f"CREATE SCHEMA {OLDER}")
        for _, script in load_migrations(0, OLDER)[:POSTGRES_BEFORE]:
            await connection.execute(script.encode())
        await connection.execute(f"CREATE TABLE {OLDER}.schema_version (version int8 NOT NULL, oldest int8 NOT NULL)")
        await connection.execute(f"INSERT INTO {OLDER}.schema_version VALUES ({POSTGRES_BEFORE}, 2)".encode())
        plain = PostgresStore(url, clock=SystemClock(), settings=settings)
        plain._pool.open()
        await plain._spans.reload()
        await copied_runs.make_spans(plain, count, first)
        await plain._pool.close()
        for table in _COPIED:
            columns = ", ".join(
                row[0]
                for row in await (
                    await connection.execute(
                        "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s "
                        "ORDER BY ordinal_position",
                        (OLDER, table),
                    )
                ).fetchall()
            )
            insert = f"INSERT INTO {OLDER}.{table} ({columns}) SELECT {columns} FROM arclog.{table}"
            await connection.execute(insert.encode())
        await asyncio.to_thread(copied_runs.copy, home, {first: tuple(range(1, count))}, tables=_COPIED, schema=OLDER)
        store = PostgresStore(url, clock=SystemClock(), settings=settings)
        waits: list[float] = []
        writing = asyncio.ensure_future(_write(connection, first, waits))
        began = time.perf_counter()
        await store.open()
        took = time.perf_counter() - began
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    answer = {"took_s": took, "runs": await _runs(store), "longest_wait_ms": max(waits, default=0.0) * 1000}
    await store.close()
    return answer


async def _write(connection: Any, execution_id: int, waits: list[float]) -> None:
    """What a server of the release before does meanwhile."""
    while True:
        began = time.perf_counter()
        await connection.execute(f"UPDATE {OLDER}.executions SET head = head WHERE execution_id = %s", (execution_id,))
        waits.append(time.perf_counter() - began)
        await asyncio.sleep(_PAUSE_S)


async def _runs(store: Any) -> int:
    """How many it has, by the lists that need what the migration made."""
    number = before = 0
    while page := await store.executions(ExecutionFilter(states=("COMPLETED",)), before=before, limit=5000):
        number, before = number + len(page), page[-1].execution_id
    return number


def main(argv: list[str]) -> None:
    home, count, url = argv[0], int(argv[1]), os.environ.get("ARCLOG_STORE_URL", "")
    print(json.dumps(run(postgres(home, count, url) if url else sqlite(home, count))))


if __name__ == "__main__":
    main(sys.argv[1:])
