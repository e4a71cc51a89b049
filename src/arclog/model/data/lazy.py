"""Values that are computed on first use: properties and regular expressions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801 - it is used as a decorator
    """Like functools.cached_property, but without its lock, which Python 3.11 takes at each first access."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, of: None, owner: type | None = None) -> Self: ...

    @overload
    def __get__(self, of: object, owner: type | None = None) -> T: ...

    def __get__(self, of: object | None, owner: type | None = None) -> T | Self:
        if of is None:
            return self
        value = of.__dict__[self._name] = self._compute(of)
        return value


# ── patterns ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Regular expressions that are compiled on first use.
#
# Compiling one takes as long as importing a module, and a short program uses few of those in its modules.


_compile: Any = re.compile


class PatternOnDemand:
    """Behaves like the compiled expression."""

    def __init__(self, source: str, flags: int = 0) -> None:
        self._source = source, flags

    def compiled(self) -> re.Pattern[str]:
        return _compile(*self._source)  # type: ignore[no-any-return]  # re keeps what it compiled

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.compiled(), name)
        setattr(self, name, value)  # found without this method from now on
        return value


def pattern(source: str, flags: int = 0) -> re.Pattern[str]:
    """Like re.compile, but compiled on first use.

    Call the methods of the result; `re.match(result, …)` does not accept it.
    """
    compiled: Any = PatternOnDemand(source, flags)
    return compiled  # type: ignore[no-any-return]  # it has all that a pattern has
