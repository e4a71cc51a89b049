"""Converts template values to JSON data and to text.

Invariant: a value is measured against the budget before it is copied, compared or printed. Lists may share their parts
(`[[0] * 1000] * 1000`), so their size is the number of items that a reader would visit, not their memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.json import encode

from arclog.expr.budget import ITEM, LIST, SLOT, TEXT, Budget, Failure, char_bytes, list_size, repr_size, utf8_size
from arclog.expr.values import JSON_TYPES, SCALARS, Group, Undefined, is_lookup, kind_of

#: About the 4,300 digits that Python itself converts; the conversion is quadratic.
_MAX_PRINTED_BITS = 14_000
_SHORT_BITS = 127
#: Maximum depth of data that a template returns. A run may nest a value once more each round (`set_ctx: {a: "{{ [ctx.a]
#: }}"}`), and stored data must be readable at any depth of the call stack. A task's result has at most 200 levels.
DEEPEST = 256


def admit(value: Any) -> Any:
    """Convert a value to JSON types at its top level. Raises for an undefined one."""
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
    # Subclasses and read-only mappings that the caller put in the scope.
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
    """Return the items that a loop iterates over, uncounted: a list's items, a map's keys, a string's characters."""
    if type(value) is not list:
        value = admit(value)
        kind = type(value)
        if kind is dict:
            budget.room(list_size(len(value)))
            value = list(value)
        elif kind is str:
            # Python caches characters of one byte; each of the others is a separate text.
            budget.room(list_size(len(value)) + (0 if char_bytes(value) == 1 else (TEXT + 16) * len(value)))
            value = list(value)
        elif kind is not list and kind is not range:
            raise Failure(f"a {kind_of(value)} cannot be iterated over")
    items: Sequence[Any] = value
    return items


def walked(budget: Budget, value: Any) -> Sequence[Any]:
    """Return the items of `value`, counted for a caller that visits them all."""
    items = items_of(budget, value)
    budget.charge(1 + len(items))
    return items


def listed(budget: Budget, value: Any) -> list[Any]:
    """Return a new list of the items of `value`."""
    items = walked(budget, value)
    budget.room(LIST + (ITEM if type(items) is range else SLOT) * len(items))
    return list(items)


class Weight(Struct, frozen=True):
    """The size of a value when it is written."""

    #: in the requested spelling of texts
    size: int
    depth: int
    #: bytes of the widest character
    wide: int
    #: whether it contains JSON types only
    is_plain: bool


def weigh(
    budget: Budget,
    value: Any,
    spelling: Callable[[str], int] = len,
    *,
    strict: bool = False,
    most: int | None = None,
    deepest: int | None = None,
) -> Weight:
    """Estimate the written size of a value without writing it. Raises if it exceeds `most`, is too deep or undefined.

    `strict` also refuses values that JSON cannot represent: keys that are not strings, numbers that are not finite.
    """
    deepest = budget.limits.max_depth if deepest is None else deepest
    level: Iterator[Any] = iter((value,))
    levels: list[Iterator[Any]] = []
    size, depth, wide, is_plain = 0, 1, 1, True
    while True:
        for value_at_level in level:
            item = value_at_level
            kind = type(item)
            if kind not in JSON_TYPES:
                is_plain = False
                item = admit(item)
                kind = type(item)
            if kind is str:
                size += spelling(item) + 2
                if not item.isascii():
                    wide = max(wide, char_bytes(item))
            elif kind is list or kind is dict:
                budget.charge(1 + (len(item) >> 2))
                size += 2 * len(item) + 2
                if kind is dict:
                    size += sum([spelling(key) + 2 if type(key) is str else 24 for key in item])
                    if strict and not all(type(key) is str for key in item):
                        raise Failure("a map's keys must be strings; quote them")
                    wide = max(wide, *map(_key_width, item), 1)
                if item:
                    if len(levels) >= deepest:
                        raise Failure(f"the value is nested deeper than {deepest} levels (limit max_depth)")
                    levels.append(level)
                    depth = max(depth, len(levels) + 1)
                    level = iter(item.values() if kind is dict else item)
                    break
            elif kind is range:
                budget.charge(1 + len(item))
                size += ITEM * len(item)
            elif kind is int:
                size += item.bit_length() // 3 + 2
            else:
                size += 24 if kind is float else 5
                if strict and kind is float and item - item != 0.0:
                    raise Failure(f"{item} is not a JSON number")
            if most is not None and size > most:
                budget.too_large()
        else:
            if not levels:
                break
            level = levels.pop()
            continue
        if most is not None and size > most:
            budget.too_large()
    budget.charge(size >> 10)
    return Weight(size, depth, wide, is_plain)


def _key_width(key: Any) -> int:
    return 1 if type(key) is not str or key.isascii() else char_bytes(key)


def is_plain(value: Any) -> bool:
    """Return whether a list or dict contains JSON types only, at every level. Raises beyond `DEEPEST` levels."""
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
    """Return `value` as JSON data: converts views, ranges and tuples, and refuses undefined parts."""
    kind = type(value)
    if kind in SCALARS or (kind in JSON_TYPES and is_plain(value)):
        return value
    try:
        converted = _converted(value)
    except RecursionError:
        raise Failure("the value is nested too deeply") from None
    if type(converted) not in SCALARS:
        is_plain(converted)
    return converted


def _converted(value: Any) -> Any:
    value = admit(value)
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is dict:
        return {key: _converted(part) for key, part in value.items()}
    return [_converted(part) for part in value]


def passed_through(budget: Budget, value: Any) -> Any:
    """Finish a template that only names data: its size is not limited, unless a meter counts all of it."""
    if type(value) in SCALARS:
        if type(value) is str and budget.meter is not None:
            budget.kept = utf8_size(value)
        return value
    value = plain(value)
    if budget.meter is not None:
        try:
            size = len(encode(value))
        except UnicodeError:  # half a character; writing it reports the error
            size = weigh(budget, value, utf8_size, deepest=DEEPEST).size
        budget.kept = size
        budget.charge(size >> 8)
        if size > budget.bytes:
            budget.too_large()
    return value


def composed(budget: Budget, value: Any) -> Any:
    """Finish a template that built its value: measure it as a whole, then convert it."""
    kind = type(value)
    if kind in SCALARS and kind is not float:
        if kind is str and budget.meter is not None:
            budget.kept = utf8_size(value)
        return value
    # Shared parts count each time, as they are written each time.
    weight = weigh(budget, value, utf8_size, strict=True, most=budget.bytes)
    budget.kept = weight.size
    return value if weight.is_plain else plain(value)


def text(budget: Budget, value: Any) -> str:
    """Format a value as Jinja does: Python's form of lists, True and None. `tojson` writes JSON."""
    kind = type(value)
    if kind is str:
        parsed: str = value
        return parsed
    if kind is int:
        bits = value.bit_length()
        if bits > _SHORT_BITS:
            if bits > _MAX_PRINTED_BITS:
                raise Failure("the number has too many digits to print")
            budget.charge(bits >> 7)
        budget.room(TEXT + (bits >> 1))
        return str(value)
    if kind in SCALARS:
        budget.room(TEXT)
        return str(value)
    value = admit(value)
    if type(value) in SCALARS:
        return text(budget, value)
    weight = weigh(budget, value, repr_size, most=budget.bytes)
    budget.room(TEXT + weight.size * weight.wide)
    return str(plain(value))


def unpacked(value: Any) -> Sequence[Any]:
    """Return the parts of a value that is assigned to several names."""
    if type(value) is Group:
        return list(value)
    value = admit(value)
    if type(value) is list:
        items: list[Any] = value
        return items
    if type(value) is dict:
        return list(value)
    raise Failure(f"a {kind_of(value)} cannot be unpacked into several names")
