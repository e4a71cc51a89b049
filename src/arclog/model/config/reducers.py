"""The reducers that a ctx key can be declared with, and the values that each accepts."""

from __future__ import annotations

from typing import Any

REDUCERS = ("sum", "count", "min", "max", "append", "union", "merge", "last")
_NUMBERS = frozenset({"sum", "min", "max"})
_KINDS = {dict: "a map", list: "a list", str: "text", bool: "a boolean", type(None): "null"}


def misfit(reducer: str, value: Any) -> str:
    """Return the problem of a value for its reducer, or ''."""
    if reducer in _NUMBERS and not is_number(value):
        return kind(value)
    if reducer == "merge" and not isinstance(value, dict):
        return kind(value)
    return ""


def unfit(reducer: str, start: Any) -> str:
    """Return the problem of the value that a reducer continues from (None if there is no value), or ''."""
    if start is None or reducer == "last":
        return ""
    if reducer in ("append", "union"):
        return "" if isinstance(start, list) else kind(start)
    if reducer == "count":
        return "" if is_number(start) else kind(start)
    return misfit(reducer, start)


def kind(value: Any) -> str:
    """Return the type of a value, in the author's words."""
    return _KINDS.get(type(value), "a number")


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)
