"""Typed inputs: what fits is converted, and everything that does not is told at once."""

from __future__ import annotations

from typing import Any

import pytest

from arclog.model.inputs import MAX_FAULTS, bound, defaults, described


def converted(declared: dict[str, Any], value: Any) -> tuple[Any, list[str]]:
    made, faults = bound({"x": declared}, {}, {"x": value})
    return made["x"], [str(fault) for fault in faults]


@pytest.mark.parametrize(
    ("declared", "values", "made"),
    [
        ({"type": "integer"}, "42", 42),
        ({"type": "integer"}, 3.0, 3),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "number"}, 2, 2),
        ({"type": "boolean"}, "TRUE", True),
        ({"type": "string"}, "007", "007"),
        ({"type": "date"}, "2027-01-31", "2027-01-31"),
        ({"type": "datetime"}, "2027-01-31T09:00:00+02:00", "2027-01-31T09:00:00+02:00"),
        ({"type": "list", "items": {"type": "integer"}}, ["1", 2], [1, 2]),
        (
            {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"default": 5}}},
            {"a": "1"},
            {"a": 1, "b": 5},
        ),
        ({"type": "string"}, None, None),
        ({}, {"any": [1]}, {"any": [1]}),
    ],
)
def test_what_fits_is_converted(declared: dict[str, Any], values: Any, made: Any) -> None:
    assert converted(declared, values) == (made, [])


@pytest.mark.parametrize(
    ("declared", "values", "fault"),
    [
        ({"type": "integer"}, 1.5, "x: expected an integer, found 1.5"),
        ({"type": "integer"}, True, "x: expected an integer, found true"),
        ({"type": "integer"}, "1_000", "x: expected an integer, found '1_000'"),
        ({"type": "number"}, "inf", "x: expected a number, found 'inf'"),
        ({"type": "string"}, 5, "x: expected a text, found 5"),
        ({"type": "string", "required": True}, None, "x: expected a text, found null"),
        ({"type": "string", "enum": ["a", "b"]}, "c", "x: 'c' is none of 'a', 'b'"),
        ({"type": "integer", "max": 10, "description": "how many"}, 11, "x: 11 is above the highest value allowed, 10 (how many)"),
        ({"type": "string", "min": 2}, "a", "x: has 1 characters; at least 2 are needed"),
        ({"type": "string", "pattern": "^[a-z]+$"}, "A", "x: 'A' does not match the pattern ^[a-z]+$"),
        ({"type": "date"}, "31.1.2027", "x: expected a date (2027-01-31), found '31.1.2027'"),
        ({"type": "datetime"}, "2027-01-31T09:00:00", "x: expected a moment with its offset (2027-01-31T09:00:00Z), found '2027-01-31T09:00:00'"),
        ({"type": "list", "items": {"type": "integer"}}, [1, "b"], "x[1]: expected an integer, found 'b'"),
        ({"type": "object", "properties": {"key": {}}}, {"kye": 1}, "x.kye: there is no such key; did you mean key?"),
        ({"type": "object", "properties": {"key": {"required": True, "type": "list"}}}, {}, "x.key: is required (a list)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(declared: dict[str, Any], values: Any, fault: str) -> None:
    assert converted(declared, values)[1] == [fault]


def test_all_faults_come_at_once_and_are_bounded() -> None:
    inputs: dict[str, dict[str, Any]] = {
        "region": {"type": "string", "required": True},
        "limit": {"type": "integer"},
    }
    _, faults = bound(inputs, {"own": 1}, {"limit": "x", "own": 2, "reigon": "north"})
    assert [str(fault) for fault in faults] == [
        "limit: expected an integer, found 'x'",
        "reigon: there is no such input; did you mean region?",
        "region: is required (a text)",
    ]
    many = bound(inputs, {}, {"region": "x", **{f"k{number}": 1 for number in range(200)}})[1]
    assert described(many).endswith(f"; and {200 - MAX_FAULTS} more")


def test_a_pattern_cannot_be_made_to_run_for_long() -> None:
    declared = {"type": "string", "pattern": "^(a+)+(b+)+(a|b)*$"}
    assert converted(declared, "a" * 200 + "c")[1][0].startswith("x: 'aaaa")
    assert (
        "takes too long"
        in converted({"type": "string", "pattern": "(a|aa|aaa|aaaa|b)+(a|aa|aaa)+c"}, "a" * 9_000)[1][0]
    )
    assert "has 10001 characters" in converted(declared, "a" * 10_001)[1][0]


def test_an_input_that_is_not_required_is_there() -> None:
    inputs: dict[str, dict[str, Any]] = {"a": {"required": True}, "b": {}, "c": {"default": 3}}
    assert defaults(inputs) == {"b": None, "c": 3}


def test_all_values_of_a_request_together_take_a_bounded_time() -> None:
    """Each for itself is quick enough; a request has room for thousands of them."""
    slow = {"type": "list", "items": {"type": "string", "pattern": "(.*)*x"}}
    _, faults = bound({"x": slow}, {}, {"x": ["a" * 500 + "x"] * 2_000})
    assert "would take too long" in str(faults[-1])
    _, faults = bound({"x": {"type": "integer"}}, {}, {f"y{number}": 1 for number in range(20_000)})
    assert len(faults) == 20_000
    few = {"type": "list", "items": {"type": "string", "pattern": "^[a-z]+$", "enum": ["abc", "def"]}}
    assert bound({"x": few}, {}, {"x": ["abc"] * 10_000})[1] == []
