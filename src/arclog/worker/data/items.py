"""The items of a loop as its iterations need them: those of a stored list are read some at a time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from arclog.core.transitions.iterations import are_stored, item_at, stored_item
from arclog.model.commands import LoopWork
from arclog.worker.data.reading import StoredReader

_ITEMS_AT_A_TIME = 200
#: Iterations run in order, or side by side: few blocks are in use at a time.
_BLOCKS = 4


class Items:
    """The items of one command's part of a loop."""

    def __init__(self, loop: LoopWork, reader: StoredReader) -> None:
        self._loop = loop
        self._reader = reader
        self._blocks: OrderedDict[int, list[Any]] = OrderedDict()
        self._lock = asyncio.Lock()

    async def at(self, index: int) -> Any:
        """The item of an iteration. Raises ResultUnavailable."""
        loop = self._loop
        if not are_stored(loop.items):
            return item_at(loop.items, index - loop.first)
        at = stored_item(loop.items, index - loop.first)["index"]
        number = at // _ITEMS_AT_A_TIME
        async with self._lock:
            block = self._blocks.get(number)
            if block is None:
                first = number * _ITEMS_AT_A_TIME
                block = await self._reader.part(loop.items["ref"], first, first + _ITEMS_AT_A_TIME)
                self._blocks[number] = block
                while len(self._blocks) > _BLOCKS:
                    self._blocks.popitem(last=False)
        return block[at % _ITEMS_AT_A_TIME]
