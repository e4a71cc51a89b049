"""The results of a loop as a list in item order. The log has them in the order in which iterations ended.

Reading such results as a list creates a copy in item order in the result store, once. If the copy is gone, it is
created again from the log.
"""

from __future__ import annotations

import asyncio
import tempfile
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from msgspec.json import decode, encode

from arclog.ports.control import Control, LoopItem
from arclog.ports.results import Content, Results

#: Marks an item that is itself stored; other items are marked 0.
STORED_ITEM = 1
_PAGE = 2000
_ITEMS_AT_A_TIME = 500
#: Maximum number of lists whose hashes are remembered.
_REMEMBERED = 256


class LoopResults:
    """Puts loop results in item order, for the commands of one worker."""

    def __init__(self, control: Control, results: Results, tenant: str, known: Ordered) -> None:
        self._control = control
        self._results = results
        self._tenant = tenant
        self._known = known

    async def manifest(self, ref: Mapping[str, Any]) -> Content:
        """Return the results that `ref` (execution_id, step, run, total) names, as stored content.

        An item is [1, its ref] or [0, its data].
        """
        key = (int(ref["execution_id"]), ref["step"], ref["run"])
        async with self._known.lock:
            content = self._known.get(key)
            if content is None or await self._results.find(self._tenant, content.sha256) is None:
                content = await self._made(ref)
                self._known.put(key, content)
            return content

    async def _made(self, ref: Mapping[str, Any]) -> Content:
        writer = self._results.writer(self._tenant, listed=True)
        try:
            with tempfile.TemporaryFile() as file:
                spool = _Spool(file, ref["total"])
                after: int | None = 0
                while after is not None:
                    page = await self._control.loop_results(
                        int(ref["execution_id"]), ref["step"], ref["run"], after, _PAGE
                    )
                    for item in page.items:
                        spool.put(item)
                    after = page.after
                for some in spool.in_order():
                    await writer.add(some)
            return await writer.commit()
        except BaseException:
            await writer.abandon()
            raise


class _Spool:
    """Items in the order of the log, on disk, with the position of the latest item of each iteration."""

    def __init__(self, file: IO[bytes], total: int) -> None:
        self._file = file
        self._at = 0
        #: by slot; an iteration without an outcome has size 0
        self._starts = array("Q", bytes(8 * total))
        self._sizes = array("Q", bytes(8 * total))
        #: slots of the iterations of a nested loop
        self._nested: dict[tuple[int, ...], int] = {}

    def put(self, item: LoopItem) -> None:
        line = encode([0, item.data] if item.result_ref is None else [STORED_ITEM, item.result_ref])
        self._file.write(line)
        slot = self._slot(item.path)
        self._starts[slot], self._sizes[slot] = self._at, len(line)
        self._at += len(line)

    def _slot(self, path: tuple[int, ...]) -> int:
        if len(path) == 1:
            return path[0]
        slot = self._nested.setdefault(path, len(self._nested))
        while slot >= len(self._sizes):
            self._starts.append(0)
            self._sizes.append(0)
        return slot

    def in_order(self) -> Iterator[list[Any]]:
        slots: Sequence[int] = range(len(self._sizes))
        if self._nested:
            slots = [self._nested[path] for path in sorted(self._nested)]
        for at in range(0, len(slots), _ITEMS_AT_A_TIME):
            yield [self._read(slot) for slot in slots[at : at + _ITEMS_AT_A_TIME]]

    def _read(self, slot: int) -> Any:
        if not self._sizes[slot]:
            return [0, None]
        self._file.seek(self._starts[slot])
        return decode(self._file.read(self._sizes[slot]))


class Ordered:
    """The lists that were created, by execution, step and run; shared by all commands of one worker."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._contents: OrderedDict[tuple[int, str, int], Content] = OrderedDict()

    def get(self, key: tuple[int, str, int]) -> Content | None:
        return self._contents.get(key)

    def put(self, key: tuple[int, str, int], content: Content) -> None:
        self._contents[key] = content
        while len(self._contents) > _REMEMBERED:
            self._contents.popitem(last=False)
