"""Continues the work of lost servers: unprocessed calls, ends and signals, and runs that are idle without a reason.

Invariants: everything here is idempotent and may run on any number of servers. Commits younger than `engine.idle_s` are
left to the process that made them. Calls, ends and signals are found by their marks, each once; the position is stored
with the duty, so that the next server continues from there. A run that waits for a reason (an approval, a signal, a
child) is checked once for each head.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable

from arclog.core.boundary.inputs import Continue
from arclog.engine.commits.engine import Engine
from arclog.engine.duties.duty import Duty
from arclog.engine.runs.children import Children
from arclog.model.errors import ArclogError, NewerLog, StoreUnavailable
from arclog.model.ids import MICROS
from arclog.model.status import COMPLETED, PENDING, RUNNING
from arclog.ports.storage.store import ExecutionFilter, ExecutionRecord, Mark

log = logging.getLogger("arclog.engine")

_PAGE = 100
#: Number of live runs that are checked per second; each may wait for years.
_LIVE = 1000
#: The age up to which the marks of a store without a position are read.
_FIRST_LOOK_US = 86_400 * MICROS
#: Maximum interval between two records of the position.
_NOTED_US = 60 * MICROS
#: Maximum number of runs whose heads are remembered, and of marks that are retried.
_REMEMBERED = 100_000
_TRIED_AGAIN = 1_000
_PROCESSED = "playbook.processed"
_CALL, _SIGNAL = "command.completed", "signal.received"
#: Events with effects on other runs that are applied after their commit.
_TYPES = (_CALL, _SIGNAL, "playbook.finished", "execution.cancelled")


class Recovery:
    """The part of the sweeper's duty that checks runs."""

    def __init__(
        self, engine: Engine, children: Children, duty: Duty, is_served: Callable[[int], bool] = lambda _: False
    ) -> None:
        self._engine = engine
        self._children = children
        self._duty = duty
        #: returns whether another process of this machine serves only this run
        self._is_served = is_served
        self._idle_us = round(engine.settings.number("engine.idle_s") * MICROS)
        #: heads at which idle runs were checked
        self._looked: dict[int, int] = {}
        #: heads at which the calls of runs were checked in this pass
        self._attended: dict[int, int] = {}
        #: position among the live runs
        self._after = 0
        #: when idle runs are searched again
        self._idle_at = 0.0
        self._again: list[Mark] = []

    async def look(self, *, everything: bool = False) -> None:
        """Make one pass, while this server has the duty. With `everything`, young work and all idle runs are included;
        this is for a server that is alone with its store.
        """
        clock = self._engine.clock
        before = clock.now() - (0 if everything else self._idle_us)
        await self._follow_marks(before)
        if not everything and clock.monotonic() < self._idle_at:
            return
        while more := await self._look_at_idle(before):
            if not everything:
                break
        # To find idle runs, a store examines every live run, some at a time, so this is not done more often than
        # necessary.
        self._idle_at = clock.monotonic() + (0.0 if more else self._idle_us / MICROS)

    # -- effects on other runs ----------------------------------------------------------------------------------------

    async def _follow_marks(self, before: int) -> None:
        store, duty = self._engine.store, self._duty
        if not await duty.has():
            return
        position = await store.position(duty.name)
        since = position or max(before - _FIRST_LOOK_US, 0)
        followed = 0
        self._attended.clear()
        again, self._again = self._again, []
        for mark in again:
            await self._follow(mark)
        for name in _TYPES:
            async for mark in self._marks(name, since, before):
                if not await duty.has():
                    return
                await self._follow(mark)
                followed += 1
        # Without such events nothing is read twice, so the position need not be saved every time.
        if followed or before - position > _NOTED_US:
            await store.move_position(duty.name, duty.owner, self._engine.clock.now(), max(before, since))

    async def _marks(self, name: str, since: int, before: int) -> AsyncIterator[Mark]:
        """Yield the marks of a type from `since` on and before `before`, each once."""
        seen: set[tuple[int, int]] = set()
        limit = _PAGE
        while True:
            page = await self._engine.store.marks(name, since=since, limit=limit)
            for mark in page:
                if mark.persisted_at >= before:
                    return
                if (mark.execution_id, mark.seq) not in seen:
                    yield mark
            if len(page) < limit:
                return
            if page[-1].persisted_at == since:
                limit *= 2  # more than one page has the same time
                continue
            since = page[-1].persisted_at
            seen = {(mark.execution_id, mark.seq) for mark in page if mark.persisted_at == since}

    async def _follow(self, mark: Mark) -> None:
        """Process a mark if that has not happened. Failures are retried; a failing store ends the sweep."""
        try:
            record = await self._engine.store.execution(mark.execution_id)
            if record is None:
                return
            if mark.event_type in (_CALL, _SIGNAL):
                await self._follow_calls(record)
            else:
                await self._follow_end(record)
        except NewerLog as problem:
            log.warning("execution %s is not resumed: %s", mark.execution_id, problem)
        except StoreUnavailable:
            raise
        except ArclogError as problem:
            log.warning("execution %s: %s; retrying", mark.execution_id, problem)
            self._again = [*self._again, mark][-_TRIED_AGAIN:]

    async def _follow_calls(self, record: ExecutionRecord) -> None:
        """Process the calls of a run that called another one, or was paused or resumed."""
        if record.now.terminal_event is None and self._attended.get(record.execution_id) != record.head:
            await self._children.look_after(record.execution_id)
            self._attended[record.execution_id] = record.head

    async def _follow_end(self, record: ExecutionRecord) -> None:
        """Notify the parent of an ended run and cancel the runs that it waited for."""
        store, execution_id = self._engine.store, record.execution_id
        if record.new.parent_execution_id:
            last = await store.events(execution_id, after=record.head - 1, limit=1)
            if not last or last[0].event.type != _PROCESSED:
                await self._children.notify_parent(execution_id)
        if record.now.state != COMPLETED:
            below = ExecutionFilter(states=(PENDING, RUNNING), parent=execution_id)
            if await store.executions(below, limit=1):
                await self._children.cancel_below(execution_id)

    # -- idle runs ----------------------------------------------------------------------------------------------------

    async def _look_at_idle(self, before: int) -> bool:
        """Continue the idle ones among the next live runs. Return whether there are more live runs."""
        if not await self._duty.has():
            return False
        page = await self._engine.store.idle(before, after=self._after, limit=_LIVE)
        for record in page.records:
            if not await self._duty.has():
                return False
            await self._go_on(record)
        self._after = page.last
        return page.last > 0

    async def _go_on(self, record: ExecutionRecord) -> None:
        execution_id = record.execution_id
        if self._looked.get(execution_id) == record.head or self._is_served(execution_id):
            return
        live = self._engine.live
        was_kept = live.kept(execution_id) is not None
        try:
            answer = await self._engine.put(execution_id, Continue())
            if answer.events:
                log.warning("resumed execution %s", execution_id)
            await self._children.look_after(execution_id)
        except NewerLog as problem:
            log.warning("execution %s is not resumed: %s", execution_id, problem)
        except StoreUnavailable:
            raise
        except ArclogError as problem:
            log.warning("execution %s: %s; retrying", execution_id, problem)
            return
        self._remember(record)
        if not was_kept and live.head(execution_id) == record.head:
            live.drop(execution_id)  # it waits; other runs need the memory

    def _remember(self, record: ExecutionRecord) -> None:
        self._looked.pop(record.execution_id, None)
        self._looked[record.execution_id] = record.head
        if len(self._looked) > _REMEMBERED:
            del self._looked[next(iter(self._looked))]
