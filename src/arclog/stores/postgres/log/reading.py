"""Reads of the log and of executions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from arclog.model.events import REGISTRY
from arclog.model.ids import MAX_ID
from arclog.model.status import EXECUTION_STATES
from arclog.ports.storage.statistics import HOUR, RunCount
from arclog.ports.storage.store import (
    ExecutionFilter,
    ExecutionRecord,
    Ingested,
    LogBatch,
    Mark,
    Scope,
    StepRunRecord,
    StoredEvent,
)
from arclog.stores.postgres.connection.values import ints, texts
from arclog.stores.postgres.part import Part
from arclog.stores.postgres.tables.lookups import Lookups
from arclog.stores.records import execution_record
from arclog.stores.rows import bits_of

#: The first events of several runs, so many each, are read together.
FEW = 64
_ALL_TYPES = -1
#: log rows of one request: they hold a few events each, or many, or are large
_ROWS = 200


class Reading(Part):
    _lookups: Lookups[ExecutionRecord]
    _beginnings: Lookups[list[StoredEvent]]

    async def events(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> list[StoredEvent]:
        wanted = frozenset(types)
        bits = bits_of(types) if types else _ALL_TYPES
        if not (wanted or after) and 0 < limit <= FEW:
            return (await self._beginnings.one(execution_id) or [])[:limit]
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

    async def _executions_by_id(self, execution_ids: Sequence[int]) -> dict[int, ExecutionRecord]:
        records = await self._executions("executions_by_id", ints(execution_ids))
        return {record.execution_id: record for record in records}

    async def _beginnings_of(self, execution_ids: Sequence[int]) -> dict[int, list[StoredEvent]]:
        """The first events of these, `FEW` at least if there are so many."""
        found: dict[int, list[StoredEvent]] = {}
        for owner, seq0, base, ts, body in await self._pool.read(self._sql["first_rows"], ints(execution_ids), FEW):
            found.setdefault(owner, []).extend(self._codec.stored(owner, seq0, base, ts, body))
        return found

    async def by_run_id(self, run_id: str) -> ExecutionRecord | None:
        return await self._one_execution("by_run_id", run_id)

    async def by_idempotency_key(self, scope: Scope, key: str) -> ExecutionRecord | None:
        return await self._one_execution("by_idempotency_key", scope.tenant, scope.project, scope.environment, key)

    async def executions(
        self, which: ExecutionFilter = ExecutionFilter(), *, before: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        first, part = before or MAX_ID, (which.project, which.environment)
        if which.parent or which.children:
            narrowed = (first, texts(which.states), which.path, which.tenant, limit, which.since, which.name, *part)
            if which.level == "top":
                return []
            if which.parent:
                return await self._executions("children_of", *narrowed, which.parent)
            return await self._executions("live_children", *narrowed)
        if not (which.states or which.path or which.tenant or which.name or which.level or any(part)):
            return await self._executions("executions", first, which.since, limit)
        # Where something narrows the list, each walk is along an index in which all that it passes is wanted.
        walks = (first, which.since, limit, texts(tuple(dict.fromkeys(which.states or EXECUTION_STATES))))
        tenants = [which.tenant]
        if not which.tenant:
            tenants = [tenant for (tenant,) in await self._pool.read(self._sql["tenants"])]
        if which.path:
            return await self._executions("in_path", *walks, texts(tenants), which.path, which.name, *part, which.level)
        if which.name:
            names = await self._pool.read(self._sql["names"], texts(tenants), which.name)
            pairs = [texts([row[column] for row in names]) for column in (0, 1)]
            return await self._executions("with_name", *walks, *pairs, *part, which.level)
        return await self._executions("in_state", *walks, texts(tenants), *part, which.level)

    async def pending_paths(self, *, after: tuple[str, str] = ("", ""), limit: int = 100) -> list[tuple[str, str]]:
        rows = await self._pool.read(self._sql["pending_paths"], *after, MAX_ID, limit)
        return [(tenant, path) for tenant, path in rows]

    async def live_in_path(
        self, tenant: str, path: str, state: str, *, after: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        return await self._executions("live_in_path", tenant, path, state, after, limit)

    async def awaiting_approval(self, tenant: str, *, after: int = 0, limit: int = 50) -> list[ExecutionRecord]:
        return await self._executions("awaiting_approval", tenant, after, limit)

    async def run_counts(
        self, tenant: str, *, project: str = "", environment: str = "", since: int = 0, limit: int = 1000
    ) -> list[RunCount]:
        rows = await self._pool.read(self._sql["run_counts"], tenant, project, environment, since - HOUR, limit)
        return [RunCount(*row) for row in rows]

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
