"""The last numbered answer that each worker was given, so that one that was lost on the way can be given again.

A cache: what is forgotten costs a lease, never a fact.
"""

from __future__ import annotations

from typing import Any, TypeVar

_MOST = 10_000

T = TypeVar("T")


class Answers:
    """By credential, worker and call; whoever asked the longest ago is forgotten first."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], tuple[int, Any]] = {}

    def get(self, key: tuple[str, ...]) -> tuple[int, Any] | None:
        return self._last.get(key)

    def keep(self, key: tuple[str, ...], n: int, answer: T) -> T:
        self._last.pop(key, None)
        self._last[key] = (n, answer)
        if len(self._last) > _MOST:
            del self._last[next(iter(self._last))]
        return answer
