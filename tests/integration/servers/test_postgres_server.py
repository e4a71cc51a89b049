"""The PostgreSQL that other tests rely on: real, recovering, and gone when its test process is."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.servers.postgres import running_postgres

ROOT = Path(__file__).resolve().parents[3]


def test_a_test_gets_an_empty_database_on_a_durable_server(postgres):
    assert postgres.rows("SHOW fsync") == [("on",)]
    assert postgres.rows("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace") == [(0,)]


def test_the_password_counts(postgres):
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres.dsn.replace("correct", "wrong"))


def test_what_was_committed_survives_a_kill():
    with running_postgres() as server:
        database = server.create()
        database.rows("CREATE TABLE t AS SELECT 1 AS a")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            database.connect()
        server.start()
        assert database.rows("SELECT a FROM t") == [(1,)]
    assert not server.folder.exists()


_HOLDER = """
import sys
from tests.servers.postgres import PostgresServer
server = PostgresServer("fsync=off")
print(server.folder, server._keeper.pid, flush=True)
sys.stdin.read()
"""


def test_nothing_is_left_when_the_test_process_is_killed():
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin
    assert holder.stdout
    with holder:
        folder, keeper = holder.stdout.readline().split()
        assert (Path(folder) / "data" / "postmaster.pid").exists()
        gone = os.pidfd_open(int(keeper))
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert select.select([gone], [], [], 30)[0], "the keeper did not end"
    os.close(gone)
    assert not Path(folder).exists()
