"""Memory stays flat however many rows a statement gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]

#: Reads many rows twice, few and many, through a result store that keeps nothing; prints by how much the peak grew.
RUN = """
import asyncio, resource, sys, tempfile
from pathlib import Path
from arclog.ports.results import Content
from arclog.results.memory import MemoryResults
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

async def main():
    sql = Sql(KIND, Path(tempfile.mkdtemp()), {where})
    peaks = []
    for most in (20_000, {most}):
        outcome = await sql({command!r}, {{"most": most}}, task_context(results=Nowhere(), timeout_s=600))
        assert outcome.error is None, outcome.error
        assert outcome.stored.rows == most
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    await sql.close()
    print(peaks[1] - peaks[0])

asyncio.run(main())
"""
TEXT = "'a text of some length to fill the row, number ' || i AS t"
COMMANDS = {
    "sqlite": f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {{{{ most }}}}) SELECT i, {TEXT} FROM n",
    "duckdb": f"SELECT i, {TEXT} FROM range({{{{ most }}}}) r(i)",
    "postgres": f"SELECT i, {TEXT} FROM generate_series(1, {{{{ most }}}}) i",
}
#: many rows, and a fifth of what they take as Python values
MOST, MAY_GROW_KIB = 300_000, 24 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(COMMANDS))
def test_rows_pass_through_without_staying(kind, request, tmp_path):
    where = f"dsn={request.getfixturevalue('postgres').dsn!r}" if kind == "postgres" else "database=':memory:'"
    code = RUN.format(kind=kind, where=where, command=COMMANDS[kind], most=MOST)
    script = tmp_path / "rows.py"  # a file: DuckDB takes `-c` for somebody at a terminal, and draws
    script.write_text(code)
    around = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script], env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < MAY_GROW_KIB
