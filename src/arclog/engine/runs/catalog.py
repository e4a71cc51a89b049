"""The catalog: playbooks by path, with immutable versions by content. A run pins the version that it was started
with, so nothing that happens here changes a run.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from arclog.engine.commits.engine import Engine
from arclog.engine.runs.compile_cache import Compiled, Compiler
from arclog.engine.runs.inputs import fitted
from arclog.model.config.schedules import Schedule
from arclog.model.errors import Conflict, InputsRefused, NewerLog, NotFound, RequestRejected
from arclog.model.ids import MAX_ID, timestamp
from arclog.plan.net import Plan
from arclog.plan.program import Program
from arclog.playbook.files import beside
from arclog.ports.storage.catalog import CatalogRecord, PlanRecord
from arclog.ports.storage.store import Scope
from arclog.ports.views.api import CatalogDiff, CatalogEntry, CatalogVersion, RegisterRequest

_LOOKED_THROUGH = 1000


class Catalog:
    """The registered playbooks in an engine's store that a caller can see ('' in its scope matches any name). Playbooks that
    a caller bound to a project or an environment registers are valid only there.
    """

    def __init__(self, engine: Engine, compiler: Compiler, reach: Scope, scope: Scope) -> None:
        """Schedules that a playbook declares run in `scope`."""
        self._reach = reach
        self._scope = scope
        self._engine = engine
        self._compiler = compiler

    async def register(self, request: RegisterRequest) -> CatalogVersion:
        tenant = self._reach.tenant
        compiled = await self._compiler.compile(request.playbook, request.file, tenant, request.files)
        _refuse_files(compiled.plan.name, next(called_files(compiled.plan), ""))
        store, now = self._engine.store, self._engine.clock.now()
        path = compiled.plan.path or compiled.plan.name
        before = await store.catalog_path(path, **self._reach.parts)
        schedules = await declared_schedules(self._engine, compiled.plan, path, self._scope)
        record = await store.register_plan(
            compiled.digest, path, compiled.body, request.playbook, now, **self._reach.parts
        )
        if before is not None and before.archived_at is not None:
            await store.archive(path, None, tenant=self._reach.tenant)
        older = None if before is None else (await self._engine.live.program(before.digest)).plan
        if schedules or (older is not None and older.schedules):
            await apply_declared(self._engine, schedules, older, path, tenant)
        created = before is None or record.version > before.version
        return _version(record, created=created, with_source=False)

    async def listed(self, prefix: str, after: str, limit: int, *, archived: bool) -> list[CatalogEntry]:
        records = await self._engine.store.catalog(
            prefix=prefix, after=after, limit=limit, archived=archived, **self._reach.parts
        )
        return [_entry(record) for record in records]

    async def versions(self, path: str, before: int, limit: int) -> list[CatalogVersion]:
        await self._path(path)
        records = await self._engine.store.versions(path, before=before, limit=limit, **self._reach.parts)
        return [_version(record, with_source=False) for record in records]

    async def registered(self, path: str, version: int = 0) -> CatalogVersion:
        return _version(await self._record(path, version))

    async def difference(self, path: str, older: int, newer: int = 0, other: str = "") -> CatalogDiff:
        from difflib import unified_diff

        if not older:
            raise RequestRejected("versions start at 1")
        first, second = await self._record(path, older), await self._record(other or path, newer)
        names = (f"{path} {first.version}", f"{other or path} {second.version}")
        texts = (first.source.splitlines(keepends=True), second.source.splitlines(keepends=True))
        lines = [line if line.endswith("\n") else f"{line}\n" for line in unified_diff(*texts, *names)]
        net, settings = await self._nets(first.digest, second.digest)
        return CatalogDiff(path, first.version, second.version, "".join(lines), net, settings)

    async def _nets(self, older: str, newer: str) -> tuple[dict[str, Any] | None, list[str] | None]:
        """Compare the nets of two plans, and their other parts."""
        from arclog.history.diff import changed_settings, net_diff

        try:
            a, b = [(await self._engine.live.program(digest)).plan for digest in (older, newer)]
        except NewerLog:
            return None, None
        net = await asyncio.to_thread(net_diff, a, b)
        return None if net is None else to_builtins(net), await asyncio.to_thread(changed_settings, a, b)

    async def archive(self, path: str, *, archived: bool) -> CatalogEntry:
        await self._path(path)
        now = self._engine.clock.now() if archived else None
        await self._engine.store.archive(path, now, tenant=self._reach.tenant)
        return _entry(await self._path(path))

    async def to_run(self, path: str, version: int, scope: Scope) -> tuple[PlanRecord, Program]:
        """Return the version that a run of a path uses in a scope. Raises NotFound, or RequestRejected if it is
        archived or needs files.
        """
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
            entries = await self._engine.store.catalog(
                limit=_LOOKED_THROUGH, tenant=reach.tenant, project=reach.project, environment=reach.environment
            )
            from difflib import get_close_matches

            near = get_close_matches(path, [entry.path for entry in entries], n=1)
            hint = f"did you mean {near[0]}?" if near else "`arclog catalog list` shows the registered playbooks"
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


# Playbooks that call others by file are registered together, so that a run pins the versions that it will call.
#
# The engine reads no files: the caller sends the texts with the request.


#: Maximum number of playbooks in one request.
MAX_FILES = 1000

Files = dict[str, dict[str, tuple[str, int]]]


def called_files(plan: Plan) -> Iterator[str]:
    """Yield the files that a playbook's tasks name, each once."""
    seen: dict[str, None] = {}
    for step in plan.steps:
        for task in step.tasks:
            if task.kind == "playbook" and isinstance(task.config.get("file"), str):
                seen[task.config["file"]] = None
    yield from seen


async def register_bundle(
    engine: Engine,
    compiler: Compiler,
    source: str,
    compiled: Compiled,
    file: str,
    texts: Mapping[str, str],
    scope: Scope,
) -> tuple[PlanRecord, Files]:
    """Register a compiled playbook and everything that it calls by file, for a tenant or a part of it ('' parts mean
    any). Return its record, and the registered versions of the called files by the calling plan's name.
    """
    records: dict[str, PlanRecord] = {}
    first = posixpath.normpath(file) if file else file
    pending: list[tuple[str, str, Compiled]] = [(first, source, compiled)]
    plans: dict[str, Plan] = {}
    while pending:
        name, text, bundled = pending.pop()
        records[name], plans[name] = await _register_plan(engine, bundled, text, scope), bundled.plan
        for called in called_files(bundled.plan):
            where = beside(name, called)
            if where in records or any(where == other for other, _, _ in pending):
                continue
            if where not in texts:
                raise RequestRejected(f"{name or 'the playbook'} calls file {called!r}, which was not sent with it")
            if len(records) + len(pending) >= MAX_FILES:
                raise RequestRejected(f"more than {MAX_FILES} playbooks call each other by file")
            compiled = await compiler.compile(texts[where], where, scope.tenant, texts)
            pending.append((where, texts[where], compiled))
    files: Files = {}
    for name, plan in plans.items():
        called_records = {called: records[beside(name, called)] for called in called_files(plan)}
        if called_records:
            files[records[name].digest] = {
                called: (record.path, record.version) for called, record in called_records.items()
            }
    return records[first], files


async def _register_plan(engine: Engine, compiled: Compiled, source: str, scope: Scope) -> PlanRecord:
    plan = compiled.plan
    now, path = engine.clock.now(), plan.path or plan.name
    record = await engine.store.register_plan(compiled.digest, path, compiled.body, source, now, **scope.parts)
    await engine.live.program_of(compiled, record.digest, scope.tenant)
    return record


# Schedules that a playbook declares itself (`executor.spec.schedules`), applied when it is registered.
#
# Invariants: a declared schedule belongs to its playbook. The next version replaces it, keeps its pause state and its
# last firing time, and removes it if it is no longer declared. Schedules of other playbooks are never changed.


_MAX_CONFLICTS = 20


async def declared_schedules(engine: Engine, plan: Plan, path: str, scope: Scope) -> list[Schedule]:
    """Return the schedules of a plan. Raises RequestRejected if one can never fire or there are too many, Conflict if
    another playbook has its name.
    """
    if not plan.schedules:
        return []
    from arclog.core.boundary import schedules as rules  # only the registration of schedules needs them
    from arclog.engine.runs.schedules import take_room

    schedules: list[Schedule] = []
    new = 0
    for entry in plan.schedules:
        schedule = Schedule(
            tenant=scope.tenant,
            project=scope.project,
            environment=scope.environment,
            name=entry["name"],
            cron=entry["cron"],
            zone=entry.get("tz", "UTC"),
            path=path,
            created_at=engine.wall.now(),
            workload=entry.get("workload") or {},
            catch_up=entry.get("catch_up", "last"),
            overlap=entry.get("overlap", "skip"),
        )
        rules.check(schedule)
        try:
            fitted(plan, schedule.workload, recorded=True)
        except InputsRefused as refused:
            raise InputsRefused(f"schedule {schedule.name}: {refused}", refused.faults) from None
        existing = await engine.store.schedule(scope.tenant, schedule.name)
        if existing is not None and existing.path != path:
            raise Conflict(
                f"schedule {schedule.name} belongs to {existing.path}; give it another name under executor.spec.schedules"
            )
        schedules.append(schedule)
        new += existing is None
    if new:
        await take_room(engine, scope.tenant, new)
    return schedules


async def apply_declared(
    engine: Engine, schedules: list[Schedule], before: Plan | None, path: str, tenant: str
) -> None:
    """Replace the schedules of a path by those that its newest version declares."""
    for schedule in schedules:
        await _put_schedule(engine, schedule)
    kept = {schedule.name for schedule in schedules}
    for entry in before.schedules if before is not None else ():
        if entry["name"] in kept:
            continue
        existing = await engine.store.schedule(tenant, entry["name"])
        if existing is not None and existing.path == path:
            await engine.store.remove_schedule(tenant, entry["name"])


async def _put_schedule(engine: Engine, wanted: Schedule) -> None:
    from arclog.core.boundary import schedules as rules

    now = engine.wall.now()
    for _ in range(_MAX_CONFLICTS):
        existing = await engine.store.schedule(wanted.tenant, wanted.name)
        try:
            if existing is None:
                await engine.store.add_schedule(rules.resumed(wanted, now))
                return
            changed = replace(
                existing,
                cron=wanted.cron,
                zone=wanted.zone,
                workload=wanted.workload,
                catch_up=wanted.catch_up,
                overlap=wanted.overlap,
                version=0,
            )
            if changed == existing:
                return
            if not existing.paused and (existing.cron, existing.zone) != (wanted.cron, wanted.zone):
                changed = rules.resumed(changed, now)
            await engine.store.change_schedule(changed)
        except Conflict:
            continue
        return
    raise Conflict(f"schedule {wanted.name} is being changed by others; try again")
