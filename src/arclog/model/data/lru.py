"""A bounded cache that discards the least recently used entry first."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """At most `most` values by key, with a total weight of at most `max_weight`. The newest value is always kept."""

    __slots__ = ("_max_weight", "_most", "_values", "_weigh", "_weight")

    def __init__(self, most: int, max_weight: int = 0, weigh: Callable[[V], int] | None = None) -> None:
        self._most = most
        self._values: dict[K, V] = {}
        self._max_weight = max_weight
        self._weigh = weigh
        self._weight = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        value = self._values.pop(key, None)
        if value is not None:
            self._values[key] = value
        return value

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def pop(self, key: K) -> V | None:
        value = self._values.pop(key, None)
        if value is not None and self._weigh is not None:
            self._weight -= self._weigh(value)
        return value

    def put(self, key: K, value: V) -> V:
        """Add a value unless the key has one. Returns the stored value."""
        kept = self.get(key)
        if kept is not None:
            return kept
        self._values[key] = value
        if self._weigh is not None:
            self._weight += self._weigh(value)
        while len(self._values) > self._most or (self._weight > self._max_weight and len(self._values) > 1):
            self.pop(next(iter(self._values)))
        return value

    def replace(self, key: K, value: V) -> None:
        """Set the value of a key."""
        self.pop(key)
        self.put(key, value)
