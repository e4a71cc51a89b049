"""Starts requested runs. A request is validated completely before anything is written. A request with a known
idempotency key returns the run that it started before.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from msgspec import UNSET, Struct

from arclog.core.boundary.inputs import Request
from arclog.core.flow.loops import encoded_size
from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import new_uuid
from arclog.engine.runs.catalog import Catalog, Files, register_bundle
from arclog.engine.runs.compile_cache import Compiler
from arclog.engine.runs.inputs import fitted
from arclog.model.data.json_data import DEEPEST_INPUT, nested_deeper
from arclog.model.errors import Conflict, RequestRejected
from arclog.model.inputs import secret_names
from arclog.plan.net import Plan
from arclog.plan.program import Program
from arclog.plan.reads import unknown_keys
from arclog.ports.boundary import Boundary
from arclog.ports.storage.catalog import PlanRecord
from arclog.ports.storage.store import IMPORT_PREFIX, ExecutionRecord, NewExecution, Scope
from arclog.ports.views.api import ExecuteRequest, ForkRequest, Started

_LONGEST_KEY = 256
#: Maximum length of a file's name, which only messages show.
_LONGEST_FILE = 1024
#: the lowest priority is the negative of this
HIGHEST_PRIORITY = 100


class Going(Struct, frozen=True):
    """The playbook that a new run continues with."""

    program: Program
    path: str
    version: int
    files: Files
    file: str


class Starts:
    """Starts runs in one engine."""

    def __init__(self, engine: Engine, compiler: Compiler, boundary: Boundary) -> None:
        self._boundary = boundary
        self._engine = engine
        self._compiler = compiler

    @cached_property
    def catalog(self) -> Catalog:
        """The playbooks that requests can name."""
        reach, home = self._boundary.reach, self._boundary.home
        # The owner of the store has the tenant of the settings.
        return Catalog(self._engine, self._compiler, reach if reach.tenant else Scope(home.tenant, "", ""), home)

    async def execute(self, request: ExecuteRequest) -> Started:
        engine = self._engine
        if bool(request.playbook) == bool(request.path):
            raise RequestRejected("set exactly one of `playbook` (its text) and `path` (in the catalog)")
        if len(request.idempotency_key) > _LONGEST_KEY:
            raise RequestRejected(f"an idempotency key has at most {_LONGEST_KEY} characters")
        if request.idempotency_key.startswith(IMPORT_PREFIX):
            raise RequestRejected(
                f"an idempotency key cannot start with {IMPORT_PREFIX!r}, which is reserved for imported runs"
            )
        if request.priority is not None and abs(request.priority) > HIGHEST_PRIORITY:
            raise RequestRejected(
                f"priority: {request.priority} is not between -{HIGHEST_PRIORITY} and {HIGHEST_PRIORITY}"
            )
        scope = self._scope(request.scope)
        record, program, files = await self._plan_of(request, scope)
        workload = fitted(program.plan, request.workload)
        secrets = {name: str(workload.pop(name)) for name in secret_names(program.plan.inputs) if workload.get(name)}
        if request.idempotency_key:
            existing = await engine.store.by_idempotency_key(scope, request.idempotency_key)
            if existing is not None:
                return await self._again(existing, record, request, workload)
        new = NewExecution(
            run_id=new_uuid(),
            name=program.plan.name,
            path=record.path,
            version=record.version,
            plan=record.digest,
            scope=scope,
            created_at=engine.clock.now(),
            idempotency_key=request.idempotency_key,
        )
        start_request = Request(
            record.path,
            record.version,
            workload,
            scope.label,
            files=files,
            priority=request.priority,
            file=request.file[:_LONGEST_FILE] if request.playbook else "",
        )
        try:
            execution_id = await self._started(program, new, start_request, secrets)
        except Conflict:  # a concurrent request with the same key was faster
            existing = await engine.store.by_idempotency_key(scope, request.idempotency_key)
            if existing is None:
                raise
            return await self._again(existing, record, request, workload)
        warnings = unknown_keys(program, workload)
        return Started(str(execution_id), new.run_id, warnings=warnings or UNSET)

    async def _started(self, program: Program, new: NewExecution, request: Request, secrets: Mapping[str, str]) -> int:
        """Start a run after its secret inputs were stored."""
        engine, keeper = self._engine, self._engine.run_secrets
        if not secrets:
            return await engine.start(program, new, request)
        if keeper is None:
            raise RequestRejected(f"{', '.join(secrets)}: no store for secret inputs is configured")
        execution_id = await engine.new_id()
        await keeper.keep(execution_id, new.scope.label, secrets)
        try:
            return await engine.start(program, new, request, execution_id=execution_id)
        except BaseException:
            await keeper.forget(execution_id, new.scope.label, list(secrets))
            raise

    async def going(self, request: ForkRequest, scope: Scope) -> Going:
        """Register and return the playbook that a new run continues with."""
        asked = ExecuteRequest(request.playbook, request.file, request.workload, request.files)
        record, program, files = await self._plan_of(asked, scope)
        return Going(program, record.path, record.version, files, request.file[:_LONGEST_FILE])

    async def _plan_of(self, request: ExecuteRequest, scope: Scope) -> tuple[PlanRecord, Program, Files]:
        """Return the plan, the program and the files of a request, after validating the whole request."""
        if request.path:
            record, program = await self.catalog.to_run(request.path, request.version, scope)
            _check_workload(program.plan, request.workload)
            return record, program, {}
        if request.version:
            raise RequestRejected("`version` requires `path`: a text has no version until it is registered")
        tenant, brought = self._boundary.home.tenant, request.files
        compiled = await self._compiler.compile(request.playbook, request.file, tenant, brought)
        plan = compiled.plan
        _check_workload(plan, request.workload)
        register_scope = Scope(tenant, self._boundary.reach.project, self._boundary.reach.environment)
        record, files = await register_bundle(
            self._engine, self._compiler, request.playbook, compiled, request.file, request.files, register_scope
        )
        return record, await self._engine.live.program_of(compiled, record.digest, tenant), files

    def _scope(self, asked: Mapping[str, str]) -> Scope:
        unknown = next((name for name in asked if name not in ("project", "environment")), None)
        if unknown is not None:
            raise RequestRejected(f"a request's scope has project and environment, not {unknown[:128]!r}")
        return self._boundary.place(asked.get("project", ""), asked.get("environment", ""))

    async def _again(
        self, existing: ExecutionRecord, record: PlanRecord, request: ExecuteRequest, workload: dict[str, Any]
    ) -> Started:
        first = await self._engine.store.events(existing.execution_id, limit=1)
        asked = first[0].event.payload.get("workload") or {}
        if existing.new.plan != record.digest or existing.new.path != record.path or asked != workload:
            raise Conflict(
                f"idempotency key {request.idempotency_key!r} started execution {existing.execution_id} with another request; "
                "use a new key for a new run"
            )
        return Started(str(existing.execution_id), existing.new.run_id, created=False)


def _check_workload(plan: Plan, workload: Mapping[str, object]) -> None:
    if nested_deeper(dict(workload), DEEPEST_INPUT):
        raise RequestRejected(f"the request's workload is nested deeper than {DEEPEST_INPUT} levels")
    fitted(plan, workload)
    size, cap = encoded_size({"workload": dict(workload)}), plan.limits.max_payload_bytes
    if size > cap:
        raise RequestRejected(
            f"the request's workload takes {size} bytes; an event holds {cap} (limits.max_payload_bytes)"
        )
