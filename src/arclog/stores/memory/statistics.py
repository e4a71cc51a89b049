"""Runs by the hour in which they ended."""

from __future__ import annotations

from arclog.ports.storage.statistics import HOUR, RunCount
from arclog.ports.storage.store import ExecutionRecord
from arclog.stores.memory.tables import Tables


class Statistics(Tables):
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


def _sum(a: RunCount, b: RunCount) -> RunCount:
    return RunCount(a.hour, a.completed + b.completed, a.failed + b.failed, a.cancelled + b.cancelled)
