"""Starts runs that wait for a concurrency slot, oldest first, as slots become free.

Whether a slot is free is settled by the store when a start is committed, so any number of processes may try.
A process tries only for the runs that it serves: what it starts, it must be able to carry on with. The end of a run that held
a slot is followed by a look at the queue of its playbook; all queues are looked at every `engine.sweep_s`, for slots that
other processes freed. Either costs what waits, however many runs there are.
"""

from __future__ import annotations

import asyncio
import logging

from arclog.core.boundary.inputs import TakeSlot
from arclog.engine.commits.engine import Engine
from arclog.engine.duties.duty import Has, always
from arclog.model.data.lru import LruCache
from arclog.model.errors import NewerLog, StoreError
from arclog.model.status import PENDING, RUNNING
from arclog.ports.storage.store import ExecutionRecord

log = logging.getLogger("arclog.engine")

_PAGE = 200
#: For a playbook with more slots than this, only the store knows whether they are all held.
_COUNTED = 50
#: The pause after a check of all queues is this many times its duration, so that many queues do not use a whole core.
_REST = 50
_LONGEST_REST_S = 30.0
#: Pending runs remembered as waiting for something else.
_REMEMBERED = 100_000

#: Tenant and path of runs that share slots.
Queue = tuple[str, str]


class Slots:
    """Starts queued runs, in one process."""

    def __init__(self, engine: Engine, has: Has = always) -> None:
        self._engine = engine
        #: whether this process checks all queues
        self._has = has
        self._freed: set[Queue] = set()
        self._freed_elsewhere = False
        self._wake_up = asyncio.Event()
        #: heads at which pending runs did not wait for a slot but for an approval
        self._others: LruCache[int, int] = LruCache(_REMEMBERED)
        engine.hints.on_slot_freed.append(self._on_freed)

    def _on_freed(self, queue: Queue | None) -> None:
        if queue is None:
            self._freed_elsewhere = True
        else:
            self._freed.add(queue)
        self._wake_up.set()

    async def keep(self, execution_id: int, pause_s: float) -> None:
        """Start runs as slots become free. With an execution_id only that one, until it has started."""
        clock, due = self._engine.clock, 0.0
        while not execution_id or await self._is_pending(execution_id):
            self._wake_up.clear()
            freed, self._freed = self._freed, set()
            elsewhere, self._freed_elsewhere = self._freed_elsewhere, False
            began = clock.monotonic()
            try:
                if execution_id:
                    await self._engine.put(execution_id, TakeSlot())
                else:
                    for queue in sorted(freed):
                        await self._fill(queue)
                    if (elsewhere or began >= due) and await self._has():
                        await self.sweep()
                        rest = _REST * (clock.monotonic() - began)
                        due = clock.monotonic() + max(pause_s, min(rest, _LONGEST_REST_S))
            except StoreError as problem:
                log.warning("no waiting run could be started: %s", problem)
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake_up.wait()
            except TimeoutError:
                continue

    async def sweep(self) -> None:
        """Start what can be started of all that wait."""
        after = ("", "")
        while page := await self._engine.store.pending_paths(after=after, limit=_PAGE):
            for queue in page:
                await self._fill(queue)
            after = page[-1]

    async def _fill(self, queue: Queue) -> None:
        """Start the oldest runs of a queue until its slots are all held."""
        store, after = self._engine.store, 0
        while page := await store.live_in_path(*queue, PENDING, after=after, limit=_PAGE):
            for record in page:
                try:
                    if self._others.get(record.execution_id) != record.head and not await self._start(queue, record):
                        return
                except NewerLog as problem:
                    log.debug("execution %s cannot take a concurrency slot: %s", record.execution_id, problem)
            if len(page) < _PAGE:
                return
            after = page[-1].execution_id

    async def _start(self, queue: Queue, record: ExecutionRecord) -> bool:
        """Try to start a run; False when its playbook's slots are all held."""
        engine = self._engine
        plan = (await engine.live.program(record.new.plan)).plan
        slots = plan.concurrency
        if slots is not None:
            counted = plan.on_excess == "queue" and slots <= _COUNTED
            if counted and len(await engine.store.live_in_path(*queue, RUNNING, limit=slots)) >= slots:
                return False
            refused = (await engine.put(record.execution_id, TakeSlot())).refused
            if refused is None or refused.reason == "no_slot":
                return refused is None
        self._others.replace(record.execution_id, record.head)
        return True

    async def _is_pending(self, execution_id: int) -> bool:
        record = await self._engine.store.execution(execution_id)
        return record is not None and record.now.state == PENDING


async def holders(engine: Engine, record: ExecutionRecord) -> list[int]:
    """The executions that hold the slots a run waits for."""
    new = record.new
    records = await engine.store.live_in_path(new.scope.tenant, new.path, RUNNING, limit=20)
    return [record.execution_id for record in records]
