"""Filters of lists, maps and numbers, as Jinja documents them, with limits.

Jinja's generators are lists here; a pair is a list of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import Any

from arclog.expr.budget import ITEM, LIST, NUMBER, SLOT, TEXT, Budget, Failure, char_bytes, list_size, text_size
from arclog.expr.compiler import operators
from arclog.expr.compiler.access import path_getter
from arclog.expr.convert import admit, items_of, listed, text, walked
from arclog.expr.filters.text import whole
from arclog.expr.values import NUMBERS, SCALARS, Group, Undefined, kind_of

_MAX_DIGITS = 4_300
_MAX_PRECISION = 400
_MAX_SORT_KEYS = 20
#: bytes of an item in a set and in a list
_SEEN = 128
#: bytes of a group with one item
_GROUP = 256


def default(_: Budget, value: Any, default_value: Any = "", boolean: Any = False) -> Any:
    """Return `value`, or the default if it is undefined (or, with `boolean`, falsy)."""
    return default_value if type(value) is Undefined or (boolean and not value) else value


def length(budget: Budget, value: Any) -> int:  # documented by Jinja, as all below
    return len(value if isinstance(value, (str, dict)) else items_of(budget, value))


def first(_: Budget, value: Any) -> Any:
    if not isinstance(value, (list, str, dict, range)):
        return _not_items(value)
    return next(iter(value), Undefined("first", reason="the list was empty"))


def last(_: Budget, value: Any) -> Any:
    if not isinstance(value, (list, str, dict, range)):
        return _not_items(value)
    return next(iter(reversed(value)), Undefined("last", reason="the list was empty"))


def _not_items(value: Any) -> Any:
    raise Failure(f"a {kind_of(value)} has no items")


def to_list(budget: Budget, value: Any) -> list[Any]:
    return listed(budget, value)


def join(budget: Budget, value: Any, d: Any = "", attribute: Any = None) -> str:
    get, joint = path_getter(budget, attribute), text(budget, d)
    items = walked(budget, value)
    budget.room(list_size(len(items)))
    texts: list[str] = []
    size, wide = len(joint) * len(items), char_bytes(joint)
    for item in items:
        part = text(budget, get(item))
        texts.append(part)
        size += len(part)
        if not part.isascii():
            wide = max(wide, char_bytes(part))
        if size * wide > budget.bytes:
            budget.too_large()
    budget.room(TEXT + size * wide)
    return joint.join(texts)


def to_int(budget: Budget, value: Any, default: Any = 0, base: Any = 10) -> Any:
    if isinstance(value, str):
        _check_digits(budget, value)
        budget.room(NUMBER + (len(value) >> 1))
        if not isinstance(base, int) or base not in (0, *range(2, 37)):
            raise Failure("base must be 0 or 2 to 36")
    elif type(value) not in NUMBERS:
        return default
    try:
        return int(value, base) if isinstance(value, str) else int(value)
    except (ValueError, OverflowError):
        try:
            return int(float(value))
        except (ValueError, OverflowError):
            return default


def _check_digits(budget: Budget, value: Any) -> None:
    # Parsing a number is quadratic in its digits; Python itself has this limit.
    if not isinstance(value, str):
        return
    budget.charge(1 + (len(value) * len(value) >> 17))
    if len(value) > _MAX_DIGITS:
        raise Failure(f"a text of over {_MAX_DIGITS} characters is not read as a number")


def to_float(budget: Budget, value: Any, default: Any = 0.0) -> Any:
    if type(value) is not str and type(value) not in NUMBERS:
        return default
    _check_digits(budget, value)
    try:
        return float(value)
    except (ValueError, OverflowError):
        return default


def absolute(_: Budget, value: Any) -> Any:
    return operators.signed(value, abs)


def rounded(_: Budget, value: Any, precision: Any = 0, method: Any = "common") -> Any:
    if type(value) not in NUMBERS:
        raise Failure(f"a {kind_of(value)} cannot be rounded")
    if abs(whole(precision, "precision")) > _MAX_PRECISION:
        raise Failure(f"precision must be between -{_MAX_PRECISION} and {_MAX_PRECISION}")
    if method == "common":
        return round(value, precision)
    if method not in ("ceil", "floor"):
        raise Failure("round's method must be common, ceil or floor")
    scale = 10**precision
    return (math.ceil if method == "ceil" else math.floor)(value * scale) / scale


def total(budget: Budget, value: Any, attribute: Any = None, start: Any = 0) -> Any:
    get = path_getter(budget, attribute)
    result = start
    for item in walked(budget, value):
        result = operators.add(budget, result, get(item))
    return result


def smallest(budget: Budget, value: Any, case_sensitive: Any = False, attribute: Any = None) -> Any:
    return _extreme(budget, value, case_sensitive, attribute, "lt")


def largest(budget: Budget, value: Any, case_sensitive: Any = False, attribute: Any = None) -> Any:
    return _extreme(budget, value, case_sensitive, attribute, "gt")


def _extreme(budget: Budget, value: Any, case_sensitive: Any, attribute: Any, beats: str) -> Any:
    key, better = _key(budget, case_sensitive, attribute), operators.COMPARE[beats]
    items = walked(budget, value)
    if not items:
        return Undefined("min" if beats == "lt" else "max", reason="the list was empty")
    best, best_key = items[0], key(items[0])
    for item in items[1:]:
        item_key = key(item)
        if better(budget, item_key, best_key):
            best, best_key = item, item_key
    return best


def _key(budget: Budget, case_sensitive: Any, attribute: Any, default: Any = None) -> Callable[[Any], Any]:
    get = path_getter(budget, attribute, default)

    def key(item: Any) -> Any:
        value = admit(get(item))
        if type(value) is str and not case_sensitive:
            budget.charge(1 + (len(value) >> 8))
            budget.room(2 * text_size(value))
            return value.lower()
        return value

    return key


def _ranked(budget: Budget, items: Sequence[Any], keys: list[Any], *, reverse: bool) -> list[Any]:
    # Lists as keys share parts, so each is measured; plain keys sort at C speed.
    budget.charge(len(items) * (1 + (len(items).bit_length() >> 2)))
    budget.room(LIST + (SLOT + ITEM) * len(items))
    order: Any = keys.__getitem__
    if all(type(key) is str for key in keys):
        budget.charge(sum(map(len, keys)) * len(keys).bit_length() >> 10)
    elif not all(type(key) in NUMBERS for key in keys):
        ahead = operators.COMPARE["lt"]

        def compare(left: int, right: int) -> int:
            budget.charge(1)
            if ahead(budget, keys[left], keys[right]):
                return -1
            return 1 if ahead(budget, keys[right], keys[left]) else 0

        order = cmp_to_key(compare)
    return [items[at] for at in sorted(range(len(items)), key=order, reverse=reverse)]


def sort(
    budget: Budget,
    value: Any,
    reverse: Any = False,
    case_sensitive: Any = False,
    attribute: Any = None,
) -> list[Any]:
    items = walked(budget, value)
    parts = attribute.split(",", _MAX_SORT_KEYS) if isinstance(attribute, str) else [attribute]
    getters = [_key(budget, case_sensitive, part) for part in parts]
    budget.charge(len(items) * len(getters))
    budget.room(LIST + (SLOT if len(getters) == 1 else list_size(len(getters))) * len(items))
    if len(getters) == 1:
        keys = [getters[0](item) for item in items]
    else:
        keys = [[get(item) for get in getters] for item in items]
    return _ranked(budget, items, keys, reverse=bool(reverse))


def dictsort(
    budget: Budget,
    value: Any,
    case_sensitive: Any = False,
    by: Any = "key",
    reverse: Any = False,
) -> list[Any]:
    if by not in ("key", "value"):
        raise Failure("dictsort sorts by 'key' or by 'value'")
    pairs = items(budget, value)
    key = _key(budget, case_sensitive, 0 if by == "key" else 1)
    return _ranked(budget, pairs, [key(pair) for pair in pairs], reverse=bool(reverse))


def unique(budget: Budget, value: Any, case_sensitive: Any = False, attribute: Any = None) -> list[Any]:
    key = _key(budget, case_sensitive, attribute)
    seen: set[Any] = set()
    kept: list[Any] = []
    for item in walked(budget, value):
        own_key = key(item)
        if type(own_key) not in SCALARS:
            raise Failure(f"unique cannot compare a {kind_of(own_key)}; name an attribute")
        if own_key not in seen:
            budget.room(_SEEN)
            seen.add(own_key)
            kept.append(item)
    return kept


def reverse(budget: Budget, value: Any) -> Any:
    if isinstance(value, str):
        budget.room(text_size(value))
        return value[::-1]
    return listed(budget, value)[::-1]


def items(budget: Budget, value: Any) -> list[Any]:
    if not isinstance(value, dict):
        raise Failure(f"only a map has key-value pairs, not a {kind_of(value)}")
    budget.charge(len(value))
    budget.room(LIST + (SLOT + list_size(2)) * len(value))
    return [[key, part] for key, part in value.items()]


def groupby(
    budget: Budget,
    value: Any,
    attribute: Any,
    default: Any = None,
    case_sensitive: Any = False,
) -> list[Any]:
    items = walked(budget, value)
    key = _key(budget, case_sensitive, attribute, default)
    get = path_getter(budget, attribute, default)
    groups: list[Any] = []
    members: list[Any] = []
    current: Any = None
    for item in _ranked(budget, items, [key(item) for item in items], reverse=False):
        item_key = key(item)
        if not groups or not operators.equal(budget, item_key, current):
            budget.room(_GROUP)
            members, current = [], item_key
            groups.append(Group(get(item), members))
        budget.room(SLOT)
        members.append(item)
    return groups


def batch(budget: Budget, value: Any, linecount: Any, fill_with: Any = None) -> list[Any]:
    size = whole(linecount, "linecount")
    if size < 1:
        raise Failure("linecount must be at least 1")
    items = listed(budget, value)
    budget.room(LIST + (SLOT + LIST) * (1 + len(items) // size) + SLOT * len(items))
    rows = [items[at : at + size] for at in range(0, len(items), size)]
    if rows and fill_with is not None:
        budget.room(SLOT * size)
        rows[-1] += [fill_with] * (size - len(rows[-1]))
    return rows


def slices(budget: Budget, value: Any, slices: Any, fill_with: Any = None) -> list[Any]:
    count = whole(slices, "slices")
    if count < 1:
        raise Failure("slices must be at least 1")
    items = listed(budget, value)
    budget.charge(count)
    budget.room(LIST + (2 * SLOT + LIST) * count + SLOT * len(items))
    size, extra = divmod(len(items), count)
    columns: list[Any] = []
    at = 0
    for number in range(count):
        end = at + size + (1 if number < extra else 0)
        column = items[at:end]
        if fill_with is not None and number >= extra:
            column.append(fill_with)
        columns.append(column)
        at = end
    return columns
