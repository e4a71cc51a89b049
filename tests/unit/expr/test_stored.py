"""Stored data in templates: read where it is used, and an error that can be told apart where it cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from arclog.expr import MISSING, Stored, Unread, View, compile_condition, compile_text, compile_tree
from arclog.expr.stored import path_of_text, path_text
from arclog.model.errors import ExpressionError, ResultUnavailable

DATA = {"rows": [{"id": 1}, {"id": 2}], "n": 3, "empty": [], "odd key": 5}


class Reading:
    """Counts what is read."""

    opens_files = False

    def __init__(self, data: Any) -> None:
        self.data = data
        self.wholes = self.items = 0

    def whole(self, _ref: Mapping[str, Any]) -> Any:
        self.wholes += 1
        return self.data

    def item(self, _ref: Mapping[str, Any], index: int) -> Any:
        self.items += 1
        return self.data[index] if -len(self.data) <= index < len(self.data) else MISSING


def worker_side(data: Any = DATA, kind: str = "data") -> tuple[dict[str, Any], Reading]:
    reading = Reading(data)
    return {"f": View({"status": "ok", "data": Stored({"kind": kind, "ref": "r"}, reading)})}, reading


def server_side(extracted: dict[str, Any], left_out: dict[str, Any]) -> dict[str, Any]:
    return {"f": View({"status": "ok", "data": Stored({"kind": "data", "ref": "r"}, None, extracted, left_out)})}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ f.data }}", DATA),
        ("{{ f.n }}", 3),
        ("{{ f.data.rows[1].id }}", 2),
        ("{{ f.rows | sum(attribute='id') }}", 3),
        ("{{ f.data | length }}", 4),
        ("{{ f.data['odd key'] + 1 }}", 6),
        ("{{ f.nothing | default(7) }}", 7),
        ("{{ 'yes' if f.rows else 'no' }}", "yes"),
        ("{{ 'yes' if f.empty else 'no' }}", "no"),
        ("{{ f.n == 3 and 'n' in f.data }}", True),
        ("n is {{ f.n }}", "n is 3"),
        ("{% for row in f.rows %}{{ row.id }};{% endfor %}", "1;2;"),
        ("{{ {'a': f.rows} }}", {"a": DATA["rows"]}),
        ("{{ f.rows[:1] + f.rows }}", [{"id": 1}, {"id": 1}, {"id": 2}]),
    ],
)
def test_a_worker_reads_it(text: str, value: Any) -> None:
    assert compile_text(text).evaluate(worker_side()[0]) == value


def test_one_item_of_a_list_is_read_alone() -> None:
    scope, reading = worker_side([{"id": 1}, {"id": 2}], "list")
    assert compile_text("{{ f.data[1].id }}").evaluate(scope) == 2
    assert compile_text("{{ f.data[9].id | default(0) }}").evaluate(scope) == 0
    assert (reading.items, reading.wholes) == (2, 0)


def test_a_path_alone_is_handed_on_unread() -> None:
    scope, reading = worker_side()
    result = compile_tree("{{ f.data }}").evaluate_items(scope)
    assert isinstance(result, Stored)
    assert reading.wholes == 0


def test_what_cannot_be_read_keeps_its_cause() -> None:
    class Broken(Reading):
        def whole(self, _ref: Mapping[str, Any]) -> Any:
            raise ResultUnavailable("it is gone")

    scope = {"f": View({"status": "ok", "data": Stored({"kind": "data", "ref": "r"}, Broken(None))})}
    with pytest.raises(ExpressionError, match="it is gone") as raised:
        compile_text("{{ f.n }}").evaluate(scope)
    assert isinstance(raised.value.__cause__, ResultUnavailable)


def test_the_server_has_what_was_extracted_and_nothing_else() -> None:
    scope = server_side({"n": 3, "deep.a": [1]}, {"rows": {"bytes": 99, "items": 12}, "nothing": None})
    assert compile_text("{{ f.n + f.data.deep.a[0] }}").evaluate(scope) == 4
    assert compile_text("{{ f.nothing | default('none') }}").evaluate(scope) == "none"
    assert compile_condition("{{ f.rows | length > 5 }}").evaluate(scope) is True
    for text in ("{{ f.rows }}", "{{ f.rows | first }}", "{{ f.rows == 1 }}", "{{ f.data }}", "{{ f.data[f.n] }}"):
        with pytest.raises(ExpressionError, match="stored outside the log") as raised:
            compile_text(text).evaluate(scope)
        assert isinstance(raised.value.__cause__, Unread)


def test_a_part_of_what_was_extracted_is_there() -> None:
    scope = server_side({"": DATA}, {})
    assert compile_text("{{ f.rows[0].id }}").evaluate(scope) == 1
    assert compile_text("{{ f.nothing | default(0) }}").evaluate(scope) == 0


@pytest.mark.parametrize("path", [(), ("a",), ("a", 0, "b"), (0, 1), ("a", -1)])
def test_paths_are_written_as_authors_write_them(path: tuple[Any, ...]) -> None:
    text = path_text(path)
    if -1 not in path:
        assert path_of_text(text) == path


def test_reads_know_constant_indexes() -> None:
    assert compile_text("{{ f.data.rows[0].id + f.x[f.y].z }}").reads == {
        ("f", "data", "rows", 0, "id"),
        ("f", "x"),
        ("f", "y"),
    }
