"""Filters beyond Jinja's, for text, lists and maps. No I/O, and limited, like all filters."""

from __future__ import annotations

import json
from typing import Any

from arclog.expr.budget import (
    ENTRY,
    LIST,
    MAP,
    SLOT,
    TEXT,
    Budget,
    Failure,
    char_bytes,
    json_size,
    list_size,
    text_size,
)
from arclog.expr.compiler.operators import search_cost
from arclog.expr.convert import listed, plain, text, walked, weigh
from arclog.expr.filters.text import read, split_lines, whole
from arclog.expr.values import NUMBERS, kind_of

_MOST_LEVELS = 100


# -- text -----------------------------------------------------------------------------------------------------------------


def split(budget: Budget, value: Any, sep: Any = None, maxsplit: Any = -1) -> list[str]:
    source, most = text(budget, value), whole(maxsplit, "maxsplit")
    between = None if sep is None else text(budget, sep)
    if between == "":
        raise Failure("split needs a separator, or none for white space")
    pieces = len(source) // 2 + 1
    if between is not None:
        budget.charge(search_cost(source, between))
        pieces = source.count(between) + 1
    pieces = min(pieces, most + 1) if most >= 0 else pieces
    budget.charge(3 + (pieces >> 3))
    budget.room(LIST + text_size(source) + (SLOT + TEXT) * pieces)
    return source.split(between, most)


def lines(budget: Budget, value: Any) -> list[str]:
    return split_lines(budget, text(budget, value))


def ljust(budget: Budget, value: Any, width: Any, fill: Any = " ") -> str:
    return _padded(budget, value, width, fill, left=True)


def rjust(budget: Budget, value: Any, width: Any, fill: Any = " ") -> str:
    return _padded(budget, value, width, fill, left=False)


def _padded(budget: Budget, value: Any, size: Any, fill: Any, *, left: bool) -> str:
    source, char = text(budget, value), text(budget, fill)
    if len(char) != 1:
        raise Failure("the fill must be one character")
    length = max(whole(size, "width"), len(source))
    budget.room(TEXT + length * max(char_bytes(source), char_bytes(char)))
    return source.ljust(length, char) if left else source.rjust(length, char)


def slug(budget: Budget, value: Any, sep: Any = "-") -> str:
    from unicodedata import normalize  # rarely used

    # One character may become eighteen.
    source = normalize("NFKD", read(budget, value, 18).lower())
    budget.charge(len(source) >> 3)
    joint = text(budget, sep)
    kept = "".join(
        char if char.isascii() and char.isalnum() else " " for char in source if ord(char) not in range(0x300, 0x370)
    )
    budget.room(TEXT + len(kept) * (SLOT + TEXT) // 2 + len(kept) * len(joint) * char_bytes(joint))
    return joint.join(kept.split())


# -- lists and maps -------------------------------------------------------------------------------------------------------


def flatten(budget: Budget, value: Any, levels: Any = None) -> list[Any]:
    most = _MOST_LEVELS if levels is None else whole(levels, "levels")
    items = listed(budget, value)
    for _ in range(min(most, _MOST_LEVELS)):
        if not any(isinstance(item, list) for item in items):
            break
        budget.room(list_size(sum(len(item) if isinstance(item, list) else 1 for item in walked(budget, items))))
        items = [part for item in items for part in (walked(budget, item) if isinstance(item, list) else (item,))]
    return items


def zipped(budget: Budget, value: Any, *others: Any) -> list[list[Any]]:
    columns = [walked(budget, sequence) for sequence in (value, *others)]
    rows = min(map(len, columns))
    budget.room(list_size(rows) + rows * list_size(len(columns)))
    return [list(row) for row in zip(*columns, strict=False)]


def compact(budget: Budget, value: Any) -> list[Any]:
    items = walked(budget, value)
    budget.room(list_size(len(items)))
    return [item for item in items if item is not None and item != ""]


def average(budget: Budget, value: Any, attribute: Any = None) -> float:
    from arclog.expr.compiler.access import path_getter

    get = path_getter(budget, attribute)
    items = walked(budget, value)
    budget.room(list_size(len(items)))
    numbers = [get(item) for item in items]
    if not numbers:
        raise Failure("the average of an empty list is not defined; give it a default: … if rows else 0")
    for number in numbers:
        if type(number) not in NUMBERS or isinstance(number, bool):
            raise Failure(f"average takes numbers, not a {kind_of(number)}")
    return float(sum(numbers) / len(numbers))


def _keyed(budget: Budget, value: Any) -> dict[str, Any]:
    """Return the distinct items of a list, by a key of their value."""
    items_by_key: dict[str, Any] = {}
    items = walked(budget, value)
    budget.room(MAP + (ENTRY + TEXT) * len(items))
    for item in items:
        if isinstance(item, str | int | float | bool | type(None)):
            key = f"{type(item).__name__}:{item}" if not isinstance(item, float) or item % 1 else f"int:{int(item)}"
        else:
            size = weigh(budget, item, json_size, strict=True, most=budget.bytes).size
            budget.room(TEXT + 2 * size)
            budget.charge(size >> 2)
            key = json.dumps(plain(item), sort_keys=True)
        items_by_key.setdefault(key, item)
    return items_by_key


def union(budget: Budget, value: Any, other: Any) -> list[Any]:
    items_by_key = _keyed(budget, value)
    budget.room(list_size(len(items_by_key)))
    for key, item in _keyed(budget, other).items():
        items_by_key.setdefault(key, item)
    return list(items_by_key.values())


def intersect(budget: Budget, value: Any, other: Any) -> list[Any]:
    there = _keyed(budget, other)
    return [item for key, item in _keyed(budget, value).items() if key in there]


def difference(budget: Budget, value: Any, other: Any) -> list[Any]:
    there = _keyed(budget, other)
    return [item for key, item in _keyed(budget, value).items() if key not in there]


def _map(value: Any, argument: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise Failure(f"{argument} takes a map, not a {kind_of(value)}")


def combine(budget: Budget, value: Any, *others: Any) -> dict[str, Any]:
    from arclog.model.data.json_data import deep_merge

    made = _map(value, "combine")
    for other in others:
        maps, entries = _maps(budget, made), _maps(budget, _map(other, "combine"))
        budget.room(MAP * (maps[0] + entries[0]) + ENTRY * (maps[1] + entries[1]))
        made = deep_merge(made, other)
    return made


def _maps(budget: Budget, value: dict[str, Any]) -> tuple[int, int]:
    """Return the number of maps nested in maps, and the number of their entries."""
    count = entries = 0
    pending = [value]
    while pending:
        current = pending.pop()
        budget.charge(1 + len(current))
        count += 1
        entries += len(current)
        pending += [part for part in current.values() if isinstance(part, dict)]
    return count, entries


def pick(budget: Budget, value: Any, *keys: Any) -> dict[str, Any]:
    source = _map(value, "pick")
    wanted = [text(budget, key) for group in keys for key in (group if isinstance(group, list) else [group])]
    budget.charge(1 + len(wanted))
    budget.room(MAP + ENTRY * len(wanted))
    return {key: source[key] for key in wanted if key in source}


def omit(budget: Budget, value: Any, *keys: Any) -> dict[str, Any]:
    source = _map(value, "omit")
    left_out = {text(budget, key) for group in keys for key in (group if isinstance(group, list) else [group])}
    budget.charge(1 + len(source))
    budget.room(MAP + ENTRY * len(source))
    return {key: part for key, part in source.items() if key not in left_out}


def to_map(budget: Budget, value: Any, key: Any = None, val: Any = None) -> dict[str, Any]:
    from arclog.expr.compiler.access import path_getter

    made: dict[str, Any] = {}
    get_key, get_value = path_getter(budget, key), path_getter(budget, val)
    items = walked(budget, value)
    budget.room(MAP + (ENTRY + TEXT) * len(items))
    for item in items:
        if key is None:
            if not isinstance(item, list) or len(item) != 2:
                raise Failure("to_map takes a list of pairs, or the name of the key: to_map('id')")
            made[text(budget, item[0])] = item[1]
        else:
            made[text(budget, get_key(item))] = get_value(item)
    return made
