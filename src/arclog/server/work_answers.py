"""The last numbered answer that each worker was given, so that one that was lost on the way can be given again.

The same question twice at once is one question, and one that a later number has overtaken is not asked at all: nobody waits
for its answer. A cache: what is forgotten costs a lease, never a fact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

_MOST = 10_000

T = TypeVar("T")


class Answers:
    """By credential, worker and call; whoever asked the longest ago is forgotten first."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], tuple[int, asyncio.Future[Any]]] = {}

    async def once(self, key: tuple[str, ...], n: int, ask: Callable[[], Awaitable[T]], nothing: T) -> T:
        """What `ask` gives, or gave when it was asked as this number before; `nothing` to one that comes too late."""
        if not n:  # a caller that does not count
            return await ask()
        while (before := self._last.get(key)) is not None and before[0] >= n:
            last, answer = before
            if last > n:
                return nothing
            await asyncio.wait((answer,))
            if not answer.cancelled():
                found: T = answer.result()
                return found
            # Whoever asked first got no answer.
            if self._last.get(key) is before:
                del self._last[key]
        return await self._asked(key, n, ask)

    async def _asked(self, key: tuple[str, ...], n: int, ask: Callable[[], Awaitable[T]]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._last.pop(key, None)
        self._last[key] = (n, answer)
        if len(self._last) > _MOST:
            del self._last[next(iter(self._last))]
        try:
            answer.set_result(await ask())
        finally:
            answer.cancel()  # of no effect on one that is there
        return answer.result()
