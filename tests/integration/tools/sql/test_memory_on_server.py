"""The memory of a server's worker stays flat whatever SQL does, and only tasks of the same scope notice."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.sandbox.confinement_settings import for_server
from arclog.testing.tools import task_context
from arclog.tools.sqlite import KIND
from tests.unit.tools.sql.support import Sql

ROOT = Path(__file__).resolve().parents[4]
MIB = 1024 * 1024
#: The memory of a process, which DuckDB does not use up for these statements.
MOST = {"sqlite": 400 * MIB, "duckdb": 1500 * MIB}
#: How much the worker's peak may grow: batches of 8 MiB and rows of 16 MiB, several times.
MAY_GROW_KIB = 150 * 1024
#: A worker whose tasks run one after another. Prints their errors and by how much its peak grew. What it may take at most
#: is limited, for the sake of the machine.
WORKER = """
import asyncio, json, resource, sys
from pathlib import Path
from arclog.model.config.settings import Settings
from arclog.ports.results import Content
from arclog.results.memory import MemoryResults
from arclog.sandbox.confinement_settings import for_server
from arclog.testing.tools import task_context
from arclog.tools.{kind} import KIND
from tests.unit.tools.sql.support import Sql

class Drain:
    rows = 0
    async def add(self, items): self.rows += len(items)
    async def commit(self): return Content("", 0, 0, "", "", self.rows, "")
    async def abandon(self): pass

class Nowhere(MemoryResults):
    def writer(self, *args, **options): return Drain()

def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

async def main(folder, command):
    own = {{"home": f"{{folder}}/home", "object.file_root": folder, "tasks.max_memory_bytes": {most}}}
    tool = Sql(KIND, Path(folder), for_server(Settings(own)), database=":memory:", transaction=False)
    assert (await tool("SELECT 1 AS a")).error is None
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    before = peak()
    outcome = await tool(command, context=task_context(results=Nowhere()))
    grown = peak() - before
    after = await tool("SELECT 1 AS a")
    error = outcome.error
    await tool.close()
    print(json.dumps({{"error": error and [error.kind, error.code, error.message], "after": after.error is None, "grown": grown}}))

asyncio.run(main(sys.argv[1], sys.stdin.read()))
"""
MANY = "CREATE TABLE t (a); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 450) "
#: statements by name, and what the error names; '' if there is none
ATTACKS = {
    "sqlite": {
        "long texts": (
            "SELECT " + "+".join(f"length(zeroblob(16000000)||'{n}')" for n in range(300)),
            "tasks.max_memory_bytes",
        ),
        "many columns": ("SELECT " + ", ".join(["randomblob(15000000)"] * 1500), "tasks.max_memory_bytes"),
        "one text": ("SELECT length(hex(zeroblob(450000000)))", "tasks.max_memory_bytes"),
        "a database in memory": (
            MANY + "INSERT INTO t SELECT zeroblob(1000000) FROM n",
            "tasks.max_memory_bytes",
        ),
        "a large cache": (
            "ATTACH '{data}/cached.db' AS d; PRAGMA d.cache_size = -4000000; "
            + MANY.replace("TABLE t", "TABLE d.t")
            + "INSERT INTO d.t SELECT zeroblob(1000000) FROM n",
            "",
        ),
        "a wide row": ("SELECT zeroblob(8000000), zeroblob(8000000), zeroblob(8000000)", "sql.max_row_bytes"),
        "many wide rows": (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300) SELECT zeroblob(1000000) FROM n",
            "",
        ),
        "long names": ('SELECT 1 AS "{long}"', "sql.max_row_bytes"),
    },
    "duckdb": {
        "a wide row": ("SELECT repeat('x', 20000000) AS a", "sql.max_row_bytes"),
        "many wide rows": ("SELECT repeat('x', 1000000) AS a FROM range(300)", ""),
        "empty lists": ("SELECT [[] FOR i IN range(400000)] AS a", "sql.max_row_bytes"),
    },
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, attacks in ATTACKS.items() for name in attacks])
def test_the_worker_does_not_grow(tmp_path, kind, name):
    command, limit = ATTACKS[kind][name]
    script = tmp_path / "worker.py"  # a file: DuckDB takes `-c` for somebody at a terminal, and draws
    script.write_text(WORKER.format(kind=kind, most=MOST[kind]))
    (tmp_path / "home").mkdir()
    done = subprocess.run(
        [sys.executable, script, tmp_path],
        input=command.replace("{data}", str(tmp_path)).replace("{long}", "x" * 26 * MIB),
        env={**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    if limit:
        kind, _, message = outcome["error"]
        assert kind == "limit"
        assert limit in message
    else:
        assert outcome["error"] is None
    assert outcome["after"]
    # The command itself is copied several times.
    assert outcome["grown"] < MAY_GROW_KIB + 8 * len(command.replace("{long}", "x" * 26 * MIB)) // 1024


# ── other tasks ───────────────────────────────────────────────────────────────────────────────────────────────────────

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
async def tool(tmp_path):
    own = {"home": str(tmp_path / "home"), "object.file_root": str(tmp_path)}
    tool = Sql(KIND, tmp_path / "scratch", for_server(Settings(own)), database=str(tmp_path / "a.db"))
    assert (await tool("CREATE TABLE t (a)")).error is None
    yield tool
    await tool.close()


def processes():
    """Return the processes of SQLite that this one's zygotes started. Other tests have such processes, too."""
    parents, named = {}, set()
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:  # it has ended
            continue
        pid = int(status.parent.name)
        parents[pid] = int(lines["PPid"])
        if lines["Name"].startswith("arclog-sqlite"):
            named.add(pid)
    return {pid for pid in named if os.getpid() in ancestors(pid, parents)}


def ancestors(pid, parents):
    while pid := parents.get(pid, 0):
        yield pid


async def begun(tool, scope):
    """Start an endless task. Return it and its process."""
    before = processes()
    task = asyncio.ensure_future(tool(ENDLESS, context=task_context(scope=scope)))
    for _ in range(500):
        await asyncio.sleep(0.02)
        if new := processes() - before:
            break
    await asyncio.sleep(0.1)
    assert not task.done()
    return task, new.pop()


async def test_only_tasks_of_the_same_scope_end_with_their_process(tool):
    first, pid = await begun(tool, "acme")
    second, _ = await begun(tool, "other")
    same = asyncio.ensure_future(tool(ENDLESS, context=task_context(scope="acme")))
    await asyncio.sleep(0.1)
    os.kill(pid, 9)
    for task in (first, same):
        error = (await task).error
        assert error is not None
        assert (error.kind, error.code) == ("killed", "SIGKILL")
        assert "SQLite's process ended" in error.message
    assert not second.done()
    assert (await tool("INSERT INTO t VALUES (1)", context=task_context(scope="acme"))).error is None
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(second, 5)


async def test_a_task_is_cancelled_and_its_process_goes_on(tool):
    task, pid = await begun(tool, "acme")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
    assert pid in processes()
    assert (await tool("INSERT INTO t VALUES (1)", context=task_context(scope="acme"))).error is None
