"""The methods and functions that a template may call. A name that is not in these tables cannot be called.

Each takes the budget and the value first. `format`, `format_map` and `encode` are excluded: they give access to Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arclog.expr.budget import ENTRY, LIST, MAP, SLOT, TEXT, Budget, Failure, char_bytes, list_size, text_size
from arclog.expr.compiler.operators import contains, equal, joint_width, search_cost
from arclog.expr.convert import admit, items_of
from arclog.expr.filters import data
from arclog.expr.filters.text import cased, replaced, split_lines, whole
from arclog.expr.values import JSON_TYPES, MISSING, SCALARS, Loop, Namespace, is_lookup, kind_of

Method = Callable[..., Any]
#: bytes of a short string in a list, without its characters
_PIECE = SLOT + TEXT + 16
#: Larger bounds fit no machine.
_MAX_RANGE = 2**53


def _string(value: Any, argument: str) -> str:
    if type(value) is not str:
        raise Failure(f"{argument} must be a string, not a {kind_of(value)}")
    return value


def _plain(name: str) -> Method:
    call = getattr(str, name)

    def method(budget: Budget, value: str) -> Any:
        budget.charge(2 + (len(value) >> 7))
        return call(value)

    return method


def _casing(name: str) -> Method:
    call = getattr(str, name)

    def method(budget: Budget, value: str) -> Any:
        budget.charge(2)
        return call(cased(budget, value))

    return method


def _stripping(name: str) -> Method:
    call = getattr(str, name)

    def method(budget: Budget, value: str, chars: Any = None) -> Any:
        budget.room(text_size(value))
        if chars is not None:
            budget.charge(search_cost(value, _string(chars, "chars"), backwards=True))
        return call(value, chars)

    return method


def _padding(name: str) -> Method:
    call = getattr(str, name)

    def method(budget: Budget, value: str, width: Any, fillchar: Any = " ") -> Any:
        joint = joint_width(value, _string(fillchar, "fillchar"))
        budget.room(TEXT + max(whole(width, "width"), len(value)) * joint)
        if len(_string(fillchar, "fillchar")) != 1:
            raise Failure("fillchar must be one character")
        return call(value, width, fillchar)

    return method


def _zfill(budget: Budget, value: str, width: Any) -> str:
    budget.room(TEXT + max(whole(width, "width"), len(value)) * char_bytes(value))
    return value.zfill(width)


def _splitting(name: str) -> Method:
    call = getattr(str, name)

    def method(budget: Budget, value: str, sep: Any = None, maxsplit: Any = -1) -> Any:
        limit = whole(maxsplit, "maxsplit")
        if sep == "":
            raise Failure(f"{name} needs a separator that is not empty")
        if sep is not None:
            budget.charge(search_cost(value, _string(sep, "sep"), backwards=name == "rsplit"))
        pieces = len(value) // 2 + 1 if sep is None else value.count(sep) + 1
        if limit >= 0:
            pieces = min(pieces, limit + 1)
        budget.charge(3 + (pieces >> 3))
        budget.room(LIST + text_size(value) + _PIECE * pieces)
        return call(value, sep, limit)

    return method


def _splitlines(budget: Budget, value: str, keepends: Any = False) -> list[str]:  # Python's signature
    return split_lines(budget, value, keep_ends=bool(keepends))


def _matching(name: str) -> Method:
    call = getattr(str, name)

    def method(budget: Budget, value: str, part: Any) -> bool:
        parts = part if type(part) is list else [part]
        budget.charge(1 + len(parts) * (1 + (len(value) >> 10)))
        return any(call(value, _string(part, "the argument")) for part in parts)

    return method


def _finding(name: str) -> Method:
    call = getattr(str, name)

    def method(budget: Budget, value: str, sub: Any, start: Any = None, end: Any = None) -> int:
        budget.charge(search_cost(value, _string(sub, "the argument"), backwards=name == "rfind"))
        bounds = [None if bound is None else whole(bound, "a bound") for bound in (start, end)]
        position: int = call(value, sub, *bounds)
        return position

    return method


def _find_index(budget: Budget, value: str, sub: Any, start: Any = None, end: Any = None) -> int:
    position: int = _finding("find")(budget, value, sub, start, end)
    if position < 0:
        raise Failure("the string does not contain the part that index() searches for; find() returns -1")
    return position


def _replace(budget: Budget, value: str, old: Any, new: Any, count: Any = -1) -> str:
    return replaced(budget, value, _string(old, "old"), _string(new, "new"), whole(count, "count"))


def _join(budget: Budget, value: str, items: Any) -> str:
    for item in items_of(budget, items):
        if type(item) is not str:
            raise Failure(f"join() joins strings, not a {kind_of(item)}; the filter | join takes anything")
    return data.join(budget, items, value)


def _partition(name: str) -> Method:
    call = getattr(str, name)

    def method(budget: Budget, value: str, sep: Any) -> list[str]:
        budget.room(LIST + 3 * _PIECE + text_size(value))
        budget.charge(search_cost(value, _string(sep, "sep"), backwards=name == "rpartition"))
        if not sep:
            raise Failure(f"{name} needs a separator that is not empty")
        return list(call(value, sep))

    return method


def _removing(name: str) -> Method:
    call = getattr(str, name)

    def method(budget: Budget, value: str, part: Any) -> Any:
        budget.room(text_size(value))
        return call(value, _string(part, "the argument"))

    return method


STRING: dict[str, Method] = {
    **{name: _casing(name) for name in ("upper", "lower", "title", "capitalize")},
    **{name: _plain(name) for name in ("isdigit", "isalpha", "isalnum", "isnumeric", "isspace")},
    **{name: _stripping(name) for name in ("strip", "lstrip", "rstrip")},
    **{name: _padding(name) for name in ("ljust", "rjust", "center")},
    **{name: _splitting(name) for name in ("split", "rsplit")},
    **{name: _matching(name) for name in ("startswith", "endswith")},
    **{name: _finding(name) for name in ("find", "rfind", "count")},
    **{name: _partition(name) for name in ("partition", "rpartition")},
    **{name: _removing(name) for name in ("removeprefix", "removesuffix")},
    "index": _find_index,
    "join": _join,
    "replace": _replace,
    "splitlines": _splitlines,
    "zfill": _zfill,
}


def _keys(budget: Budget, value: dict[str, Any]) -> list[Any]:
    budget.room(list_size(len(value)))
    return list(value)


def _values(budget: Budget, value: dict[str, Any]) -> list[Any]:
    budget.room(list_size(len(value)))
    return list(value.values())


def _items(budget: Budget, value: dict[str, Any]) -> list[Any]:
    return data.items(budget, value)


def _get(_: Budget, value: dict[str, Any], key: Any, default: Any = None) -> Any:
    return value.get(key, default) if type(key) in SCALARS else default


MAP_METHODS: dict[str, Method] = {"keys": _keys, "values": _values, "items": _items, "get": _get}


def _count(budget: Budget, value: list[Any], item: Any) -> int:
    budget.charge(len(value))
    return sum(1 for other in value if equal(budget, other, item))


def _index(budget: Budget, value: list[Any], item: Any) -> int:
    if not contains(budget, value, item):
        raise Failure("the list does not contain the item that index() searches for")
    return value.index(item)


LIST_METHODS: dict[str, Method] = {"count": _count, "index": _index}


def _cycle(_: Budget, loop: Loop, *choices: Any) -> Any:
    return loop.cycle(choices)


TABLES: dict[type, dict[str, Method]] = {str: STRING, dict: MAP_METHODS, list: LIST_METHODS, Loop: {"cycle": _cycle}}
NAMES = frozenset(name for table in TABLES.values() for name in table)


def find_method(value: Any, name: str) -> tuple[Method, Any]:
    """Return the method `name` of a value, and the value to call it with. A key of that name hides the method."""
    if type(value) not in JSON_TYPES and type(value) is not Loop:
        if is_lookup(value) and value.lookup(name) is not MISSING:
            _hidden(name)
        value = admit(value)
    if type(value) is dict and name in value:
        _hidden(name)
    method = TABLES.get(type(value), {}).get(name)
    if method is None:
        raise Failure(f"a {kind_of(value)} has no method {name!r}")
    return method, value


def _hidden(name: str) -> None:
    remedy = f"; the filter | {name} does the same" if name == "items" else ""
    raise Failure(f"{name!r} is a key of this map, so it is not called as a method{remedy}")


def _range(_: Budget, __: None, start: Any, stop: Any = None, step: Any = 1) -> range:
    low, high, by = (whole(bound, "range") for bound in ((0, start, step) if stop is None else (start, stop, step)))
    if by == 0:
        raise Failure("range's step cannot be zero")
    if any(abs(bound) > _MAX_RANGE for bound in (low, high, by)):
        raise Failure(f"range counts up to {_MAX_RANGE}")
    return range(low, high, by)


def _dict(budget: Budget, _: None, base: Any = None, **entries: Any) -> dict[str, Any]:
    if base is None:
        budget.room(MAP + ENTRY * len(entries))
        return dict(entries)
    if type(base) is not dict:
        raise Failure(f"dict() copies a map, not a {kind_of(base)}")
    budget.charge(len(base))
    budget.room(MAP + ENTRY * (len(base) + len(entries)))
    return {**base, **entries}


def _namespace(budget: Budget, _: None, base: Any = None, **cells: Any) -> Namespace:
    budget.room(MAP + ENTRY * len(cells))
    return Namespace(_dict(budget, None, base, **cells))


#: functions, which get None in place of a method's value
FUNCTIONS: dict[str, Method] = {"range": _range, "dict": _dict, "namespace": _namespace}
