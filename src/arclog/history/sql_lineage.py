"""The tables and columns that a SQL statement reads and writes. Needs the extra `lineage`.

It does not guess: a statement that cannot be parsed has no tables, and a column whose table cannot be determined from
the statement alone has no sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from arclog.model.config.extras import required

if TYPE_CHECKING:
    from sqlglot import exp

#: Catalog, schema and name; '' if the statement has none.
Table = tuple[str, str, str]

#: Quoted texts and comments, which stay unchanged, or SQLite's `?1`, which the parser knows only as `?`.
_NUMBERED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|(\?\d+)", re.DOTALL)


class Statement(Struct):
    """The tables and columns that a statement reads and writes."""

    reads: list[Table] = []
    #: names of files that it reads
    files: list[str] = []
    writes: list[Table] = []
    #: columns of the only written table → the columns from which their values come
    columns: dict[str, list[tuple[Table, str]]] = {}
    #: whether the database's row count is the number of written rows
    is_counted: bool = False


def read_sql(text: str, dialect: str) -> list[Statement]:
    """Parse the statements of a text; [] if it cannot be parsed. Raises MissingExtra."""
    with required("lineage", "lineage of SQL tasks"):
        import sqlglot
        from sqlglot.errors import SqlglotError
    text = _NUMBERED.sub(lambda match: "?" if match[1] else match[0], text)
    try:
        trees = sqlglot.parse(text, dialect=dialect)
        return [_statement(tree, dialect) for tree in trees if tree is not None]
    except (SqlglotError, RecursionError):
        return []


def _statement(tree: exp.Expr, dialect: str) -> Statement:
    from sqlglot import exp
    from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

    target: exp.Expr | None = None
    if isinstance(tree, exp.Insert | exp.Update | exp.Delete | exp.Merge) or (
        isinstance(tree, exp.Create) and tree.args.get("kind") in ("TABLE", "VIEW")
    ):
        target = tree.this
    elif not isinstance(tree, exp.Query):
        return Statement(reads=[], files=[], writes=[], columns={})  # it moves no rows
    target_table = target.this if isinstance(target, exp.Schema) else target
    written = target_table if isinstance(target_table, exp.Table) else None
    statement = Statement(reads=[], files=[], writes=[], columns={})
    files = {id(table): file for table in tree.find_all(exp.Table) if (file := _file(table, dialect))}
    statement.files = list(dict.fromkeys(files.values()))
    normalize_identifiers(tree, dialect=dialect)
    common = {cte.alias for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if table is written or id(table) in files:
            continue
        if isinstance(table.this, exp.Identifier) and (table.db or table.name not in common):
            statement.reads.append(_table_of(table))
    statement.reads = list(dict.fromkeys(statement.reads))
    if written is not None:
        statement.writes.append(_table_of(written))
        statement.columns = dict(_columns(tree, target, dialect))
        statement.is_counted = isinstance(tree, exp.Insert | exp.Update | exp.Merge)
    return statement


def _table_of(table: exp.Table) -> Table:
    return table.catalog, table.db, table.name


def _file(table: exp.Table, dialect: str) -> str:
    """Return the file that DuckDB reads for a table, or '' if it is a real table."""
    from sqlglot import exp

    if dialect != "duckdb":
        return ""
    source = table.this
    if isinstance(source, exp.ReadCSV | exp.ReadParquet):
        path = source.this or next(iter(source.expressions), None)
        return str(path.this) if isinstance(path, exp.Literal) and path.is_string else ""
    is_path = isinstance(source, exp.Identifier) and source.quoted and re.search(r"\.(csv|parquet|json)\b", source.name)
    return source.name if is_path else ""


def _columns(tree: exp.Expr, target: exp.Expr | None, dialect: str) -> Iterator[tuple[str, list[tuple[Table, str]]]]:
    """Yield the columns that an INSERT … SELECT with a list of columns or a CREATE … AS SELECT fills, with their
    sources.
    """
    from sqlglot import exp
    from sqlglot.errors import SqlglotError
    from sqlglot.lineage import lineage

    query = tree.args.get("expression")
    if not isinstance(tree, exp.Insert | exp.Create) or not isinstance(query, exp.Query) or query.is_star:
        return
    if tree.args.get("with_") is not None and query.args.get("with_") is None:
        query = query.copy()
        query.set("with_", tree.args["with_"].copy())
    if isinstance(query, exp.Select):
        query = query.copy()
        selected = [
            column if column.alias_or_name else exp.alias_(column, f"_{at}")
            for at, column in enumerate(query.expressions)
        ]
        query.set("expressions", selected)
    names = query.named_selects
    filled = [str(expression.name) for expression in target.expressions] if isinstance(target, exp.Schema) else []
    if isinstance(tree, exp.Create):
        filled = filled or query.named_selects
    if len(filled) != len(names) or len(set(names)) != len(names) or not all(names):
        return
    for name, column in zip(names, filled, strict=True):
        try:
            node = lineage(name, query, {}, dialect=dialect)
        except (SqlglotError, ValueError, KeyError, RecursionError):
            continue
        sources: list[tuple[Table, str]] = []
        for part in node.walk():
            if part.downstream:
                continue
            if isinstance(part.expression, exp.Table):
                sources.append((_table_of(part.expression), part.name.rpartition(".")[2]))
            elif next(part.expression.find_all(exp.Column, exp.Star), None) is not None:
                break  # the table of a column is unknown
        else:
            if sources and all(field not in ("", "*") for _, field in sources):
                yield column, list(dict.fromkeys(sources))
