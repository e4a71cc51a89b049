"""What transfer promises of every database: the same tests on SQLite, DuckDB and a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from arclog.plan.build import build
from arclog.wiring.kinds import installed_kinds
from tests.integration.tools.transfer.support import DuckdbEnd, PostgresEnd, Runner, SqliteEnd, sqlite

ROWS = [(n, f"name {n}", n / 4) for n in range(1, 11)]
End = Any


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Runner]:
    runner = Runner(tmp_path)
    yield runner
    await runner.tool.close()


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def end(request: pytest.FixtureRequest, tmp_path: Path) -> End:
    if request.param == "sqlite":
        return SqliteEnd(tmp_path)
    if request.param == "duckdb":
        return DuckdbEnd(tmp_path)
    return PostgresEnd(request.getfixturevalue("postgres"))


@pytest.fixture
def source(tmp_path: Path) -> dict[str, Any]:
    made = "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, score REAL)"
    path = sqlite(tmp_path / "source.db", made, rows=ROWS, into="people")
    return {"kind": "sqlite", "database": path, "table": "people"}


def seen(end: End, what: str = "*") -> list[tuple]:
    outcome: list[tuple] = end.run(f"SELECT {what} FROM t ORDER BY 1")
    return outcome


async def test_a_table_is_made_and_filled(run: Runner, source: dict[str, Any], end: End) -> None:
    result = await run.moved(source, {**end.end, "create": True})
    assert result == {"rows": 10, "columns": ["id", "name", "score"]}
    assert seen(end) == ROWS
    done = [(done, total, unit) for done, total, unit in run.recorder.progress]
    assert done == [(0, 10, "rows"), (3, 10, "rows"), (6, 10, "rows"), (9, 10, "rows"), (10, 10, "rows")]


async def test_append_replace_upsert(run: Runner, source: dict[str, Any], end: End) -> None:
    await run.moved(source, {**end.end, "create": True, "mode": "upsert", "key": "id"})
    await run.moved(source, {**end.end, "mode": "upsert", "key": ["id"]})
    assert seen(end) == ROWS
    end.run("DELETE FROM t WHERE id > 8")
    end.run("UPDATE t SET name = 'old', score = 0")
    end.run("INSERT INTO t VALUES (99, 'kept', 1.5)")
    # Of rows with the same key the last one counts, also across chunks.
    twice = {
        "kind": "sqlite",
        "database": source["database"],
        "query": "SELECT id, 'first' AS name, 0.0 AS score FROM people UNION ALL SELECT id, name, score FROM people "
        "UNION ALL SELECT 1, 'last', 0.25 UNION ALL SELECT 1, 'very last', 0.5",
    }
    assert (await run.moved(twice, {**end.end, "mode": "upsert", "key": "id"}))["rows"] == 22
    assert seen(end) == [(1, "very last", 0.5), *ROWS[1:], (99, "kept", 1.5)]
    for _ in range(2):
        await run.moved(source, {**end.end, "mode": "replace"})
        assert seen(end) == ROWS
    problem = await run.failure(source, end.end)
    assert problem.kind == "constraint"
    assert seen(end) == ROWS


async def test_a_constraint_in_the_last_chunk_leaves_nothing(run: Runner, source: dict[str, Any], end: End) -> None:
    end_only = {"create": True, "mode": "upsert", "key": "id"}
    await run.moved({**source, "table": None, "query": "SELECT * FROM people WHERE id = 10"}, {**end.end, **end_only})
    for mode in ("append", "replace"):
        kept = seen(end)
        twice = {
            "kind": "sqlite",
            "database": source["database"],
            "query": "SELECT * FROM people UNION ALL SELECT 10, 'x', 1",
        }
        problem = await run.failure(twice, {**end.end, "mode": mode})
        assert (problem.kind, problem.retryable) == ("constraint", False)
        assert "row" in problem.message
        assert seen(end) == kept == [ROWS[9]]


async def test_columns_are_picked_and_renamed(run: Runner, source: dict[str, Any], end: End) -> None:
    await run.moved(source, {**end.end, "create": True}, columns={"label": "name", "number": "id"})
    assert seen(end, "number, label") == [(n, name) for n, name, _ in ROWS]
    await run.moved(source, {**end.end, "table": "u", "create": True}, columns=["score"])
    assert end.run("SELECT * FROM u ORDER BY 1") == [(score,) for *_, score in ROWS]
    problem = await run.failure(source, end.end, columns=["id", "nme"])
    assert problem.message == "columns: the source has no column 'nme'; it has id, name, score"


async def test_odd_values(run: Runner, tmp_path: Path, end: End) -> None:
    odd = [(1, None, b"\x00\xff", ""), (2, "quote \" ' \\ \t\r\n , ü😀 \\N", b"", "x"), (3, " \\. ", None, "NULL")]
    path = sqlite(
        tmp_path / "odd.db",
        'CREATE TABLE "o""d d" (i INTEGER, "a b" TEXT, raw BLOB, e TEXT)',
        rows=odd,
        into='"o""d d"',
    )
    await run.moved({"kind": "sqlite", "database": path, "table": 'o"d d'}, {**end.end, "create": True})
    rows = [(i, a, None if raw is None else bytes(raw), e) for i, a, raw, e in seen(end)]
    assert rows == odd


async def test_a_value_that_does_not_fit_names_row_and_column(run: Runner, tmp_path: Path) -> None:
    path = sqlite(
        tmp_path / "x.db", "CREATE TABLE x (n, m)", rows=[(1, 1), (2, 2), (3, 3), (4, 4), (5, "five")], into="x"
    )
    source = {"kind": "sqlite", "database": path, "table": "x"}
    duck = DuckdbEnd(tmp_path)
    duck.run("CREATE TABLE t (n INTEGER, m INTEGER)")
    problem = await run.failure(source, duck.end)
    assert problem.kind == "sql"
    assert problem.message.startswith("row 5, column m: ")
    assert "five" in problem.message
    assert duck.run("SELECT * FROM t") == []


async def test_a_database_that_was_made_is_gone_when_it_fails(run: Runner, end: End) -> None:
    rows: list[dict[str, Any]] = [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}, {"late": 5}]
    await run.failure(None, {**end.end, "create": True}, rows=rows)
    if isinstance(end, PostgresEnd):
        assert end.run("SELECT to_regclass('t')") == [(None,)]
    else:
        assert not end.path.exists()


def test_a_query_takes_no_template() -> None:
    text = """
    metadata: {name: p}
    workflow:
      - step: start
        tool:
          kind: transfer
          source: {kind: sqlite, database: "{{ workload.x }}", query: "SELECT {{ workload.x }}"}
          target: {kind: csv, path: "{{ workload.y }}"}
    """
    (finding,) = build(text, "p.yaml", installed_kinds()).findings
    assert (finding.code, finding.at.line) == ("bad-value", 7)
    assert finding.message == "task.source.query: a template is not allowed here"
    assert "params" in finding.hint


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
async def test_a_database_in_memory_is_no_place_for_rows(
    run: Runner, source: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.folder)
    memory = {"kind": kind, "database": ":memory:", "table": "t"}
    for ends in ((source, {**memory, "create": True}), (memory, {"kind": "ndjson", "path": "x"})):
        problem = await run.failure(*ends)
        assert (problem.kind, problem.retryable) == ("config", False)
        assert "name a file" in problem.message
    assert not (run.folder / ":memory:").exists()


async def test_names_that_are_hostile(run: Runner, source: dict[str, Any], end: End) -> None:
    hostile = 't"; DROP TABLE t; --'
    await run.moved(source, {**end.end, "create": True})
    await run.moved(source, {**end.end, "table": hostile, "create": True}, columns={'a"; --': "id"})
    assert len(seen(end)) == 10
    problem = await run.failure(source, {**end.end, "table": "a\0b"})
    assert problem.kind == "config"


async def test_queries_bind_their_values(run: Runner, source: dict[str, Any], end: End) -> None:
    await run.moved(source, {**end.end, "create": True})
    query = {key: value for key, value in end.end.items() if key != "table"}
    out = {"kind": "ndjson", "path": "out.ndjson"}
    query |= {
        "query": "SELECT id FROM t WHERE id > :low AND name <> :name ORDER BY id",
        "params": {"low": 8, "name": "x'; --"},
    }
    await run.moved(query, out)
    assert (run.folder / "out.ndjson").read_text() == '{"id":9}\n{"id":10}\n'
    problem = await run.failure({**query, "params": {"low": 8}}, out)
    assert problem.kind in ("config", "sql")
    two = await run.failure({**query, "query": "SELECT 1; DROP TABLE t", "params": None}, out)
    assert "one statement is needed" in two.message
    assert len(seen(end)) == 10


async def test_what_is_not_there(run: Runner, source: dict[str, Any], end: End) -> None:
    problem = await run.failure({**end.end, "table": "nothing"}, {"kind": "ndjson", "path": "out.ndjson"})
    assert problem.kind in ("sql", "connection")
    assert not (run.folder / "out.ndjson").exists()
    problem = await run.failure(source, {**end.end, "table": "nothing"})
    assert problem.kind in ("sql", "connection")
    if not isinstance(end, PostgresEnd):
        assert "create: true" in problem.message
        assert not end.path.exists()


async def test_an_empty_table(run: Runner, tmp_path: Path, end: End) -> None:
    path = sqlite(tmp_path / "empty.db", "CREATE TABLE e (id INTEGER, at DATE, what)")
    result = await run.moved({"kind": "sqlite", "database": path, "table": "e"}, {**end.end, "create": True})
    assert result["rows"] == 0
    assert seen(end) == []


async def test_rows_of_a_task(run: Runner, end: End) -> None:
    rows = [{"id": n, "tags": ["a", n], "at": None if n % 2 else "2027-01-01"} for n in range(1, 8)]
    await run.moved(None, {**end.end, "create": True}, rows=rows)
    assert [row[0] for row in seen(end)] == list(range(1, 8))
    await run.moved(None, {**end.end, "mode": "replace"}, rows=[])
    assert seen(end) == []
