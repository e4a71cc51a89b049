"""Files as ends of transfers, and stored results as sources."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from arclog.model.refs import LIST, RefMeta, ResultRef, ref_text
from arclog.tools.transfer import files
from tests.integration.tools.transfer.support import Runner, SqliteEnd, csv_rows, sqlite


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Runner]:
    runner = Runner(tmp_path)
    yield runner
    await runner.tool.close()


@pytest.fixture
def source(tmp_path: Path) -> dict[str, Any]:
    rows = [(1, "a,b", 0.5, None), (2, 'say "x"\n', None, b"\x00\xff"), (3, "ü", 1e300, b""), (4, None, -1.0, None)]
    path = sqlite(tmp_path / "s.db", "CREATE TABLE x (n INTEGER, t TEXT, r REAL, b BLOB)", rows=rows, into="x")
    return {"kind": "sqlite", "database": path, "table": "x"}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def query(sql: str) -> duckdb.DuckDBPyRelation:
    rows = duckdb.sql(sql)
    assert rows is not None
    return rows


async def test_csv(run: Runner, source: dict[str, Any]) -> None:
    result = await run.moved(source, {"kind": "csv", "path": "out/x.csv"})
    path = run.folder / "out" / "x.csv"
    assert result == {"rows": 4, "columns": ["n", "t", "r", "b"], "bytes": path.stat().st_size}
    assert csv_rows(path) == [
        ["n", "t", "r", "b"], ["1", "a,b", "0.5", ""], ["2", 'say "x"\n', "", "AP8="], ["3", "ü", "1e+300", ""],
        ["4", "", "-1.0", ""],
    ]  # fmt: skip
    back = SqliteEnd(run.folder)
    back.run("CREATE TABLE t (n INTEGER, t TEXT, r REAL, b TEXT)")
    await run.moved({"kind": "csv", "path": "out/x.csv"}, back.end)
    assert back.run("SELECT n, t, r FROM t ORDER BY n") == [
        (1, "a,b", 0.5),
        (2, 'say "x"\n', None),
        (3, "ü", 1e300),
        (4, None, -1.0),
    ]


@pytest.mark.parametrize("kind", ["csv", "ndjson"])
async def test_a_file_tells_how_many_of_its_bytes_were_read(run: Runner, tmp_path: Path, kind: str) -> None:
    lines = [f"{n},{'x' * 50_000}" if kind == "csv" else f'{{"n": {n}, "t": "{"x" * 50_000}"}}' for n in range(12)]
    (run.folder / "in").write_text("\n".join(["n,t", *lines] if kind == "csv" else lines))
    size = (run.folder / "in").stat().st_size
    await run.moved({"kind": kind, "path": "in"}, {"kind": "csv", "path": "out.csv"})
    await asyncio.sleep(0)  # the last word comes from the thread that moved the rows
    progress = run.recorder.progress
    assert {(total, unit) for _, total, unit in progress} == {(size, "bytes")}
    done = [done for done, _, _ in progress]
    assert done == sorted(done)
    assert 0 < done[0] < size
    assert done[-1] == size


async def test_csv_forms(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\ufeffa;b\n1;\\N\n\n2;\n", encoding="utf-8")
    back = SqliteEnd(tmp_path)
    form = {"delimiter": ";", "null": "\\N"}
    await run.moved({"kind": "csv", "path": "a.csv", **form}, {**back.end, "create": True, "types": {"a": "integer"}})
    assert back.run("SELECT * FROM t") == [(1, None), (2, "")]
    await run.moved(
        {"kind": "csv", "path": "a.csv", **form, "header": False},
        {"kind": "csv", "path": "b.csv", **form, "header": False},
    )
    assert (tmp_path / "b.csv").read_text() == "a;b\n1;\\N\n2;\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a,b\n1,2\n3\n", "row 2 has 1 values, the columns are 2"),
        (b"a,b\n1,2\n3,4,5\n", "row 2 has 3 values"),
        (b"", "is empty"),
        (b"a,a\n1,2\n", "two columns called 'a'"),
        (b"a,b\n1,\xff\n", "not UTF-8 text"),
        (b'a,b\n1,"x"y\n', "row 1: "),
        (b'a,b\n1,"never ends\n', "row 1: "),
    ],
)
async def test_csv_that_is_wrong(run: Runner, tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "a.csv").write_bytes(text)
    problem = await run.failure({"kind": "csv", "path": "a.csv"}, {"kind": "ndjson", "path": "out"})
    assert message in problem.message
    assert not (tmp_path / "out").exists()


async def test_ndjson(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text(
        '{"a": 1, "b": {"c": [1]}}\n\n{"a": 2.5}\n{"b": null, "a": null}\n{"a": "\\u0000"}\n'
    )
    back = SqliteEnd(tmp_path)
    await run.moved({"kind": "ndjson", "path": "a.ndjson"}, {**back.end, "create": True})
    assert back.run("SELECT * FROM t") == [(1.0, '{"c":[1]}'), (2.5, None), (None, None), ("\0", None)]
    await run.moved({"kind": "ndjson", "path": "a.ndjson"}, {"kind": "ndjson", "path": "b.ndjson"})
    assert (tmp_path / "b.ndjson").read_text() == (
        '{"a":1,"b":{"c":[1]}}\n{"a":2.5,"b":null}\n{"a":null,"b":null}\n{"a":"\\u0000","b":null}\n'
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a":1}\n{"a":', "row 2 is not JSON"),
        ('{"a":1}\n[1]\n', "row 2 is not a JSON object"),
        ('{"a":1}\n{"a":1}\n{"a":1}\n{"a":1,"late":2}\n', "row 4 has the key 'late'"),
    ],
)
async def test_ndjson_that_is_wrong(run: Runner, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a").write_text(text)
    problem = await run.failure({"kind": "ndjson", "path": "a"}, {"kind": "csv", "path": "out"})
    assert (problem.kind, problem.code) == ("exception", "BadRow")
    assert message in problem.message
    assert names(tmp_path) == ["a"]


async def test_parquet(run: Runner, source: dict[str, Any]) -> None:
    result = await run.moved(source, {"kind": "parquet", "path": "x.parquet"})
    path = run.folder / "x.parquet"
    assert result["bytes"] == path.stat().st_size
    written = query(f"SELECT * FROM read_parquet('{path}')")
    assert [str(kind) for kind in written.types] == ["BIGINT", "VARCHAR", "DOUBLE", "BLOB"]
    rows = [(1, "a,b", 0.5, None), (2, 'say "x"\n', None, b"\x00\xff"), (3, "ü", 1e300, b""), (4, None, -1.0, None)]
    assert written.fetchall() == rows
    back = SqliteEnd(run.folder)
    await run.moved({"kind": "parquet", "path": "x.parquet"}, {**back.end, "create": True})
    assert back.run("SELECT * FROM t ORDER BY n") == rows
    problem = await run.failure({"kind": "parquet", "path": "no.parquet"}, back.end)
    assert problem.kind == "not_found"
    (run.folder / "bad.parquet").write_text("no parquet")
    problem = await run.failure({"kind": "parquet", "path": "bad.parquet"}, back.end)
    assert problem.kind in ("sql", "connection")
    assert not list((run.folder / "scratch").rglob("*.csv"))


async def test_types_go_through_parquet(run: Runner, tmp_path: Path) -> None:
    duckdb.sql(
        "COPY (SELECT DATE '2027-01-02' AS d, TIMESTAMP '2027-01-02 03:04:05.678' AS t, 12.340::DECIMAL(9,3) AS m, "
        f"[1, 2] AS l, true AS b, INTERVAL 1 DAY AS i, NULL AS z) TO '{tmp_path}/a.parquet'"
    )
    await run.moved({"kind": "parquet", "path": "a.parquet"}, {"kind": "ndjson", "path": "a.ndjson"})
    assert (tmp_path / "a.ndjson").read_text() == (
        '{"d":"2027-01-02","t":"2027-01-02T03:04:05.678000","m":12.34,"l":[1,2],"b":true,"i":"P1D","z":null}\n'
    )
    await run.moved({"kind": "parquet", "path": "a.parquet"}, {"kind": "parquet", "path": "b.parquet"})
    assert query(f"SELECT d, t, m, l, b FROM '{tmp_path}/b.parquet'").fetchall()[0][0].isoformat() == "2027-01-02"


async def test_files_stay_in_their_root(run: Runner, source: dict[str, Any], tmp_path: Path) -> None:
    for path in ("../out.csv", "/etc/out.csv", "s3://bucket/x", "", "a\0b"):
        for kind in ("csv", "ndjson", "parquet"):
            assert (await run.failure(source, {"kind": kind, "path": path})).kind == "config"
            assert (await run.failure({"kind": kind, "path": path}, {"kind": "csv", "path": "ok.csv"})).kind == "config"
    assert names(tmp_path) == ["s.db"]


@pytest.mark.parametrize("kind", ["csv", "ndjson"])
async def test_a_pipe_that_takes_the_place_of_a_file_after_its_check_is_not_waited_for(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    os.mkfifo(tmp_path / "in")
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    writer = threading.Timer(5, lambda: os.close(os.open(tmp_path / "in", os.O_WRONLY)))  # ends a wait
    writer.daemon = True
    writer.start()
    problem = await run.failure({"kind": kind, "path": "in"}, {"kind": "csv", "path": "out"})
    writer.cancel()
    assert "in: is not a file" in problem.message


async def test_a_line_of_csv_that_is_too_long_is_not_read(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LINE_BYTES", 1000)
    (tmp_path / "in.csv").write_text("a,b\n1," + "x" * 990 + "\n")
    await run.moved({"kind": "csv", "path": "in.csv"}, {"kind": "ndjson", "path": "out"})
    (tmp_path / "in.csv").write_text("a,b\n" + "1," * 100_000)
    problem = await run.failure({"kind": "csv", "path": "in.csv"}, {"kind": "ndjson", "path": "out"})
    assert problem.kind == "limit"
    assert "a line of more than 1000 bytes" in problem.message


async def test_arclogs_own_database_is_out_of_bounds(run: Runner, source: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / ".arclog")
    for path in (".arclog/arclog.db", "link/arclog.db"):
        for kind in ("sqlite", "duckdb"):
            end = {"kind": kind, "database": str(tmp_path / path), "table": "log"}
            assert "own folder" in (await run.failure(end, {"kind": "csv", "path": "x.csv"})).message
            assert "own folder" in (await run.failure(source, {**end, "create": True})).message


async def test_a_failed_file_leaves_the_old_one(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("before")
    (tmp_path / "a").write_text('{"a":1}\n' * 10 + "{")
    await run.failure({"kind": "ndjson", "path": "a"}, {"kind": "csv", "path": "out.csv"})
    assert (tmp_path / "out.csv").read_text() == "before"
    assert names(tmp_path) == ["a", "out.csv"]


async def test_a_full_disk(
    run: Runner, source: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # /dev/full answers every write as a full disk does.
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: (os.open("/dev/full", os.O_WRONLY), str(tmp_path / "tmp")))
    problem = await run.failure(source, {"kind": "csv", "path": "out.csv"})
    assert (problem.kind, problem.code) == ("limit", "ENOSPC")
    assert names(tmp_path) == ["s.db"]


async def test_a_stored_result(run: Runner) -> None:
    writer = run.results.writer("default", listed=True)
    await writer.add([{"n": n, "t": str(n)} for n in range(2500)])
    content = await writer.commit()
    ref = ResultRef(
        LIST, "memory", ref_text(1, "made", content.sha256), RefMeta(content.bytes, content.sha256, rows=2500)
    )
    back = SqliteEnd(run.folder)
    assert (await run.moved(None, {**back.end, "create": True}, rows=ref, chunk_rows=700))["rows"] == 2500
    assert back.run("SELECT count(*), sum(n), max(length(t)) FROM t") == [(2500, 3123750, 4)]
    done, total, _ = run.recorder.progress[-1]
    assert (done, total) == (2500, 2500)
    run.results.kept.clear()
    assert (await run.failure(None, {**back.end, "mode": "replace"}, rows=ref)).kind == "result"
    assert back.run("SELECT count(*) FROM t") == [(2500,)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("text", "a list of maps"),
        ([1], "row 1 is int"),
        ([{"a": 1}, None], "row 2 is NoneType"),
        (None, "a list of maps"),
    ],
)
async def test_rows_that_are_none(run: Runner, rows: Any, message: str) -> None:
    problem = await run.failure(None, {"kind": "csv", "path": "x.csv"}, rows=rows)
    assert problem.kind == "config"
    assert message in problem.message


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ({"kind": "csv"}, {"kind": "csv", "path": "a"}, "source: kind csv needs `path`"),
        ({"kind": "sqlite", "database": "a"}, {"kind": "csv", "path": "a"}, "either `table` or `query`"),
        ({"kind": "sqlite", "table": "t"}, {"kind": "csv", "path": "a"}, "needs `database`"),
        (
            {"kind": "sqlite", "database": "a", "table": "t", "path": "x"},
            {"kind": "csv", "path": "a"},
            "source.path does not belong",
        ),
        ({"kind": "csv", "path": "a"}, {"kind": "csv", "path": "a", "mode": "append"}, "always replaced"),
        ({"kind": "csv", "path": "a"}, {"kind": "sqlite", "database": "a"}, "needs `table`"),
        (
            {"kind": "csv", "path": "a"},
            {"kind": "sqlite", "database": "a", "table": "t", "mode": "upsert"},
            "belong together",
        ),
        (
            {"kind": "csv", "path": "a"},
            {"kind": "sqlite", "database": "a", "table": "t", "key": "k"},
            "belong together",
        ),
        ({"kind": "csv", "path": "a", "delimiter": "ab"}, {"kind": "ndjson", "path": "a"}, "not one character"),
        (None, {"kind": "ndjson", "path": "a"}, "either `source` or `rows`"),
        ({"kind": "postgres", "table": "t"}, {"kind": "ndjson", "path": "a"}, "needs a server"),
    ],
)
async def test_configs_that_cannot_be_meant(run: Runner, source: Any, target: Any, message: str) -> None:
    problem = await run.failure(source, target)
    assert problem.kind == "config"
    assert message in problem.message
