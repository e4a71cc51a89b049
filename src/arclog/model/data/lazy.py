"""A property that is computed once."""

from __future__ import annotations

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
