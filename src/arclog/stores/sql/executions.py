"""Executions, their step runs, and how many ended in an hour."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from arclog.model.ids import MAX_ID
from arclog.ports.storage.statistics import HOUR, RunCount
from arclog.ports.storage.store import ExecutionFilter, ExecutionRecord, Scope, StepRunRecord
from arclog.stores.records import execution_record
from arclog.stores.sql.part import Rows, SqlPart


class Executions(SqlPart):
    async def executions(
        self, which: ExecutionFilter = ExecutionFilter(), *, before: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        first, part = before or MAX_ID, (which.project, which.environment)
        if which.parent or which.children:
            if which.level == "top":
                return []
            states = self._texts(which.states)
            narrowed = (first, states, which.path, which.tenant, limit, which.since, which.name, *part)
            if which.parent:
                return execution_records(await self._list("children_of", *narrowed, which.parent))
            return execution_records(await self._list("live_children", *narrowed))
        if not (which.states or which.path or which.tenant or which.name or which.level or any(part)):
            return execution_records(await self._list("executions", first, which.since, limit))
        return await self._narrowed(which, first, limit)

    @abstractmethod
    async def _narrowed(self, which: ExecutionFilter, first: int, limit: int) -> list[ExecutionRecord]:
        """Those below an id that a filter narrows: by walks along an index in which all that they pass is wanted."""

    async def live_in_path(
        self, tenant: str, path: str, state: str, *, after: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        return execution_records(await self._read("live_in_path", tenant, path, state, after, limit))

    async def awaiting_approval(self, tenant: str, *, after: int = 0, limit: int = 50) -> list[ExecutionRecord]:
        return execution_records(await self._read("awaiting_approval", tenant, after, limit))

    async def idle(self, before: int, *, after: int = 0, limit: int = 100) -> list[ExecutionRecord]:
        return execution_records(await self._list("idle", after, before, limit))

    async def run_counts(
        self, tenant: str, *, project: str = "", environment: str = "", since: int = 0, limit: int = 1000
    ) -> list[RunCount]:
        rows = await self._read("run_counts", tenant, project, environment, since - HOUR, limit)
        return [RunCount(*row) for row in rows]

    async def step_runs(self, execution_id: int) -> list[StepRunRecord]:
        return [StepRunRecord(*row) for row in await self._read("step_runs", execution_id)]

    async def by_run_id(self, run_id: str) -> ExecutionRecord | None:
        return await self._execution("by_run_id", run_id)

    async def by_idempotency_key(self, scope: Scope, key: str) -> ExecutionRecord | None:
        return await self._execution("by_idempotency_key", scope.tenant, scope.project, scope.environment, key)

    async def _execution(self, name: str, *values: Any) -> ExecutionRecord | None:
        rows = await self._look_up(name, *values)
        return execution_record(rows[0]) if rows else None


def execution_records(rows: Rows) -> list[ExecutionRecord]:
    return [execution_record(row) for row in rows]
