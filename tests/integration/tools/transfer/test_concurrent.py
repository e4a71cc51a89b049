"""Transfers into one new table at the same time: from one process, from several, and beside other programs."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from arclog.tools.transfer import duckdb as duckdb_ends
from arclog.tools.transfer import postgres as postgres_ends
from arclog.tools.transfer import sqlite as sqlite_ends
from tests.integration.tools.transfer.support import DuckdbEnd, PostgresEnd, Runner, SqliteEnd
from tests.servers.postgres import Database

End = Any
PARALLEL = 8
TARGETS = {
    SqliteEnd: sqlite_ends.SqliteTarget,
    DuckdbEnd: duckdb_ends.DuckdbTarget,
    PostgresEnd: postgres_ends.PostgresTarget,
}


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Runner]:
    runner = Runner(tmp_path)
    yield runner
    await runner.tool.close()


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def end(request: pytest.FixtureRequest, tmp_path: Path) -> End:
    if request.param == "sqlite":
        return SqliteEnd(tmp_path)
    if request.param == "duckdb":
        return DuckdbEnd(tmp_path)
    return PostgresEnd(request.getfixturevalue("postgres"))


def rows_of(number: int, count: int = 7) -> list[dict[str, Any]]:
    return [{"id": number * 100 + n, "of": number} for n in range(count)]


def ids(end: End) -> list[int]:
    return [row[0] for row in end.run("SELECT id FROM t ORDER BY id")]


EXPECTED = sorted(row["id"] for number in range(PARALLEL) for row in rows_of(number))


@pytest.mark.parametrize("mode", [{}, {"mode": "upsert", "key": "id"}])
async def test_parallel_transfers_make_one_table(run: Runner, end: End, mode: dict[str, Any]) -> None:
    target = {**end.end, "create": True, **mode}
    moved = await asyncio.gather(*(run(None, target, rows=rows_of(number)) for number in range(PARALLEL)))
    assert [outcome.error for outcome in moved] == [None] * PARALLEL
    assert ids(end) == EXPECTED


async def test_parallel_replacements_leave_one_of_them(run: Runner, end: End) -> None:
    target = {**end.end, "create": True, "mode": "replace"}
    moved = await asyncio.gather(*(run(None, target, rows=rows_of(number)) for number in range(PARALLEL)))
    assert [outcome.error for outcome in moved] == [None] * PARALLEL
    kept = ids(end)
    assert kept in [[row["id"] for row in rows_of(number)] for number in range(PARALLEL)]


async def test_parallel_transfers_to_several_new_tables(run: Runner, end: End) -> None:
    targets = [{**end.end, "table": f"t{number}", "create": True} for number in range(PARALLEL)]
    moved = await asyncio.gather(*(run(None, target, rows=rows_of(number)) for number, target in enumerate(targets)))
    assert [outcome.error for outcome in moved] == [None] * PARALLEL
    assert [end.run(f"SELECT count(*) FROM t{number}") for number in range(PARALLEL)] == [[(7,)]] * PARALLEL


async def test_a_failed_transfer_takes_nothing_of_the_others_along(run: Runner, end: End) -> None:
    target = {**end.end, "create": True}
    bad = [*rows_of(50, 20), {"unknown": 1}]
    moved = await asyncio.gather(
        run(None, target, rows=bad), *(run(None, target, rows=rows_of(number)) for number in range(PARALLEL))
    )
    assert moved[0].error is not None
    assert [outcome.error for outcome in moved[1:]] == [None] * PARALLEL
    assert ids(end) == EXPECTED


async def test_a_waiting_transfer_can_be_cancelled(run: Runner, end: End, monkeypatch: pytest.MonkeyPatch) -> None:
    holds, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        holds.set()
        may_go.wait(60)

    before(monkeypatch, end, "commit", hold)
    first = asyncio.create_task(run(None, {**end.end, "create": True}, rows=rows_of(1)))
    await asyncio.to_thread(holds.wait, 60)
    second = asyncio.create_task(run(None, {**end.end, "create": True}, rows=rows_of(2)))
    await until_it_waits(end, second)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    may_go.set()
    assert (await first).error is None
    assert ids(end) == [row["id"] for row in rows_of(1)]


TRANSFERS = """
import asyncio, json, sys
from pathlib import Path
from tests.integration.tools.transfer.support import Runner

async def main(folder, target, number):
    run = Runner(Path(folder), f"scratch-{number}")
    print("ready", flush=True)
    sys.stdin.readline()
    rows = [{"id": number * 100 + n, "of": number} for n in range(7)]
    outcome = await run(None, target, rows=rows)
    print(json.dumps(outcome.error and outcome.error.as_dict()), flush=True)
    await run.tool.close()

asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])))
"""


async def test_several_processes_make_one_table(end: End, tmp_path: Path) -> None:
    count = 3
    target = json.dumps({**end.end, "create": True, "mode": "upsert", "key": "id"})
    pipe = asyncio.subprocess.PIPE
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", TRANSFERS, str(tmp_path), target, str(number)), stdin=pipe, stdout=pipe
        )
        for number in range(count)
    ]
    for process in processes:
        assert process.stdout
        assert await process.stdout.readline() == b"ready\n"
    answers = await asyncio.gather(*(process.communicate(b"\n") for process in processes))
    assert [json.loads(out) for out, _ in answers] == [None] * count
    assert ids(end) == sorted(row["id"] for number in range(count) for row in rows_of(number))


@pytest.mark.parametrize("ending", ["commit", "rollback"])
async def test_a_table_that_another_program_is_making(run: Runner, postgres: Database, ending: str) -> None:
    end = PostgresEnd(postgres)
    with postgres.connect(autocommit=False) as other:
        other.execute("CREATE TABLE t (id bigint, of bigint)")
        moving = asyncio.create_task(run(None, {**end.end, "create": True}, rows=rows_of(1)))
        await until_it_waits(end, moving)
        getattr(other, ending)()
        assert (await moving).error is None
    assert ids(end) == [row["id"] for row in rows_of(1)]


async def test_a_type_that_has_the_tables_name(run: Runner, postgres: Database) -> None:
    end = PostgresEnd(postgres)
    end.run("CREATE TYPE t AS ENUM ('a')")
    problem = await run.failure(None, {**end.end, "create": True}, rows=rows_of(1))
    assert (problem.kind, problem.code, problem.retryable) == ("sql", "42710", False)


@pytest.mark.parametrize("kind", [SqliteEnd, DuckdbEnd])
async def test_a_file_that_another_program_makes_meanwhile(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    end = kind(tmp_path)
    made = iter([True])

    def make() -> None:
        if next(made, False):
            end.run("CREATE TABLE t (id BIGINT, of BIGINT)")
            end.run("INSERT INTO t VALUES (1, 1)")

    before(monkeypatch, end, "commit", make)
    moved = await run.moved(None, {**end.end, "create": True}, rows=rows_of(2))
    assert moved["rows"] == 7
    assert ids(end) == [1, *(row["id"] for row in rows_of(2))]
    left = await asyncio.to_thread(lambda: {path.name for path in tmp_path.iterdir()})
    assert left <= {end.path.name, "scratch"}


@pytest.mark.parametrize("kind", [SqliteEnd, DuckdbEnd])
async def test_a_new_file_is_seen_when_it_is_whole(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    end = kind(tmp_path)
    seen: list[bool] = []
    before(monkeypatch, end, "commit", lambda: seen.append(end.path.exists()))
    await run.moved(None, {**end.end, "create": True}, rows=rows_of(1))
    assert seen == [False]
    assert end.path.stat().st_mode & 0o777 == 0o666 & ~umask()


async def test_a_duckdb_file_that_another_process_has_open_is_waited_for(tmp_path: Path) -> None:
    end = DuckdbEnd(tmp_path)
    end.run("CREATE TABLE t (id BIGINT, of BIGINT)")
    hold = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.readline()"
    run, hasty = Runner(tmp_path), Runner(tmp_path, sql__busy_timeout_s=0.0)
    holder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", hold, str(end.path)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert holder.stdout
        assert await holder.stdout.readline() == b"open\n"
        problem = await hasty.failure(None, end.end, rows=rows_of(1))
        assert (problem.kind, problem.retryable) == ("serialization", True)
        assert "sql.busy_timeout_s" in problem.message
        moving = asyncio.create_task(run.moved(None, end.end, rows=rows_of(1)))
        await until_it_waits(end, moving)
    finally:
        await holder.communicate(b"\n")
    assert (await moving)["rows"] == 7
    await run.tool.close()
    await hasty.tool.close()


async def test_a_duckdb_file_that_is_in_use_in_the_same_process_is_waited_for(tmp_path: Path) -> None:
    """So it is for a moment whenever its last connection is closed."""
    end = DuckdbEnd(tmp_path)
    end.run("CREATE TABLE t (id BIGINT, of BIGINT)")
    run, hasty = Runner(tmp_path), Runner(tmp_path, sql__busy_timeout_s=0.0)
    with duckdb.connect() as other:
        other.execute(f"ATTACH '{end.path}' AS x")
        problem = await hasty.failure(None, end.end, rows=rows_of(1))
        assert (problem.kind, problem.retryable) == ("serialization", True)
        moving = asyncio.create_task(run.moved(None, end.end, rows=rows_of(1)))
        await until_it_waits(end, moving)
        other.execute("DETACH x")
    assert (await moving)["rows"] == 7
    await run.tool.close()
    await hasty.tool.close()


def before(monkeypatch: pytest.MonkeyPatch, end: End, method: str, do: Callable[[], object]) -> None:
    """Have something done on the transfer's thread before a method of its target."""
    target = TARGETS[type(end)]
    real = getattr(target, method)

    def changed(self: Any, *args: Any) -> Any:
        do()
        return real(self, *args)

    monkeypatch.setattr(target, method, changed)


async def until_it_waits(end: End, task: asyncio.Task[Any]) -> None:
    """Until a transfer waits for another one; one that ended instead is looked at by its test."""
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    while not task.done():
        if isinstance(end, PostgresEnd):
            if await asyncio.to_thread(end.run, waits):
                return
        elif sum(thread.name.startswith("arclog-transfer") for thread in threading.enumerate()) > 1:
            return  # it has a thread of its own beside that of the other one
        await asyncio.sleep(0)


def umask() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Umask:"))
    return int(line.split()[1], 8)
