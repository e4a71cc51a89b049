"""Databases in write-ahead mode on a server, whose shared memory other processes may truncate."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import apsw
import msgspec
import pytest

from arclog.model.config.settings import Settings
from arclog.sandbox.child.sql import held_files, sqlite_database
from arclog.sandbox.confinement_settings import for_server, reach_of
from arclog.testing.tools import task_context
from arclog.tools import sqlite
from arclog.tools.transfer.kind import TransferConfig, TransferTool
from tests.unit.tools.sql.support import Sql

ROOT = Path(__file__).parents[4]
#: Writes a log, and then reads more pages than the cache holds, in batches.
LONG = "PRAGMA cache_size = 10; UPDATE t SET b = b || 'x'; SELECT a, b FROM t"
#: A worker's process. A progress report truncates a file while the rest of the rows is not yet read.
WORKER = """
import asyncio, json, os, sys
from pathlib import Path
from arclog.model.config.settings import Settings
from arclog.sandbox.confinement_settings import for_server
from arclog.testing.tools import task_context
from arclog.tools import sqlite
from tests.unit.tools.sql.support import Sql

folder, command, truncated = sys.argv[1:]

def truncate(done, *_):
    if os.path.exists(truncated):
        os.system(f"truncate --size 0 '{truncated}'")

async def main():
    settings = for_server(Settings({"home": f"{folder}/home", "object.file_root": f"{folder}/data"}))
    tool = Sql(sqlite.KIND, Path(folder), settings, database=f"{folder}/data/ahead.db", transaction=False)
    outcome = await tool(command, context=task_context(progress=truncate))
    await tool.close()
    print(json.dumps({"error": outcome.error and outcome.error.kind, "rows": outcome.result and outcome.result.get("row_count")}))

asyncio.run(main())
"""
#: Another process that has the database open: it holds the lock until it is told to end.
OTHER = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.execute(sys.argv[2]).fetchall()
print("open", flush=True)
sys.stdin.readline()
"""


def made(path: Path, mode: str, rows: int = 3000) -> Path:
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA journal_mode = {mode}").fetchall()
    numbers = f"WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n WHERE a < {rows})"
    connection.execute(
        f"CREATE TABLE t (a INTEGER PRIMARY KEY, b); {numbers} INSERT INTO t SELECT a, hex(zeroblob(100)) FROM n"
    )
    connection.close()
    return path


@pytest.fixture
def data(tmp_path, monkeypatch):
    for name in ("home", "data", "shared"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def limited(tmp_path, data):
    """The settings of a server's worker, whose tasks may write to `data` and read `shared`."""
    own = {"home": str(tmp_path / "home"), "object.file_root": str(data), "sql.busy_timeout_s": 0.5}
    return for_server(Settings({**own, "tasks.allow_read": str(tmp_path / "shared")}))


@pytest.fixture
async def tool(tmp_path, limited):
    tool = Sql(sqlite.KIND, tmp_path, limited, database="ahead.db", transaction=False)
    yield tool
    await tool.close()
    assert not held_files._folders


@pytest.fixture
def connected(tmp_path, limited):
    """Connections as those of a server's tasks."""
    reach, opened = reach_of(limited, tmp_path / "scratch"), []

    def connect(name):
        opened.append(sqlite_database.open_file(name, reach))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close(force=True)
    assert not held_files._folders


def other(path, sql):
    return subprocess.Popen(
        [sys.executable, "-c", OTHER, str(path), sql], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def elsewhere(path, sql):
    """Run a statement in another process; False if the database is locked."""
    script = "import apsw, sys; apsw.Connection(sys.argv[1]).execute(sys.argv[2]).fetchall()"
    done = subprocess.run([sys.executable, "-c", script, str(path), sql], capture_output=True, text=True, check=False)
    assert not done.returncode or "BusyError" in done.stderr, done.stderr
    return not done.returncode


def locked_out(path):
    return not elsewhere(path, "SELECT * FROM t")


# ── attacks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("suffix", ["-shm", "-wal", ""])
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_worker_outlives_files_that_are_truncated(tmp_path, data, mode, suffix):
    """`delete`: the task changes the mode itself."""
    path = made(data / "ahead.db", mode)
    command = LONG if mode == "wal" else f"PRAGMA journal_mode = wal; {LONG}"
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(tmp_path), command, f"{path}{suffix}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    outcome = json.loads(done.stdout)
    # With the shared memory, SQLite's process may end.
    assert outcome["rows"] == 3000 or outcome["error"]


# ── as ever ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_task_changes_the_mode(tool, data):
    for command in ("PRAGMA journal_mode = wal", "PRAGMA main.journal_mode('WAL')"):
        assert await tool.rows(command, database="new.db") == [{"journal_mode": "wal"}]
        assert await tool.rows(
            "CREATE TABLE t (a); INSERT INTO t VALUES (1); PRAGMA journal_mode", database="new.db"
        ) == [{"journal_mode": "wal"}]
        assert await tool.rows("PRAGMA journal_mode = delete", database="new.db") == [{"journal_mode": "delete"}]
        assert await tool.rows(
            "PRAGMA journal_mode = wal; DROP TABLE t; PRAGMA journal_mode = delete", database="new.db"
        ) == [{"journal_mode": "delete"}]
    assert not locked_out(made(data / "other.db", "delete"))


async def test_it_changes_the_mode_of_attached_databases(tool, data):
    for command in ('PRAGMA "o o".journal_mode = wal', "PRAGMA journal_mode = wal"):
        made(data / "o.db", "delete")
        await tool.result(f'ATTACH \'o.db\' AS "o o"; {command}; INSERT INTO "o o".t VALUES (-1, 1)', database="new.db")
        assert await tool.rows("PRAGMA journal_mode", database="o.db") == [{"journal_mode": "wal"}]
        (data / "o.db").unlink()


async def test_a_copy_of_a_database_in_write_ahead_mode(tool, data):
    made(data / "ahead.db", "wal")
    await tool.result("VACUUM; VACUUM INTO 'copy.db'")
    assert await tool.rows("SELECT count(*) AS n FROM t", database="copy.db") == [{"n": 3000}]


async def test_readers_run_beside_a_writer(tool, data, connected):
    made(data / "ahead.db", "wal")
    writer, reader = connected("ahead.db"), connected("ahead.db")
    writer.execute("BEGIN IMMEDIATE; DELETE FROM t WHERE a > 10")
    assert reader.execute("SELECT count(*) FROM t").get == 3000
    reader.execute("BEGIN; SELECT 1 FROM t").fetchall()
    writer.execute("COMMIT")
    assert reader.execute("SELECT count(*) FROM t").get == 3000
    assert await tool.rows("SELECT count(*) AS n FROM t") == [{"n": 10}]
    assert (data / "ahead.db-wal").stat().st_size
    reader.execute("COMMIT")


async def test_many_tasks_share_a_database(tool, data):
    made(data / "ahead.db", "wal", 10)
    for first in range(100, 140, 5):
        commands = [f"INSERT INTO t VALUES ({number}, 'new')" for number in range(first, first + 5)] + [
            "SELECT * FROM t"
        ] * 5
        outcomes = await asyncio.gather(*(tool(command, transaction=True) for command in commands))
        assert [outcome.error for outcome in outcomes] == [None] * 10
    assert await tool.rows("SELECT count(*) AS n FROM t") == [{"n": 50}]
    assert await tool.rows("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    assert sorted(path.name for path in data.iterdir()) == ["ahead.db"]


async def test_a_log_that_another_process_left_is_recovered(tool, data):
    path = made(data / "ahead.db", "wal", 10)
    process = other(path, "DELETE FROM t WHERE a > 4")
    assert process.stdout.readline() == b"open\n"
    process.kill()
    process.communicate()
    assert (data / "ahead.db-wal").stat().st_size
    assert await tool.rows("SELECT count(*) AS n FROM t") == [{"n": 4}]


async def test_a_rollback_journal_that_another_process_left_is_rolled_back(tool, data):
    path = made(data / "plain.db", "delete")
    process = other(path, "PRAGMA cache_size = 1; BEGIN; UPDATE t SET b = 'lost'")
    assert process.stdout.readline() == b"open\n"
    process.kill()
    process.communicate()
    assert (data / "plain.db-journal").stat().st_size
    assert await tool.rows("SELECT count(*) AS n FROM t WHERE b = 'lost'", database="plain.db") == [{"n": 0}]
    assert not (data / "plain.db-journal").exists()


@pytest.mark.parametrize("name", ["empty.db", "short.db"])
async def test_files_without_a_header(tool, data, name):
    (data / name).write_bytes(b"" if name == "empty.db" else b"no database")
    outcome = await tool("CREATE TABLE t (a)", database=name)
    assert outcome.error is None if name == "empty.db" else outcome.error.code == "SQLITE_NOTADB"


# ── other processes ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_other_processes_use_it_meanwhile(data, connected):
    path = made(data / "ahead.db", "wal")
    first, second = connected("ahead.db"), connected("ahead.db")
    first.execute("BEGIN; SELECT * FROM t").fetchall()
    assert elsewhere(path, "DELETE FROM t WHERE a > 10")
    assert [connection.execute("SELECT count(*) FROM t").get for connection in (first, second)] == [3000, 10]
    first.execute("COMMIT")
    assert first.execute("SELECT count(*) FROM t").get == 10


def test_the_shared_memory_of_another_database_is_not_removed(tmp_path, data, connected):
    """SQLite removes it by the name that the first connection gave, with the number of the folder."""
    for name in ("a", "b"):
        (data / name).mkdir()
        made(data / name / "ahead.db", "wal", 10)
    connections = []
    for name in ("a/ahead.db", "a/ahead.db"):
        connections.append(connected(name))
        connections[-1].execute("SELECT * FROM t").fetchall()
    connections[0].close()
    other_folder = connected("b/ahead.db")
    other_folder.execute("SELECT * FROM t").fetchall()
    connections[1].close()
    assert (data / "b" / "ahead.db-shm").exists()
    assert not (data / "a" / "ahead.db-shm").exists()


async def test_a_task_waits_for_another_process_no_longer_than_the_setting_says(tool, data):
    path = made(data / "ahead.db", "wal")
    process = other(path, "BEGIN IMMEDIATE")
    assert process.stdout.readline() == b"open\n"
    outcome = await tool("DELETE FROM t")
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("serialization", True)
    process.communicate(b"\n")
    assert (await tool("SELECT * FROM t")).error is None


async def test_a_task_that_waits_is_cancelled(tmp_path, data, limited):
    path = made(data / "ahead.db", "wal")
    process = other(path, "BEGIN IMMEDIATE")
    assert process.stdout.readline() == b"open\n"
    settings = limited.replaced(sql__busy_timeout_s=600.0)
    tool = Sql(sqlite.KIND, tmp_path, settings, database="ahead.db")
    assert (await tool("SELECT 1 FROM t")).error is None
    waiting = asyncio.ensure_future(tool("DELETE FROM t"))
    await asyncio.wait({waiting}, timeout=0.3)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 5)
    assert (await tool("SELECT 1 FROM t")).error is None, "the process was not killed"
    await tool.close()
    process.communicate(b"\n")


async def test_a_rollback_database_is_shared_with_other_processes(data, connected):
    path = made(data / "plain.db", "delete")
    connection = connected("plain.db")
    connection.execute("BEGIN; SELECT * FROM t").fetchall()
    assert not locked_out(path)


# ── files that cannot be written ──────────────────────────────────────────────────────────────────────────────────────


async def test_one_that_tasks_may_only_read_is_refused(tool, tmp_path):
    path = made(tmp_path / "shared" / "ahead.db", "wal")
    outcome = await tool("SELECT * FROM t", database=str(path))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code, outcome.error.retryable) == ("connection", "SQLITE_CANTOPEN", False)
    assert all(word in outcome.error.message for word in ("write-ahead", "VACUUM INTO", "tasks.allow_write"))
    assert [entry.name for entry in path.parent.iterdir()] == ["ahead.db"]
    plain = made(tmp_path / "shared" / "plain.db", "delete")
    assert await tool.rows("SELECT count(*) AS n FROM t", database=str(plain)) == [{"n": 3000}]


# ── transfers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_transfers_from_and_to_one_database(tmp_path, data, limited):
    path = made(data / "ahead.db", "wal")
    apsw.Connection(str(path)).execute("CREATE TABLE u (a, b)")
    tool = TransferTool(limited, tmp_path / "scratch")
    for target in ("ahead.db", "new.db"):
        table = {"kind": "sqlite", "database": target, "table": "u", "create": True}
        source = {"kind": "sqlite", "database": "ahead.db", "table": "t"}
        config = msgspec.convert({"source": source, "target": table}, TransferConfig)
        outcome = await tool.run(config, task_context())
        assert outcome.error is None
        assert apsw.Connection(target).execute("SELECT count(*) FROM u").get == 3000
    await tool.close()
    assert not held_files._folders
