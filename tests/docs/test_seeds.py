"""Every statement of the source documents has a status, a test that is there, and none of them is open."""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.docs.seeds import OPEN, PAGE, RULED, STATUSES, Row, rows_of

TESTS = Path(__file__).parents[1]
ROWS = rows_of(PAGE.read_text(encoding="utf-8"))


@cache
def names_of(path: Path) -> dict[str, set[str]]:
    """Test functions of a module under '', methods of its classes under the class."""
    names: dict[str, set[str]] = {"": set()}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names[""].add(node.name)
        elif isinstance(node, ast.ClassDef):
            names[node.name] = {
                item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


def exists(node_id: str) -> bool:
    file, _, inside = node_id.partition("::")
    owner, _, name = inside.rpartition("::")
    path = TESTS / file
    if not name.startswith("test_") or not path.is_file():
        return False
    names = names_of(path)
    if owner not in names:
        return False
    if name in names[owner]:
        return True
    # Conformance tests are inherited from their suites.
    return bool(owner) and hasattr(
        getattr(importlib.import_module(f"tests.{file[:-3].replace('/', '.')}"), owner), name
    )


def place(row: Row) -> str:
    return f"docs/seeds.md:{row.line}: {row.number} {row.statement}"


def test_all_five_documents_are_there() -> None:
    assert sorted({row.document for row in ROWS}) == ["000", "001", "002", "003", "004"]
    assert all(row.section for row in ROWS)


def test_every_named_test_exists() -> None:
    missing = [f"{place(row)}: there is no {test}" for row in ROWS for test in row.tests if not exists(test)]
    assert not missing, "\n".join(missing)


def test_every_row_names_a_test() -> None:
    assert not [place(row) for row in ROWS if not row.tests]


def test_every_row_has_a_status_and_a_ruling_its_reason() -> None:
    wrong = [place(row) for row in ROWS if row.status not in (*STATUSES, OPEN)]
    wrong += [place(row) for row in ROWS if bool(row.reason) != (row.status in (RULED, OPEN))]
    assert not wrong, "\n".join(wrong)


def test_no_statement_stands_twice_in_a_section() -> None:
    counts = Counter((row.document, row.section, row.statement) for row in ROWS)
    assert not [key for key, count in counts.items() if count > 1]


def test_no_row_is_open() -> None:
    waiting = [f"{place(row)} ({row.reason})" for row in ROWS if row.status == OPEN]
    assert not waiting, f"{len(waiting)} open:\n" + "\n".join(waiting)


@pytest.mark.parametrize(
    "node_id",
    [
        "seeds/nowhere.py::test_x",
        "docs/test_seeds.py::test_nothing_of_this_name",
        "docs/test_seeds.py::place",
        "docs/test_seeds.py",
        "conformance/test_store_memory.py::TestMemoryStore::test_nothing_of_this_name",
        "conformance/test_store_memory.py::TestNothing::test_a_wrong_head_is_a_conflict",
    ],
)
def test_a_name_without_a_test_is_noticed(node_id: str) -> None:
    assert not exists(node_id)
    assert exists("docs/test_seeds.py::test_a_name_without_a_test_is_noticed")
    assert exists("conformance/test_store_memory.py::TestMemoryStore::test_a_wrong_head_is_a_conflict")
