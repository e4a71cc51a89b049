"""The SQL statements of transfers. Names are always quoted, values always bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from arclog.expr.budget import Failure
from arclog.expr.sql.compile import quoted_name
from arclog.expr.sql.scan import DIALECTS, Hole, Misplaced, statements
from arclog.tools.sql.failures import SqlFailure
from arclog.tools.transfer.rows import Column


def name_of(dialect: str, table: str, schema: str = "") -> str:
    """Return a table's name in quotes."""
    try:
        return quoted_name([schema, table] if schema else table, DIALECTS[dialect])
    except Failure as problem:
        raise SqlFailure("config", f"table '{table}': {problem.message}") from None


def names_of(dialect: str, columns: Sequence[Column | str]) -> str:
    """Return column names in quotes, separated by commas."""
    names = [column if isinstance(column, str) else column.name for column in columns]
    try:
        return ", ".join(quoted_name(name, DIALECTS[dialect]) for name in names)
    except Failure as problem:
        raise SqlFailure("config", f"columns: {problem.message}") from None


def query_of(dialect: str, query: str, params: Sequence[Any] | Mapping[str, Any] | None) -> tuple[str, list[Any]]:
    """Return a query with the dialect's placeholders, and its values in order."""
    reading = DIALECTS[dialect]
    keys = frozenset(params) if isinstance(params, Mapping) else frozenset[str]()
    count = len(params) if isinstance(params, Sequence) else 0
    try:
        parsed = statements(query, reading, keys, count)
    except Misplaced as problem:
        raise SqlFailure("config", f"query: {problem.message}") from None
    if len(parsed) != 1:
        raise SqlFailure("config", f"query: one statement is needed, this has {len(parsed)}")
    text: list[str] = []
    values: list[Any] = []
    for piece in parsed[0].pieces:
        if isinstance(piece, str):
            text.append(piece)
        elif isinstance(piece, Hole):
            raise SqlFailure("config", "query: a template cannot be used here; bind its value with `params`")
        else:
            values.append(params[piece.key])  # type: ignore[index]  # the scan found it there
            text.append(reading.placeholder.format(len(values)))
    return "".join(text).strip(), values


def create_table(
    dialect: str, table: str, columns: Sequence[Column], key: Sequence[str], types: Mapping[str, str]
) -> str:
    """Return a CREATE TABLE statement; `table` is already quoted."""
    parts = [f"{names_of(dialect, [column])} {types[column.type]}" for column in columns]
    if key:
        parts.append(f"PRIMARY KEY ({names_of(dialect, list(key))})")
    return f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(parts)})"


def on_conflict(dialect: str, columns: Sequence[Column], key: Sequence[str]) -> str:
    """Return the clause that turns an INSERT into an upsert."""
    others = [names_of(dialect, [column]) for column in columns if column.name not in key]
    keys = names_of(dialect, list(key))
    if not others:
        return f"ON CONFLICT ({keys}) DO NOTHING"
    return f"ON CONFLICT ({keys}) DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in others)


def check_key(columns: Sequence[Column], key: Sequence[str]) -> None:
    names = [column.name for column in columns]
    for name in key:
        if names and name not in names:
            raise SqlFailure("config", f"key: '{name}' is not one of the written columns: {', '.join(names)}")
