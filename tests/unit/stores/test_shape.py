"""The three stores have one shape: the same parts in the same order, the same methods, and shared statements in one place."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import arclog.stores.sql.files as sql_files
from arclog.ports.storage.store import Store
from arclog.stores.memory import MemoryStore
from arclog.stores.postgres import PostgresStore
from arclog.stores.postgres.queries import queries
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite.queries import SQL

STORES = (MemoryStore, SqliteStore, PostgresStore)
FOLDER = Path(sql_files.__file__).parents[1]


def test_parts_have_the_same_names_and_order() -> None:
    parts = [[part.__name__ for part in store.__bases__] for store in STORES]
    assert parts[0] == parts[1] == parts[2]


def test_a_part_is_in_the_same_module_of_every_store() -> None:
    for store in STORES:
        assert {part.__name__: part.__module__.rpartition(".")[2] for part in store.__bases__} == {
            "Log": "log",
            "Executions": "executions",
            "Catalog": "executions",
            "Retention": "executions",
            "Work": "work",
            "Duties": "administration",
            "Access": "administration",
        }


@pytest.mark.parametrize("store", STORES)
def test_methods_have_the_signatures_of_the_port(store: type) -> None:
    for name, method in inspect.getmembers(Store, inspect.isfunction):
        if not name.startswith("_"):
            expected, actual = inspect.signature(method).parameters, inspect.signature(getattr(store, name)).parameters
            assert [(parameter.name, parameter.kind, parameter.default) for parameter in expected.values()] == [
                (parameter.name, parameter.kind, parameter.default) for parameter in actual.values()
            ], name


def statements(folder: str) -> set[str]:
    return set(re.findall(r"^-- name: (\S+)$", (FOLDER / folder / "queries.sql").read_text(), re.MULTILINE))


def test_every_shared_statement_is_run_by_a_store() -> None:
    code = "".join(file.read_text() for file in FOLDER.rglob("*.py"))
    unused = [name for name in statements("sql") if f'"{name}' not in code]
    assert [name for name in unused if not name.startswith("audit_")] == []


def test_shared_statements_are_whole_in_both_dialects() -> None:
    for name in statements("sql"):
        assert "{" not in SQL[name] + queries("some")[name]
        assert not re.search(r"\$|::|arclog\.", SQL[name])
        assert "arclog." not in queries("some")[name]


def test_two_statements_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "queries.sql").write_text("-- name: head\nSELECT 1\n")
    with pytest.raises(ValueError, match="two statements head"):
        sql_files.load_queries(tmp_path, sql_files.SQLITE)
