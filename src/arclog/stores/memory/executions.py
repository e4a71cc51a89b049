"""Executions: their records, step runs, snapshots, stored results, and hourly counts of ended runs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from arclog.model.ids import MAX_ID
from arclog.model.refs import SCOPES
from arclog.model.status import PENDING
from arclog.ports.storage.catalog import CatalogRecord, PlanRecord
from arclog.ports.storage.statistics import HOUR, RunCount
from arclog.ports.storage.store import ExecutionFilter, ExecutionRecord, IdlePage, Scope, StepRunRecord
from arclog.ports.storage.stored_results import ResultRecord
from arclog.stores.memory.tables import Tables
from arclog.stores.rows import NewResult

# ── executions ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Executions(Tables):
    async def execution(self, execution_id: int) -> ExecutionRecord | None:
        self._check_open()
        execution = self._executions.get(execution_id)
        return None if execution is None else execution.record

    async def executions(
        self, which: ExecutionFilter = ExecutionFilter(), *, before: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        self._check_open()
        matching = [
            self._executions[execution_id].record
            for execution_id in sorted(self._executions, reverse=True)
            if (not before or execution_id < before) and _matches(self._executions[execution_id].record, which)
        ]
        return matching[:limit]

    async def pending_paths(self, *, after: tuple[str, str] = ("", ""), limit: int = 100) -> list[tuple[str, str]]:
        self._check_open()
        pairs = {
            (execution.record.new.scope.tenant, execution.record.new.path)
            for execution in self._executions.values()
            if execution.record.now.state == PENDING
        }
        return sorted(pair for pair in pairs if pair > after)[:limit]

    async def live_in_path(
        self, tenant: str, path: str, state: str, *, after: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        self._check_open()
        which = ExecutionFilter(states=(state,), path=path, tenant=tenant)
        live = [
            execution.record
            for execution_id, execution in sorted(self._executions.items())
            if execution_id > after and not execution.over and _matches(execution.record, which)
        ]
        return live[:limit]

    async def awaiting_approval(self, tenant: str, *, after: int = 0, limit: int = 50) -> list[ExecutionRecord]:
        self._check_open()
        waiting = [
            execution.record
            for execution_id, execution in sorted(self._executions.items())
            if execution_id > after and execution.record.now.approvals and execution.record.new.scope.tenant == tenant
        ]
        return waiting[:limit]

    async def idle(self, before: int, *, after: int = 0, limit: int = 1000) -> IdlePage:
        self._check_open()
        executions = sorted(self._executions.items())
        live = [own for own, execution in executions if own > after and not execution.over][:limit]
        idle = [
            execution.record
            for execution in map(self._executions.__getitem__, live)
            if not (execution.record.now.paused or execution.commands or execution.timers)
            and execution.rows[-1].ts < before
        ]
        return IdlePage(idle, live[-1] if len(live) == limit else 0)

    async def step_runs(self, execution_id: int) -> list[StepRunRecord]:
        self._check_open()
        execution = self._executions.get(execution_id)
        records = [step.record for step in execution.steps.values()] if execution is not None else []
        return sorted(records, key=lambda record: (record.first_seq, record.step, record.run))

    async def by_run_id(self, run_id: str) -> ExecutionRecord | None:
        self._check_open()
        return next(
            (execution.record for execution in self._executions.values() if execution.record.new.run_id == run_id), None
        )

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

    # -- snapshots --------------------------------------------------------------------------------------------------

    async def put_snapshot(
        self, execution_id: int, seq: int, code: str, body: bytes, drop: Sequence[int] | None = None
    ) -> None:
        self._check_open()
        kept = self._snapshots.get(execution_id)
        if drop is not None:
            past = self._past_snapshots.get(execution_id, {})
            past = {at: snapshot for at, snapshot in past.items() if snapshot[0] == code and at not in drop}
            if kept is not None and kept[0] < seq and kept[1] == code:
                past[kept[0]] = kept[1:]
            self._past_snapshots[execution_id] = past
        if kept is None or seq >= kept[0] or code != kept[1]:
            self._snapshots[execution_id] = (seq, code, body)

    async def past_snapshots(self, execution_id: int, code: str) -> list[int]:
        self._check_open()
        return sorted(
            seq for seq, snapshot in self._past_snapshots.get(execution_id, {}).items() if snapshot[0] == code
        )

    async def snapshot(self, execution_id: int, code: str, last: int = MAX_ID) -> tuple[int, bytes] | None:
        self._check_open()
        kept = self._snapshots.get(execution_id)
        if kept is not None and kept[1] == code and kept[0] <= last:
            return (kept[0], kept[2])
        past = self._past_snapshots.get(execution_id, {})
        seq = max((seq for seq, snapshot in past.items() if snapshot[0] == code and seq <= last), default=0)
        return (seq, past[seq][1]) if seq else None

    # -- results stored outside the log -----------------------------------------------------------------------------

    def _keep_result(self, record: ExecutionRecord, new: NewResult, at: int) -> None:
        key = (record.execution_id, new.name, new.ref.meta.sha256)
        self._results[key] = _result(record, new, at, self._results.get(key))

    async def result(self, execution_id: int, name: str, sha256: str) -> ResultRecord | None:
        self._check_open()
        return self._results.get((execution_id, name, sha256))

    async def results(self, execution_id: int, *, after: int = 0, limit: int = 1000) -> list[ResultRecord]:
        self._check_open()
        results = [
            result for result in self._results.values() if result.execution_id == execution_id and result.seq > after
        ]
        return sorted(results, key=lambda result: result.seq)[:limit]

    async def kept_results(self, *, after: tuple[int, str, str] = (0, "", ""), limit: int = 1000) -> list[ResultRecord]:
        self._check_open()
        keys = sorted(key for key, result in self._results.items() if key > after and result.removed_at is None)
        return [self._results[key] for key in keys[:limit]]

    async def keepers(
        self, tenant: str, sha256: str, *, after: tuple[int, str] = (0, ""), limit: int = 100
    ) -> list[ResultRecord]:
        self._check_open()
        kept = [result for result in self._results.values() if result.removed_at is None]
        keepers = [result for result in kept if (result.tenant, result.sha256) == (tenant, sha256)]
        keepers = [keeper for keeper in keepers if (keeper.execution_id, keeper.name) > after]
        return sorted(keepers, key=lambda keeper: (keeper.execution_id, keeper.name))[:limit]

    async def remove_results(self, records: Sequence[ResultRecord], at: int) -> int:
        self._check_open()
        count = 0
        for record in records:
            key = (record.execution_id, record.name, record.sha256)
            current = self._results.get(key)
            if current is not None and current.seq == record.seq and current.removed_at is None:
                self._results[key] = replace(current, removed_at=at)
                count += 1
        return count


def _matches(record: ExecutionRecord, which: ExecutionFilter) -> bool:
    return (
        (not which.states or record.now.state in which.states)
        and (not which.path or record.new.path == which.path)
        and Scope(which.tenant, which.project, which.environment).covers(record.new.scope)
        and (not which.parent or record.new.parent_execution_id == which.parent)
        and (not which.origin or (record.new.origin is not None and record.new.origin.execution_id == which.origin))
        and (not which.children or (record.new.parent_execution_id != 0 and record.now.terminal_event is None))
        and (not which.level or (record.new.parent_execution_id == 0) is (which.level == "top"))
        and which.name in record.new.name
        and record.execution_id >= which.since
    )


def _sum(a: RunCount, b: RunCount) -> RunCount:
    return RunCount(a.hour, a.completed + b.completed, a.failed + b.failed, a.cancelled + b.cancelled)


def _result(record: ExecutionRecord, new: NewResult, at: int, previous: ResultRecord | None) -> ResultRecord:
    """Return the record of stored content. For content that is stored already, the longer lifetime applies."""
    meta = new.ref.meta
    scope, rows = new.scope, meta.rows
    expires_at = None if new.ttl is None else at + new.ttl
    if previous is not None:
        rows = previous.rows if rows is None else rows
        if previous.removed_at is None:
            scope = max(scope, SCOPES.index(previous.scope))
            expires_at = (
                None if expires_at is None or previous.expires_at is None else max(expires_at, previous.expires_at)
            )
    about = (record.execution_id, new.name, meta.sha256, meta.bytes, rows, meta.content_type)
    life = (record.new.scope.tenant, SCOPES[scope], at, expires_at)
    return ResultRecord(*about, *life, new.step, new.run, new.task, new.seq)


# ── catalog ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Plans by their hash, and playbooks by tenant, path and version.


class Catalog(Tables):
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
        self._check_open()
        record = self._plans.get((digest, tenant, path))
        place = (project, environment)
        if record is None:
            version = 1 + max((plan.version for plan in self._versions(tenant, path)), default=0)
            record = self._plans[digest, tenant, path] = PlanRecord(digest, path, version, body, source, at)
            if any(place):
                self._catalog_scopes[tenant, path, version] = {place}
        elif any(place):
            self._catalog_scopes.get((tenant, path, record.version), set()).add(place)
        else:
            self._catalog_scopes.pop((tenant, path, record.version), None)
        return record

    async def plan(self, digest: str) -> PlanRecord | None:
        self._check_open()
        return next((record for (name, *_), record in self._plans.items() if name == digest), None)

    async def registered(
        self, path: str, version: int = 0, *, tenant: str, project: str = "", environment: str = ""
    ) -> PlanRecord | None:
        self._check_open()
        versions = self._versions(tenant, path, project, environment)
        return max((plan for plan in versions if version in {0, plan.version}), key=_version, default=None)

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
        self._check_open()
        paths = sorted(
            {path for _, owner, path in self._plans if owner == tenant and path.startswith(prefix) and path > after}
        )
        place = {"tenant": tenant, "project": project, "environment": environment}
        records = [record for path in paths if (record := await self.catalog_path(path, **place)) is not None]
        return [record for record in records if archived or record.archived_at is None][:limit]

    async def catalog_path(
        self, path: str, *, tenant: str, project: str = "", environment: str = ""
    ) -> CatalogRecord | None:
        newest = await self.registered(path, tenant=tenant, project=project, environment=environment)
        if newest is None:
            return None
        archived_at = self._archived.get((tenant, path))
        return CatalogRecord(path, newest.version, newest.digest, newest.created_at, archived_at)

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
        self._check_open()
        plans = self._versions(tenant, path, project, environment)
        versions = [plan for plan in plans if not before or plan.version < before]
        versions.sort(key=_version, reverse=True)
        return [replace(plan, body=b"") for plan in versions[:limit]]

    async def archive(self, path: str, at: int | None, *, tenant: str) -> None:
        self._check_open()
        if at is None:
            self._archived.pop((tenant, path), None)
        else:
            self._archived.setdefault((tenant, path), at)

    def _versions(self, tenant: str, path: str, project: str = "", environment: str = "") -> list[PlanRecord]:
        own = [plan for (_, owner, where), plan in self._plans.items() if (owner, where) == (tenant, path)]
        return [plan for plan in own if self._is_valid(tenant, plan, project, environment)]

    def _is_valid(self, tenant: str, record: PlanRecord, project: str, environment: str) -> bool:
        scopes = self._catalog_scopes.get((tenant, record.path, record.version))
        return not scopes or any(
            (not project or own in ("", project)) and (not environment or at in ("", environment)) for own, at in scopes
        )


def _version(record: PlanRecord) -> int:
    return record.version


# ── retention ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Removes executions that ended long ago.


class Retention(Tables):
    async def reclaim(self) -> int:
        self._check_open()
        return 0

    async def retire(self, before: int, *, dry_run: bool = False) -> int:
        self._check_open()
        retired = {execution_id for execution_id in self._executions if self._is_retirable(execution_id, before)}
        if dry_run:
            return len(retired)
        for execution_id in retired:
            new = self._executions.pop(execution_id).record.new  # its log rows are skipped from now on
            self._keys.pop((new.scope, new.idempotency_key), None)
            self._snapshots.pop(execution_id, None)
            self._past_snapshots.pop(execution_id, None)
            self._log_sizes.pop(execution_id, None)
        self._lines = [line for line in self._lines if line[1].execution_id not in retired]
        self._marks = [mark for mark in self._marks if mark.execution_id not in retired]
        self._outbox = {key: delivery for key, delivery in self._outbox.items() if key[0] not in retired}
        self._results = {
            key: result for key, result in self._results.items() if key[0] not in retired or result.removed_at is None
        }
        return len(retired)

    def _is_retirable(self, execution_id: int, before: int) -> bool:
        execution = self._executions[execution_id]
        record = execution.record
        ended_at = record.new.created_at if record.now.ended_at is None else record.now.ended_at
        caller = self._executions.get(record.new.parent_execution_id)
        return (
            execution.over
            and ended_at < before
            and (caller is None or caller.over)
            and not any(
                key[0] == execution_id and result.removed_at is None and result.scope != "permanent"
                for key, result in self._results.items()
            )
            and (execution_id in self._settled or not any(key[0] == execution_id for key in self._outbox))
        )
