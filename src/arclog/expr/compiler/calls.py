"""Calling an allow-listed function with a template's arguments: a call that does not fit is the author's error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from arclog.expr.budget import Failure

_VARARGS, _VARKEYWORDS = 0x04, 0x08  # CO_* flags; importing inspect costs more than all of this package


def misfit(function: Callable[..., Any], label: str, count: int, names: Iterable[str], given: int = 2) -> str:
    """Say why `count` arguments and the `names`d ones do not fit, or nothing; `given` come before the author's."""
    code = function.__code__
    accepted = code.co_varnames[given : code.co_argcount]
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
    """Call with arguments that were not checked at compile time; the first two are the budget and the value."""
    wrong = misfit(function, label, len(args) - 2, options)
    if wrong:
        raise Failure(wrong)
    return function(*args, **options)
