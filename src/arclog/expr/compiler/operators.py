"""Arithmetic and comparison, with limits.

Invariant: the size of a result is known, and charged, before it is computed; `%` never formats strings.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

from arclog.expr.budget import LIST, NUMBER, SLOT, TEXT, Budget, Failure, char_bytes
from arclog.expr.convert import admit, text, weigh
from arclog.expr.values import MISSING, NUMBERS, SCALARS, Undefined, View, is_lookup, kind_of

#: Maximum bits of operands: twice the range of floats, so that every operation takes microseconds. Longer numbers can
#: be passed on.
MAX_BITS = 2_048
#: Maximum bits of a number that takes no more memory than any other.
_SHORT_BITS = 64

Binary = Callable[[Budget, Any, Any], Any]


def _refuse(verb: str, left: Any, right: Any, remedy: str = "") -> NoReturn:
    raise Failure(f"cannot {verb} a {kind_of(left)} and a {kind_of(right)}{remedy}")


def _bounded(value: Any) -> Any:
    if type(value) is int and value.bit_length() > MAX_BITS:
        raise Failure(f"a number over {MAX_BITS} bits is too large to compute with")
    return value


def _number(budget: Budget, value: Any) -> Any:
    """Charge a computed number. Short ones are counted where they are stored."""
    if type(value) is int and value.bit_length() > _SHORT_BITS:
        _bounded(value)
        budget.room(NUMBER + (value.bit_length() >> 3))
    return value


def joint_width(left: str, right: str) -> int:
    """Return the bytes of each character in a text made of both."""
    return max(char_bytes(left), char_bytes(right))


def add(budget: Budget, left: Any, right: Any) -> Any:
    """`left + right`: numbers, two strings, two lists."""
    left_type, right_type = type(left), type(right)
    if left_type in NUMBERS and right_type in NUMBERS:
        return _number(budget, _bounded(left) + _bounded(right))
    if left_type is str and right_type is str:
        budget.room(TEXT + (len(left) + len(right)) * joint_width(left, right))
        return left + right
    if left_type is list and right_type is list:
        budget.room(LIST + SLOT * (len(left) + len(right)))
        return left + right
    if _foreign(left) or _foreign(right):
        return add(budget, _admitted(left), _admitted(right))
    _refuse("add", left, right, "; join text with ~" if str in (left_type, right_type) else "")


def multiply(budget: Budget, left: Any, right: Any) -> Any:
    """`left * right`: numbers, or a repeated string or list."""
    left_type, right_type = type(left), type(right)
    if left_type in NUMBERS and right_type in NUMBERS:
        if left_type is not float and right_type is not float and left.bit_length() + right.bit_length() > MAX_BITS:
            _bounded(1 << MAX_BITS)
        return _number(budget, left * right)
    if right_type is str or right_type is list:
        left, right, left_type, right_type = right, left, right_type, left_type
    if right_type in (int, bool) and (left_type is str or left_type is list):
        width = SLOT if left_type is list else char_bytes(left)
        budget.room(LIST + width * len(left) * max(right, 0))
        return left * right
    if _foreign(left) or _foreign(right):
        return multiply(budget, _admitted(left), _admitted(right))
    _refuse("multiply", left, right)


def power(budget: Budget, left: Any, right: Any) -> Any:
    """`left ** right`, numbers only."""
    left_type, right_type = type(left), type(right)
    if left_type in NUMBERS and right_type in NUMBERS:
        if left_type is not float and right_type is not float and right > 0 and left.bit_length() * right > MAX_BITS:
            _bounded(1 << MAX_BITS)
        value = _bounded(left) ** _bounded(right)
        if type(value) is complex:
            raise Failure("a negative number has no such power")
        return _number(budget, value)
    if _foreign(left) or _foreign(right):
        return power(budget, _admitted(left), _admitted(right))
    _refuse("raise to a power", left, right)


def _numeric(verb: str, compute: Callable[[Any, Any], Any]) -> Binary:
    def binary(budget: Budget, left: Any, right: Any) -> Any:
        if type(left) not in NUMBERS or type(right) not in NUMBERS:
            left, right = _admitted(left), _admitted(right)
            if type(left) not in NUMBERS or type(right) not in NUMBERS:
                remedy = "; strings are not formatted with %, join them with ~" if type(left) is str else ""
                _refuse(verb, left, right, remedy if compute is operator.mod else "")
        return _number(budget, compute(_bounded(left), _bounded(right)))

    return binary


BINARY: dict[str, Binary] = {
    "Add": add,
    "Sub": _numeric("subtract", operator.sub),
    "Mul": multiply,
    "Div": _numeric("divide", operator.truediv),
    "FloorDiv": _numeric("divide", operator.floordiv),
    "Mod": _numeric("take the remainder of", operator.mod),
    "Pow": power,
}


def signed(value: Any, compute: Callable[[Any], Any]) -> Any:
    """`-value` or `+value`."""
    value = _admitted(value)
    if type(value) not in NUMBERS:
        raise Failure(f"a {kind_of(value)} has no sign")
    return compute(value)


def _foreign(value: Any) -> bool:
    return type(value) is Undefined or type(value) is tuple or is_lookup(value)


def _admitted(value: Any) -> Any:
    return value if type(value) in SCALARS else admit(value)


def _weigh(budget: Budget, left: Any, right: Any) -> None:
    # A comparison visits both sides as far as they agree, shared parts repeatedly.
    if type(left) is str and type(right) is str:
        budget.charge(1 + (len(left) >> 10))
    elif type(left) not in SCALARS and type(right) not in SCALARS:
        weigh(budget, left)
        weigh(budget, right)


def equal(budget: Budget, left: Any, right: Any) -> bool:
    """`left == right`."""
    if type(left) is tuple or type(right) is tuple:
        left, right = _admitted(left), _admitted(right)
    _weigh(budget, left, right)
    return bool(left == right)


def unequal(budget: Budget, left: Any, right: Any) -> bool:
    """`left != right`."""
    return not equal(budget, left, right)


def _ordered(compute: Callable[[Any, Any], Any]) -> Binary:
    def compare(budget: Budget, left: Any, right: Any) -> bool:
        left, right = _admitted(left), _admitted(right)
        _weigh(budget, left, right)
        try:
            return bool(compute(left, right))
        except TypeError:
            _refuse("compare", left, right)

    return compare


def search_cost(source: str, part: str, *, backwards: bool = False) -> int:
    """Return the work of searching for `part`: forwards it is linear except for short parts, backwards it is not."""
    width = len(part) if backwards else min(len(part), 128)
    return 1 + (len(source) * (1 + (width >> 3)) >> 8)


def contains(budget: Budget, container: Any, item: Any) -> bool:
    """`item in container`: an item of a list, a key of a map, a part of a string."""
    if type(item) is Undefined:
        raise item.failure()
    if type(container) is View and type(item) in SCALARS:
        return container.lookup(item) is not MISSING
    container = admit(container)
    kind = type(container)
    if kind is str:
        if type(item) is not str:
            _refuse("search", container, item, "; make it text with | string")
        budget.charge(search_cost(container, item))
        return item in container
    if kind is dict:
        return type(item) in SCALARS and item in container
    if kind is not list and kind is not range:
        raise Failure(f"a {kind_of(container)} contains nothing to search")
    if type(item) is str:
        width = 1 + (len(item) >> 7)
    else:
        width = 1 if type(item) in SCALARS else weigh(budget, item).size
    budget.charge(1 + (len(container) * width >> 3))
    return item in container


def excludes(budget: Budget, container: Any, item: Any) -> bool:
    """`item not in container`."""
    return not contains(budget, container, item)


#: comparisons by Jinja's operand names; `in` has its container second
COMPARE: dict[str, Binary] = {
    "eq": equal,
    "ne": unequal,
    "lt": _ordered(operator.lt),
    "lteq": _ordered(operator.le),
    "gt": _ordered(operator.gt),
    "gteq": _ordered(operator.ge),
    "in": lambda budget, item, container: contains(budget, container, item),
    "notin": lambda budget, item, container: excludes(budget, container, item),
}


def concatenate(budget: Budget, parts: list[Any]) -> str:
    """`a ~ b ~ c`: join the parts as one text."""
    texts = [part if type(part) is str else text(budget, part) for part in parts]
    wide = 1 if all(map(str.isascii, texts)) else max(map(char_bytes, texts))
    budget.room(TEXT + sum(map(len, texts)) * wide)
    return "".join(texts)
