"""Tables and columns of SQL statements, and nothing where a statement does not say."""

from __future__ import annotations

import pytest

from arclog.history.sql_lineage import Statement, read_sql


def tables(statement: Statement) -> tuple[str, str]:
    reads = [".".join(filter(None, table)) for table in statement.reads] + statement.files
    return " ".join(reads), " ".join(".".join(filter(None, table)) for table in statement.writes)


@pytest.mark.parametrize(
    ("dialect", "sql", "reads", "writes"),
    [
        ("sqlite", "insert into orders values (1, ?1)", "", "orders"),
        ("sqlite", "insert into orders values ('?2', ?1)", "", "orders"),
        ("postgres", "select * from A.B join c on true where x = $1", "a.b c", ""),
        ("postgres", "with w as (select q from p) insert into t (a) select q from w", "p", "t"),
        ("postgres", "update t set a = s.b from s where s.i = t.i", "s", "t"),
        ("postgres", "merge into t using s on t.i = s.i when matched then update set a = s.a", "s", "t"),
        ("postgres", "insert into t select * from t", "t", "t"),
        ("postgres", "delete from t", "", "t"),
        ("duckdb", "select * from 'X.parquet' join read_csv('y.csv') using (a)", "X.parquet y.csv", ""),
        ("sqlite", "create table t as select * from u", "u", "t"),
        ("sqlite", "create index i on t (a)", "", ""),
        ("postgres", "select * from generate_series(1, 3)", "", ""),
    ],
)
def test_tables_that_are_read_and_written(dialect: str, sql: str, reads: str, writes: str) -> None:
    (statement,) = read_sql(sql, dialect)
    assert tables(statement) == (reads, writes)


@pytest.mark.parametrize("sql", ["foo bar baz", "select ((((", "select " + "(" * 5000 + "1" + ")" * 5000])
def test_a_text_that_is_not_understood_has_no_statements(sql: str) -> None:
    assert read_sql(sql, "postgres") == []


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("insert into t (a, b) select c.x, d.y + c.z from c join d on c.i = d.i", {"a": "c.x", "b": "c.z d.y"}),
        ("insert into t (a) with w as (select p.q as r from p) select r from w", {"a": "p.q"}),
        ("with w as (select p.q as r from p) insert into t (a) select r from w", {"a": "p.q"}),
        ("create table t as select id, sum(n) as total from o group by id", {"id": "o.id", "total": "o.n"}),
        ("insert into t (a) select a from x union all select b from y", {"a": "x.a y.b"}),
        # Not known from the statement alone: which table, which columns, in which order.
        ("insert into t (a) select x from c join d on c.i = d.i", {}),
        ("insert into t (a, b) select * from c", {}),
        ("insert into t select c.x from c", {}),
        ("insert into t (a) select 1", {}),
    ],
)
def test_columns_and_their_sources(sql: str, columns: dict[str, str]) -> None:
    (statement,) = read_sql(sql, "postgres")
    found = {
        column: " ".join(sorted(f"{table[2]}.{field}" for table, field in sources))
        for column, sources in statement.columns.items()
    }
    assert found == columns
