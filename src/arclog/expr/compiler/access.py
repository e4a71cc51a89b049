"""Access to parts of a value: keys, indexes and slices of plain data, `lookup` for everything else.

Invariant: `getattr` is never called on a value, so no attribute of any object can be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from arclog.expr.budget import LIST, SLOT, UNDEFINED, Budget, Failure, char_bytes
from arclog.expr.convert import admit
from arclog.expr.values import MISSING, SCALARS, Undefined, View, is_lookup, kind_of, step_text, unnamed

if TYPE_CHECKING:
    from arclog.expr.frame import Expression, Frame


_MAX_ATTRIBUTE = 1_000


def reach(value: Any, key: Any, name: str) -> Any:
    """Return the value under `key` of `value`, which the template calls `name`; Undefined if there is none."""
    kind = type(value)
    if kind is dict:
        item = value.get(key, MISSING)
    elif kind is View:
        item = value.lookup(key)
    elif kind is Undefined:
        return value.under(key)
    elif kind is list or kind is str or kind is range or kind is tuple:
        item = _item(value, key)
    elif is_lookup(value):
        item = value.lookup(key)
    elif isinstance(value, Mapping):
        item = value.get(key, MISSING)
    else:
        item = MISSING
    return Undefined(name + step_text(key), value, key) if item is MISSING else item


def _item(value: Any, key: Any) -> Any:
    if not isinstance(key, int):
        return MISSING
    try:
        return value[key]
    except IndexError:
        return MISSING


def subscript(value: Any, key: Any, name: str) -> Any:
    """Return `value[key]` for a computed key."""
    if type(key) not in SCALARS:
        key = admit(key)
        if type(key) not in SCALARS:
            raise Failure(f"a {kind_of(key)} cannot be a key")
    return reach(value, key, name)


def cut(budget: Budget, value: Any, start: Any, stop: Any, step: Any) -> Any:
    """Return `value[start:stop:step]`."""
    value = admit(value)
    if type(value) is list:
        budget.room(LIST + SLOT * len(value))
    elif type(value) is str:
        budget.room(LIST + char_bytes(value) * len(value))
    elif type(value) is not range:
        raise Failure(f"a {kind_of(value)} cannot be sliced")
    for bound in (start, stop, step):
        if bound is not None and type(bound) is not int:
            raise Failure(f"a slice takes whole numbers, not a {kind_of(bound)}")
    if step == 0:
        raise Failure("a slice's step cannot be zero")
    return value[start:stop:step]


def path_getter(budget: Budget, attribute: Any, default: Any = None) -> Callable[[Any], Any]:
    """Return a getter for a filter's `attribute`: dots separate keys, digits are indexes, None is the item itself."""
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
    return int(part) if part.isdecimal() and len(part) < 10 else part  # longer numbers are not indexes


# Closures that load a name and follow its keys: the most frequent operation of templates.
#
# A plain dict is accessed directly; all other values, and missing ones, go through `access.reach`.


def load_name(name: str, slots: list[int], *, free: bool, keys: tuple[str, ...]) -> Expression:
    """Load a variable of the template, or a free name of the scope, and the static keys after it."""
    if slots:
        return _reached(_variable(name, slots, free=free), name, keys)
    if not keys:

        def load(frame: Frame) -> Any:
            value = frame.get(name, MISSING)
            return _unnamed(frame, name) if value is MISSING else value

        return load

    def load_path(frame: Frame) -> Any:
        value = frame.get(name, MISSING)
        if value is MISSING:
            value = _unnamed(frame, name)
        for at, key in enumerate(keys):
            if type(value) is dict and key in value:
                value = value[key]
            else:
                return _followed(frame, value, name + "".join(map(step_text, keys[:at])), keys[at:])
        return value

    def load_key(frame: Frame) -> Any:
        value = frame.get(name, MISSING)
        if type(value) is dict and key in value:
            return value[key]
        return _followed(frame, _unnamed(frame, name) if value is MISSING else value, name, keys)

    key = keys[0]
    return load_key if len(keys) == 1 else load_path


def _unnamed(frame: Frame, name: str) -> Undefined:
    frame.room(UNDEFINED)
    return unnamed(name, frame.scope)


def _followed(frame: Frame, value: Any, name: str, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = reach(value, key, name)
        name += step_text(key)
    return _counted(frame, value)


def _counted(frame: Frame, value: Any) -> Any:
    """Count a missing value, since a template can collect many of them."""
    if type(value) is Undefined:
        frame.room(UNDEFINED)
    return value


def _variable(name: str, slots: list[int], *, free: bool) -> Expression:
    if len(slots) == 1 and not free:
        only = slots[0]
        return lambda frame: frame.slots[only]

    def load(frame: Frame) -> Any:
        for slot in slots:
            value = frame.slots[slot]
            if value is not MISSING:
                return value
        value = frame.get(name, MISSING) if free else MISSING
        return _unnamed(frame, name) if value is MISSING else value

    return load


def _reached(start: Expression, name: str, keys: tuple[str, ...]) -> Expression:
    return (lambda frame: _followed(frame, start(frame), name, keys)) if keys else start


def keyed(start: Expression, key: Any, label: str) -> Expression:
    """Follow a literal key or index; `label` is the author's name for the value."""
    return lambda frame: _counted(frame, reach(start(frame), key, label))


def indexed(start: Expression, key: Expression, label: str) -> Expression:
    """Follow a computed key or index."""
    return lambda frame: _counted(frame, subscript(start(frame), key(frame), label))


# Calls of allowed functions with a template's arguments: wrong arguments are an error of the author.


_VARARGS, _VARKEYWORDS = 0x04, 0x08  # CO_* flags; importing inspect would take longer than this whole package


def misfit(function: Callable[..., Any], label: str, count: int, names: Iterable[str], skipped: int = 2) -> str:
    """Return why `count` positional arguments and the named ones do not fit, or ''.

    The first `skipped` parameters are not the author's.
    """
    code = function.__code__
    accepted = code.co_varnames[skipped : code.co_argcount]
    if count > len(accepted) and not code.co_flags & _VARARGS:
        return f"{label} takes at most {len(accepted)} arguments, not {count}"
    taken = set(accepted[:count])
    for name in names:
        if name in taken:
            return f"{label} got {name!r} twice"
        if name not in accepted and not code.co_flags & _VARKEYWORDS:
            return f"{label} has no argument {name!r}"
        taken.add(name)
    required = accepted[: len(accepted) - len(function.__defaults__ or ())]
    lacking = [name for name in required if name not in taken]
    return f"{label} needs the argument {lacking[0]!r}" if lacking else ""


def called(function: Callable[..., Any], label: str, *args: Any, **options: Any) -> Any:
    """Call a function with unchecked arguments; the first two are the budget and the value."""
    wrong = misfit(function, label, len(args) - 2, options)
    if wrong:
        raise Failure(wrong)
    return function(*args, **options)
