"""Reaching into a value: keys, indexes and slices of plain data, `lookup` of everything else.

Law: Python's `getattr` is never called on a value, so no attribute of any object can be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from arclog.expr.budget import Budget, Failure
from arclog.expr.convert import admit
from arclog.expr.sizes import LIST, SLOT, UNDEFINED, width
from arclog.expr.values import MISSING, SCALARS, Undefined, View, is_lookup, kind_of, step_text

_MAX_ATTRIBUTE = 1_000


def reach(value: Any, key: Any, name: str) -> Any:
    """Give what stands under `key` of `value`, which the template calls `name`; Undefined if there is nothing."""
    kind = type(value)
    if kind is dict:
        found = value.get(key, MISSING)
    elif kind is View:
        found = value.lookup(key)
    elif kind is Undefined:
        return value.under(key)
    elif kind is list or kind is str or kind is range or kind is tuple:
        found = _item(value, key)
    elif is_lookup(value):
        found = value.lookup(key)
    elif isinstance(value, Mapping):
        found = value.get(key, MISSING)
    else:
        found = MISSING
    return Undefined(name + step_text(key), value, key) if found is MISSING else found


def _item(value: Any, key: Any) -> Any:
    if not isinstance(key, int):
        return MISSING
    try:
        return value[key]
    except IndexError:
        return MISSING


def subscript(value: Any, key: Any, name: str) -> Any:
    """Give `value[key]` for a computed key."""
    if type(key) not in SCALARS:
        key = admit(key)
        if type(key) not in SCALARS:
            raise Failure(f"a {kind_of(key)} cannot be a key")
    return reach(value, key, name)


def cut(budget: Budget, value: Any, start: Any, stop: Any, step: Any) -> Any:
    """Give `value[start:stop:step]`."""
    value = admit(value)
    if type(value) is list:
        budget.room(LIST + SLOT * len(value))
    elif type(value) is str:
        budget.room(LIST + width(value) * len(value))
    elif type(value) is not range:
        raise Failure(f"a {kind_of(value)} cannot be sliced")
    for bound in (start, stop, step):
        if bound is not None and type(bound) is not int:
            raise Failure(f"a slice takes whole numbers, not a {kind_of(bound)}")
    if step == 0:
        raise Failure("a slice's step cannot be zero")
    return value[start:stop:step]


def path_getter(budget: Budget, attribute: Any, default: Any = None) -> Callable[[Any], Any]:
    """Make the getter of a filter's `attribute`: dots lead inwards, digits are indexes, None is the item itself."""
    if attribute is None:
        return lambda item: item
    if not isinstance(attribute, (str, int)):
        raise Failure(f"attribute must be a string or a whole number, not a {kind_of(attribute)}")
    if isinstance(attribute, str) and len(attribute) > _MAX_ATTRIBUTE:
        raise Failure(f"an attribute is at most {_MAX_ATTRIBUTE} characters")
    steps = [_step(part) for part in attribute.split(".")] if isinstance(attribute, str) else [attribute]

    def get(item: Any) -> Any:
        name = "item"
        for step in steps:
            item = reach(item, step, name)
            name += step_text(step)
        if type(item) is Undefined:
            if default is not None:
                return default
            budget.room(UNDEFINED)
        return item

    return get


def _step(part: str) -> str | int:
    return int(part) if part.isdecimal() and len(part) < 10 else part  # longer is no index
