"""Playbooks that call others by file: registered together, so that a run pins what it will call.

The engine reads no files: the caller sends the texts with the request.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from arclog.engine.commits.engine import Engine
from arclog.engine.runs.compile_cache import Compiled, Compiler
from arclog.model.errors import RequestRejected
from arclog.plan.net import Plan
from arclog.playbook.files import beside
from arclog.ports.storage.catalog import PlanRecord
from arclog.ports.storage.store import Scope

#: Playbooks that one run may bring along.
MAX_FILES = 1000

Files = dict[str, dict[str, tuple[str, int]]]


def called_files(plan: Plan) -> Iterator[str]:
    """The files that a playbook's tasks name, each once."""
    seen: dict[str, None] = {}
    for step in plan.steps:
        for task in step.tasks:
            if task.kind == "playbook" and isinstance(task.config.get("file"), str):
                seen[task.config["file"]] = None
    yield from seen


async def register(
    engine: Engine,
    compiler: Compiler,
    source: str,
    compiled: Compiled,
    file: str,
    texts: Mapping[str, str],
    scope: Scope,
) -> tuple[PlanRecord, Files]:
    """Register a compiled playbook and all that it calls by file, for a tenant or a part of it ('' parts are any); what
    each called file came to, by the calling plan's name.
    """
    records: dict[str, PlanRecord] = {}
    first = posixpath.normpath(file) if file else file
    pending: list[tuple[str, str, Compiled]] = [(first, source, compiled)]
    plans: dict[str, Plan] = {}
    while pending:
        name, text, found = pending.pop()
        records[name], plans[name] = await _register(engine, found, text, scope), found.plan
        for called in called_files(found.plan):
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
        known = {called: records[beside(name, called)] for called in called_files(plan)}
        if known:
            files[records[name].digest] = {called: (one.path, one.version) for called, one in known.items()}
    return records[first], files


async def _register(engine: Engine, found: Compiled, source: str, scope: Scope) -> PlanRecord:
    plan = found.plan
    now, path = engine.clock.now(), plan.path or plan.name
    record = await engine.store.register_plan(found.digest, path, found.body, source, now, **scope.parts)
    await engine.live.program_of(found, record.digest, scope.tenant)
    return record
