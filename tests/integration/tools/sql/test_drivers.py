"""A driver that is not installed: the task says what to install, and nothing else needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

RUN = """
import asyncio, sys, tempfile
from pathlib import Path
sys.modules[{driver!r}] = None  # as when it is not installed: importing it fails
from arclog.testing.tools import task_context
from tests.unit.tools.sql.support import Sql
from arclog.tools.{kind} import KIND

async def main():
    sql = Sql(KIND, Path(tempfile.gettempdir()), {where})
    outcome = await sql("SELECT 1")
    await sql.close()
    print(outcome.error.kind, outcome.error.code, outcome.error.message)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("kind", "driver", "where"),
    [("postgres", "psycopg", "dsn='postgresql://127.0.0.1:1/x'"), ("duckdb", "duckdb", "database=':memory:'")],
)
def test_without_its_driver_a_task_says_what_to_install(kind, driver, where):
    code = RUN.format(kind=kind, driver=driver, where=where)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"config MISSING_EXTRA kind {kind} needs the package {driver}, which is not installed: pip install 'arclog[{kind}]'\n"
    )


def test_kinds_load_without_their_drivers():
    code = (
        "import sys\nfrom arclog.tools import duckdb, postgres, sqlite\n"
        "print([name for name in ('psycopg', 'duckdb', 'apsw', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "psycopg" not in done.stdout
    assert "duckdb" not in done.stdout
    assert "apsw" not in done.stdout
