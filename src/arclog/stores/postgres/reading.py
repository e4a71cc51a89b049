"""Reads of the log and of executions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from arclog.model.events import REGISTRY
from arclog.model.ids import MAX_ID
from arclog.ports.store import (
    ExecutionFilter,
    ExecutionRecord,
    Ingested,
    LogBatch,
    Mark,
    Scope,
    StepRunRecord,
    StoredEvent,
)
from arclog.stores.postgres.lookups import Lookups
from arclog.stores.postgres.part import Part
from arclog.stores.postgres.values import ints, texts
from arclog.stores.records import execution_record
from arclog.stores.rows import bits_of

_ALL_TYPES = -1
_LIVE = frozenset({"PENDING", "RUNNING"})
#: log rows of one request: they hold a few events each, or many, or are large
_ROWS = 200


class Reading(Part):
    _lookups: Lookups

    async def events(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> list[StoredEvent]:
        wanted = frozenset(types)
        bits = bits_of(types) if types else _ALL_TYPES
        if not wanted:
            return await self._page(execution_id, after, MAX_ID, bits, limit, None)
        return await self._page(execution_id, after, MAX_ID, bits, limit, lambda it: it.event.type in wanted)

    async def step_events(
        self, execution_id: int, step: str, run: int, *, after: int = 0, limit: int = 1000
    ) -> list[StoredEvent]:
        bounds = await self._pool.read(self._sql["step_bounds"], execution_id, step, run)
        if not bounds:
            return []
        first, until = bounds[0]
        return await self._page(
            execution_id,
            max(first - 1, after),
            MAX_ID if until is None else until,
            _ALL_TYPES,
            limit,
            lambda it: it.event.run == run and it.event.step == step,
        )

    async def _page(
        self,
        execution_id: int,
        after: int,
        last: int,
        bits: int,
        limit: int,
        wanted: Callable[[StoredEvent], bool] | None,
    ) -> list[StoredEvent]:
        page: list[StoredEvent] = []
        while len(page) < limit:
            most = min(limit - len(page), _ROWS)
            rows = await self._pool.read(self._sql["rows_of"], execution_id, after + 1, last, bits, most)
            for seq0, base, ts, body in rows:
                found = self._codec.stored(execution_id, seq0, base, ts, body)
                if seq0 <= after:  # only the first row can begin before the page
                    found = found[after + 1 - seq0 :]
                if found:
                    after = found[-1].seq
                page += found if wanted is None else filter(wanted, found)
            if len(rows) < most:
                break
        return page[: max(limit, 0)]

    async def tail(self, *, after: int = 0, limit: int = 100) -> list[LogBatch]:
        return [
            LogBatch(pos, owner, self._codec.stored(owner, seq0, base, ts, body))
            for pos, owner, seq0, base, ts, body in await self._pool.read(self._sql["tail"], after, limit)
        ]

    async def marks(self, event_type: str, *, since: int = 0, limit: int = 1000) -> list[Mark]:
        row = REGISTRY.get(event_type)
        if row is None:
            return []
        return [Mark(event_type, *found) for found in await self._pool.read(self._sql["marks"], row.bit, since, limit)]

    async def ingested(self, execution_id: int, event_ids: Sequence[int]) -> list[Ingested]:
        rows = await self._pool.read(self._sql["ingested"], execution_id, ints(event_ids))
        return [Ingested(event_id, digest.hex(), seq) for event_id, digest, seq in rows]

    async def execution(self, execution_id: int) -> ExecutionRecord | None:
        return await self._lookups.one(execution_id)

    async def _executions_by_id(self, execution_ids: Sequence[int]) -> list[ExecutionRecord]:
        return await self._executions("executions_by_id", ints(execution_ids))

    async def by_run_id(self, run_id: str) -> ExecutionRecord | None:
        return await self._one_execution("by_run_id", run_id)

    async def by_idempotency_key(self, scope: Scope, key: str) -> ExecutionRecord | None:
        return await self._one_execution("by_idempotency_key", scope.tenant, scope.project, scope.environment, key)

    async def executions(
        self, which: ExecutionFilter = ExecutionFilter(), *, before: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        name = "live_executions" if which.states and _LIVE.issuperset(which.states) else "executions"
        if which.parent:
            name = "children_of"
        whose = (which.path, which.tenant, limit, which.parent, int(which.children), which.since, which.name)
        narrowed = (texts(which.states), *whose, which.project, which.environment)
        return await self._executions(name, before or MAX_ID, *narrowed)

    async def live(
        self, which: ExecutionFilter = ExecutionFilter(), *, after: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        narrowed = (texts(which.states), which.path, which.tenant, limit, which.project, which.environment)
        return await self._executions("oldest_live", after, *narrowed)

    async def idle(self, before: int, *, after: int = 0, limit: int = 100) -> list[ExecutionRecord]:
        return await self._executions("idle", after, before, limit)

    async def step_runs(self, execution_id: int) -> list[StepRunRecord]:
        return [StepRunRecord(*row) for row in await self._pool.read(self._sql["step_runs"], execution_id)]

    async def _executions(self, name: str, *values: Any) -> list[ExecutionRecord]:
        return [_record(row) for row in await self._pool.read(self._sql[name], *values)]

    async def _one_execution(self, name: str, *values: Any) -> ExecutionRecord | None:
        found = await self._executions(name, *values)
        return found[0] if found else None


def _record(row: tuple[Any, ...]) -> ExecutionRecord:
    error = row[8]
    return execution_record((*row[:8], None if error is None else error.decode(), *row[9:]))
