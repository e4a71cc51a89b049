"""Executions: their records, step runs, snapshots, stored results, and hourly counts of ended runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from arclog.model.ids import MAX_ID
from arclog.ports.storage.catalog import CatalogRecord, PlanRecord
from arclog.ports.storage.statistics import HOUR, RunCount
from arclog.ports.storage.store import ExecutionFilter, ExecutionRecord, IdlePage, Scope, StepRunRecord
from arclog.ports.storage.stored_results import ResultRecord
from arclog.stores.records import execution_record, result_record
from arclog.stores.sql.part import Rows, SqlPart

# ── executions ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Executions(SqlPart):
    async def executions(
        self, which: ExecutionFilter = ExecutionFilter(), *, before: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        first, part = before or MAX_ID, (which.project, which.environment)
        if which.origin or which.parent or which.children:
            states = self._texts(which.states)
            narrowed = (first, states, which.path, which.tenant, limit, which.since, which.name, *part)
            if which.origin:  # no run calls a retry or a fork
                if which.parent or which.children or which.level == "called":
                    return []
                return execution_records(await self._list("forks_of", *narrowed, which.origin))
            if which.level == "top":
                return []
            if which.parent:
                return execution_records(await self._list("children_of", *narrowed, which.parent))
            return execution_records(await self._list("live_children", *narrowed))
        if not (which.states or which.path or which.tenant or which.name or which.level or any(part)):
            return execution_records(await self._list("executions", first, which.since, limit))
        return await self._narrowed(which, first, limit)

    @abstractmethod
    async def _narrowed(self, which: ExecutionFilter, first: int, limit: int) -> list[ExecutionRecord]:
        """Return the executions below an id that match a filter, by index scans that touch only matching rows."""

    async def live_in_path(
        self, tenant: str, path: str, state: str, *, after: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        return execution_records(await self._read("live_in_path", tenant, path, state, after, limit))

    async def awaiting_approval(self, tenant: str, *, after: int = 0, limit: int = 50) -> list[ExecutionRecord]:
        return execution_records(await self._read("awaiting_approval", tenant, after, limit))

    async def idle(self, before: int, *, after: int = 0, limit: int = 1000) -> IdlePage:
        [(last, count)] = await self._list("last_live", after, limit)
        records = execution_records(await self._list("idle", after, before, last)) if count else []
        return IdlePage(records, last if count == limit else 0)

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

    # -- snapshots --------------------------------------------------------------------------------------------------

    async def put_snapshot(
        self, execution_id: int, seq: int, code: str, body: bytes, drop: Sequence[int] | None = None
    ) -> None:
        if drop is None:
            await self._write("put_snapshot", execution_id, seq, code, body)
        else:
            await self._put_next_snapshot(execution_id, seq, code, body, drop)

    @abstractmethod
    async def _put_next_snapshot(
        self, execution_id: int, seq: int, code: str, body: bytes, drop: Sequence[int]
    ) -> None:
        """Store a snapshot, keep the previous one as well, and drop some of the older ones."""

    async def past_snapshots(self, execution_id: int, code: str) -> list[int]:
        return [seq for (seq,) in await self._read("past_snapshots", execution_id, code)]

    async def snapshot(self, execution_id: int, code: str, last: int = MAX_ID) -> tuple[int, bytes] | None:
        for statement in ("snapshot", "past_snapshot"):
            rows = await self._look_up(statement, execution_id, code, last)
            if rows:
                return (rows[0][0], rows[0][1])
        return None

    # -- results stored outside the log -----------------------------------------------------------------------------

    async def result(self, execution_id: int, name: str, sha256: str) -> ResultRecord | None:
        rows = await self._look_up("result", execution_id, name, sha256)
        return result_record(rows[0]) if rows else None

    async def results(self, execution_id: int, *, after: int = 0, limit: int = 1000) -> list[ResultRecord]:
        return _records(await self._read("results", execution_id, after, limit))

    async def kept_results(self, *, after: tuple[int, str, str] = (0, "", ""), limit: int = 1000) -> list[ResultRecord]:
        return _records(await self._list("kept_results", *after, limit))

    async def keepers(
        self, tenant: str, sha256: str, *, after: tuple[int, str] = (0, ""), limit: int = 100
    ) -> list[ResultRecord]:
        return _records(await self._list("keepers", tenant, sha256, *after, limit))

    async def remove_results(self, records: Sequence[ResultRecord], at: int) -> int:
        if not records:
            return 0
        rows = [(record.execution_id, record.name, record.sha256, record.seq) for record in records]
        return sum(map(len, await self._run(self._calls_for("remove_results", "itti", rows, at))))


def execution_records(rows: Rows) -> list[ExecutionRecord]:
    return [execution_record(row) for row in rows]


def _records(rows: Rows) -> list[ResultRecord]:
    return [result_record(row) for row in rows]


# ── catalog ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Plans by their hash, and playbooks by tenant, path and version.


class Catalog(SqlPart):
    async def register_plan(
        self,
        digest: str,
        path: str,
        body: bytes,
        source: str,
        at: int,
        *,
        tenant: str,
        project: str = "",
        environment: str = "",
    ) -> PlanRecord:
        plan = PlanRecord(digest, path, 0, body, source, at)
        version, first_source, first_at = await self._register(plan, Scope(tenant, project, environment))
        return PlanRecord(digest, path, version, body, _text(first_source), first_at)

    @abstractmethod
    async def _register(self, plan: PlanRecord, scope: Scope) -> tuple[int, Any, int]:
        """Add a plan, unless its content has a version already. Return its version, source and time."""

    async def plan(self, digest: str) -> PlanRecord | None:
        return _first(await self._look_up("plan", digest))

    async def registered(
        self, path: str, version: int = 0, *, tenant: str, project: str = "", environment: str = ""
    ) -> PlanRecord | None:
        return _first(await self._look_up("registered", path, version, tenant, project, environment))

    async def catalog(
        self,
        *,
        tenant: str,
        prefix: str = "",
        after: str = "",
        limit: int = 100,
        archived: bool = False,
        project: str = "",
        environment: str = "",
    ) -> list[CatalogRecord]:
        first = max(prefix, f"{after}\x01") if after else prefix
        rows = await self._list("catalog", first, prefix, limit, archived, tenant, project, environment)
        return [CatalogRecord(*row) for row in rows]

    async def catalog_path(
        self, path: str, *, tenant: str, project: str = "", environment: str = ""
    ) -> CatalogRecord | None:
        rows = await self._look_up("catalog_path", tenant, path, project, environment)
        return CatalogRecord(*rows[0]) if rows else None

    async def versions(
        self,
        path: str,
        *,
        tenant: str,
        before: int = 0,
        limit: int = 100,
        project: str = "",
        environment: str = "",
    ) -> list[PlanRecord]:
        rows = await self._list("versions", path, before, limit, tenant, project, environment)
        return [_record(row) for row in rows]

    async def archive(self, path: str, at: int | None, *, tenant: str) -> None:
        if at is None:
            await self._write("unarchive", tenant, path)
        else:
            await self._write("archive", tenant, path, at)


def _first(rows: Sequence[Sequence[Any]]) -> PlanRecord | None:
    return _record(rows[0]) if rows else None


def _record(row: Sequence[Any]) -> PlanRecord:
    digest, path, version, body, source, at = row
    return PlanRecord(digest, path, version, body, _text(source), at)


def _text(source: str | bytes) -> str:
    """Return a playbook's source. PostgreSQL stores it as bytes, since it may contain lone surrogates."""
    return source if isinstance(source, str) else source.decode("utf-8", "surrogatepass")
