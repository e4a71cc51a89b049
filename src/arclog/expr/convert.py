"""From template values to JSON data and to text.

Law: a value is measured, against the budget, before it is copied, compared or printed. Lists may share their parts
(`[[0] * 1000] * 1000`), so their size is what a reader would walk, not what memory holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from arclog.expr.budget import Budget, Failure
from arclog.expr.values import JSON_TYPES, SCALARS, Group, Undefined, is_lookup, kind_of

#: about the 4,300 digits that Python itself converts; the conversion is quadratic
_MAX_PRINTED_BITS = 14_000
#: Levels of data that a template hands on. A run may wrap a value once more each round (`set_ctx: {a: "{{ [ctx.a] }}"}`),
#: and what is written must be read again from any depth of calls. A task's result has at most 200.
DEEPEST = 256


def admit(value: Any) -> Any:
    """Turn a value into JSON types at its top level; an undefined one is an error."""
    kind = type(value)
    if kind in JSON_TYPES:
        return value
    if kind is Undefined:
        raise value.failure()
    if kind is tuple:
        return list(value)
    if kind is range:
        return value
    if is_lookup(value):
        return admit(value.plain())
    return _generic(value)


def _generic(value: Any) -> Any:
    # Subclasses and read-only mappings that a host put in the scope.
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, (list, tuple)):
        return list(value)
    raise Failure(f"a {kind_of(value)} is not a JSON value")


def items_of(budget: Budget, value: Any) -> Sequence[Any]:
    """Give what a loop takes up one by one, uncounted: a list's items, a map's keys, a string's characters."""
    if type(value) is not list:
        value = admit(value)
        kind = type(value)
        if kind is dict or kind is str:
            budget.room(8 * len(value))
            value = list(value)
        elif kind is not list and kind is not range:
            raise Failure(f"a {kind_of(value)} cannot be iterated over")
    found: Sequence[Any] = value
    return found


def walked(budget: Budget, value: Any) -> Sequence[Any]:
    """Give the items of `value`, counted: the caller walks them all."""
    items = items_of(budget, value)
    budget.charge(1 + len(items))
    return items


def listed(budget: Budget, value: Any) -> list[Any]:
    """Give a new list of the items of `value`."""
    items = walked(budget, value)
    budget.room(8 * len(items))
    return list(items)


def measure(budget: Budget, value: Any, cap: int, *, strict: bool = False) -> int:
    """Estimate a value's printed bytes, level by level; over `cap` bytes, too deep or undefined is an error.

    `strict` also refuses what JSON cannot say: keys that are not strings, numbers that are not finite.
    """
    level: Iterable[Any] = (value,)
    size = depth = 0
    while level:
        depth += 1
        if depth > budget.limits.max_depth + 1:
            raise Failure(f"the value is nested deeper than {budget.limits.max_depth} levels (limit max_depth)")
        below: list[Any] = []
        for each in level:
            item = each
            kind = type(item)
            if kind not in JSON_TYPES:
                item = admit(item)
                kind = type(item)
            if kind is str:
                size += len(item) + 2
            elif kind is list or kind is range:
                length = len(item)
                budget.charge(1 + (length >> (2 if kind is list else 0)))
                size += 2 * length + 2
                below.extend(item)
            elif kind is dict:
                budget.charge(1 + (len(item) >> 2))
                size += sum(map(_key_size, item)) + 2
                if strict and not all(type(key) is str for key in item):
                    raise Failure("a map's keys must be strings; quote them")
                below.extend(item.values())
            elif kind is int:
                size += item.bit_length() // 3 + 2
            else:
                size += 8
                if strict and kind is float and item - item != 0.0:
                    raise Failure(f"{item} is not a JSON number")
            if size > cap:
                raise Failure(f"the value is over {cap} bytes")
        level = below
    budget.charge(size >> 10)
    return size


def _key_size(key: Any) -> int:
    return len(key) + 4 if type(key) is str else 24


def is_plain(value: Any) -> bool:
    """Tell whether a list or dict holds JSON types only, all the way down; deeper than `DEEPEST` is an error."""
    level = [value]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for item in level:
            for part in item.values() if type(item) is dict else item:
                kind = type(part)
                if kind is list or kind is dict:
                    below.append(part)
                elif kind not in SCALARS:
                    return False
        if not below:
            return True
        level = below
    raise Failure(f"the value is nested deeper than {DEEPEST} levels")


def plain(value: Any) -> Any:
    """Give `value` as JSON data: views, ranges and tuples converted, an undefined part refused."""
    kind = type(value)
    if kind in SCALARS or (kind in JSON_TYPES and is_plain(value)):
        return value
    try:
        found = _converted(value)
    except RecursionError:
        raise Failure("the value is nested too deeply") from None
    if type(found) not in SCALARS:
        is_plain(found)
    return found


def _converted(value: Any) -> Any:
    value = admit(value)
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is dict:
        return {key: _converted(part) for key, part in value.items()}
    return [_converted(part) for part in value]


def passed_through(_: Budget, value: Any) -> Any:
    """Finish a template that only names data: its size is the data's own affair."""
    return value if type(value) in SCALARS else plain(value)


def composed(budget: Budget, value: Any) -> Any:
    """Finish a template that built its value: measured as a whole, then plain."""
    kind = type(value)
    if kind in SCALARS and kind is not float:
        return value
    measure(budget, value, budget.limits.max_output, strict=True)
    return plain(value)


def text(budget: Budget, value: Any) -> str:
    """Print a value as Jinja does: Python's spelling of lists, True and None; `tojson` gives JSON."""
    kind = type(value)
    if kind is str:
        found: str = value
        return found
    if kind is int:
        if value.bit_length() > _MAX_PRINTED_BITS:
            raise Failure("the number has too many digits to print")
        budget.charge(value.bit_length() >> 7)
        return str(value)
    if kind in SCALARS:
        return str(value)
    value = admit(value)
    if type(value) in SCALARS:
        return text(budget, value)
    budget.room(measure(budget, value, budget.limits.max_bytes))
    return str(plain(value))


def unpacked(value: Any) -> Sequence[Any]:
    """Give the parts of a value that is assigned to several names."""
    if type(value) is Group:
        return list(value)
    value = admit(value)
    if type(value) is list:
        found: list[Any] = value
        return found
    if type(value) is dict:
        return list(value)
    raise Failure(f"a {kind_of(value)} cannot be unpacked into several names")
