"""Starts runs that wait for a concurrency slot, oldest first, as slots become free.

Whether a slot is free is settled by the store when a start is committed, so any number of processes may try.
A process tries only for the runs that it serves: what it starts, it must be able to carry on with.
"""

from __future__ import annotations

import asyncio
import logging

from arclog.core.inputs import TakeSlot
from arclog.engine.duties import Has, always
from arclog.engine.engine import Engine
from arclog.model.errors import NewerLog, StoreError
from arclog.model.status import PENDING, RUNNING
from arclog.ports.store import ExecutionFilter, ExecutionRecord

log = logging.getLogger("arclog.engine")

_PAGE = 200


class Slots:
    """The queue's keeper in one process."""

    def __init__(self, engine: Engine, has: Has = always) -> None:
        self._engine = engine
        #: whether it is this process that looks now and then
        self._has = has
        self._freed = asyncio.Event()
        engine.hints.on_ended.append(self._freed.set)

    async def keep(self, execution_id: int, pause_s: float) -> None:
        """Try whenever a run has ended here, and now and then because one may have ended elsewhere. With an execution_id
        only for that run, until it has started.
        """
        while not execution_id or await self._is_pending(execution_id):
            freed = self._freed.is_set()
            self._freed.clear()
            try:
                if execution_id:
                    await self._engine.put(execution_id, TakeSlot())
                elif freed or await self._has():
                    await self.sweep()
            except StoreError as problem:
                log.warning("no waiting run could be started: %s", problem)
            try:
                async with asyncio.timeout(pause_s):
                    await self._freed.wait()
            except TimeoutError:
                continue

    async def sweep(self) -> None:
        """Start what can be started of all that wait."""
        full: set[tuple[str, str]] = set()
        after = 0
        while page := await self._engine.store.live(ExecutionFilter(states=(PENDING,)), after=after, limit=_PAGE):
            for record in page:
                queue = (record.new.path, record.new.scope.tenant)
                try:
                    if queue not in full and not await self._start(record):
                        full.add(queue)
                except NewerLog as problem:
                    log.debug("execution %s does not take a slot here: %s", record.execution_id, problem)
            after = page[-1].execution_id

    async def _start(self, record: ExecutionRecord) -> bool:
        """Try to start a run; False when its playbook's slots are all held."""
        plan = (await self._engine.live.program(record.new.plan)).plan
        if plan.concurrency is None:
            return True
        answer = await self._engine.put(record.execution_id, TakeSlot())
        return answer.refused is None or answer.refused.reason != "no_slot"

    async def _is_pending(self, execution_id: int) -> bool:
        record = await self._engine.store.execution(execution_id)
        return record is not None and record.now.state == PENDING


async def holders(engine: Engine, record: ExecutionRecord) -> list[int]:
    """The executions that hold the slots a run waits for."""
    new = record.new
    which = ExecutionFilter(states=(RUNNING,), path=new.path, tenant=new.scope.tenant)
    return [each.execution_id for each in await engine.store.live(which, limit=20)]
