"""What is still to be told, merged: of each run the highest head, of each pool the number of offers. Bounded: when more runs
wait than may, the oldest are abandoned and counted.
"""

from __future__ import annotations

import asyncio

from arclog.ports.bus import Notice


class Pending:
    """Filled by `add`, which never waits; emptied by one sender."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._moved: dict[int, int] = {}
        self._offered: dict[str, int] = {}
        self._timer = 0
        self._ended = False
        self._some = asyncio.Event()
        #: pieces of notices that were given up
        self.dropped = 0

    def __bool__(self) -> bool:
        return self._some.is_set()

    def add(self, notice: Notice) -> None:
        for execution_id, head in notice.moved:
            # Moved to the end: what happened last is told last, and given up last.
            before = self._moved.pop(execution_id, 0)
            self._moved[execution_id] = max(before, head)
        for pool, count in notice.offered:
            self._offered[pool] = self._offered.get(pool, 0) + count
        if notice.timer:
            self._timer = min(self._timer or notice.timer, notice.timer)
        self._ended = self._ended or notice.ended
        while len(self._moved) > self._most:
            del self._moved[next(iter(self._moved))]
            self.dropped += 1
        while len(self._offered) > self._most:
            del self._offered[next(iter(self._offered))]
            self.dropped += 1
        if notice != _NOTHING:
            self._some.set()

    async def some(self) -> None:
        """Wait until there is something to tell."""
        await self._some.wait()

    def take(self, runs: int, pools: int) -> Notice:
        """Some of it, oldest first: at most so many runs and pools."""
        moved = tuple((key, self._moved.pop(key)) for key in list(self._moved)[:runs])
        offered = tuple((key, self._offered.pop(key)) for key in list(self._offered)[:pools])
        taken = Notice(moved=moved, ended=self._ended, offered=offered, timer=self._timer)
        self._ended, self._timer = False, 0
        if not self._moved and not self._offered:
            self._some.clear()
        return taken

    def give_up(self, notice: Notice) -> None:
        """What was taken could not be sent."""
        self.dropped += len(notice.moved) + len(notice.offered) + bool(notice.timer) + notice.ended


_NOTHING = Notice()
