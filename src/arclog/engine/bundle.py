"""Playbooks that call others by file: registered together, so that a run pins what it will call.

The engine reads no files: whoever asks for a run brings the texts along.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from arclog.engine.engine import Engine
from arclog.model.errors import RequestRejected
from arclog.model.kinds import KindSpec
from arclog.plan import net
from arclog.plan.build import build_or_raise
from arclog.plan.net import Plan
from arclog.plan.program import Program
from arclog.ports.store import PlanRecord

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


def beside(file: str, called: str) -> str:
    """Where a called file stands, seen from the file that calls it."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(file), called))


async def register(
    engine: Engine, kinds: Mapping[str, KindSpec], plan: Plan, source: str, file: str, texts: Mapping[str, str]
) -> tuple[PlanRecord, Files]:
    """Register a playbook and all that it calls by file; what each called file came to, by the calling plan's name."""
    records: dict[str, PlanRecord] = {}
    pending: list[tuple[str, str, Plan]] = [(posixpath.normpath(file) if file else file, source, plan)]
    plans: dict[str, Plan] = {}
    first = pending[0][0]
    while pending:
        name, text, found = pending.pop()
        records[name], plans[name] = await _register(engine, found, text), found
        for called in called_files(found):
            where = beside(name, called)
            if where in records or any(where == other for other, _, _ in pending):
                continue
            if where not in texts:
                raise RequestRejected(f"{name or 'the playbook'} calls file {called!r}, which was not sent with it")
            if len(records) + len(pending) >= MAX_FILES:
                raise RequestRejected(f"more than {MAX_FILES} playbooks call each other by file")
            pending.append((where, texts[where], build_or_raise(texts[where], where, kinds, engine.settings)))
    files: Files = {}
    for name, found in plans.items():
        known = {called: records[beside(name, called)] for called in called_files(found)}
        if known:
            files[records[name].digest] = {called: (one.path, one.version) for called, one in known.items()}
    return records[first], files


async def _register(engine: Engine, plan: Plan, source: str) -> PlanRecord:
    body = net.encode(plan)
    record = await engine.store.register_plan(
        net.digest(body), plan.path or plan.name, body, source, engine.clock.now()
    )
    engine.live.keep(Program(plan, record.digest))
    return record
