"""The items of a loop: a list, or a range that is never written out."""

from __future__ import annotations

from typing import Any


def as_payload(found: list[Any] | range) -> Any:
    """How an event records the items."""
    return {"range": [found.start, found.stop, found.step]} if isinstance(found, range) else found


def item_at(items: Any, index: int) -> Any:
    if isinstance(items, dict):
        start, _, step = items["range"]
        return start + index * step
    return items[index]


def part(items: Any, first: int, last: int) -> Any:
    """Items [first, last) in the same form."""
    if isinstance(items, dict):
        start, _, step = items["range"]
        return {"range": [start + first * step, start + last * step, step]}
    return items[first:last]
