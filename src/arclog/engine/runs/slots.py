"""Starts runs that wait for a concurrency slot, oldest first, as slots become free.

The store decides whether a slot is free when a start is committed, so any number of processes may try. A process tries
only for the runs that it serves, since it must be able to continue a run that it starts. When a run that held a slot
ends, the queue of its playbook is checked; all queues are checked every `engine.sweep_s`, for slots that other
processes freed. The cost depends on the number of waiting runs only.
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
#: For a playbook with more slots than this, only the store knows whether all of them are held.
_COUNTED = 50
#: The pause after a check of all queues is this many times its duration, so that many queues do not use a whole core.
_REST = 50
_LONGEST_REST_S = 30.0
#: Maximum number of pending runs remembered as waiting for something else.
_REMEMBERED = 100_000

#: Tenant and path of runs that share slots.
Queue = tuple[str, str]


class Slots:
    """Starts queued runs, in one process."""

    def __init__(self, engine: Engine, has: Has = always) -> None:
        self._engine = engine
        #: returns whether this process checks all queues
        self._has = has
        self._freed: set[Queue] = set()
        self._freed_elsewhere = False
        self._wake_up = asyncio.Event()
        #: heads at which pending runs waited for an approval, not for a slot
        self._others: LruCache[int, int] = LruCache(_REMEMBERED)
        engine.hints.on_slot_freed.append(self._on_freed)

    def _on_freed(self, queue: Queue | None) -> None:
        if queue is None:
            self._freed_elsewhere = True
        else:
            self._freed.add(queue)
        self._wake_up.set()

    async def keep(self, execution_id: int, pause_s: float) -> None:
        """Start runs as slots become free. With an execution_id, only that run, until it has started."""
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
                    # The lease is renewed even if no check is due, since an expired lease means that a server is gone.
                    if await self._has() and (elsewhere or began >= due):
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
        """Start all waiting runs that can be started."""
        after = ("", "")
        while page := await self._engine.store.pending_paths(after=after, limit=_PAGE):
            for queue in page:
                await self._fill(queue)
            after = page[-1]

    async def _fill(self, queue: Queue) -> None:
        """Start the oldest runs of a queue until all its slots are held."""
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
        """Try to start a run. Return False if all slots of its playbook are held."""
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
    """Return the executions that hold the slots for which a run waits."""
    new = record.new
    records = await engine.store.live_in_path(new.scope.tenant, new.path, RUNNING, limit=20)
    return [record.execution_id for record in records]
