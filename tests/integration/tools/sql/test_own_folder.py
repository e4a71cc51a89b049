"""A SQL task opens no database in arclog's own folder, by whatever name and statement."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import contextmanager

import apsw
import msgspec
import pytest

from arclog.model.config.settings import Settings
from arclog.sandbox.child.sql import held_files, sqlite_database
from arclog.sandbox.child.sql_errors import Refused
from arclog.sandbox.confinement_settings import for_server, reach_of
from arclog.testing.tools import task_context
from arclog.tools import duckdb, sqlite
from arclog.tools.transfer.kind import TransferConfig, TransferTool
from tests.unit.tools.sql.support import Sql


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    apsw.Connection(str(home / "arclog.db")).execute("CREATE TABLE log (a)")
    (tmp_path / "link").symlink_to(home)
    return home


@pytest.fixture(params=[sqlite.KIND, duckdb.KIND], ids=lambda kind: kind.spec.name)
async def sql(request, tmp_path, home):
    tool = Sql(request.param, tmp_path, Settings({"home": str(home)}))
    yield tool
    await tool.close()


@pytest.mark.parametrize("name", ["home/arclog.db", "home/new.db", "link/arclog.db", "away/../home/arclog.db"])
async def test_a_database_in_the_home_is_refused(sql, tmp_path, home, name):
    before = sorted(home.iterdir())
    outcome = await sql("SELECT 1 AS one", database=str(tmp_path / name))
    assert outcome.error is not None
    assert outcome.error.kind == "config"
    assert "arclog's own folder" in outcome.error.message
    assert sorted(home.iterdir()) == before


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("kind", [sqlite.KIND, duckdb.KIND], ids=lambda kind: kind.spec.name)
async def test_the_settings_file_is_no_database(tmp_path, home, kind, there, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if there:
        (tmp_path / "arclog.toml").write_text("")
    tool = Sql(kind, tmp_path, Settings({"home": str(home)}))
    outcome = await tool("CREATE TABLE t (a INTEGER)", database=str(tmp_path / "arclog.toml"))
    assert outcome.error is not None
    assert outcome.error.kind == "config"
    assert (tmp_path / "arclog.toml").exists() == there
    assert not there or (tmp_path / "arclog.toml").read_bytes() == b""
    await tool.close()


@pytest.mark.parametrize("path", ["'{path}'", "{{{{ path }}}}", "'{path}' || ''"])
async def test_nor_is_one_attached_in_sqlite(tmp_path, home, path):
    tool = Sql(sqlite.KIND, tmp_path, Settings({"home": str(home)}), database=":memory:")
    path_text = str(home / "arclog.db")
    command = f"ATTACH {path.format(path=path_text)} AS other; SELECT * FROM other.log"
    for transaction in (True, False):
        outcome = await tool(command, {"path": path_text}, transaction=transaction)
        assert outcome.error is not None
        assert (outcome.error.kind, "own folder" in outcome.error.message) == ("config", True)
    await tool.close()


async def test_nor_is_a_copy_made_there(tmp_path, home):
    tool = Sql(sqlite.KIND, tmp_path, Settings({"home": str(home)}), database=str(tmp_path / "a.db"))
    outcome = await tool(f"VACUUM INTO '{home / 'copy.db'}'", transaction=False)
    assert outcome.error is not None
    assert outcome.error.kind == "config"
    assert not (home / "copy.db").exists()
    await tool.close()


async def test_nor_is_one_attached_in_duckdb(tmp_path, home):
    tool = Sql(duckdb.KIND, tmp_path, Settings({"home": str(home)}))
    outcome = await tool(f"ATTACH '{home / 'x.duckdb'}' AS other; SELECT 1 AS one")
    assert outcome.error is not None
    assert not (home / "x.duckdb").exists()
    assert await tool.rows(f"ATTACH '{tmp_path / 'y.duckdb'}' AS other; SELECT 1 AS one") == [{"one": 1}]
    await tool.close()


async def test_others_are_attached_as_ever(tmp_path, home):
    tool = Sql(sqlite.KIND, tmp_path, Settings({"home": str(home)}), database=":memory:")
    apsw.Connection(str(tmp_path / "b.db")).execute("CREATE TABLE t (a); INSERT INTO t VALUES (7)")
    command = "ATTACH {{ path }} AS b; SELECT a FROM b.t"
    assert await tool.rows(command, {"path": str(tmp_path / "b.db")}) == [{"a": 7}]
    await tool.close()


async def test_a_path_with_a_nul_is_said_to_be_one(sql):
    assert (await sql.failure("SELECT 1 AS one", database="a\0b"))[0] == "config"


@pytest.fixture
def key(home):
    (home / "secrets.key").write_text("the-key")
    return home / "secrets.key"


READS = [
    "SELECT content FROM read_text('{path}')",
    "SELECT content FROM read_blob('{path}')",
    "SELECT * FROM read_csv('{path}', header=false)",
    "SELECT * FROM '{path}'",
    "CREATE TABLE t (a VARCHAR); COPY t FROM '{path}'; SELECT * FROM t",
]


@pytest.mark.parametrize("command", READS)
@pytest.mark.parametrize("name", ["home/secrets.key", "link/secrets.key", "away/../home/secrets.key"])
async def test_duckdb_reads_no_file_there(tmp_path, home, key, command, name):
    tool = Sql(duckdb.KIND, tmp_path, Settings({"home": str(home), "worker.workdir": str(tmp_path)}))
    outcome = await tool(command.format(path=tmp_path / name))
    assert "the-key" not in repr(outcome)
    assert outcome.error is not None or outcome.result["rows"] == []
    await tool.close()


async def test_duckdb_writes_no_file_there(tmp_path, home, key):
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    tool = Sql(duckdb.KIND, tmp_path, Settings({"home": str(home), "worker.workdir": str(tmp_path)}))
    for name in ("arclog.db", "secrets.key", "new.csv"):
        for folder in ("home", "link"):
            outcome = await tool(f"COPY (SELECT 1 AS a) TO '{tmp_path / folder / name}'")
            assert outcome.error is not None
    assert (await tool(f"COPY (SELECT 1 AS a) TO '{tmp_path / 'out.csv'}'")).error is None
    await tool.close()
    assert {path.name: path.read_bytes() for path in home.iterdir()} == before


async def test_duckdb_does_not_see_our_environment(tmp_path, home, monkeypatch):
    monkeypatch.setenv("ARCLOG_TEST_SECRET", "canary-5d21")
    tool = Sql(duckdb.KIND, tmp_path, Settings({"home": str(home)}))
    for caller in ("self", "1", str(os.getpid()), str(os.getppid()), "*"):
        outcome = await tool(f"SELECT content FROM read_blob('/proc/{caller}/environ')")
        assert "canary-5d21" not in repr(outcome)
    (row,) = await tool.rows("SELECT count(*) AS known FROM duckdb_variables()")
    assert row == {"known": 0}
    await tool.close()


async def test_nor_do_a_servers_databases_lie_outside_of_its_data(tmp_path, home, monkeypatch):
    data, shared = tmp_path / "data", tmp_path / "shared"
    for folder in (data, shared):
        folder.mkdir()
    apsw.Connection(str(shared / "a.db")).execute("CREATE TABLE t (a); INSERT INTO t VALUES (7)")
    monkeypatch.chdir(shared)  # relative paths are within `object.file_root`
    own = {"home": str(home), "object.file_root": str(data)}
    settings = for_server(Settings({**own, "tasks.allow_read": str(shared)}))
    tool = Sql(sqlite.KIND, tmp_path, settings)
    assert (await tool("CREATE TABLE t (a)", database="b.db")).error is None
    for command, database, words in (
        ("SELECT 1 AS one", str(tmp_path / "c.db"), "object.file_root, tasks.allow_read"),
        ("ATTACH '../c.db' AS c; SELECT 1", "b.db", "object.file_root, tasks.allow_write"),
        ("VACUUM INTO '../c.db'", "b.db", "object.file_root, tasks.allow_write"),
    ):
        outcome = await tool(command, database=database, transaction=False)
        assert outcome.error is not None
        assert outcome.error.kind == "config"
        assert words in outcome.error.message
    assert await tool.rows("SELECT a FROM t", database=str(shared / "a.db")) == [{"a": 7}]
    outcome = await tool("INSERT INTO t VALUES (8)", database=str(shared / "a.db"))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == ("auth", "SQLITE_READONLY")
    assert not (tmp_path / "c.db").exists()
    await tool.close()


@pytest.mark.parametrize("root", ["none", "data"])
async def test_a_server_whose_tasks_read_everything_does_not_let_them_write(tmp_path, home, monkeypatch, root):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    apsw.Connection("a.db").execute("CREATE TABLE t (a); INSERT INTO t VALUES (7)")
    own = {"home": str(home), "tasks.allow_read": "/", "object.file_root": root}
    tool = Sql(sqlite.KIND, tmp_path, for_server(Settings(own)), transaction=False)
    there = str(tmp_path / "a.db")
    assert await tool.rows("SELECT a FROM t", database=there) == [{"a": 7}]
    outcome = await tool("INSERT INTO t VALUES (8)", database=there)
    assert outcome.error is not None
    assert outcome.error.code == "SQLITE_READONLY"
    for command in (f"ATTACH '{there}' AS a; INSERT INTO a.t VALUES (8)", f"VACUUM INTO '{tmp_path / 'new.db'}'"):
        outcome = await tool(command, database=":memory:")
        assert outcome.error is not None
        assert outcome.error.kind == "config"
    assert (await tool("CREATE TABLE t (a)", database=str(tmp_path / "new.db"))).error is not None
    assert not (tmp_path / "new.db").exists()
    assert ((await tool("CREATE TABLE t (a)", database="b.db")).error is None) == (root == "data")
    assert (tmp_path / "data" / "b.db").exists() == (root == "data")
    await tool.close()


async def test_a_link_that_comes_after_the_look_is_not_followed(tmp_path, home):
    """SQLite gets the real path, and must find no link on it."""
    (tmp_path / "a.db").symlink_to(home / "arclog.db")
    reach = reach_of(Settings({"home": str(tmp_path / "other")}), tmp_path / "scratch")
    with monkeypatched_realpath(), pytest.raises(apsw.CantOpenError):
        sqlite_database.open_file(str(tmp_path / "a.db"), reach)


@contextmanager
def monkeypatched_realpath():
    """As if the link was made after its path was resolved."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.path.realpath", lambda path: path)
        yield


# ── the SQL itself, on a server ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def limited(tmp_path, home, monkeypatch):
    """The settings of a server's worker whose data are in `data`; beside it is `outside.db`."""
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    apsw.Connection(str(tmp_path / "outside.db")).execute("CREATE TABLE keys (k); INSERT INTO keys VALUES ('canary')")
    apsw.Connection(str(tmp_path / "data" / "own.db")).execute("CREATE TABLE keys (k); INSERT INTO keys VALUES ('own')")
    return for_server(Settings({"home": str(home), "object.file_root": str(tmp_path / "data")}))


@pytest.fixture
async def served(tmp_path, limited):
    tool = Sql(sqlite.KIND, tmp_path, limited, database=":memory:", transaction=False)
    yield tool
    await tool.close()


async def sent(tool, *statements, **keys):
    """Run statements as they are, as if the scanner had split a command like this."""
    command = [{"sql": sql, "params": []} for sql in statements]
    return await tool.toolbox.run("sqlite", {"command": command, **tool.where, **keys}, task_context())


@pytest.mark.parametrize("database", [":memory:", "", "own.db"])
@pytest.mark.parametrize("path", ["'../outs' || 'ide.db'", "'../outside.db'", "{{ path }}"])
async def test_no_file_outside_is_attached_inside_of_one_statement(served, tmp_path, database, path):
    command = (
        f"CREATE TABLE trigger(begin); ATTACH ({path}) AS s; CREATE TABLE k AS SELECT * FROM s.keys; "
        "INSERT INTO s.keys VALUES ('planted'); DETACH s; SELECT * FROM k"
    )
    outcome = await served(command, {"path": "../outside.db"}, database=database)
    assert "canary" not in repr(outcome)
    assert outcome.error is not None
    assert outcome.error.kind == "config"
    assert list(apsw.Connection(str(tmp_path / "outside.db")).execute("SELECT k FROM keys")) == [("canary",)]


@pytest.mark.parametrize("database", [":memory:", "", "own.db"])
@pytest.mark.parametrize("transaction", [True, False])
async def test_a_second_statement_of_a_text_does_not_run(served, tmp_path, database, transaction):
    for text in (
        "SELECT 1; CREATE TABLE n (a)",
        "CREATE TABLE n (a); SELECT 1",
        "SELECT 1;;SELECT 2",
        "SELECT 1; PRAGMA x",
    ):
        outcome = await sent(served, text, database=database, transaction=transaction)
        assert outcome.error is not None
        assert (outcome.error.kind, "several statements" in outcome.error.message) == ("config", True)
    assert (await sent(served, "SELECT 1 AS a; -- \n", database=database)).error is not None
    assert (await sent(served, "SELECT 1 AS a ; ", database=database)).result["rows"] == [{"a": 1}]
    names = apsw.Connection(str(tmp_path / "data" / "own.db")).execute("SELECT name FROM sqlite_schema").fetchall()
    assert names == [("keys",)]


def held_names(name):
    """Names below each folder that a connection may hold open. SQLite knows its files by such names."""
    return [f"/proc/self/fd/{number}/../{name}" for number in range(3, 64)]


@pytest.mark.parametrize("database", [":memory:", "own.db"])
@pytest.mark.parametrize("path", ["'{name}'", "'{name}' || ''"])
async def test_a_name_below_a_held_folder_leads_nowhere_else(served, tmp_path, database, path):
    for name in (*held_names("outside.db"), *held_names("new.db")):
        attach = f"ATTACH ({path.format(name=name)}) AS s"
        outcome = await served(
            f"ATTACH 'own.db' AS o; CREATE TEMP TABLE trigger(begin); {attach}; CREATE TEMP TABLE k AS SELECT * FROM s.keys; "
            "DETACH s; SELECT * FROM k",
            database=database,
        )
        assert outcome.error is not None
        assert "canary" not in repr(outcome)
    assert not (tmp_path / "new.db").exists()


async def test_the_held_folders_open_only_the_files_that_they_are_held_for(tmp_path, limited):
    """Whatever the rules for statements allow."""
    reach = reach_of(limited, tmp_path / "scratch")
    for database in (":memory:", "", "own.db"):
        connection = sqlite_database.open_file(database, reach)
        connection.execute("ATTACH 'own.db' AS own")
        folders = {(connection.db_filename(name) or "").rpartition("/")[0] for name in connection.db_names()} - {""}
        assert folders
        for folder in folders:
            for path in (
                f"{folder}/../outside.db",
                "../outside.db",
                "/proc/self/fd/0/../x",
                str(tmp_path / "outside.db"),
            ):
                with pytest.raises((apsw.Error, Refused)):
                    connection.execute("ATTACH ? AS s", (path,))
        connection.close()


async def test_own_files_memory_and_temporary_files_serve_as_ever(served, tmp_path):
    assert await served.rows("ATTACH 'own.db' AS o; SELECT k FROM o.keys") == [{"k": "own"}]
    assert await served.rows("ATTACH ':memory:' AS o; CREATE TABLE o.t (a); SELECT count(*) AS n FROM o.t") == [
        {"n": 0}
    ]
    many = "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n WHERE a < 20000) SELECT a, hex(randomblob(200)) AS b FROM n"
    for database in (":memory:", "", "new.db"):
        command = (
            f"PRAGMA cache_size = 10; PRAGMA temp_store = file; CREATE TABLE t AS {many}; CREATE TEMP TABLE u AS {many}; "
            "VACUUM; SELECT count(*) AS n FROM (SELECT b FROM t UNION SELECT b FROM u ORDER BY 1)"
        )
        assert await served.rows(command, database=database) == [{"n": 40000}]
    assert (
        await served("PRAGMA journal_mode = wal; CREATE TABLE w (a); PRAGMA wal_checkpoint", database="new.db")
    ).error is None
    both = "ATTACH 'own.db' AS o; INSERT INTO w VALUES (1); INSERT INTO o.keys VALUES ('two'); SELECT 1 AS one"
    assert await served.rows(both, database="new.db", transaction=False) == [{"one": 1}]
    await served.result("VACUUM INTO 'copy.db'", database="own.db")
    assert await served.rows("SELECT k FROM keys", database="copy.db") == [{"k": "own"}, {"k": "two"}]


async def test_transactions_on_several_files_are_one(tmp_path, limited):
    """SQLite writes a journal of the whole transaction for it, next to the first file."""
    connection = sqlite_database.open_file("a.db", reach_of(limited, tmp_path / "scratch"))
    connection.execute("CREATE TABLE t (a); ATTACH 'own.db' AS o")
    connection.execute("BEGIN; INSERT INTO t VALUES (1); INSERT INTO o.keys VALUES ('two'); COMMIT")
    connection.close()
    for name, query in (("a.db", "SELECT count(*) FROM t"), ("own.db", "SELECT count(*) - 1 FROM keys")):
        assert apsw.Connection(name).execute(query).get == 1
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["a.db", "own.db"]


async def test_no_other_file_is_opened_looked_for_or_removed(tmp_path, limited):
    """SQLite also takes names from journals, which tasks can write."""
    files = held_files._Files(reach_of(limited, tmp_path / "scratch"))
    own = files.xFullPathname("own.db")
    outside = tmp_path / "outside.db"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB
    for name in (
        str(outside),
        f"{own.rpartition('/')[0]}/../outside.db",
        f"{own}/../../outside.db",
        f"{own}-x",
        "own.db",
    ):
        assert not files.xAccess(name, apsw.SQLITE_ACCESS_EXISTS)
        with pytest.raises(apsw.CantOpenError):
            files.xOpen(name, [flags, 0])
        with pytest.raises(apsw.PermissionsError):
            files.xDelete(name, False)
    assert outside.exists()
    for name in (own, f"{own}-journal", f"{own}-wal", f"{own}-mj0123459AB"):
        (tmp_path / "data" / name.rpartition("/")[2]).write_bytes(b"x")
        assert files.xAccess(name, apsw.SQLITE_ACCESS_EXISTS)
    files.close()


BAD_PRAGMAS = [
    "PRAGMA hard_heap_limit = 1000000000",
    "PRAGMA main.Hard_Heap_Limit(1000000000)",
    "PRAGMA 'soft_heap_limit' = 1000000000",
    "PRAGMA temp_store_directory = '/tmp'",
    "PRAGMA mmap_size = 1000000",
    "PRAGMA threads = 8",
    "PRAGMA writable_schema = on",
    "EXPLAIN PRAGMA hard_heap_limit = 1000000000",
    "SELECT * FROM pragma_hard_heap_limit",
]


@pytest.mark.parametrize("level", ["server", "run"])
@pytest.mark.parametrize("command", BAD_PRAGMAS)
async def test_pragmas_of_the_process_are_refused(tmp_path, home, limited, level, command):
    settings = limited if level == "server" else Settings({"home": str(home)})
    tool = Sql(sqlite.KIND, tmp_path, settings, database=":memory:")
    hard, soft = apsw.hard_heap_limit(-1), apsw.soft_heap_limit(-1)
    try:
        for transaction in (True, False):
            outcome = await tool(command, transaction=transaction)
            assert outcome.error is not None
            assert outcome.error.kind == "config"
            name = next(word for word in re.split(r"\W+", command) if "_" in word or word == "threads")
            assert f"PRAGMA {name.removeprefix('pragma_')} cannot be used" in outcome.error.message
        assert (apsw.hard_heap_limit(-1), apsw.soft_heap_limit(-1)) == (hard, soft)
    finally:
        apsw.hard_heap_limit(hard)
        apsw.soft_heap_limit(soft)
        await tool.close()


async def test_pragmas_of_a_database_serve_as_ever(served):
    assert await served.rows("PRAGMA user_version = 7; PRAGMA USER_VERSION", database="own.db") == [{"user_version": 7}]
    assert await served.rows("PRAGMA journal_mode = wal", database="own.db") == [{"journal_mode": "wal"}]
    assert await served.rows("SELECT name FROM pragma_table_info('keys')", database="own.db") == [{"name": "k"}]
    assert await served.rows("PRAGMA main.integrity_check", database="own.db") == [{"integrity_check": "ok"}]
    search = (
        "CREATE VIRTUAL TABLE f USING fts5(a); INSERT INTO f VALUES ('one two'); SELECT a FROM f WHERE f MATCH 'two'"
    )
    assert await served.rows(search) == [{"a": "one two"}]
    boxes = "CREATE VIRTUAL TABLE r USING rtree(id, x, y); INSERT INTO r VALUES (1, 2, 3); SELECT id FROM r WHERE x > 1"
    assert await served.rows(boxes) == [{"id": 1}]


async def test_a_task_waits_for_a_lock_no_longer_than_the_setting_says(tmp_path, home):
    """PRAGMA busy_timeout would replace the handler that stops a wait, also when an attempt is cancelled."""
    database = str(tmp_path / "a.db")
    tool = Sql(sqlite.KIND, tmp_path, Settings({"home": str(home), "sql.busy_timeout_s": 0.1}), database=database)
    await tool.result("CREATE TABLE t (a)")
    holder = apsw.Connection(database)
    holder.execute("BEGIN IMMEDIATE")
    outcome = await asyncio.wait_for(
        tool("PRAGMA busy_timeout = 20000; INSERT INTO t VALUES (1)", transaction=False), timeout=10
    )
    assert outcome.error is not None
    assert outcome.error.kind == "serialization"
    holder.close()
    await tool.close()


@pytest.fixture
async def transfer(tmp_path, limited):
    tool = TransferTool(limited, tmp_path / "scratch")
    yield tool
    await tool.close()


def moving(query, **source):
    return msgspec.convert(
        {
            "source": {"kind": "sqlite", "database": "own.db", "query": query, **source},
            "target": {"kind": "ndjson", "path": "moved"},
        },
        TransferConfig,
    )


TRANSFERS = [
    "CREATE TEMP TABLE trigger(begin); ATTACH ({path}) AS s; SELECT k FROM s.keys",
    "ATTACH {path} AS s",
    "VACUUM INTO {path}",
]


@pytest.mark.parametrize("query", TRANSFERS)
@pytest.mark.parametrize("path", ["'{name}'", "('{name}' || '')"])
async def test_nor_does_a_transfer_leave_its_files(transfer, tmp_path, query, path):
    for name in ("../outside.db", "../new.db", *held_names("outside.db"), *held_names("new.db")):
        outcome = await transfer.run(moving(query.format(path=path.format(name=name))), task_context())
        assert outcome.error is not None
        # The name may lead to the transfer's own data, where a copy may be made.
        assert outcome.error.kind in (("config",) if name.startswith("..") else ("config", "connection", "sql"))
    assert not (tmp_path / "data" / "moved").exists()
    assert not (tmp_path / "new.db").exists()


async def test_nor_does_a_transfer_limit_the_memory_of_the_process(transfer):
    hard = apsw.hard_heap_limit(-1)
    try:
        outcome = await transfer.run(moving("PRAGMA hard_heap_limit = 1000000000"), task_context())
        assert apsw.hard_heap_limit(-1) == hard
    finally:
        apsw.hard_heap_limit(hard)
    assert outcome.error is not None
    assert (outcome.error.kind, "PRAGMA hard_heap_limit" in outcome.error.message) == ("config", True)


async def test_a_second_statement_of_a_query_does_not_run(transfer, tmp_path, monkeypatch):
    """Whatever the scanner takes for one statement."""
    query = "SELECT * FROM keys; ATTACH '../outside.db' AS s"
    monkeypatch.setattr("arclog.tools.transfer.statements.query_of", lambda *_: (query, []))
    outcome = await transfer.run(moving(query), task_context())
    assert outcome.error is not None
    assert (outcome.error.kind, "several statements" in outcome.error.message) == ("config", True)


async def test_a_transfer_moves_its_own_rows_as_ever(transfer, tmp_path):
    outcome = await transfer.run(moving("SELECT k FROM keys"), task_context())
    assert outcome.error is None
    assert (tmp_path / "data" / "moved").read_text() == '{"k":"own"}\n'
