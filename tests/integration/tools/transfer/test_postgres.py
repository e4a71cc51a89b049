"""Transfers from and to a real PostgreSQL: types, misfits, a server that dies, cancelling."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from arclog.model.errors import MissingExtra
from arclog.ports.secrets import Credential
from arclog.tools.transfer import postgres as ours
from tests.integration.tools.transfer.support import PostgresEnd, Runner, SqliteEnd, sqlite
from tests.servers.postgres import Database, running_postgres


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Runner]:
    runner = Runner(tmp_path)
    yield runner
    await runner.tool.close()


@pytest.fixture
def end(postgres: Database) -> PostgresEnd:
    return PostgresEnd(postgres)


def numbers(folder: Path, count: int, *more: tuple[Any, ...]) -> dict[str, Any]:
    rows = [(n, f"t{n}") for n in range(1, count + 1)]
    path = sqlite(folder / "n.db", "DROP TABLE IF EXISTS n", "CREATE TABLE n (i, t)", rows=[*rows, *more], into="n")
    return {"kind": "sqlite", "database": path, "table": "n"}


TYPES = """CREATE TABLE a (i smallint, n numeric, t timestamptz, d date, j jsonb, x int[], u uuid, b bytea, o bool, v interval,
    f float8, s timestamp, c char(3), m money)"""
VALUES = """INSERT INTO a VALUES (1, 12345678901234567890.123456789, '2027-01-02 03:04:05+02', 'infinity', '{"a": [1, 1.50]}',
    '{1,NULL,3}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '\\xDEAD', true, '1 mon', 'NaN', '2027-01-02 03:04:05.6', 'ab', 3.5),
    (NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)"""


async def test_every_type_goes_from_postgres_to_postgres(run: Runner, end: PostgresEnd) -> None:
    end.run(TYPES)
    end.run(VALUES)
    end.run("CREATE TABLE b (LIKE a)")
    await run.moved({**end.end, "table": "a"}, {**end.end, "table": "b"})
    assert end.run("SELECT a::text FROM a") == end.run("SELECT copied::text FROM b AS copied")


async def test_types_of_a_made_table(run: Runner, end: PostgresEnd) -> None:
    end.run(TYPES)
    await run.moved({**end.end, "table": "a"}, {**end.end, "table": "b", "create": True})
    kinds = end.run("SELECT data_type FROM information_schema.columns WHERE table_name = 'b' ORDER BY ordinal_position")
    assert [kind for (kind,) in kinds] == [
        "bigint", "numeric", "timestamp with time zone", "date", "jsonb", "jsonb", "uuid", "bytea", "boolean", "text",
        "double precision", "timestamp without time zone", "text", "text",
    ]  # fmt: skip


async def test_nothing_is_rounded_on_the_way_to_a_file(run: Runner, end: PostgresEnd) -> None:
    end.run(TYPES)
    end.run(VALUES)
    await run.moved({**end.end, "table": "a"}, {"kind": "ndjson", "path": "a.ndjson"})
    assert (run.folder / "a.ndjson").read_text().splitlines()[0] == (
        '{"i":1,"n":"12345678901234567890.123456789","t":"2027-01-02T01:04:05+00:00","d":"infinity","j":{"a":[1,1.5]},'
        '"x":[1,null,3],"u":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11","b":"3q0=","o":true,"v":"P1M","f":"NaN",'
        '"s":"2027-01-02T03:04:05.6","c":"ab ","m":"$3.50"}'
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("five", "row 9, column i: invalid input syntax for type integer"),
        (3_000_000_000, 'row 9, column i: value "3000000000" is out of range'),
        ("5\0", "row 9, column i contains the character NUL"),
    ],
)  # fmt: skip
async def test_a_value_that_does_not_fit(run: Runner, end: PostgresEnd, value: Any, message: str) -> None:
    end.run("CREATE TABLE t (i integer, t text)")
    problem = await run.failure(numbers(run.folder, 8, (value, "x"), (10, "y")), end.end)
    assert problem.kind == "sql"
    assert problem.message.startswith(message)
    assert end.run("SELECT * FROM t") == []


async def test_half_a_character(run: Runner, end: PostgresEnd) -> None:
    rows = [{"a": "x"}, {"a": "x"}, {"a": "x"}, {"a": "\ud800"}]
    problem = await run.failure(None, {**end.end, "create": True}, rows=rows)
    assert problem.message.startswith("row 4, column a contains a lone surrogate")
    assert end.run("SELECT to_regclass('t')") == [(None,)]


async def test_a_constraint_names_the_row(run: Runner, end: PostgresEnd) -> None:
    end.run("CREATE TABLE t (i integer PRIMARY KEY, t text CHECK (t <> 'bad'))")
    problem = await run.failure(numbers(run.folder, 7, (8, "bad")), end.end)
    assert (problem.kind, problem.code) == ("constraint", "23514")
    assert problem.message.startswith("row 8: ")
    problem = await run.failure(numbers(run.folder, 7, (7, "again")), end.end)
    assert (problem.kind, problem.code) == ("constraint", "23505")
    assert end.run("SELECT * FROM t") == []


async def test_an_upsert_needs_an_index(run: Runner, end: PostgresEnd) -> None:
    end.run("CREATE TABLE t (i integer, t text)")
    problem = await run.failure(numbers(run.folder, 1), {**end.end, "mode": "upsert", "key": "i"})
    assert "needs a unique index" in problem.message
    problem = await run.failure(numbers(run.folder, 1), {**end.end, "mode": "upsert", "key": "no"})
    assert "key: 'no' is not one of the written columns" in problem.message


async def test_schemas_and_credentials(run: Runner, end: PostgresEnd) -> None:
    end.run("CREATE SCHEMA s")
    database = end.database
    fields = {name: getattr(database, name) for name in ("host", "port", "user", "password", "dbname")}
    run.auth = Credential("db", "postgres_credential", fields, (database.password,))
    await run.moved(numbers(run.folder, 2), {"kind": "postgres", "schema": "s", "table": "t", "create": True})
    assert end.run("SELECT * FROM s.t") == [(1, "t1"), (2, "t2")]
    run.auth = Credential("db", "postgres_credential", {**fields, "password": "CANARY"}, ("CANARY",))
    problem = await run.failure(numbers(run.folder, 1), {"kind": "postgres", "table": "t"})
    assert problem.kind == "auth"
    assert "CANARY" not in problem.message
    problem = await run.failure(
        numbers(run.folder, 1), {"kind": "postgres", "dsn": "postgresql://u:CANARY@127.0.0.1:1/x", "table": "t"}
    )
    assert (problem.kind, problem.retryable) == ("connection", True)
    assert "CANARY" not in problem.message


async def test_a_missing_driver(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"kind postgres needs .*pip install 'arclog\[postgres\]'"):
        await run.failure({"kind": "postgres", "dsn": "x", "table": "t"}, {"kind": "csv", "path": "a.csv"})
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtra, match=r"kind parquet needs .*pip install 'arclog\[duckdb\]'"):
        await run.failure({"kind": "parquet", "path": "x"}, {"kind": "csv", "path": "a.csv"})


def at_chunk(monkeypatch: pytest.MonkeyPatch, end: type, method: str, number: int, do: Any) -> None:
    """Have something done on the transfer's thread before a chunk is read or written."""
    real = getattr(end, method)
    count = 0

    def counted(self: Any, *args: Any) -> Any:
        nonlocal count
        count += 1
        if count == number:
            do()
        return real(self, *args)

    monkeypatch.setattr(end, method, counted)


async def test_a_target_that_dies(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_postgres() as server:
        end = PostgresEnd(server.create())
        end.run("CREATE TABLE t (i integer, t text)")
        at_chunk(monkeypatch, ours.PostgresTarget, "write", 3, server.kill)
        source = numbers(run.folder, 5000)
        problem = await run.failure(source, end.end, chunk_rows=1000)
        assert (problem.kind, problem.retryable) == ("connection", True)
        server.start()
        assert end.run("SELECT count(*) FROM t") == [(0,)]
        # The next attempt finds the server again.
        assert (await run.moved(source, end.end))["rows"] == 5000


async def test_a_source_that_dies(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_postgres() as server:
        end = PostgresEnd(server.create())
        end.run("CREATE TABLE t AS SELECT n FROM generate_series(1, 1000) AS n")
        back = SqliteEnd(run.folder)
        back.run("CREATE TABLE t (n)")
        from arclog.tools.transfer.sqlite import SqliteTarget

        at_chunk(monkeypatch, SqliteTarget, "write", 3, server.kill)
        problem = await run.failure(end.end, back.end)
        assert (problem.kind, problem.retryable) == ("connection", True)
        assert back.run("SELECT * FROM t") == []


def until_somebody_waits(end: PostgresEnd) -> None:
    while not end.run("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
        pass


async def test_cancelled_while_it_waits_for_a_lock(run: Runner, end: PostgresEnd) -> None:
    end.run("CREATE TABLE t (i integer, t text)")
    with end.database.connect(autocommit=False) as holder:
        holder.execute("LOCK TABLE t")
        task = asyncio.create_task(run(numbers(run.folder, 3), {**end.end, "mode": "replace"}))
        await asyncio.to_thread(until_somebody_waits, end)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        holder.rollback()
    assert end.run("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'arclog'") == [(0,)]
    assert end.run("SELECT * FROM t") == []


async def test_cancelled_while_the_server_says_nothing(run: Runner, tmp_path: Path) -> None:
    run = Runner(tmp_path, tasks__kill_grace_s=0.1)
    with running_postgres(unsafe=True) as server:
        end = PostgresEnd(server.create())
        end.run("CREATE TABLE t (i integer, t text)")
        with end.database.connect(autocommit=False) as holder:
            holder.execute("LOCK TABLE t")
            task = asyncio.create_task(run(numbers(run.folder, 3), {**end.end, "mode": "replace"}))
            await asyncio.to_thread(until_somebody_waits, end)
            ((backend,),) = end.run("SELECT pid FROM pg_stat_activity WHERE application_name = 'arclog'")
            os.kill(backend, signal.SIGSTOP)
            try:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            finally:
                os.kill(backend, signal.SIGCONT)
            holder.rollback()
    await run.tool.close()


async def test_cancelled_between_chunks(run: Runner, end: PostgresEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    end.run("CREATE TABLE t (i integer, t text)")
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(run(numbers(run.folder, 100), end.end))
    cancelled = asyncio.Event()

    def cancel() -> None:
        def now() -> None:
            task.cancel()
            cancelled.set()

        loop.call_soon_threadsafe(now)
        asyncio.run_coroutine_threadsafe(cancelled.wait(), loop).result()

    at_chunk(monkeypatch, ours.PostgresTarget, "write", 4, cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert end.run("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'arclog'") == [(0,)]
    assert end.run("SELECT * FROM t") == []
