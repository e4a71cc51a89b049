"""The catalog: playbooks by path, with immutable versions by content. A run pins the version that it was started
with, so nothing that happens here changes a run.
"""

from __future__ import annotations

from difflib import get_close_matches, unified_diff

from arclog.engine.commits.engine import Engine
from arclog.engine.runs.bundle import called_files
from arclog.engine.runs.compile_cache import Compiler
from arclog.engine.runs.declared_schedules import apply, declared
from arclog.model.errors import NotFound, RequestRejected
from arclog.model.ids import MAX_ID, timestamp
from arclog.plan.program import Program
from arclog.ports.storage.catalog import CatalogRecord, PlanRecord
from arclog.ports.storage.store import Scope
from arclog.ports.views.api import CatalogDiff, CatalogEntry, CatalogVersion, RegisterRequest

_LOOKED_THROUGH = 1000


class Catalog:
    """What is registered in one engine's store, as far as a caller reaches ('' parts of its scope are any). What a caller
    registers that is bound to a project or an environment is valid there only.
    """

    def __init__(self, engine: Engine, compiler: Compiler, reach: Scope, scope: Scope) -> None:
        """Schedules that a playbook declares run in `scope`."""
        self._reach = reach
        self._scope = scope
        self._engine = engine
        self._compiler = compiler

    async def register(self, request: RegisterRequest) -> CatalogVersion:
        tenant = self._reach.tenant
        found = await self._compiler.compile(request.playbook, request.file, tenant, request.files)
        _refuse_files(found.plan.name, next(called_files(found.plan), ""))
        store, now = self._engine.store, self._engine.clock.now()
        path = found.plan.path or found.plan.name
        before = await store.catalog_path(path, **self._reach.parts)
        schedules = await declared(self._engine, found.plan, path, self._scope)
        record = await store.register_plan(found.digest, path, found.body, request.playbook, now, **self._reach.parts)
        if before is not None and before.archived_at is not None:
            await store.archive(path, None, tenant=self._reach.tenant)
        older = None if before is None else (await self._engine.live.program(before.digest)).plan
        if schedules or (older is not None and older.schedules):
            await apply(self._engine, schedules, older, path, tenant)
        created = before is None or record.version > before.version
        return _version(record, created=created, with_source=False)

    async def listed(self, prefix: str, after: str, limit: int, *, archived: bool) -> list[CatalogEntry]:
        found = await self._engine.store.catalog(
            prefix=prefix, after=after, limit=limit, archived=archived, **self._reach.parts
        )
        return [_entry(record) for record in found]

    async def versions(self, path: str, before: int, limit: int) -> list[CatalogVersion]:
        await self._path(path)
        found = await self._engine.store.versions(path, before=before, limit=limit, **self._reach.parts)
        return [_version(record, with_source=False) for record in found]

    async def registered(self, path: str, version: int = 0) -> CatalogVersion:
        return _version(await self._record(path, version))

    async def difference(self, path: str, older: int, newer: int = 0) -> CatalogDiff:
        if not older:
            raise RequestRejected("versions start at 1")
        first, second = await self._record(path, older), await self._record(path, newer)
        names = (f"{path} {first.version}", f"{path} {second.version}")
        texts = (first.source.splitlines(keepends=True), second.source.splitlines(keepends=True))
        lines = [line if line.endswith("\n") else f"{line}\n" for line in unified_diff(*texts, *names)]
        return CatalogDiff(path, first.version, second.version, "".join(lines))

    async def archive(self, path: str, *, archived: bool) -> CatalogEntry:
        await self._path(path)
        now = self._engine.clock.now() if archived else None
        await self._engine.store.archive(path, now, tenant=self._reach.tenant)
        return _entry(await self._path(path))

    async def to_run(self, path: str, version: int, scope: Scope) -> tuple[PlanRecord, Program]:
        """What a run of a path pins in a scope. Raises NotFound, or RequestRejected when it is archived or needs files."""
        entry = await self._path(path, scope)
        if entry.archived_at is not None:
            raise RequestRejected(
                f"{path} is archived and cannot start runs; `arclog catalog register FILE` restores it"
            )
        record = await self._record(path, version, scope)
        program = await self._engine.live.program(record.digest)
        _refuse_files(path, next(called_files(program.plan), ""))
        return record, program

    async def _path(self, path: str, scope: Scope | None = None) -> CatalogRecord:
        reach = scope or self._reach
        record = await self._engine.store.catalog_path(path, **reach.parts)
        if record is None:
            known = await self._engine.store.catalog(
                limit=_LOOKED_THROUGH, tenant=reach.tenant, project=reach.project, environment=reach.environment
            )
            near = get_close_matches(path, [each.path for each in known], n=1)
            hint = f"did you mean {near[0]}?" if near else "`arclog catalog list` shows what is registered"
            raise NotFound(f"nothing is registered under {path!r}; {hint}")
        return record

    async def _record(self, path: str, version: int, scope: Scope | None = None) -> PlanRecord:
        reach = scope or self._reach
        entry = await self._path(path, reach)
        record = await self._engine.store.registered(path, version, **reach.parts) if 0 <= version <= MAX_ID else None
        if record is None:
            raise NotFound(f"{path} has no version {version}; the newest is {entry.version}")
        return record


def _refuse_files(name: str, file: str) -> None:
    if file:
        raise RequestRejected(
            f"{name} calls file {file!r}, which the catalog cannot hold; register that playbook, too, and call it by "
            "`path:`"
        )


def _entry(record: CatalogRecord) -> CatalogEntry:
    return CatalogEntry(
        path=record.path,
        version=record.version,
        digest=record.digest,
        registered_at=timestamp(record.created_at),
        archived_at=None if record.archived_at is None else timestamp(record.archived_at),
    )


def _version(record: PlanRecord, *, created: bool = False, with_source: bool = True) -> CatalogVersion:
    return CatalogVersion(
        path=record.path,
        version=record.version,
        digest=record.digest,
        registered_at=timestamp(record.created_at),
        created=created,
        source=record.source if with_source else "",
    )
