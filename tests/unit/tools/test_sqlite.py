"""Kind sqlite, on real files: values, transactions, locks, errors."""

from __future__ import annotations

import asyncio
import threading

import apsw
import pytest

from arclog.expr.sql.compile import SqlRefused, compile_sql
from arclog.model.config.settings import Settings
from arclog.model.errors import ExpressionError
from arclog.results.memory import MemoryResults
from arclog.testing.tools import Recorder, task_context
from arclog.tools.sqlite import KIND
from tests.unit.tools.sql.support import Sql


@pytest.fixture
async def sql(tmp_path):
    tool = Sql(KIND, tmp_path, Settings({"sql.busy_timeout_s": 20}), database=str(tmp_path / "a.db"))
    yield tool
    await tool.close()


async def test_rows_come_back_as_maps_with_their_columns_and_count(sql):
    await sql.result("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
    done = await sql("INSERT INTO t (name) VALUES ({{ a }}), ({{ b }})", {"a": "Ann", "b": None})
    assert done.result == {"columns": [], "rows": [], "row_count": 2}
    assert done.helper == {"sqlite": {"code": None, "rowcount": 2}}
    outcome = await sql("SELECT id, name FROM t ORDER BY id")
    rows = [{"id": 1, "name": "Ann"}, {"id": 2, "name": None}]
    assert outcome.result == {"columns": ["id", "name"], "rows": rows, "row_count": 2}
    assert (outcome.data_at, outcome.stored) == ("rows", None)


async def test_no_rows_still_have_their_columns(sql):
    assert await sql.result("SELECT 1 AS a WHERE false") == {"columns": ["a"], "rows": [], "row_count": 0}


async def test_statements_before_the_last_run_whole_and_their_rows_are_dropped(sql):
    assert await sql.rows(
        "CREATE TABLE t (a); INSERT INTO t VALUES (1), (2), (3) RETURNING a; SELECT * FROM t; SELECT sum(a) AS s FROM t"
    ) == [{"s": 6}]


async def test_columns_of_one_name_get_numbers(sql):
    assert await sql.rows("SELECT 1 AS id, 2 AS id, 3 AS id_2, 4 AS id") == [{"id": 1, "id_3": 2, "id_2": 3, "id_4": 4}]


async def test_values_of_every_sort_go_in_and_come_back(sql):
    values = [None, True, 7, -(2**63), 1.5, "x\0y\u20ac\U0001f600", "", [1, "a"], {"k": [None]}]
    scope = {f"v{at}": value for at, value in enumerate(values)}
    command = "SELECT " + ", ".join(f"{{{{ {name} }}}} AS {name}" for name in scope)
    (row,) = await sql.rows(command, scope)
    assert list(row.values()) == [None, 1, 7, -(2**63), 1.5, "x\0y\u20ac\U0001f600", "", '[1,"a"]', '{"k":[null]}']


async def test_what_json_has_no_word_for_is_text(sql):
    (row,) = await sql.rows("SELECT x'00ff' AS b, 9e999 AS i, -9e999 AS j")
    assert row == {"b": "AP8=", "i": "Infinity", "j": "-Infinity"}


async def test_a_list_is_a_table(sql):
    rows = [{"id": 1, "n": "a"}, {"id": 2, "n": "b'); DROP TABLE t; --"}]
    await sql.result(
        "CREATE TABLE t (id, n); INSERT INTO t SELECT value->>'id', value->>'n' FROM json_each({{ rows }})",
        {"rows": rows},
    )
    assert await sql.rows("SELECT id, n FROM t ORDER BY id") == rows
    kept = await sql.rows("SELECT n FROM t WHERE id IN (SELECT value FROM json_each({{ ids }}))", {"ids": [2, 9]})
    assert kept == [{"n": "b'); DROP TABLE t; --"}]


@pytest.mark.parametrize(
    "hostile",
    ["x'); DROP TABLE t; --", "'; DELETE FROM t; --", '"', "\\", "{{ 7 * 7 }}", "%(a)s ? :a $1", "x' || 'y", "\x00'"],
)
async def test_a_hostile_value_is_data(sql, hostile):
    await sql.result("CREATE TABLE t (a, b)")
    await sql.result("INSERT INTO t VALUES ({{ v }}, '{{ v }}')", {"v": hostile})
    assert await sql.rows("SELECT a, b FROM t") == [{"a": hostile, "b": hostile}]


@pytest.mark.parametrize("name", ['t"; DROP TABLE u; --', "a.b", "select", "mit Leer", "ü'", "[x]", "`y`"])
async def test_a_hostile_name_is_a_name(sql, name):
    await sql.result("CREATE TABLE u (a); CREATE TABLE {{ n | identifier }} ({{ n | identifier }} TEXT)", {"n": name})
    await sql.result("INSERT INTO {{ ['main', n] | identifier }} VALUES ('x')", {"n": name})
    assert await sql.rows("SELECT {{ n | identifier }} FROM {{ n | identifier }}", {"n": name}) == [{name: "x"}]
    names = await sql.rows("SELECT name FROM sqlite_schema ORDER BY name")
    assert sorted(row["name"] for row in names) == sorted(["u", name])


async def test_a_quoted_name_that_is_no_column_is_an_error_and_never_a_text(sql):
    assert await sql.failure("SELECT {{ n | identifier }}", {"n": "nothing"}) == ("sql", "SQLITE_ERROR")


async def test_params_by_name_and_by_position(sql):
    assert await sql.rows("SELECT :a AS a, :b AS b, :a || 'x' AS c", params={"a": "p", "b": [1]}) == [
        {"a": "p", "b": "[1]", "c": "px"}
    ]
    assert await sql.rows("SELECT ? AS a; SELECT ?2 AS b, ?1 AS a", params=["p", 2]) == [{"b": 2, "a": "p"}]


async def test_several_statements_are_one_transaction(sql):
    await sql.result("CREATE TABLE t (a UNIQUE)")
    outcome = await sql("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); INSERT INTO t VALUES (1)")
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == ("constraint", "SQLITE_CONSTRAINT_UNIQUE")
    assert outcome.error.message.startswith("statement 3 of 3: ")
    assert await sql.rows("SELECT * FROM t") == []


async def test_without_a_transaction_each_statement_stands_alone(sql):
    await sql.failure(
        "CREATE TABLE t (a UNIQUE); INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)", transaction=False
    )
    assert await sql.rows("SELECT * FROM t") == [{"a": 1}]
    assert "transaction: false" in await sql.message("VACUUM")
    assert (await sql.result("VACUUM", transaction=False))["row_count"] == 0


async def test_a_trigger_is_one_statement(sql):
    await sql.result("CREATE TABLE t (a); CREATE TABLE seen (a)")
    await sql.result(
        "CREATE TRIGGER g AFTER INSERT ON t BEGIN "
        "INSERT INTO seen VALUES (CASE WHEN new.a > 1 THEN 'big' ELSE 'small' END); DELETE FROM t; END; "
        "INSERT INTO t VALUES (5)"
    )
    assert await sql.rows("SELECT a, (SELECT count(*) FROM t) AS n FROM seen") == [{"a": "big", "n": 0}]


async def test_references_hold(sql):
    await sql.result("CREATE TABLE p (id INTEGER PRIMARY KEY); CREATE TABLE c (p REFERENCES p)")
    assert await sql.failure("INSERT INTO c VALUES (1)") == ("constraint", "SQLITE_CONSTRAINT_FOREIGNKEY")


@pytest.mark.parametrize(
    ("command", "scope", "kind", "code"),
    [
        ("SELECT * FROM nowhere", {}, "sql", "SQLITE_ERROR"),
        ("SELEC 1", {}, "sql", "SQLITE_ERROR"),
        ("SELECT {{ v }}", {"v": 2**70}, "sql", "22003"),
        ("SELECT {{ v }}", {"v": "\ud800"}, "sql", "22021"),
        ("SELECT {{ v }}", {"v": {"a": ["\udfff"]}}, "sql", "22021"),
    ],
)
async def test_errors_have_their_kind_and_code(sql, command, scope, kind, code):
    assert await sql.failure(command, scope) == (kind, code)


async def test_a_value_where_a_name_belongs_tells_the_remedy(sql):
    with pytest.raises(SqlRefused, match=r"\| identifier"):
        await sql.message("SELECT * FROM {{ t }}", {"t": "t"})


async def test_a_file_that_cannot_be_opened(sql, tmp_path):
    outcome = await sql("SELECT 1", database=str(tmp_path / "no" / "a.db"))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("connection", False)
    assert "its folder does not exist" in outcome.error.message
    (tmp_path / "text").write_text("this is not a database, and it is long enough to have been one" * 20)
    assert await sql.failure("SELECT * FROM t", database=str(tmp_path / "text")) == ("connection", "SQLITE_NOTADB")


async def test_more_rows_than_max_rows_are_an_error_that_undoes(sql):
    await sql.result("CREATE TABLE t (a)")
    assert await sql.failure("INSERT INTO t VALUES (1), (2), (3) RETURNING a", max_rows=2) == ("limit", "max_rows")
    assert await sql.rows("SELECT * FROM t", max_rows=0) == []


COUNT = (
    "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n LIMIT {{ most }}) SELECT a, 'row ' || a AS t FROM n"
)


async def test_many_rows_are_streamed_into_the_result_store(sql):
    results, recorder = MemoryResults(), Recorder()
    context = task_context(recorder, results=results, inline_max_bytes=1000)
    outcome = await sql(COUNT, {"most": 2500}, context)
    assert outcome.result == {"columns": ["a", "t"], "row_count": 2500}
    assert outcome.data_at == "rows"
    assert outcome.stored.rows == 2500
    assert await results.items("default", outcome.stored.sha256, 2498, 3000) == [
        {"a": 2499, "t": "row 2499"},
        {"a": 2500, "t": "row 2500"},
    ]
    assert recorder.progress[-1] == (2500, None, "rows")


async def test_a_locked_file_is_waited_for(sql, tmp_path):
    await sql.result("CREATE TABLE t (a)")
    other = apsw.Connection(str(tmp_path / "a.db"))
    other.execute("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)")
    waiting = asyncio.create_task(sql.result("INSERT INTO t VALUES (2)"))
    await asyncio.wait((waiting,), timeout=0.05)
    other.execute("COMMIT")
    await waiting
    other.close()
    assert await sql.rows("SELECT a FROM t ORDER BY a") == [{"a": 1}, {"a": 2}]


async def test_a_lock_that_is_held_too_long_may_be_tried_again(tmp_path):
    sql = Sql(KIND, tmp_path, Settings({"sql.busy_timeout_s": 0}), database=str(tmp_path / "a.db"))
    await sql.result("CREATE TABLE t (a)")
    other = apsw.Connection(str(tmp_path / "a.db"))
    other.execute("BEGIN IMMEDIATE")
    outcome = await sql("INSERT INTO t VALUES (2)")
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code, outcome.error.retryable) == ("serialization", "SQLITE_BUSY", True)
    assert await sql.rows("SELECT * FROM t") == []  # a reader needs no lock
    other.close()
    await sql.close()


async def test_a_cancelled_statement_is_interrupted_and_undone(sql):
    await sql.result("CREATE TABLE t (a)")
    endless = "INSERT INTO t VALUES (1); WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) FROM n"
    running = asyncio.create_task(sql(endless))
    await asyncio.wait((running,), timeout=0.1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await sql.rows("SELECT * FROM t") == []


async def test_a_task_that_waits_for_a_lock_is_cancelled_at_once(sql, tmp_path):
    await sql.result("CREATE TABLE t (a)")
    other = apsw.Connection(str(tmp_path / "a.db"))
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(sql("INSERT INTO t VALUES (2)"))
    await asyncio.wait((waiting,), timeout=0.05)
    waiting.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await waiting
    other.close()


async def test_the_time_limit_is_an_outcome_and_leaves_no_thread_busy(sql):
    context = task_context(timeout_s=0.05)
    outcome = await sql(
        "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) FROM n", {}, context
    )
    assert outcome.error is not None
    assert outcome.error.kind == "timeout"
    await sql.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("arclog-sqlite")]


@pytest.mark.parametrize("value", ["", "a\0b", 5, None, [], ["a", ""], {"a": 1}, "\ud800"])
def test_what_is_no_name_is_refused(value):
    with pytest.raises(ExpressionError, match="identifier"):
        compile_sql("SELECT {{ v | identifier }}", "sqlite").evaluate({"v": value})
