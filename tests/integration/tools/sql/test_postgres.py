"""Kind postgres, on a real server: values, transactions, faults of the server, the pool."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arclog.expr.sql.compile import SqlRefused
from arclog.model.config.settings import Settings
from arclog.ports.secrets import Credential
from arclog.results.memory import MemoryResults
from arclog.sandbox.confinement_settings import for_server
from arclog.testing.tools import Recorder, task_context
from arclog.tools.postgres import KIND
from tests.servers.postgres import Database, running_postgres
from tests.unit.tools.sql.support import Sql


@pytest.fixture
async def sql(tmp_path, postgres: Database):
    tool = Sql(KIND, tmp_path, for_server(Settings()), dsn=postgres.dsn)
    yield tool
    await tool.close()


async def until(holds) -> None:
    """Ask the server until it says so."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - another process cannot set an event of ours
            await asyncio.sleep(0)


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_rows_come_back_as_maps_with_their_columns_and_count(sql):
    await sql.result("CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, name text)")
    done = await sql("INSERT INTO t (name) VALUES ({{ a }}), ({{ b }})", {"a": "Ann", "b": None})
    assert done.result == {"columns": [], "rows": [], "row_count": 2}
    assert done.helper == {"pg": {"code": None, "rowcount": 2}}
    rows = [{"id": 1, "name": "Ann"}, {"id": 2, "name": None}]
    result = await sql("SELECT id, name FROM t ORDER BY id")
    assert result.result == {"columns": ["id", "name"], "rows": rows, "row_count": 2}
    assert result.helper == {"pg": {"code": None, "rowcount": 2}}


async def test_no_rows_still_have_their_columns(sql):
    assert await sql.result("SELECT 1 AS a WHERE false") == {"columns": ["a"], "rows": [], "row_count": 0}


async def test_every_sort_of_statement_answers(sql):
    made = await sql.result("CREATE TABLE t AS SELECT generate_series(1, 3) AS a")
    assert made == {"columns": [], "rows": [], "row_count": 3}
    assert await sql.rows("UPDATE t SET a = a + 1 WHERE a < 3 RETURNING a") == [{"a": 2}, {"a": 3}]
    assert await sql.rows("WITH gone AS (DELETE FROM t RETURNING a) SELECT sum(a) AS s FROM gone") == [{"s": 8}]
    assert await sql.rows("TABLE t") == []
    assert await sql.rows("SHOW TimeZone") == [{"TimeZone": "UTC"}]
    assert (await sql.result("SELECT 1 AS a INTO made"))["row_count"] == 1
    assert await sql.rows("EXPLAIN (COSTS OFF) SELECT 1") == [{"QUERY PLAN": "Result"}]
    assert (await sql.result("DO $$ BEGIN PERFORM 1; END $$"))["row_count"] == 0


async def test_types_become_json(sql):
    (row,) = await sql.rows(
        """SELECT 1::smallint AS i, 9223372036854775807 AS big, 1.5::float8 AS f, 'NaN'::float8 AS nan,
        '-Infinity'::float8 AS inf, 12.50::numeric AS n, 0.1::numeric AS tenth, 3::numeric AS whole,
        12345678901234567890.123456789::numeric AS exact, 'NaN'::numeric AS nn, 10::numeric ^ 30 AS huge,
        true AS b, 'x'::bytea AS bytes, '2024-01-31'::date AS d, 'infinity'::date AS never,
        '2024-01-31 12:00:00.5'::timestamp AS ts, '2024-01-31 12:00+02'::timestamptz AS tz,
        '12:30'::time AS t, '1 mon 2 days 03:00'::interval AS iv, '{"a": [1, null]}'::jsonb AS j,
        ARRAY[1, NULL] AS arr, ARRAY[['a'], ['b']] AS arr2, ARRAY['2024-01-31'::date] AS days,
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid AS u, '10.0.0.1/8'::inet AS ip, int4range(1, 5) AS r,
        ROW(1, 'a') AS rec, NULL AS nothing"""
    )
    assert row == {
        "i": 1,
        "big": 9223372036854775807,
        "f": 1.5,
        "nan": "NaN",
        "inf": "-Infinity",
        "n": 12.5,
        "tenth": 0.1,
        "whole": 3,
        "exact": "12345678901234567890.123456789",
        "nn": "NaN",
        "huge": "1000000000000000000000000000000",
        "b": True,
        "bytes": "eA==",
        "d": "2024-01-31",
        "never": "infinity",
        "ts": "2024-01-31T12:00:00.5",
        "tz": "2024-01-31T10:00:00+00:00",
        "t": "12:30:00",
        "iv": "P1M2DT3H",
        "j": {"a": [1, None]},
        "arr": [1, None],
        "arr2": [["a"], ["b"]],
        "days": ["2024-01-31"],
        "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "ip": "10.0.0.1/8",
        "r": "[1,5)",
        "rec": ["1", "a"],
        "nothing": None,
    }


async def test_values_find_their_types(sql):
    await sql.result("CREATE TABLE t (i int, b bigint, f float8, n numeric, s text, ok bool, j jsonb, a int[], d date)")
    row = {
        "i": 5,
        "b": 2**40,
        "f": 1,
        "n": 2.5,
        "s": "x",
        "ok": False,
        "j": {"k": [1, "a"]},
        "a": [1, 2],
        "d": "2024-01-31",
    }
    names = ", ".join(row)
    values = ", ".join(f"{{{{ {name} }}}}" for name in row)
    await sql.result(f"INSERT INTO t ({names}) VALUES ({values})", row)
    # in exact quotes a value is text that takes the column's type, as a quoted literal does
    texts = ", ".join(f"'{{{{ {name} }}}}'" for name in row)
    await sql.result(f"INSERT INTO t ({names}) VALUES ({texts})", {**row, "a": "{1}"})
    first, second = await sql.rows("SELECT * FROM t")
    assert first == row
    assert second == {**row, "a": [1]}


@pytest.mark.parametrize(
    ("value", "kind"),
    [([1, 2], "smallint[]"), ([1.5, 2], "double precision[]"), ([True], "boolean[]"), ([1, "a"], "jsonb"), ([[1]], "jsonb"), ({}, "jsonb")],
)  # fmt: skip
async def test_lists_of_one_type_are_arrays_and_the_rest_is_json(sql, value, kind):
    assert await sql.rows("SELECT pg_typeof({{ v }})::text AS t", {"v": value}) == [{"t": kind}]


async def test_lists_of_texts_and_empty_ones_take_the_type_they_meet(sql):
    await sql.result("CREATE TABLE t AS SELECT 'a' AS a")
    assert await sql.rows("SELECT a FROM t WHERE a = ANY({{ v }})", {"v": ["a", "b"]}) == [{"a": "a"}]
    assert await sql.rows("SELECT a FROM t WHERE a = ANY({{ v }})", {"v": []}) == []


@pytest.mark.parametrize("value", [[], [1], ["a"], [{"a": 1}], [[]]])
async def test_where_json_is_wanted_every_list_is_json(sql, value):
    scope = {"v": value}
    assert await sql.rows("SELECT {{ v }}::jsonb AS a, CAST({{ v }} AS jsonb) AS b", scope) == [
        {"a": value, "b": value}
    ]
    assert await sql.rows("SELECT :v::jsonb AS a", params={"v": value}) == [{"a": value}]
    assert await sql.rows("SELECT e FROM jsonb_array_elements({{ v }}) e", scope) == [{"e": item} for item in value]
    assert await sql.rows("SELECT a FROM jsonb_to_recordset({{ v }}) AS r(a int)", {"v": []}) == []


async def test_scalars_and_texts_where_json_is_wanted(sql):
    (row,) = await sql.rows("SELECT {{ n }}::jsonb AS n, {{ t | tojson }}::jsonb AS t, {{ none }}::jsonb AS none",
                            {"n": 5, "t": ["x"], "none": None})  # fmt: skip
    assert row == {"n": 5, "t": ["x"], "none": None}


async def test_operators_with_question_marks_and_percents_are_no_placeholders(sql):
    (row,) = await sql.rows(
        "SELECT '{\"a\": 1}'::jsonb ? {{ k }} AS has, 'a%s' LIKE '%\\%s' AS l, 7 % 4 AS m", {"k": "a"}
    )
    assert row == {"has": True, "l": True, "m": 3}


async def test_params_by_name_and_by_position(sql):
    assert await sql.rows("SELECT :a::int + 1 AS a, :b AS b", params={"a": 4, "b": "x"}) == [{"a": 5, "b": "x"}]
    assert await sql.rows("SELECT $2 AS b, $1::int AS a", params=[1, "x"]) == [{"b": "x", "a": 1}]


@pytest.mark.parametrize(
    "hostile", ["x'); DROP TABLE t; --", "'; DELETE FROM t; --", '"', "\\'", "$1", "{{ 7*7 }}", "%s"]
)
async def test_a_hostile_value_is_data(sql, hostile):
    await sql.result("CREATE TABLE t (a text, b text)")
    await sql.result("INSERT INTO t VALUES ({{ v }}, '{{ v }}')", {"v": hostile})
    assert await sql.rows("SELECT a, b FROM t") == [{"a": hostile, "b": hostile}]


@pytest.mark.parametrize("name", ['t"; DROP TABLE u; --', "a.b", "select", "Mit Leer", "ü'", "%s $1"])
async def test_a_hostile_name_is_a_name(sql, name):
    await sql.result("CREATE TABLE u (a int); CREATE TABLE {{ n | identifier }} (a text)", {"n": name})
    await sql.result("INSERT INTO {{ ['public', n] | identifier }} VALUES ('x')", {"n": name})
    names = await sql.rows("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'")
    assert sorted(row["relname"] for row in names) == sorted(["u", name])


async def test_a_name_that_the_server_would_cut_is_refused(sql):
    with pytest.raises(Exception, match="at most 63 bytes"):
        await sql("SELECT {{ n | identifier }}", {"n": "ü" * 32})


# ── transactions and errors ──────────────────────────────────────────────────────────────────────────────────────────


async def test_several_statements_are_one_transaction(sql, postgres):
    await sql.result("CREATE TABLE t (a int UNIQUE)")
    outcome = await sql("INSERT INTO t VALUES (1); INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)")
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code, outcome.error.retryable) == ("constraint", "23505", False)
    assert outcome.error.message.startswith("statement 2 of 3: ")
    assert "(a)=(1)" in outcome.error.message
    assert outcome.helper == {"pg": {"code": "23505", "rowcount": None}}
    assert postgres.rows("SELECT * FROM t") == []


async def test_a_deferred_constraint_fails_at_commit(sql, postgres):
    await sql.result("CREATE TABLE t (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    assert await sql.failure("INSERT INTO t VALUES (1), (1)") == ("constraint", "23505")
    assert postgres.rows("SELECT * FROM t") == []


async def test_what_cannot_run_in_a_transaction(sql):
    await sql.result("CREATE TABLE t (a int)")
    assert "transaction: false" in await sql.message("VACUUM t")
    assert (await sql.result("VACUUM t; INSERT INTO t VALUES (1)", transaction=False))["row_count"] == 1


@pytest.mark.parametrize(
    ("command", "scope", "kind", "code"),
    [
        ("SELECT * FROM nowhere", {}, "sql", "42P01"),
        ("SELEC 1", {}, "sql", "42601"),
        ("SELECT 1 / 0", {}, "sql", "22012"),
        ("SELECT {{ v }}::text", {"v": "a\0b"}, "sql", "22021"),
        ("SELECT {{ v }}::text", {"v": "\ud800"}, "sql", "22021"),
        ("SELECT {{ v }}", {"v": {"a": ["\0"]}}, "sql", "22021"),
        ("SET statement_timeout = 1; SELECT pg_sleep(60)", {}, "timeout", "57014"),
        ("SET ROLE pg_monitor; CREATE TABLE t (a int)", {}, "auth", "42501"),
        ("SET lock_timeout = 1; SELECT pg_advisory_lock(1)", {}, "serialization", "55P03"),
        ("COPY pg_class TO STDOUT", {}, "sql", None),
    ],
)
async def test_errors_have_their_kind_and_code(sql, postgres, command, scope, kind, code):
    with postgres.connect() as other:
        other.execute("SELECT pg_advisory_lock(1)")
        assert await sql.failure(command, scope) == (kind, code)
    assert await sql.rows("SELECT 1 AS a") == [{"a": 1}]


async def test_a_value_where_a_name_belongs_tells_the_remedy(sql):
    with pytest.raises(SqlRefused, match=r"\| identifier"):
        await sql.message("SELECT * FROM {{ t }}", {"t": "t"})
    assert "| identifier" in await sql.message("SELECT 1 AS a ORDER BY {{ t }} COLLATE {{ t }}", {"t": "t"})


async def test_a_serialization_conflict_may_be_tried_again(sql, postgres):
    await sql.result("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    with postgres.connect(autocommit=False) as other:
        other.execute("UPDATE t SET a = 2")
        running = asyncio.create_task(
            sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1; UPDATE t SET a = 3")
        )
        await until(lambda: postgres.rows("SELECT 1 FROM pg_locks WHERE NOT granted"))
        other.commit()
    outcome = await running
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code, outcome.error.retryable) == ("serialization", "40001", True)
    assert postgres.rows("SELECT a FROM t") == [(2,)]


async def test_two_tasks_that_make_the_same_table_may_be_tried_again(sql, postgres):
    with postgres.connect(autocommit=False) as other:
        other.execute("CREATE TABLE t (a int)")
        running = asyncio.create_task(sql("CREATE TABLE IF NOT EXISTS t (a int)"))
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        await until(lambda: postgres.rows(waits))
        other.commit()
        outcome = await running
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code, outcome.error.retryable) == ("serialization", "23505", True)
    assert await sql.rows("CREATE TABLE IF NOT EXISTS t (a int); SELECT count(*) AS n FROM t") == [{"n": 0}]


async def test_of_two_tasks_in_a_deadlock_one_goes_on(sql, postgres):
    await sql.result("CREATE TABLE t (id int PRIMARY KEY, a int); INSERT INTO t VALUES (1, 0), (2, 0)")
    # Both hold one row before either asks for the other's: each waits for a lock that the test holds between.
    with postgres.connect() as gate:
        gate.execute("SELECT pg_advisory_lock(7)")
        both = [
            asyncio.create_task(
                sql(
                    "UPDATE t SET a = a + 1 WHERE id = {{ x }}; SELECT pg_advisory_xact_lock_shared(7); "
                    "UPDATE t SET a = a + 1 WHERE id = {{ y }}",
                    {"x": x, "y": 3 - x},
                )
            )
            for x in (1, 2)
        ]
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
        await until(lambda: len(postgres.rows(waiting)) == 2)
    outcomes = await asyncio.gather(*both)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert [(error.kind, error.code, error.retryable) for error in errors] == [("serialization", "40P01", True)]
    assert postgres.rows("SELECT a FROM t") == [(1,), (1,)]


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_many_rows_are_streamed_into_the_result_store(sql):
    results, recorder = MemoryResults(), Recorder()
    context = task_context(recorder, results=results, inline_max_bytes=1000)
    outcome = await sql("SELECT a, 'row ' || a AS t FROM generate_series(1, 2500) a", {}, context)
    assert outcome.result == {"columns": ["a", "t"], "row_count": 2500}
    assert (outcome.data_at, outcome.stored.rows) == ("rows", 2500)
    assert await results.items("default", outcome.stored.sha256, 2499, 3000) == [{"a": 2500, "t": "row 2500"}]
    assert recorder.progress[-1] == (2500, None, "rows")


async def test_a_statement_before_the_last_runs_whole_however_many_rows_it_gives(sql):
    await sql.result("CREATE TABLE t (a int)")
    rows = await sql.rows(
        "INSERT INTO t SELECT generate_series(1, 100000) RETURNING a; SELECT a FROM t; SELECT count(*) AS n FROM t"
    )
    assert rows == [{"n": 100000}]


async def test_rows_that_are_too_many_leave_no_cancel_behind_for_others(sql, postgres):
    outcome = await sql("SELECT generate_series(1, 1000000)", max_rows=10)
    assert outcome.error is not None
    assert outcome.error.code == "max_rows"
    mine = "SELECT pid FROM pg_stat_activity WHERE application_name = 'arclog' AND datname = current_database()"
    await until(lambda: not postgres.rows(mine))
    assert await sql.rows("SELECT 1 AS a") == [{"a": 1}]


async def test_a_result_store_that_fails_undoes_the_transaction(sql, postgres):
    await sql.result("CREATE TABLE t (a int)")

    class Full(MemoryResults):
        def writer(self, tenant, *, listed=False, content_type=""):
            raise OSError("no space left on device")

    context = task_context(results=Full(), inline_max_bytes=10)
    with pytest.raises(OSError, match="no space"):
        await sql("INSERT INTO t SELECT generate_series(1, 100) RETURNING a", {}, context)
    assert postgres.rows("SELECT * FROM t") == []
    assert await sql.rows("SELECT 1 AS a") == [{"a": 1}]


# ── cancellation and faults ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_cancelled_statement_ends_on_the_server_and_is_undone(sql, postgres):
    await sql.result("CREATE TABLE t (a int)")
    running = asyncio.create_task(sql("INSERT INTO t VALUES (1); SELECT pg_sleep(600)"))
    asleep = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND state = 'active' AND pid != pg_backend_pid()"
    await until(lambda: postgres.rows(asleep))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert postgres.rows(asleep) == []
    assert postgres.rows("SELECT * FROM t") == []
    assert await sql.rows("SELECT 1 AS a") == [{"a": 1}]


async def test_the_time_limit_is_an_outcome(sql, postgres):
    outcome = await sql("SELECT pg_sleep(600)", {}, task_context(timeout_s=0.1))
    assert outcome.error is not None
    assert outcome.error.kind == "timeout"
    await until(
        lambda: (
            not postgres.rows(
                "SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)' AND datname = current_database()"
            )
        )
    )


async def test_a_session_that_is_ended_by_the_administrator(sql, postgres):
    await sql.result("CREATE TABLE t (a int)")
    running = asyncio.create_task(sql("INSERT INTO t VALUES (1); SELECT pg_sleep(600)"))
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND query NOT LIKE '%pg_stat_activity%' AND datname = current_database()"
    await until(lambda: postgres.rows(kill))
    outcome = await running
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code, outcome.error.retryable) == ("connection", "57P01", True)
    assert postgres.rows("SELECT * FROM t") == []
    assert await sql.rows("SELECT count(*) AS n FROM t") == [{"n": 0}]


async def test_a_connection_that_died_while_idle_is_replaced(sql, postgres):
    (first,) = await sql.rows("SELECT pg_backend_pid() AS pid")
    postgres.rows(f"SELECT pg_terminate_backend({first['pid']}, 10000)")
    (second,) = await sql.rows("SELECT pg_backend_pid() AS pid")
    assert first != second


async def test_a_server_that_is_killed_in_a_transaction_leaves_nothing_half_written(tmp_path):
    with running_postgres() as server:
        database = server.create()
        sql = Sql(KIND, tmp_path, dsn=database.dsn)
        await sql.result("CREATE TABLE t (a int)")
        running = asyncio.create_task(sql("INSERT INTO t VALUES (1), (2); SELECT pg_sleep(600)"))
        asleep = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND query NOT LIKE '%pg_stat_activity%' AND datname = current_database()"
        await until(lambda: database.rows(asleep))
        server.kill()
        outcome = await running
        assert outcome.error is not None
        assert (outcome.error.kind, outcome.error.retryable) == ("connection", True)
        away = await sql("SELECT 1")
        assert away.error is not None
        assert (away.error.kind, away.error.retryable) == ("connection", True)
        server.start()
        assert await sql.rows("SELECT count(*) AS n FROM t") == [{"n": 0}]
        await sql.close()


async def test_a_server_that_hangs_holds_no_task_up(tmp_path):
    with running_postgres() as server:
        database = server.create()
        sql = Sql(KIND, tmp_path, Settings({"tasks.kill_grace_s": 0.05}), dsn=database.dsn)
        await sql.result("CREATE TABLE t (a int)")
        running = asyncio.create_task(sql("INSERT INTO t VALUES (1); SELECT pg_sleep(600)"))
        asleep = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND query NOT LIKE '%pg_stat_activity%' AND datname = current_database()"
        await until(lambda: database.rows(asleep))
        await sql.result("SELECT 1")  # leaves a connection that will hang when it is taken again
        server.freeze()
        running.cancel()
        late = sql("SELECT 1", {}, task_context(timeout_s=0.1))
        async with asyncio.timeout(30):
            with pytest.raises(asyncio.CancelledError):
                await running
            outcome = await late
        assert outcome.error is not None
        assert outcome.error.kind == "timeout"
        server.thaw()
        assert await sql.rows("SELECT count(*) AS n FROM t") == [{"n": 0}]
        await sql.close()


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_connection_is_used_again_and_remembers_nothing(sql):
    (first,) = await sql.rows(
        "SET search_path = pg_catalog; CREATE TEMP TABLE mine (a int); SELECT pg_backend_pid() AS pid"
    )
    (second,) = await sql.rows(
        "SELECT pg_backend_pid() AS pid, to_regclass('mine')::text AS mine, current_setting('search_path') AS path"
    )
    assert second == {"pid": first["pid"], "mine": None, "path": '"$user", public'}


async def test_scopes_do_not_share_a_connection(sql):
    (first,) = await sql.rows("SELECT pg_backend_pid() AS pid")
    other = await sql("SELECT pg_backend_pid() AS pid", {}, task_context(scope="other/default/local"))
    assert other.result["rows"] != [first]


async def test_no_more_connections_than_the_pool_may_have(tmp_path, postgres):
    sql = Sql(KIND, tmp_path, Settings({"sql.pool_max": 2}), dsn=postgres.dsn)
    await sql.result("CREATE TABLE t (pid int)")
    await asyncio.gather(*(sql.result("INSERT INTO t SELECT pg_backend_pid() FROM pg_sleep(0.01)") for _ in range(12)))
    assert postgres.rows("SELECT count(*), count(DISTINCT pid) <= 2 FROM t") == [(12, True)]
    await sql.close()


async def test_nothing_is_connected_after_close_nor_when_idle(tmp_path, postgres):
    mine = "SELECT pid FROM pg_stat_activity WHERE application_name = 'arclog' AND datname = current_database()"
    sql = Sql(KIND, tmp_path, Settings({"sql.pool_idle_s": 0.05}), dsn=postgres.dsn)
    await sql.result("SELECT 1")
    await until(lambda: not postgres.rows(mine))
    await sql.close()
    sql = Sql(KIND, tmp_path, dsn=postgres.dsn)
    await sql.result("SELECT 1")
    assert postgres.rows(mine)
    await sql.close()
    await until(lambda: not postgres.rows(mine))


async def test_the_credential_names_the_server(tmp_path, postgres):
    fields = {"host": postgres.host, "port": postgres.port, "user": postgres.user, "password": postgres.password}
    auth = Credential(
        "pg", "postgres_credential", {**fields, "dbname": postgres.dbname, "note": "x"}, (postgres.password,)
    )
    sql = Sql(KIND, tmp_path)
    outcome = await sql("SELECT current_database() AS db", {}, task_context(auth=auth))
    assert outcome.result["rows"] == [{"db": postgres.dbname}]
    outcome = await sql("SELECT current_database() AS db", {}, task_context(auth=auth), dbname="postgres")
    assert outcome.result["rows"] == [{"db": "postgres"}]
    auth = Credential("pg", "secret", {"value": postgres.dsn}, (postgres.dsn,))
    outcome = await sql("SELECT current_database() AS db", {}, task_context(auth=auth))
    assert outcome.result["rows"] == [{"db": postgres.dbname}]
    await sql.close()


async def test_a_server_that_refuses(tmp_path, postgres):
    sql = Sql(KIND, tmp_path)
    where = {"host": postgres.host, "port": postgres.port, "user": "postgres", "dbname": "postgres"}
    assert await sql.failure("SELECT 1", **where, password="wrong") == ("auth", "28P01")
    assert await sql.failure("SELECT 1", **{**where, "dbname": "nowhere"}, password=postgres.password) == (
        "sql",
        "3D000",
    )
    assert await sql.failure("SELECT 1", **{**where, "port": 1}) == ("connection", "08001")
    assert "set auth, dsn or host" in await sql.message("SELECT 1")
    message = await sql.message("SELECT 1", dsn="postgresql//me:hunter2@host")
    assert "cannot be read" in message
    assert "hunter2" not in message
    await sql.close()


@pytest.mark.parametrize("password", ["one@hunter2", "one:hunter2/three", "@hunter2", "hunter2/x", "a@b:hunter2"])
async def test_a_password_that_breaks_its_url_is_not_taken_for_a_host(tmp_path, password):
    sql = Sql(KIND, tmp_path)
    outcome = await sql("SELECT 1", dsn=f"postgresql://me:{password}@127.0.0.1:1/x")
    assert outcome.error is not None
    assert outcome.error.kind in {"config", "connection"}
    assert "hunter2" not in outcome.error.message
    await sql.close()


# ── what a server's tasks may connect to ─────────────────────────────────────────────────────────────────────────────


async def test_a_name_goes_to_its_permitted_addresses(tmp_path, postgres: Database):
    where: Any = {"host": "localhost", "port": postgres.port, "user": postgres.user, "password": postgres.password}
    for allowed, code in (("loopback", None), ("none", "ADDRESS_REFUSED")):
        sql = Sql(KIND, tmp_path, Settings({"postgres.allow_networks": allowed}), dbname=postgres.dbname, **where)
        outcome = await sql("SELECT 1 AS a")
        assert (outcome.error and outcome.error.code) == code
        await sql.close()


async def test_the_password_of_the_worker_is_not_used(tmp_path, postgres: Database, monkeypatch):
    passwords = tmp_path / "pgpass"
    passwords.write_text(f"*:*:*:*:{postgres.password}\n")
    passwords.chmod(0o600)
    where: Any = {"host": postgres.host, "port": postgres.port, "user": postgres.user, "dbname": postgres.dbname}
    for variable, text in (("PGPASSWORD", postgres.password), ("PGPASSFILE", str(passwords))):
        monkeypatch.setenv(variable, text)
        own, of_server = Sql(KIND, tmp_path, **where), Sql(KIND, tmp_path, for_server(Settings()), **where)
        assert await own.rows("SELECT 1 AS a") == [{"a": 1}]
        assert await of_server.failure("SELECT 1") == ("auth", "28P01")
        monkeypatch.delenv(variable)
        await own.close()
        await of_server.close()
