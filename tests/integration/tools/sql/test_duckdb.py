"""Kind duckdb: values, files, transactions, limits, interrupts."""

from __future__ import annotations

import asyncio
import sys

import pytest

from arclog.expr.sql.compile import SqlRefused
from arclog.model.config.settings import MIB, Settings
from arclog.results.memory import MemoryResults
from arclog.testing.tools import task_context
from arclog.tools.duckdb import KIND
from tests.unit.tools.sql.support import Sql


@pytest.fixture
async def sql(tmp_path):
    tool = Sql(KIND, tmp_path / "scratch", database=str(tmp_path / "a.duckdb"))
    yield tool
    await tool.close()


async def test_rows_come_back_as_maps_with_their_columns_and_count(sql):
    await sql.result("CREATE TABLE t (id INTEGER, name VARCHAR)")
    done = await sql("INSERT INTO t VALUES (1, {{ a }}), (2, {{ b }})", {"a": "Ann", "b": None})
    assert done.result == {"columns": [], "rows": [], "row_count": 2}
    assert done.helper == {"duckdb": {"code": None, "rowcount": 2}}
    result = await sql("SELECT id, name FROM t ORDER BY id")
    rows = [{"id": 1, "name": "Ann"}, {"id": 2, "name": None}]
    assert result.result == {"columns": ["id", "name"], "rows": rows, "row_count": 2}
    assert await sql.rows("DELETE FROM t WHERE id = 1 RETURNING name") == [{"name": "Ann"}]
    assert await sql.result("SELECT 1 AS a WHERE false") == {"columns": ["a"], "rows": [], "row_count": 0}


async def test_types_become_json(sql):
    (row,) = await sql.rows(
        """SELECT 1.50::DECIMAL(10,2) AS n, 0.12345678901234567890::DECIMAL(38,20) AS exact, 170141183460469231731::HUGEINT AS huge,
        DATE '2024-01-31' AS d, TIMESTAMP '2024-01-31 12:00:00.5' AS ts, TIMESTAMPTZ '2024-01-31 12:00:00+02' AS tz,
        TIME '12:30' AS t, INTERVAL 26 HOUR AS iv, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::UUID AS u, 'x'::BLOB AS b,
        {'a': [1, NULL]} AS s, MAP {'k': DATE '2024-01-31'} AS m, [1.5::DECIMAL(3,1)] AS l, 'nan'::DOUBLE AS nan,
        'x'::ENUM('x', 'y') AS e, true AS ok"""
    )
    assert row == {
        "n": 1.5,
        "exact": "0.12345678901234567890",
        "huge": "170141183460469231731",
        "d": "2024-01-31",
        "ts": "2024-01-31T12:00:00.500000",
        "tz": "2024-01-31T10:00:00+00:00",
        "t": "12:30:00",
        "iv": "P1DT2H",
        "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "b": "eA==",
        "s": {"a": [1, None]},
        "m": {"k": "2024-01-31"},
        "l": [1.5],
        "nan": "NaN",
        "e": "x",
        "ok": True,
    }


async def test_lists_are_lists_and_the_rest_is_json(sql):
    scope = {"ids": [2, 3], "mixed": [1, "a"], "map": {"k": [1]}, "numbers": [1, 2.5]}
    assert await sql.rows("SELECT i FROM range(5) r(i) WHERE i IN (SELECT unnest({{ ids }}))", scope) == [
        {"i": 2},
        {"i": 3},
    ]
    (row,) = await sql.rows("SELECT {{ map }}::JSON->'k' AS k, {{ mixed }} AS m, list_sum({{ numbers }}) AS s", scope)
    assert row == {"k": [1], "m": '[1,"a"]', "s": 3.5}
    assert await sql.rows("SELECT json_array_length({{ v }}) AS n, {{ v }}::JSON AS v", {"v": []}) == [
        {"n": 0, "v": []}
    ]
    rows = [{"id": 1, "n": "a"}, {"id": 2, "n": "b'); --"}]
    selected = await sql.rows(
        'SELECT unnest(from_json({{ rows }}, \'[{"id": "INTEGER", "n": "VARCHAR"}]\'), recursive := true)',
        {"rows": rows},
    )
    assert selected == rows


@pytest.mark.parametrize("hostile", ["x'); DROP TABLE t; --", '"', "$1 ? :a", "\0", "{{ 1 }}"])
async def test_a_hostile_value_is_data_and_a_hostile_name_a_name(sql, hostile):
    await sql.result("CREATE TABLE t (a VARCHAR, b VARCHAR)")
    await sql.result("INSERT INTO t VALUES ({{ v }}, '{{ v }}')", {"v": hostile})
    assert await sql.rows("SELECT a, b FROM t") == [{"a": hostile, "b": hostile}]
    if "\0" not in hostile:
        await sql.result("CREATE TABLE {{ v | identifier }} AS SELECT 1 AS {{ v | identifier }}", {"v": hostile})
        assert await sql.rows("SELECT * FROM {{ ['main', v] | identifier }}", {"v": hostile}) == [{hostile: 1}]


async def test_params_by_name_and_by_position(sql):
    assert await sql.rows("SELECT :a + 1 AS a, {'x':2} AS s", params={"a": 4}) == [{"a": 5, "s": {"x": 2}}]
    assert await sql.rows("SELECT ? AS a, ? AS b", params=[1, "x"]) == [{"a": 1, "b": "x"}]
    assert await sql.rows("SELECT $2 AS b, $1 AS a", params=[1, "x"]) == [{"b": "x", "a": 1}]


async def test_parquet_goes_out_and_comes_in(sql, tmp_path):
    file = str(tmp_path / "it's.parquet")
    out = await sql.result(
        "COPY (SELECT i, i % 3 AS k FROM range(9) r(i)) TO {{ file }} (FORMAT parquet)", {"file": file}
    )
    assert out["row_count"] == 9
    back = await sql.rows("SELECT k, sum(i) AS s FROM read_parquet({{ file }}) GROUP BY k ORDER BY k", {"file": file})
    assert back == [{"k": 0, "s": 9}, {"k": 1, "s": 12}, {"k": 2, "s": 15}]


async def test_a_statement_before_the_last_runs_whole_however_many_rows_it_gives(sql):
    await sql.result("CREATE TABLE t (a BIGINT)")
    rows = await sql.rows(
        "INSERT INTO t SELECT i FROM range(500000) r(i) RETURNING a; SELECT a FROM t; SELECT count(*) AS n FROM t"
    )
    assert rows == [{"n": 500000}]


async def test_several_statements_are_one_transaction(sql):
    await sql.result("CREATE TABLE t (a INTEGER PRIMARY KEY)")
    outcome = await sql("INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)")
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == ("constraint", "Constraint")
    assert outcome.error.message.startswith("statement 2 of 2: ")
    assert await sql.rows("SELECT * FROM t") == []
    await sql.failure("INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)", transaction=False)
    assert await sql.rows("SELECT * FROM t") == [{"a": 1}]


@pytest.mark.parametrize(
    ("command", "kind", "code"),
    [
        ("SELECT * FROM nowhere", "sql", "Catalog"),
        ("SELEC 1", "sql", "Parser"),
        ("SELECT 'x'::INTEGER", "sql", "Conversion"),
        ("SET memory_limit = '100GB'", "sql", "InvalidInput"),
        ("SELECT * FROM read_csv('/nowhere/x.csv')", "not_found", "IO"),
        ("SELECT * FROM 'https://127.0.0.1:1/x.parquet'", "config", "MissingExtension"),
    ],
)
async def test_errors_have_their_kind_and_code(sql, command, kind, code):
    assert await sql.failure(command) == (kind, code)


async def test_no_extension_is_installed(sql):
    for command in ("INSTALL httpfs", "FORCE INSTALL httpfs"):
        with pytest.raises(SqlRefused, match=r"not installed by a task.*LOAD one .* setting duckdb\.extensions"):
            await sql(command)


@pytest.mark.parametrize(
    ("command", "name", "instead"),
    [
        ("ATTACH 'x.db' AS x (TYPE sqlite)", "sqlite_scanner", "`kind: transfer`"),
        ("ATTACH 'dbname=x' AS x (TYPE postgres)", "postgres_scanner", "`kind: transfer`"),
        ("SELECT * FROM 's3://bucket/x.parquet'", "httpfs", "`kind: object`"),
        ("COPY (SELECT 1) TO 's3://bucket/x.csv'", "httpfs", "`kind: object`"),
        ("SELECT * FROM read_csv('az://box/x.csv')", "azure", "`kind: object`"),
        ("LOAD httpfs", "httpfs", "`kind: object`"),
        ("SELECT st_point(1, 2)", "spatial", "put into the folder"),
    ],
)
async def test_a_missing_extension_says_what_works_without_the_internet(tmp_path, command, name, instead):
    sql = Sql(KIND, tmp_path / "scratch", Settings({"duckdb.extensions": str(tmp_path / "none")}))
    outcome = await sql(command)
    await sql.close()
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code, outcome.error.retryable) == ("config", "MissingExtension", False)
    assert instead in outcome.error.message
    assert (
        f"{name}.duckdb_extension put into the folder that the setting duckdb.extensions names" in outcome.error.message
    )
    assert "INSTALL" not in outcome.error.message


async def test_extensions_are_loaded_from_the_operators_folder(tmp_path):
    import duckdb

    with duckdb.connect() as connection:
        ((platform,),) = connection.execute("PRAGMA platform").fetchall()
    place = tmp_path / "extensions" / f"v{duckdb.__version__}" / platform
    place.mkdir(parents=True)
    (place / "httpfs.duckdb_extension").write_bytes(b"no extension" * 100)
    sql = Sql(KIND, tmp_path / "scratch", Settings({"duckdb.extensions": str(tmp_path / "extensions")}))
    message = await sql.message("LOAD httpfs")
    await sql.close()
    # It was found there, and is none.
    assert "not a DuckDB extension" in message


async def test_a_file_that_is_no_database_is_not_worth_a_retry(tmp_path):
    (tmp_path / "a.duckdb").write_text("no database" * 1000)
    sql = Sql(KIND, tmp_path / "scratch", database=str(tmp_path / "a.duckdb"))
    outcome = await sql("SELECT 1")
    await sql.close()
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("connection", False)


async def test_memory_has_a_limit(tmp_path):
    settings = Settings({"duckdb.max_memory_bytes": 64 * MIB, "duckdb.max_temp_bytes": 0})
    sql = Sql(KIND, tmp_path, settings)
    assert await sql.failure("SELECT list(i) FROM range(50000000) r(i)") == ("limit", "OutOfMemory")
    await sql.close()


HOLD = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


async def test_a_file_that_another_process_has_open(tmp_path):
    settings = Settings({"sql.busy_timeout_s": 0.1})
    sql = Sql(KIND, tmp_path / "scratch", settings, database=str(tmp_path / "a.duckdb"))
    await sql.result("CREATE TABLE t (a INTEGER)")
    holder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLD, str(tmp_path / "a.duckdb")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert holder.stdout
    try:
        assert await holder.stdout.readline() == b"open\n"
        outcome = await sql("SELECT 1")
        other = Sql(KIND, tmp_path / "scratch", database=str(tmp_path / "a.duckdb"))
        stopped = asyncio.create_task(other("SELECT 1"))
        await asyncio.sleep(0)
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
    finally:
        holder.kill()
        await holder.communicate()
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("serialization", True)
    assert "sql.busy_timeout_s" in outcome.error.message
    assert await sql.rows("SELECT count(*) AS n FROM t") == [{"n": 0}]
    await other.close()
    await sql.close()


async def test_a_folder_that_is_not_there(sql, tmp_path):
    outcome = await sql("SELECT 1", database=str(tmp_path / "no" / "a.duckdb"))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("connection", False)
    assert "its folder does not exist" in outcome.error.message


async def test_writers_that_collide_may_try_again(sql):
    await sql.result("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (0)")
    outcomes = await asyncio.gather(*(sql("UPDATE t SET a = a + 1") for _ in range(8)))
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert all((error.kind, error.retryable) == ("serialization", True) for error in errors), errors
    assert await sql.rows("SELECT a FROM t") == [{"a": 8 - len(errors)}]


async def test_many_rows_are_streamed_into_the_result_store(sql):
    results = MemoryResults()
    outcome = await sql("SELECT i AS a FROM range(5000) r(i)", {}, task_context(results=results, inline_max_bytes=1000))
    assert outcome.result == {"columns": ["a"], "row_count": 5000}
    assert await results.items("default", outcome.stored.sha256, 4999, 6000) == [{"a": 4999}]


async def test_a_cancelled_statement_is_interrupted_and_undone(sql):
    await sql.result("CREATE TABLE t (a INTEGER)")
    endless = "INSERT INTO t VALUES (1); SELECT sum(a.i * b.i) FROM range(1000000) a(i), range(1000000) b(i)"
    running = asyncio.create_task(sql(endless))
    await asyncio.wait((running,), timeout=0.2)
    running.cancel()
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await running
    assert await sql.rows("SELECT * FROM t") == []
