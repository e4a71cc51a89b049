"""Tests (`x is …`), as Jinja documents them.

Each takes the budget and a value; a wrong type of value does not match.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arclog.expr.budget import Budget, Failure
from arclog.expr.compiler import operators
from arclog.expr.filters.regex import matches, searches
from arclog.expr.values import NUMBERS, SCALARS, Undefined, kind_of

Predicate = Callable[..., bool]


def _remainder(budget: Budget, value: Any, by: Any) -> Any:
    if type(value) not in NUMBERS:
        raise Failure(f"a {kind_of(value)} is not a number")
    return operators.BINARY["Mod"](budget, value, by)


def defined(_: Budget, value: Any) -> bool:
    """Return whether the name exists."""
    return type(value) is not Undefined


def undefined(_: Budget, value: Any) -> bool:
    """Return whether the name is missing."""
    return type(value) is Undefined


def odd(budget: Budget, value: Any) -> bool:  # documented by Jinja, as all below
    return bool(_remainder(budget, value, 2) == 1)


def even(budget: Budget, value: Any) -> bool:
    return bool(_remainder(budget, value, 2) == 0)


def divisibleby(budget: Budget, value: Any, num: Any) -> bool:
    return bool(_remainder(budget, value, num) == 0)


def _compare(name: str) -> Predicate:
    compare = operators.COMPARE[name]

    def predicate(budget: Budget, value: Any, other: Any) -> bool:
        return bool(compare(budget, value, other))

    return predicate


def _when(check: Callable[[Any], bool]) -> Predicate:
    def predicate(_: Budget, value: Any) -> bool:
        return check(value)

    return predicate


def _cased(check: Callable[[str], bool]) -> Predicate:
    def predicate(budget: Budget, value: Any) -> bool:
        if type(value) is not str:
            return False
        budget.charge(1 + (len(value) >> 7))
        return check(value)

    return predicate


def sameas(budget: Budget, value: Any, other: Any) -> bool:
    """Return whether both are the same. Identity has no meaning for data, so equal scalars of one type are the same."""
    if type(value) in SCALARS:
        return type(value) is type(other) and operators.equal(budget, value, other)
    return value is other


PREDICATES: dict[str, Predicate] = {
    "defined": defined,
    "undefined": undefined,
    "none": _when(lambda value: value is None),
    "boolean": _when(lambda value: type(value) is bool),
    "true": _when(lambda value: value is True),
    "false": _when(lambda value: value is False),
    "number": _when(lambda value: type(value) in NUMBERS),
    "integer": _when(lambda value: type(value) is int),
    "float": _when(lambda value: type(value) is float),
    "string": _when(lambda value: type(value) is str),
    "mapping": _when(lambda value: type(value) is dict),
    "sequence": _when(lambda value: type(value) in (list, str, dict, range)),
    "iterable": _when(lambda value: type(value) in (list, str, dict, range)),
    "callable": _when(lambda _: False),
    "lower": _cased(str.islower),
    "upper": _cased(str.isupper),
    "odd": odd,
    "even": even,
    "divisibleby": divisibleby,
    "sameas": sameas,
    "in": _compare("in"),
    "match": matches,
    "search": searches,
}
PREDICATES |= {name: _compare("eq") for name in ("eq", "equalto", "==")}
PREDICATES |= {name: _compare("ne") for name in ("ne", "!=")}
PREDICATES |= {name: _compare("lt") for name in ("lt", "lessthan", "<")}
PREDICATES |= {name: _compare("lteq") for name in ("le", "<=")}
PREDICATES |= {name: _compare("gt") for name in ("gt", "greaterthan", ">")}
PREDICATES |= {name: _compare("gteq") for name in ("ge", ">=")}

#: Tests that accept an undefined value.
LENIENT = frozenset({"defined", "undefined"})
