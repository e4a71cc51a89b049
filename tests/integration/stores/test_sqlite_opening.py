"""Every way in which a store cannot be opened is told with what, where and what to do."""

import asyncio
import re
import tempfile
import time
from pathlib import Path

import apsw
import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import StoreUnavailable
from arclog.ports.storage.catalog import PlanRecord
from arclog.ports.storage.task_logs import LogLine, log_size
from arclog.stores.rows import encode
from arclog.stores.sqlite import SqliteStore, queries
from arclog.stores.sqlite.connection import connect
from arclog.stores.sqlite.connection.connect import APPLICATION, SCHEMA
from arclog.stores.sqlite.queries import SQL, load_migrations
from arclog.wiring.clocks import SystemClock
from tests.unit.stores.support import change, child, creation

QUICK = Settings({"store.busy_timeout_s": 0.05})


def store_at(path, settings=QUICK) -> SqliteStore:
    return SqliteStore(path, clock=SystemClock(), settings=settings)


async def refusal(path) -> str:
    with pytest.raises(StoreUnavailable) as caught:
        await store_at(path).open()
    assert str(path) in str(caught.value)
    return str(caught.value)


async def test_a_fresh_store_keeps_the_promises(tmp_path):
    store = store_at(tmp_path / "a.db")
    await store.open()
    connection = store._writer._connection
    assert connection.pragma("journal_mode") == "wal"
    assert connection.pragma("synchronous") == 2
    assert connection.pragma("user_version") == SCHEMA
    await store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.db"]  # the write-ahead log is emptied and gone


async def test_each_migration_has_a_number_and_the_last_is_the_schemas():
    numbers = [version for version, _ in load_migrations(0)]
    assert numbers == list(range(1, SCHEMA + 1))
    assert load_migrations(SCHEMA) == []


async def test_a_store_of_every_older_schema_is_brought_up_to_date(tmp_path):
    fresh = store_at(tmp_path / "fresh.db")
    await fresh.open()
    wanted = fresh._writer._connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
    await fresh.close()
    for schema in range(1, len(load_migrations(0))):
        path = tmp_path / f"{schema}.db"
        connection = apsw.Connection(str(path))
        for version, script in load_migrations(0)[:schema]:
            connection.execute(script).fetchall()
            connection.execute(f"PRAGMA user_version = {version}; PRAGMA application_id = {APPLICATION}")
        first = [row[1] for row in connection.execute("PRAGMA table_info(executions)")][:21]
        values = "1, 1, 'RUNNING', NULL, 5, NULL, NULL, 0, NULL, 0, 'r', 'n', 'p', 1, 'd', 't', 'p', 'e', 1, '', 0"
        connection.execute(f"INSERT INTO executions ({', '.join(first)}) VALUES ({values})")
        connection.close()
        store = store_at(path)
        await store.open()
        assert (
            store._writer._connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall() == wanted
        )
        assert (await store.append(change(1, 1))).last_seq == 2
        assert await store.results(1) == []
        assert [run.new.origin for run in await store.executions()] == [None]
        await store.close()


_DRAWN = """\
-- The schema of a new store, as the migrations up to this one make it: it takes half of their time. A newer migration may be
-- left out here; it then runs after this script. A test compares both, and
-- `./x pytest tests/integration/stores/test_sqlite_opening.py --redraw` writes this file again.
-- schema: {schema}
"""


async def test_the_schema_of_a_new_store_is_what_the_migrations_make(tmp_path, request):
    migrated = apsw.Connection(str(tmp_path / "migrated.db"))
    for _, script in load_migrations(0):
        migrated.execute(script).fetchall()
    if request.config.getoption("--redraw"):
        own = "sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        parts = [
            sql.strip() for (sql,) in migrated.execute(f"SELECT sql FROM sqlite_schema WHERE {own} ORDER BY rowid")
        ]
        parts.append(
            f"INSERT INTO compatibility (oldest) VALUES ({migrated.execute('SELECT oldest FROM compatibility').get})"
        )
        Path(queries.__file__).with_name("schema.sql").write_text(
            _DRAWN.format(schema=SCHEMA) + "".join(f"{part};\n\n" for part in parts).removesuffix("\n"), "utf-8"
        )
    fresh = store_at(tmp_path / "fresh.db")
    await fresh.open()
    assert contents(fresh._writer._connection) == contents(migrated)
    await fresh.close()
    migrated.close()


def contents(connection: apsw.Connection) -> dict[object, object]:
    """The schema of a store and the rows of its tables."""
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
    rows = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in tables}
    return {
        **rows,
        "": connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name").fetchall(),
    }


async def test_a_new_store_gets_the_migrations_that_its_schema_file_lacks(tmp_path, monkeypatch):
    number, first = load_migrations(0)[0]
    monkeypatch.setattr(connect, "load_schema", lambda: (number, first))
    store = store_at(tmp_path / "a.db")
    await store.open()
    assert store._writer._connection.pragma("user_version") == SCHEMA
    await store.close()


async def test_every_query_fits_the_schema(tmp_path):
    store = store_at(tmp_path / "a.db")
    await store.open()
    for name, text in SQL.items():
        assert ";" not in text, name
        if name.startswith("list."):
            continue  # parts of one statement: see test_lists.py
        numbered = [int(match) for match in re.findall(r"\?(\d+)", text)]
        count = max(numbered) if numbered else text.count("?")
        store._writer._connection.execute("EXPLAIN " + text, (None,) * count).fetchall()
    await store.close()


async def test_a_missing_folder(tmp_path):
    assert "does not exist; create" in await refusal(tmp_path / "none" / "a.db")


async def test_a_folder_in_place_of_the_file(tmp_path):
    (tmp_path / "a.db").mkdir()
    assert "is a folder" in await refusal(tmp_path / "a.db")


async def test_not_a_database(tmp_path):
    (tmp_path / "a.db").write_bytes(b"this is not a database, but it is long enough to look at. " * 50)
    assert "not a SQLite database" in await refusal(tmp_path / "a.db")
    assert (tmp_path / "a.db").read_bytes().startswith(b"this is not")


async def test_another_programs_database(tmp_path):
    connection = apsw.Connection(str(tmp_path / "a.db"))
    connection.execute("CREATE TABLE t (a)")
    connection.close()
    before = (tmp_path / "a.db").read_bytes()
    assert "another program's" in await refusal(tmp_path / "a.db")
    assert (tmp_path / "a.db").read_bytes() == before


@pytest.mark.parametrize("lives_with_it", [True, False])
async def test_a_newer_schema_is_refused_only_if_it_says_so(tmp_path, lives_with_it):
    store = store_at(tmp_path / "a.db")
    await store.open()
    await store.close()
    connection = apsw.Connection(str(tmp_path / "a.db"))
    connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    if not lives_with_it:
        connection.execute(f"UPDATE compatibility SET oldest = {SCHEMA + 1}")
    connection.close()
    if lives_with_it:
        await store.open()
        assert await store.pending_paths() == []
        await store.close()
    else:
        assert f"newer arclog (schema {SCHEMA + 1}, which needs one that knows {SCHEMA + 1}" in await refusal(
            tmp_path / "a.db"
        )


async def test_an_empty_file_is_a_new_store(tmp_path):
    (tmp_path / "a.db").touch()
    store = store_at(tmp_path / "a.db")
    await store.open()
    await store.append(creation(1))
    await store.close()


READ_ONLY = """
import asyncio, os, sys
from arclog.stores.sqlite import SqliteStore, queries
from arclog.stores.sqlite.connection import connect
from arclog.wiring.clocks import SystemClock
if os.getuid() == 0:
    os.setgid(65534), os.setuid(65534)
async def main():
    try:
        await SqliteStore(sys.argv[1], clock=SystemClock()).open()
    except Exception as error:
        print(type(error).__name__, error)
asyncio.run(main())
"""


@pytest.fixture
def open_folder():
    """A folder that other users may reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)
        Path(name).chmod(0o777)


@pytest.mark.parametrize("what", ["file", "folder", "unreachable folder"])
async def test_what_cannot_be_written(open_folder, what):
    path = open_folder / "a.db"
    store = store_at(path)
    await store.open()
    await store.close()
    if what == "file":
        path.chmod(0o444)
    elif what == "folder":
        path.unlink()
        open_folder.chmod(0o555)
    else:
        open_folder.chmod(0o000)
    output, _ = await asyncio.to_thread(child(READ_ONLY, path).communicate, timeout=30)
    assert output.startswith("StoreUnavailable"), output
    assert str(path) in output
    assert "ARCLOG_HOME" in output


async def test_another_process_that_never_finishes_writing(tmp_path):
    path = tmp_path / "a.db"
    store = store_at(path)
    await store.open()
    await store.append(creation(1))
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match="another process is writing"):
        await store.append(change(1, 1))
    assert time.monotonic() - started >= 0.04
    record = await store.execution(1)
    assert record is not None
    assert record.head == 1  # reading goes on
    other.execute("ROLLBACK")
    assert (await store.append(change(1, 1))).last_seq == 2
    other.close()
    await store.close()


async def test_a_busy_file_is_waited_for(tmp_path):
    path = tmp_path / "a.db"
    store = store_at(path, Settings())
    await store.open()
    await store.append(creation(1))
    script = "import apsw, sys, time; c = apsw.Connection(sys.argv[1]); c.execute('BEGIN IMMEDIATE'); print(1, flush=True); time.sleep(0.2)"
    other = child(script, path)
    assert other.stdout is not None
    other.stdout.readline()
    assert (await store.append(change(1, 1))).last_seq == 2
    other.communicate()
    await store.close()


async def test_logs_written_by_the_first_schema_are_kept(tmp_path):
    path = str(tmp_path / "arclog.db")
    old = [
        LogLine(7, 5, "a", 1, "t", 2, 3, "stderr", 'said "ü"\nand more'),
        LogLine(7, 6, "b", 1, "t", 1, 1, "stdout", "", (3, 0)),
        LogLine(8, 7, "b", 1, "t", 1, 1, "log", "half \udc80", (12,)),
    ]
    connection = apsw.Connection(path)
    (_, first), *_ = load_migrations(0)
    connection.execute(first)
    connection.execute(f"PRAGMA user_version = 1; PRAGMA application_id = {APPLICATION}")
    for line in old:
        connection.execute(
            "INSERT INTO task_logs (execution_id, body) VALUES (?, ?)", (line.execution_id, encode(line))
        )
    connection.close()
    store = store_at(path)
    await store.open()
    try:
        assert [line for _, line in await store.logs(7)] == old[:2]
        [(_, torn)] = await store.logs(8)
        assert torn.iteration == (12,)
        assert torn.text.startswith("half ")
        size = sum(map(log_size, old[:2]))
        await store.append_logs([old[1], old[1]], size + 1)  # what was there before counts
        assert [line.stream for _, line in await store.logs(7)] == ["stderr", "stdout", "stdout", "log"]
    finally:
        await store.close()


async def test_what_was_registered_before_there_were_tenants_belongs_to_who_ran_it(tmp_path):
    path = str(tmp_path / "arclog.db")
    connection = apsw.Connection(path)
    for version, script in load_migrations(0):
        if version <= 7:
            connection.execute(script).fetchall()
    connection.execute(f"PRAGMA user_version = 7; PRAGMA application_id = {APPLICATION}")
    columns = "1, 1, 'RUNNING', NULL, 5, NULL, NULL, 0, NULL, 0, 'r', 'n', 'ran', 1, 'd1', 'acme', 'p', 'e', 1, '', 0"
    connection.execute(f"INSERT INTO executions VALUES ({columns})")
    connection.execute("INSERT INTO plans VALUES ('d1', x'00'), ('d2', x'01'), ('d3', x'02')")
    catalog = "('ran', 1, 'd1', 'one', 5), ('ran', 2, 'd2', 'two', 6), ('never', 1, 'd3', 'three', 7)"
    connection.execute(f"INSERT INTO catalog (path, version, digest, source, created_at) VALUES {catalog}")
    connection.execute("INSERT INTO archived VALUES ('never', 9)")
    connection.close()
    store = store_at(path)
    await store.open()
    try:
        assert [version.version for version in await store.versions("ran", tenant="acme")] == [2, 1]
        assert await store.registered("ran", 1, tenant="acme") == PlanRecord("d1", "ran", 1, b"\x00", "one", 5)
        assert [playbook.path for playbook in await store.catalog(tenant="acme")] == ["ran"]
        (put_away,) = await store.catalog(tenant="default", archived=True)
        assert (put_away.path, put_away.archived_at) == ("never", 9)
        assert await store.catalog(tenant="default") == []
    finally:
        await store.close()
