"""A bounded memory of things that can be made again: the one that was not asked for the longest is given up first."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """At most so many values by key."""

    __slots__ = ("_most", "_values")

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        value = self._values.pop(key, None)
        if value is not None:
            self._values[key] = value
        return value

    def pop(self, key: K) -> V | None:
        return self._values.pop(key, None)

    def put(self, key: K, value: V) -> V:
        """Keep a value; the one that is kept now, when there was one already."""
        found = self.get(key)
        if found is not None:
            return found
        self._values[key] = value
        if len(self._values) > self._most:
            del self._values[next(iter(self._values))]
        return value

    def replace(self, key: K, value: V) -> None:
        """Keep this value, whatever was kept before."""
        self._values.pop(key, None)
        self.put(key, value)
