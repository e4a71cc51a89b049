"""A store that can fail, be slow, or die with the process that uses it. There is one for each life of a process, over a
shared store.

Invariant: after its death nothing reaches the shared store, whatever code with a reference to it still tries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from arclog.model.errors import StoreUnavailable
from arclog.ports.storage.store import Append, Appended, Store

#: Called before the n-th append (from 1) reaches the store; may raise an error in the store's place.
Before = Callable[[int, Append], Awaitable[None]]
#: Called after the commit, before the caller gets the result.
After = Callable[[int, Append, Appended], Awaitable[None]]


class FaultyStore:
    """Passes everything on to the store below while it lives."""

    def __init__(self, below: Store, before: Before | None = None, after: After | None = None) -> None:
        self._below = below
        self._before = before
        self._after = after
        self._appends = 0
        self._dead = False

    def die(self) -> None:
        """Simulate the death of the process: its further actions have no effect."""
        self._dead = True

    async def append(self, append: Append) -> Appended:
        self._check()
        self._appends += 1
        number = self._appends
        if self._before is not None:
            await self._before(number, append)
            self._check()
        done = await self._below.append(append)
        if self._after is not None:
            await self._after(number, append, done)
            self._check()
        return done

    async def append_all(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        """Appended one by one, so that one may fail, or the process may die, between any two of them."""
        return await asyncio.gather(*map(self._outcome, appends))

    async def _outcome(self, append: Append) -> Appended | Exception:
        try:
            return await self.append(append)
        except Exception as problem:
            return problem

    def _check(self) -> None:
        if self._dead:
            raise StoreUnavailable("the process is dead")

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._below, name)

        async def passed_on(*args: Any, **kwargs: Any) -> Any:
            self._check()
            return await call(*args, **kwargs)

        return passed_on


def faulty(below: Store, before: Before | None = None, after: After | None = None) -> tuple[Store, FaultyStore]:
    """The wrapper, typed both as the port and as itself."""
    wrapper = FaultyStore(below, before, after)
    return cast("Store", wrapper), wrapper


async def forever() -> None:
    """Never return, like a dead process."""
    await asyncio.get_running_loop().create_future()
