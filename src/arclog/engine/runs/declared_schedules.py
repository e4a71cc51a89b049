"""Schedules that a playbook declares itself (`executor.spec.schedules`), applied when it is registered.

Law: a declared schedule belongs to its playbook. The next version replaces it, keeps whether it is paused and when it fired
last, and removes it when it no longer declares it. A schedule of another playbook is never touched.
"""

from __future__ import annotations

from msgspec.structs import replace

from arclog.core.boundary import schedules as rules
from arclog.engine.commits.engine import Engine
from arclog.engine.runs.inputs import fitted
from arclog.model.config.schedules import Schedule
from arclog.model.errors import Conflict, InputsRefused
from arclog.plan.net import Plan
from arclog.ports.storage.store import Scope

_MAX_CONFLICTS = 20


async def declared(engine: Engine, plan: Plan, path: str, scope: Scope) -> list[Schedule]:
    """The schedules of a plan. Raises RequestRejected for what can never fire, Conflict for another playbook's name."""
    found: list[Schedule] = []
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
        known = await engine.store.schedule(scope.tenant, schedule.name)
        if known is not None and known.path != path:
            raise Conflict(
                f"schedule {schedule.name} belongs to {known.path}; give it another name under executor.spec.schedules"
            )
        found.append(schedule)
    return found


async def apply(engine: Engine, schedules: list[Schedule], before: Plan | None, path: str, tenant: str) -> None:
    """Make the schedules of a path what its newest version declares."""
    for schedule in schedules:
        await _put(engine, schedule)
    kept = {schedule.name for schedule in schedules}
    for entry in before.schedules if before is not None else ():
        if entry["name"] in kept:
            continue
        known = await engine.store.schedule(tenant, entry["name"])
        if known is not None and known.path == path:
            await engine.store.remove_schedule(tenant, entry["name"])


async def _put(engine: Engine, wanted: Schedule) -> None:
    now = engine.wall.now()
    for _ in range(_MAX_CONFLICTS):
        known = await engine.store.schedule(wanted.tenant, wanted.name)
        try:
            if known is None:
                await engine.store.add_schedule(rules.resumed(wanted, now))
                return
            changed = replace(
                known,
                cron=wanted.cron,
                zone=wanted.zone,
                workload=wanted.workload,
                catch_up=wanted.catch_up,
                overlap=wanted.overlap,
                version=0,
            )
            if changed == known:
                return
            if not known.paused and (known.cron, known.zone) != (wanted.cron, wanted.zone):
                changed = rules.resumed(changed, now)
            await engine.store.change_schedule(changed)
        except Conflict:
            continue
        return
    raise Conflict(f"schedule {wanted.name} is being changed by others; try again")
