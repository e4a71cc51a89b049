"""Executions and plans of the memory store."""

from __future__ import annotations

from msgspec.structs import replace

from arclog.model.status import PENDING
from arclog.ports.storage.catalog import CatalogRecord, PlanRecord
from arclog.ports.storage.store import ExecutionFilter, ExecutionRecord, Scope, StepRunRecord
from arclog.stores.memory.tables import Tables


class Catalog(Tables):
    """Which executions and plans there are."""

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
        known = self._plans.get((digest, tenant, path))
        place = (project, environment)
        if known is None:
            version = 1 + max((each.version for each in self._versions(tenant, path)), default=0)
            known = self._plans[digest, tenant, path] = PlanRecord(digest, path, version, body, source, at)
            if any(place):
                self._catalog_scopes[tenant, path, version] = {place}
        elif any(place):
            self._catalog_scopes.get((tenant, path, known.version), set()).add(place)
        else:
            self._catalog_scopes.pop((tenant, path, known.version), None)
        return known

    async def plan(self, digest: str) -> PlanRecord | None:
        self._check_open()
        return next((record for (name, *_), record in self._plans.items() if name == digest), None)

    async def registered(
        self, path: str, version: int = 0, *, tenant: str, project: str = "", environment: str = ""
    ) -> PlanRecord | None:
        self._check_open()
        found = self._versions(tenant, path, project, environment)
        return max((each for each in found if version in {0, each.version}), key=_version, default=None)

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
        found = [record for path in paths if (record := await self.catalog_path(path, **place)) is not None]
        return [record for record in found if archived or record.archived_at is None][:limit]

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
        known = self._versions(tenant, path, project, environment)
        found = [each for each in known if not before or each.version < before]
        found.sort(key=_version, reverse=True)
        return [replace(each, body=b"") for each in found[:limit]]

    async def archive(self, path: str, at: int | None, *, tenant: str) -> None:
        self._check_open()
        if at is None:
            self._archived.pop((tenant, path), None)
        else:
            self._archived.setdefault((tenant, path), at)

    def _versions(self, tenant: str, path: str, project: str = "", environment: str = "") -> list[PlanRecord]:
        own = [each for (_, owner, where), each in self._plans.items() if (owner, where) == (tenant, path)]
        return [each for each in own if self._is_valid(tenant, each, project, environment)]

    def _is_valid(self, tenant: str, record: PlanRecord, project: str, environment: str) -> bool:
        scopes = self._catalog_scopes.get((tenant, record.path, record.version))
        return not scopes or any(
            (not project or own in ("", project)) and (not environment or at in ("", environment)) for own, at in scopes
        )


def _version(record: PlanRecord) -> int:
    return record.version


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
