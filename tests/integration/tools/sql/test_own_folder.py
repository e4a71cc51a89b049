"""A SQL task opens no database in arclog's own folder, by whatever name and statement."""

from __future__ import annotations

import os
from contextlib import contextmanager

import apsw
import pytest

from arclog.model.config.settings import Settings
from arclog.sandbox.confinement_settings import for_server, reach_of
from arclog.tools import duckdb, sqlite
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
    monkeypatch.chdir(data)
    settings = for_server(Settings({"home": str(home), "tasks.allow_read": str(shared)}))
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


async def test_a_link_that_comes_after_the_look_is_not_followed(tmp_path, home):
    """SQLite gets the real path, and must find no link on it."""
    (tmp_path / "a.db").symlink_to(home / "arclog.db")
    reach = reach_of(Settings({"home": str(tmp_path / "other")}), tmp_path / "scratch")
    with monkeypatched_realpath(), pytest.raises(apsw.CantOpenError):
        sqlite.open_file(str(tmp_path / "a.db"), reach)


@contextmanager
def monkeypatched_realpath():
    """As if the link was made after its path was resolved."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("arclog.tools.sql.files.os.path.realpath", lambda path: path)
        yield
