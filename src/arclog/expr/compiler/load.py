"""Closures that load a name and follow its keys: the hot path of every template.

A plain dict is asked directly; everything else, and everything missing, goes the long way through `access.reach`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arclog.expr.compiler import access
from arclog.expr.sizes import UNDEFINED
from arclog.expr.values import MISSING, Undefined, step_text, unnamed

if TYPE_CHECKING:
    from arclog.expr.frame import Expression, Frame


def named(name: str, slots: list[int], *, free: bool, keys: tuple[str, ...]) -> Expression:
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
        value = access.reach(value, key, name)
        name += step_text(key)
    return _counted(frame, value)


def _counted(frame: Frame, value: Any) -> Any:
    """What is missing takes room, too, when a template gathers it."""
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
    """Follow a literal key or index; `label` is what the author calls the value."""
    return lambda frame: _counted(frame, access.reach(start(frame), key, label))


def indexed(start: Expression, key: Expression, label: str) -> Expression:
    """Follow a computed key or index."""
    return lambda frame: _counted(frame, access.subscript(start(frame), key(frame), label))
