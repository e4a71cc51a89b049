"""The items of a loop: a list, a range that is never written out, or a stored list that only workers read."""

from __future__ import annotations

from typing import Any

from arclog.model.errors import InvariantBroken


def as_payload(found: list[Any] | range) -> Any:
    """How an event records the items."""
    return {"range": [found.start, found.stop, found.step]} if isinstance(found, range) else found


def are_stored(items: Any) -> bool:
    return isinstance(items, dict) and "ref" in items


def item_at(items: Any, index: int) -> Any:
    if isinstance(items, dict):
        if "ref" in items:
            raise InvariantBroken("an item of a stored list is asked for where nothing stored can be read")
        start, _, step = items["range"]
        return start + index * step
    return items[index]


def stored_item(items: dict[str, Any], index: int) -> dict[str, Any]:
    """What names an item of a stored list."""
    return {"kind": "item", "of": items["ref"], "index": items.get("first", 0) + index}


def part(items: Any, first: int, last: int) -> Any:
    """Items [first, last) in the same form."""
    if isinstance(items, dict):
        if "ref" in items:
            return {"ref": items["ref"], "first": items.get("first", 0) + first}
        start, _, step = items["range"]
        return {"range": [start + first * step, start + last * step, step]}
    return items[first:last]
