"""Connects the hints of this process with the bus: commits are published once per iteration of the event loop; notices
of other processes wake the listeners that they concern.

Correctness does not depend on it. Waiting tasks poll the store at intervals; the relay only makes them faster.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping

from arclog.engine.commits.engine import Engine
from arclog.engine.dispatch.control import EngineControl
from arclog.model.errors import ArclogError
from arclog.ports.bus import Bus, Notice

log = logging.getLogger("arclog.engine")


class Relay:
    """One per engine that has a bus. Implements `hints.Outward`."""

    def __init__(self, engine: Engine, control: EngineControl, bus: Bus) -> None:
        self._engine = engine
        self._control = control
        self.bus = bus
        self._moved: dict[int, int] = {}
        self._offered: Counter[str] = Counter()
        self._timer = 0
        self._ended = self._room = False
        self._is_due = False
        #: runs that are being checked; True if they have to be checked again
        self._looking: dict[int, bool] = {}
        self._busy: set[int] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        await self.bus.open(self._heard)
        self._engine.hints.outward = self

    # -- outward -------------------------------------------------------------------------------------------------------

    def moved(self, execution_id: int, head: int) -> None:
        self._moved[execution_id] = head
        self._notify_soon()

    def slot_freed(self) -> None:
        self._ended = True
        self._notify_soon()

    def offered(self, pools: Mapping[str, int]) -> None:
        self._offered.update(pools)
        self._notify_soon()

    def room(self) -> None:
        self._room = True
        self._notify_soon()

    def is_away(self) -> bool:
        return not self.bus.figures().connected

    def timer_set(self, due: int) -> None:
        self._timer = min(self._timer or due, due)
        self._notify_soon()

    def waiting(self, pools: Collection[str]) -> None:
        self.bus.waiting(pools)

    def _notify_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._notify)

    def _notify(self) -> None:
        if not self._is_due:
            return
        moved, offered = tuple(self._moved.items()), tuple(self._offered.items())
        notice = Notice(moved, self._ended, offered, self._timer, self._room)
        self._moved, self._offered = {}, Counter()
        self._ended = self._room = self._is_due = False
        self._timer = 0
        self.bus.notify(notice)

    # -- inward --------------------------------------------------------------------------------------------------------

    def _heard(self, notice: Notice) -> None:
        hints, live = self._engine.hints, self._engine.live
        if notice.offered:
            hints.offer_heard(dict(notice.offered))
        if notice.room:
            hints.offer_heard()
        behind = []
        for execution_id, head in notice.moved:
            hints.moved(execution_id)
            if live.head(execution_id) < head:
                behind.append(execution_id)
        # A run that no worker here processes needs no update.
        for execution_id in self._busy_with().intersection(behind):
            self._look(execution_id)
        if notice.timer:
            hints.timer_heard(notice.timer)
        if notice.ended:
            hints.slot_heard()

    def _busy_with(self) -> set[int]:
        """Return the runs of whose commands workers here hold some; computed once per iteration of the loop."""
        if self._busy is None:
            self._busy = self._control.busy_with()
            asyncio.get_running_loop().call_soon(self._forget_busy)
        return self._busy

    def _forget_busy(self) -> None:
        self._busy = None

    def _look(self, execution_id: int) -> None:
        if execution_id in self._looking:
            self._looking[execution_id] = True
            return
        self._looking[execution_id] = True
        task = asyncio.ensure_future(self._take_in(execution_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_in(self, execution_id: int) -> None:
        """Load the events of other processes, so that holders of commands learn of a cancellation or a pause."""
        try:
            while self._looking[execution_id]:
                self._looking[execution_id] = False
                await self._engine.look(execution_id)
        except ArclogError as problem:
            log.info("execution %s: %s; the next sweep retries", execution_id, problem)
        finally:
            del self._looking[execution_id]

    async def close(self) -> None:
        """Publish pending notices, then stop."""
        self._engine.hints.outward = None
        self._notify()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.bus.close()
