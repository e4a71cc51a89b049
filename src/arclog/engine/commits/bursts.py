"""Many things that are due at the same moment: some at a time, so that they share commits and reports pass between them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from arclog.model.errors import ArclogError

Item = TypeVar("Item")

#: Groups that are under way at the same time: while one is committed, the next is decided.
GROUPS = 2


def batched(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The items in their order, so many at a time."""
    return (items[first : first + size] for first in range(0, len(items), size))


async def each(items: Iterable[Item], work: Callable[[Item], Awaitable[None]], at_once: int) -> None:
    """Do the work for each item, so many at a time, in their order. An error ends it after what is in progress, and is raised."""
    left = iter(items)
    problems: list[ArclogError] = []

    async def sequentially() -> None:
        for item in left:
            if problems:
                return
            try:
                await work(item)
            except ArclogError as problem:
                problems.append(problem)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(sequentially())
    if problems:
        raise problems[0]
