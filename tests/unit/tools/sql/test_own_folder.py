"""A SQL task opens no database in arclog's own folder, by whatever name and statement."""

from __future__ import annotations

import apsw
import pytest

from arclog.model.settings import Settings
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
    assert outcome.error.kind == "config"
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
