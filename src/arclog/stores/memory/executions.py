"""Executions, their step runs, and how many ended in an hour."""

from __future__ import annotations

from arclog.model.status import PENDING
from arclog.ports.storage.statistics import HOUR, RunCount
from arclog.ports.storage.store import ExecutionFilter, ExecutionRecord, Scope, StepRunRecord
from arclog.stores.memory.tables import Tables


class Executions(Tables):
    async def execution(self, execution_id: int) -> ExecutionRecord | None:
        self._check_open()
        found = self._executions.get(execution_id)
        return None if found is None else found.record

    async def executions(
        self, which: ExecutionFilter = ExecutionFilter(), *, before: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        self._check_open()
        found = [
            self._executions[execution_id].record
            for execution_id in sorted(self._executions, reverse=True)
            if (not before or execution_id < before) and _matches(self._executions[execution_id].record, which)
        ]
        return found[:limit]

    async def pending_paths(self, *, after: tuple[str, str] = ("", ""), limit: int = 100) -> list[tuple[str, str]]:
        self._check_open()
        pairs = {
            (each.record.new.scope.tenant, each.record.new.path)
            for each in self._executions.values()
            if each.record.now.state == PENDING
        }
        return sorted(pair for pair in pairs if pair > after)[:limit]

    async def live_in_path(
        self, tenant: str, path: str, state: str, *, after: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        self._check_open()
        which = ExecutionFilter(states=(state,), path=path, tenant=tenant)
        found = [
            execution.record
            for execution_id, execution in sorted(self._executions.items())
            if execution_id > after and not execution.over and _matches(execution.record, which)
        ]
        return found[:limit]

    async def awaiting_approval(self, tenant: str, *, after: int = 0, limit: int = 50) -> list[ExecutionRecord]:
        self._check_open()
        found = [
            each.record
            for execution_id, each in sorted(self._executions.items())
            if execution_id > after and each.record.now.approvals and each.record.new.scope.tenant == tenant
        ]
        return found[:limit]

    async def idle(self, before: int, *, after: int = 0, limit: int = 100) -> list[ExecutionRecord]:
        self._check_open()
        found = [
            each.record
            for execution_id, each in sorted(self._executions.items())
            if execution_id > after
            and not (each.over or each.record.now.paused or each.commands or each.timers)
            and each.rows[-1].ts < before
        ]
        return found[:limit]

    async def step_runs(self, execution_id: int) -> list[StepRunRecord]:
        self._check_open()
        execution = self._executions.get(execution_id)
        found = [each.record for each in execution.steps.values()] if execution is not None else []
        return sorted(found, key=lambda record: (record.first_seq, record.step, record.run))

    async def by_run_id(self, run_id: str) -> ExecutionRecord | None:
        self._check_open()
        return next((each.record for each in self._executions.values() if each.record.new.run_id == run_id), None)

    async def by_idempotency_key(self, scope: Scope, key: str) -> ExecutionRecord | None:
        self._check_open()
        execution_id = self._keys.get((scope, key))
        return None if execution_id is None else self._executions[execution_id].record

    def _count(self, record: ExecutionRecord, at: int) -> None:
        if record.new.parent_execution_id:
            return
        key = (record.new.scope, at - at % HOUR)
        state = record.now.state
        ended = RunCount(key[1], int(state == "COMPLETED"), int(state == "FAILED"), int(state == "CANCELLED"))
        self._counts[key] = _sum(self._counts.get(key, RunCount(key[1])), ended)

    async def run_counts(
        self, tenant: str, *, project: str = "", environment: str = "", since: int = 0, limit: int = 1000
    ) -> list[RunCount]:
        self._check_open()
        hours: dict[int, RunCount] = {}
        for (scope, hour), count in self._counts.items():
            fits = scope.tenant == tenant and project in ("", scope.project) and environment in ("", scope.environment)
            if fits and hour > since - HOUR:
                hours[hour] = _sum(hours.get(hour, RunCount(hour)), count)
        return [hours[hour] for hour in sorted(hours)][:limit]


def _matches(record: ExecutionRecord, which: ExecutionFilter) -> bool:
    return (
        (not which.states or record.now.state in which.states)
        and (not which.path or record.new.path == which.path)
        and Scope(which.tenant, which.project, which.environment).covers(record.new.scope)
        and (not which.parent or record.new.parent_execution_id == which.parent)
        and (not which.children or (record.new.parent_execution_id != 0 and record.now.terminal_event is None))
        and (not which.level or (record.new.parent_execution_id == 0) is (which.level == "top"))
        and which.name in record.new.name
        and record.execution_id >= which.since
    )


def _sum(a: RunCount, b: RunCount) -> RunCount:
    return RunCount(a.hour, a.completed + b.completed, a.failed + b.failed, a.cancelled + b.cancelled)
