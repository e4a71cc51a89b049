"""What a PostgreSQL server sends to a task is bounded in the worker's memory, whatever the task asks for and whoever the
server is; large results are not refused.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from arclog.drivers.postgres.address import address_of
from arclog.drivers.postgres.connect import connect_bounded
from arclog.model.config.settings import Settings
from arclog.tools.postgres import KIND
from tests.integration.tools.transfer.support import Runner
from tests.servers.certs import certificate
from tests.servers.postgres import Database
from tests.unit.tools.sql.support import Sql

ROOT = Path(__file__).resolve().parents[4]
MIB = 1024 * 1024
LIMIT = 4 * MIB
SETTINGS = Settings({"postgres.max_row_bytes": LIMIT, "postgres.allow_networks": "loopback"})

# ── what statements return ───────────────────────────────────────────────────────────────────────────────────────────

NOTICES = "DO $$ BEGIN FOR i IN 1..100 LOOP RAISE NOTICE '%', repeat('x', 1000000); END LOOP; END $$"
LARGE = {
    "a value": "SELECT repeat('x', 100000000) AS a",
    "a row of many values": "SELECT " + ", ".join(f"repeat('x', 1000000) AS a{n}" for n in range(20)),
    "an error": "DO $$ BEGIN RAISE EXCEPTION '%', repeat('x', 100000000); END $$",
    "notices": NOTICES,
    "notifications": "LISTEN a; SELECT pg_notify('a', i || repeat('x', 7900)) FROM generate_series(1, 2000) i",
    "JSON of many values": "SELECT ('[' || repeat('[],', 1000000) || '1]')::jsonb AS a",
    "an array of many values": "SELECT array_fill('ab'::text, ARRAY[500000]) AS a",
    "returning": "CREATE TEMP TABLE t (a text); INSERT INTO t SELECT repeat('x', 100000000) RETURNING a",
}


@pytest.fixture
async def sql(tmp_path: Path, postgres: Database) -> AsyncIterator[Sql]:
    tool = Sql(KIND, tmp_path, SETTINGS, dsn=postgres.dsn)
    yield tool
    await tool.close()


@pytest.mark.parametrize("name", LARGE)
async def test_what_is_too_large_is_an_error_with_its_remedy_and_others_go_on(sql: Sql, name: str) -> None:
    others = [asyncio.create_task(sql.rows("SELECT pg_sleep(0.01), {{ n }} AS n", {"n": n})) for n in range(20)]
    outcome = await sql(LARGE[name])
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code, outcome.error.retryable) == ("limit", "max_row_bytes", False)
    text = (
        "have more than 262144 values" if "JSON" in name or "array" in name else f"sent more than {LIMIT} bytes at once"
    )
    assert f"{text} (postgres.max_row_bytes)" in outcome.error.message
    assert "raise postgres.max_row_bytes" in outcome.error.message
    assert [(await rows)[0]["n"] for rows in others] == list(range(20))
    assert await sql.rows("SELECT 1 AS a") == [{"a": 1}]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_connection_that_is_closed_leaves_no_file_open(postgres: Database) -> None:
    connection = await connect_bounded(address_of(postgres.dsn), LIMIT)
    await connection.execute("SELECT 1")
    intake = connection.intake  # keeps what the connection does not close
    opened = open_files()
    await connection.close()
    assert open_files() == opened - 4, "the connection, its copy and the pair"
    intake.close()


# ── hostile servers ──────────────────────────────────────────────────────────────────────────────────────────────────

READY = b"Z\x00\x00\x00\x05I"
LOGGED_IN = b"R\x00\x00\x00\x08\x00\x00\x00\x00"
ROW = b"T\x00\x00\x00\x1a\x00\x01a\x00" + bytes(6) + struct.pack("!IhIh", 25, -1, 0xFFFFFFFF, 0)


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


NOTICE = message(b"N", b"SNOTICE\x00C00000\x00M" + b"x" * 10_000 + b"\x00\x00")
#: What a server sends while it opens the connection, and after the first statement; the last part is repeated without end.
HOSTILE: dict[str, tuple[list[bytes], list[bytes]]] = {
    "a notice while connecting": ([LOGGED_IN, b"N\x30\x00\x00\x00", bytes(65536)], []),
    "parameters while connecting": ([LOGGED_IN, message(b"S", b"a" * 20_000 + b"\x00b\x00") * 3], []),
    "an error while connecting": ([b"E\x30\x00\x00\x00", bytes(65536)], []),
    "a row": ([LOGGED_IN, READY], [b"D\x30\x00\x00\x00", bytes(65536)]),
    "an error": ([LOGGED_IN, READY], [b"E\x30\x00\x00\x00", bytes(65536)]),
    "notices": ([LOGGED_IN, READY], [NOTICE * 10]),
    "notifications": ([LOGGED_IN, READY], [message(b"A", bytes(4) + b"a\x00" + b"x" * 20_000 + b"\x00") * 3]),
    "parameters": ([LOGGED_IN, READY], [message(b"S", b"a\x00" + b"x" * 20_000 + b"\x00") * 3]),
    "part of a message after a statement": (
        [LOGGED_IN, READY],
        [message(b"C", b"BEGIN\x00") + READY + b"N\x30\x00\x00\x00", bytes(65536)],
    ),
}


@asynccontextmanager
async def hostile(login: list[bytes], answer: list[bytes]) -> AsyncIterator[str]:
    async def send(writer: asyncio.StreamWriter, parts: list[bytes], *, endless: bool) -> None:
        writer.writelines(parts)
        while endless:
            writer.write(parts[-1])
            await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            length = struct.unpack("!I", await reader.readexactly(4))[0]
            await reader.readexactly(length - 4)
            await send(writer, login, endless=not answer)
            await reader.read(65536)
            await send(writer, answer, endless=True)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield f"host=127.0.0.1 port={port} user=a dbname=a sslmode=disable"
    finally:
        server.close()


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_server_is_left(tmp_path: Path, name: str) -> None:
    login, answer = HOSTILE[name]
    tool = Sql(KIND, tmp_path, SETTINGS)
    async with asyncio.timeout(60), hostile(login, answer) as dsn:
        for _ in range(2):  # the pool goes on
            outcome = await tool("SELECT 1", dsn=dsn)
            assert outcome.error is not None
            # libpq itself refuses long errors before the login has succeeded
            kinds = ("limit", "connection") if name == "an error while connecting" else ("limit",)
            assert outcome.error.kind in kinds, outcome.error
    await tool.close()


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_transfer_leaves_a_hostile_server(tmp_path: Path, name: str) -> None:
    login, answer = HOSTILE[name]
    run = Runner(tmp_path, postgres__max_row_bytes=LIMIT)
    async with asyncio.timeout(60), hostile(login, answer) as dsn:
        failure = await run.failure({"kind": "postgres", "dsn": dsn, "table": "t"}, {"kind": "csv", "path": "t.csv"})
        assert failure.kind == "limit" or name == "an error while connecting", failure
    await run.tool.close()


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def encrypted(folder: Path, database: Database) -> AsyncIterator[str]:
    """Accept TLS in front of a server whose build has none."""
    made = certificate(folder, "localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.chain, made.key)

    async def copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"S")
        await writer.drain()
        await writer.start_tls(context)
        server_reader, server_writer = await asyncio.open_connection(database.host, database.port)
        await asyncio.gather(copied(reader, server_writer), copied(server_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"{database.dsn}?sslmode=require".replace(f":{database.port}/", f":{server.sockets[0].getsockname()[1]}/")
    finally:
        server.close()


async def test_the_bound_holds_under_tls(tmp_path: Path, postgres: Database) -> None:
    async with asyncio.timeout(120), encrypted(tmp_path, postgres) as dsn:
        tool = Sql(KIND, tmp_path, SETTINGS, dsn=dsn)
        for query in (
            "repeat('x', 1000) AS a FROM generate_series(1, 30000)",
            "repeat('x', 3000000) FROM generate_series(1, 20)",
        ):
            outcome = await tool(f"SELECT {query}")
            assert outcome.error is None
            assert outcome.stored.rows == int(query.rpartition(" ")[2][:-1])
        assert await tool.rows("SELECT length({{ a }}::text) AS n", {"a": "y" * 30_000_000}) == [{"n": 30_000_000}]
        for _ in range(2):
            assert await tool.failure("SELECT repeat('x', 100000000) AS a") == ("limit", "max_row_bytes")
        await tool.close()


# ── transfers ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_transfer_refuses_a_row_that_is_too_large(tmp_path: Path, postgres: Database) -> None:
    run = Runner(tmp_path, postgres__max_row_bytes=LIMIT)
    source = {"kind": "postgres", "dsn": postgres.dsn, "query": "SELECT repeat('x', 100000000) AS a"}
    failure = await run.failure(source, {"kind": "csv", "path": "t.csv"})
    assert (failure.kind, failure.code) == ("limit", "max_row_bytes")
    assert "raise postgres.max_row_bytes" in failure.message
    assert not (tmp_path / "t.csv").exists()
    await run.tool.close()


async def test_notices_of_a_target_are_bounded(tmp_path: Path, postgres: Database) -> None:
    with postgres.connect() as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute(
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE NOTICE '%', repeat('x', 10000000); RETURN NEW; END $$"
        )
        connection.execute("CREATE TRIGGER t BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()")
    run = Runner(tmp_path, postgres__max_row_bytes=LIMIT)
    source = {"kind": "postgres", "dsn": postgres.dsn, "query": "SELECT 1 AS a"}
    failure = await run.failure(source, {"kind": "postgres", "dsn": postgres.dsn, "table": "t"})
    assert (failure.kind, failure.code) == ("limit", "max_row_bytes")
    assert postgres.rows("SELECT * FROM t") == []
    await run.tool.close()


async def test_rows_of_very_different_sizes_arrive_in_order(tmp_path: Path, postgres: Database, sql: Sql) -> None:
    query = (
        "SELECT i, repeat('x', CASE WHEN i % 50 = 0 THEN 3000000 ELSE i % 7 END) AS t FROM generate_series(1, 300) i"
    )
    expected = [3_000_000 if i % 50 == 0 else i % 7 for i in range(1, 301)]
    run = Runner(tmp_path, postgres__max_row_bytes=LIMIT, transfer__chunk_rows=100)
    await run.moved(
        {"kind": "postgres", "dsn": postgres.dsn, "query": query},
        {"kind": "postgres", "dsn": postgres.dsn, "table": "t", "create": True},
    )
    assert [row[0] for row in postgres.rows("SELECT length(t) FROM t ORDER BY i")] == expected
    outcome = await sql(query)
    assert outcome.error is None
    assert outcome.stored.rows == 300
    await run.tool.close()


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────────

#: Runs something twice in a process of its own: a small and a large form. Prints by how many MiB the peak grew, and the kind of the error.
PROGRAM = """
import asyncio, resource, sys
from pathlib import Path
from arclog.drivers.postgres.address import address_of
from arclog.drivers.postgres.connect import connect_bounded
from arclog.model.config.settings import Settings
from arclog.ports.results import Content
from arclog.results.memory import MemoryResults
from arclog.testing.tools import task_context
from arclog.tools.postgres import KIND
from tests.integration.tools.transfer.support import Runner
from tests.unit.tools.sql.support import Sql

class Drain:
    rows = 0
    async def add(self, items): self.rows += len(items)
    async def commit(self): return Content("", 0, 0, "", "", self.rows, "")
    async def abandon(self): pass

class Nowhere(MemoryResults):
    def writer(self, *args, **options): return Drain()

async def main(how, dsn, folder, *queries):
    settings = {"postgres.allow_networks": "loopback"}
    sql = Sql(KIND, Path(folder), Settings(settings), dsn=dsn)
    run = Runner(Path(folder))
    peaks, outcome = [], None
    for number, query in enumerate(queries):
        if how == "task":
            outcome = await sql(query, context=task_context(results=Nowhere(), timeout_s=600))
        else:
            source = {"kind": "postgres", "dsn": dsn, "query": query}
            outcome = await run(source, {"kind": "ndjson", "path": f"{number}.ndjson"}, chunk_rows=5000)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    await sql.close()
    await run.tool.close()
    print((peaks[-1] - peaks[0]) // 1024, outcome.error.kind if outcome.error else "none")

asyncio.run(main(*sys.argv[1:]))
"""


def grown(how: str, postgres: Database, folder: Path, *queries: str) -> tuple[int, str]:
    """By how many MiB the peak of a process grows between two queries, and the kind of the second one's error."""
    command = [sys.executable, "-c", PROGRAM, how, postgres.dsn, str(folder), *queries]
    around = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    mib, kind = done.stdout.split()
    return int(mib), kind


@pytest.mark.slow
@pytest.mark.parametrize("how", ["task", "transfer"])
@pytest.mark.parametrize(
    ("query", "most_mib", "kind"),
    [
        ("SELECT repeat('x', 400000000) AS a", 64, "limit"),
        ("SELECT repeat('x', 300000000) AS a FROM generate_series(1, 3)", 64, "limit"),
        ("SELECT repeat('x', 10000000) AS a FROM generate_series(1, 30)", 200, "none"),
        ("SELECT repeat('x', 1000) AS a FROM generate_series(1, 200000)", 24, "none"),
    ],
)
def test_the_worker_needs_little_memory(
    tmp_path: Path, postgres: Database, how: str, query: str, most_mib: int, kind: str
) -> None:
    small = "SELECT repeat('x', 1000) AS a FROM generate_series(1, 10000)"
    mib, failure = grown(how, postgres, tmp_path, small, query)
    assert (failure, mib <= most_mib) == (kind, True), mib
