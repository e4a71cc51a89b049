"""Fires schedules: each due time starts at most one run, despite crashes and with any number of servers.

Invariant: the firing of a time is recorded before its run is started (`Schedule.firing`), and the run's idempotency key
consists of the schedule's name and the time. After a crash in between it is started again, which finds the existing
run.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress

from msgspec.structs import replace

from arclog.core.boundary import schedules as rules
from arclog.core.boundary.inputs import Request, Signal
from arclog.core.flow.loops import encoded_size
from arclog.core.transitions.state import State
from arclog.engine.commits.engine import Engine
from arclog.engine.commits.groups import GROUPS, Start, batched, in_groups
from arclog.engine.commits.hints import either
from arclog.engine.commits.ids import new_uuid
from arclog.engine.runs.catalog import called_files
from arclog.engine.runs.inputs import fitted, fitted_or_problem
from arclog.model.config.schedules import Schedule
from arclog.model.data.json_data import DEEPEST_INPUT, nested_deeper
from arclog.model.errors import ArclogError, Conflict, NotFound, RequestRejected
from arclog.model.events import Event
from arclog.model.ids import MAX_ID, MICROS, micros, timestamp
from arclog.plan.program import Program
from arclog.ports.boundary import Boundary
from arclog.ports.storage.catalog import PlanRecord
from arclog.ports.storage.schedules import NewSchedule, ScheduleView
from arclog.ports.storage.store import NewExecution, Scope

log = logging.getLogger("arclog.engine")

#: Number of schedules that are leased at a time.
_PAGE = 256
#: Interval at which a schedule is checked while its times wait for the end of the last run.
_BLOCKED = 5 * MICROS
#: Maximum number of schedules that are woken when a run ends.
_MOST_BLOCKED = 10_000
#: The schedules of a tenant are counted once for so many that are added here.
_COUNTED_EVERY = 100
#: Number of times that a change is repeated after it lost against another.
_MAX_CONFLICTS = 20


class Scheduler:
    """The duty of a server that fires due schedules."""

    def __init__(self, engine: Engine, owner: str) -> None:
        self._engine = engine
        self._owner = owner
        self._lease = round(engine.settings.number("schedules.lease_s") * MICROS)
        self._late = round(engine.settings.number("schedules.late_s") * MICROS)
        self._at_once = engine.settings.integer("engine.fired_at_once")
        self._most = engine.settings.integer("schedules.max_catch_up")
        #: schedules (tenant and name) whose times wait for the end of a live run, by its id
        self._blocked: dict[int, tuple[str, str]] = {}
        #: those that need not wait any longer
        self._freed: list[tuple[str, str]] = []
        self._wake_up = asyncio.Event()
        #: playbooks of the schedules of one page, looked up once
        self._playbooks: dict[tuple[Scope, str, int], asyncio.Future[tuple[PlanRecord, Program]]] = {}
        engine.hints.on_committed.append(self._on_committed)

    def _on_committed(self, state: State, _: Sequence[Event]) -> None:
        """Wake a queue as soon as its last run has ended, without waiting for the next poll."""
        if state.terminal is not None and state.execution_id in self._blocked:
            self._freed.append(self._blocked.pop(state.execution_id))
            self._wake_up.set()

    async def run(self) -> None:
        pause = self._engine.settings.number("engine.sweep_s")
        while True:
            try:
                await self.fire()
            except ArclogError as problem:
                log.warning("schedules: %s; retrying in %g s", problem, pause)
            await either(self._wake_up.wait(), self._engine.clock.sleep(pause))
            self._wake_up.clear()

    async def fire(self) -> None:
        """Start the runs that are due now."""
        store, clock = self._engine.store, self._engine.wall
        now = clock.now()
        freed, self._freed = self._freed, []
        for tenant, name in freed:
            schedule = await store.schedule(tenant, name)
            if schedule is not None and not schedule.paused:
                await self._look_once(schedule)
        # Schedules of a processed page are no longer due, or are leased.
        while page := await store.lease_schedules(self._owner, now, clock.now() + self._lease, _PAGE):
            self._playbooks.clear()
            await in_groups(batched(page, self._at_once), self._look_at_all, GROUPS)
        self._playbooks.clear()

    async def _look_at_all(self, schedules: Sequence[Schedule]) -> None:
        """Process schedules. Those that only start a run share their writes; the others are processed one by one."""
        try:
            others = await self._fire_together(schedules)
        except ArclogError as problem:
            log.warning("%d schedules: %s; looking again when their leases end", len(schedules), problem)
            return
        for schedule in others:
            await self._look_once(schedule)

    async def _fire_together(self, schedules: Sequence[Schedule]) -> list[Schedule]:
        """Start the runs of schedules in three writes: that they fire, their runs, that they have fired. Return the
        others.
        """
        store, now = self._engine.store, self._engine.wall.now()
        others: list[Schedule] = []
        plain: list[Schedule] = []
        before = [schedule.last_execution for schedule in schedules if schedule.last_execution]
        live = set(compress(before, await asyncio.gather(*map(self._is_live, before))))
        for schedule in schedules:
            is_live = schedule.last_execution in live
            looked = rules.tick(schedule, now, is_live=is_live, late=self._late, most=self._most)
            fires = looked.schedule.firing is not None and schedule.firing is None
            if fires and not (is_live or looked.notes or looked.schedule.queue):
                plain.append(looked.schedule)
            else:
                others.append(schedule)
        firing: list[Schedule] = []
        for outcome in await store.change_schedules(plain, self._owner, now + self._lease) if plain else ():
            if isinstance(outcome, Conflict):
                log.info("%s; looking again", outcome)
            else:
                firing.append(outcome)
        fired = await self._start_all(firing)
        changed = [_merged(schedule, started) for schedule, started in fired]
        for (schedule, started), outcome in zip(
            fired, await store.change_schedules(changed) if changed else (), strict=True
        ):
            if isinstance(outcome, Conflict):
                await self._changed(schedule, partial(_merged, started=started), now)
        return others

    async def _is_live(self, execution_id: int) -> bool:
        """Return whether such a run exists and has not ended."""
        record = await self._engine.store.execution(execution_id) if execution_id else None
        return record is not None and record.now.terminal_event is None

    async def _start_all(self, firing: Sequence[Schedule]) -> list[tuple[Schedule, Schedule]]:
        """Start the runs of these times. Return each schedule with its result, without those that have to be processed
        again.
        """
        playbooks = {(_scope_of(schedule), schedule.path, schedule.version) for schedule in firing}
        await asyncio.gather(*(self._playbook(*playbook) for playbook in playbooks), return_exceptions=True)
        prepared = [await self._prepared_or_problem(schedule) for schedule in firing]
        started = iter(await self._engine.start_all([start for start in prepared if isinstance(start, Start)]))
        fired: list[tuple[Schedule, Schedule]] = []
        for schedule, start in zip(firing, prepared, strict=True):
            outcome = next(started) if isinstance(start, Start) else start
            if isinstance(outcome, Conflict):  # another server was faster
                outcome = await self._started_elsewhere(schedule, outcome)
            if isinstance(outcome, int):
                log.info("schedule %s: %s is run %s", schedule.name, timestamp(schedule.firing or 0), outcome)
                fired.append((schedule, rules.started(schedule, outcome)))
            elif isinstance(outcome, RequestRejected):
                fired.append((schedule, self._not_started(schedule, outcome)))
            elif isinstance(outcome, ArclogError):
                log.warning("schedule %s: %s; looking again when its lease ends", schedule.name, outcome)
            else:
                raise outcome
        return fired

    async def _prepared_or_problem(self, schedule: Schedule) -> Start | Exception:
        try:
            return await self._prepared(schedule, schedule.firing or 0)
        except ArclogError as problem:
            return problem

    async def _started_elsewhere(self, schedule: Schedule, lost: Conflict) -> int | Conflict:
        """Return the run of a time that another server has started."""
        started = await self._engine.store.by_idempotency_key(_scope_of(schedule), schedule.key(schedule.firing or 0))
        return lost if started is None else started.execution_id

    @staticmethod
    def _not_started(schedule: Schedule, problem: RequestRejected) -> Schedule:
        due = timestamp(schedule.firing or 0)
        log.error("schedule %s: the run of %s cannot be started: %s", schedule.name, due, problem)
        return rules.not_started(schedule, str(problem))

    async def _look_once(self, schedule: Schedule) -> None:
        try:
            await self._look(schedule)
        except Conflict as problem:
            log.info("schedule %s: %s; retrying", schedule.name, problem)
        except ArclogError as problem:
            log.warning("schedule %s: %s; retrying when its lease ends", schedule.name, problem)

    async def _look(self, schedule: Schedule) -> None:
        store, now = self._engine.store, self._engine.wall.now()
        is_live = await self._is_live(schedule.last_execution)
        again = schedule.firing is not None
        looked = rules.tick(schedule, now, is_live=is_live, late=self._late, most=self._most)
        for note in looked.notes:
            log.warning("schedule %s: %s", schedule.name, note)
        schedule = looked.schedule
        if schedule.firing is None:
            await self._keep(schedule, now)
            return
        schedule = await store.change_schedule(schedule, self._owner, now + self._lease)
        due = schedule.firing or 0
        # The policy decides, not the lookup: after a crash in between, the last run may still exist.
        if is_live and schedule.overlap == "cancel":
            reason = f"schedule {schedule.name} starts its next run (overlap: cancel)"
            await self._engine.put(schedule.last_execution, Signal("CANCEL", schedule.key(due), reason, "schedule"))
        try:
            started = rules.started(schedule, await self._start(schedule, due, again=again))
            log.info("schedule %s: due %s, started run %s", schedule.name, timestamp(due), started.last_execution)
        except RequestRejected as problem:
            started = self._not_started(schedule, problem)
        await self._changed(schedule, lambda newest: _merged(newest, started), now)

    async def _start(self, schedule: Schedule, due: int, *, again: bool) -> int:
        """Return the run of a time: the existing one, or a new one. `again` means that it was to fire before, so it may
        exist.
        """
        engine, scope, key = self._engine, _scope_of(schedule), schedule.key(due)
        started = await engine.store.by_idempotency_key(scope, key) if again else None
        if started is not None:
            return started.execution_id
        try:
            return await engine.start(*await self._prepared(schedule, due))
        except Conflict:  # another server was faster
            started = await engine.store.by_idempotency_key(scope, key)
            if started is None:
                raise
            return started.execution_id

    async def _prepared(self, schedule: Schedule, due: int) -> Start:
        """Prepare the run of a time."""
        scope = _scope_of(schedule)
        plan, program = await self._playbook(scope, schedule.path, schedule.version)
        inputs, refusal = fitted_or_problem(program.plan, schedule.workload)
        workload = {"schedule": {"name": schedule.name, "due": timestamp(due)}, **inputs}
        size, cap = encoded_size({"workload": workload}), program.plan.limits.max_payload_bytes
        if size > cap:
            raise RequestRejected(f"its workload takes {size} bytes; an event holds {cap} (limits.max_payload_bytes)")
        new = NewExecution(
            run_id=new_uuid(),
            name=program.plan.name,
            path=plan.path,
            version=plan.version,
            plan=plan.digest,
            scope=scope,
            created_at=self._engine.clock.now(),
            idempotency_key=schedule.key(due),
        )
        request = Request(plan.path, plan.version, workload, scope.label, problem=refusal)
        return Start(program, new, request, schedule.workload)

    async def _playbook(self, scope: Scope, path: str, version: int) -> tuple[PlanRecord, Program]:
        """Return the playbook that a schedule starts. Schedules of one page with the same playbook share the lookup."""
        shared = self._playbooks.get((scope, path, version))
        if shared is None:
            shared = asyncio.ensure_future(_to_run(self._engine, scope, path, version))
            self._playbooks[scope, path, version] = shared
        try:
            return shared.result() if shared.done() else await asyncio.shield(shared)
        except ArclogError as problem:
            raise type(problem)(*problem.args) from problem  # each caller gets its own exception object

    async def _changed(self, schedule: Schedule, change: Callable[[Schedule], Schedule], now: int) -> None:
        """Record the result of a due time. A concurrent change of the schedule (such as a pause) is kept."""
        store = self._engine.store
        for _ in range(_MAX_CONFLICTS):
            try:
                changed = change(schedule)
                await self._keep(changed, now)
            except Conflict:
                newest = await store.schedule(schedule.tenant, schedule.name)
                if newest is None:
                    return
                schedule = newest
            else:
                return

    async def _keep(self, schedule: Schedule, now: int) -> None:
        """Write a schedule. One whose times wait is woken when its last run has ended."""
        store = self._engine.store
        if not schedule.queue:
            await store.change_schedule(schedule)
            return
        await store.change_schedule(schedule, self._owner, now + _BLOCKED)
        self._blocked[schedule.last_execution] = schedule.tenant, schedule.name
        while len(self._blocked) > _MOST_BLOCKED:  # the others are polled
            del self._blocked[next(iter(self._blocked))]
        last = await store.execution(schedule.last_execution)
        ended = last is None or last.now.terminal_event is not None
        if ended and self._blocked.pop(schedule.last_execution, None) is not None:  # the run ended in the meantime
            self._freed.append((schedule.tenant, schedule.name))
            self._wake_up.set()


def _scope_of(schedule: Schedule) -> Scope:
    return Scope(schedule.tenant, schedule.project, schedule.environment)


def _merged(newest: Schedule, started: Schedule) -> Schedule:
    """Return the newest row with the result of the time that was firing."""
    return replace(
        newest,
        firing=None,
        last_due=started.last_due,
        last_execution=started.last_execution,
        skipped=max(newest.skipped, started.skipped),
        note=started.note,
    )


class EngineSchedules:
    """Implements `ports.schedules.ScheduleApi` for one tenant."""

    def __init__(self, engine: Engine, boundary: Boundary) -> None:
        self._engine = engine
        self._boundary = boundary
        self._scope = boundary.home

    async def add(self, new: NewSchedule) -> ScheduleView:
        engine, scope = self._engine, self._scope
        now = engine.wall.now()
        schedule = Schedule(
            tenant=scope.tenant,
            project=scope.project,
            environment=scope.environment,
            name=new.name,
            cron=new.cron,
            zone=new.tz,
            path=new.path,
            created_at=now,
            version=new.version,
            workload=new.workload,
            catch_up=new.catch_up,
            overlap=new.overlap,
        )
        rules.check(schedule)
        if nested_deeper(new.workload, DEEPEST_INPUT):
            raise RequestRejected(f"the schedule's workload is nested deeper than {DEEPEST_INPUT} levels")
        _, program = await _to_run(engine, scope, new.path, new.version)
        fitted(program.plan, new.workload, recorded=True)
        cap = engine.settings.integer("limits.max_payload_bytes")
        if encoded_size({"workload": new.workload}) > cap:
            raise RequestRejected(f"the schedule's workload takes more than {cap} bytes (limits.max_payload_bytes)")
        schedule = rules.resumed(schedule, now)
        await take_room(engine, scope.tenant, 1)
        await engine.store.add_schedule(schedule)
        return view_of(schedule)

    async def list(self, *, after: str = "", limit: int = 1000) -> builtins.list[ScheduleView]:
        views: builtins.list[ScheduleView] = []
        while len(views) < limit:
            page = await self._engine.store.schedules(self._scope.tenant, after=after, limit=limit)
            views += [view_of(schedule) for schedule in page if self._is_reached(schedule)]
            if len(page) < limit:
                break
            after = page[-1].name
        return views[:limit]

    async def upcoming(self, *, limit: int = 20) -> builtins.list[ScheduleView]:
        most = limit
        while True:
            schedules = await self._engine.store.next_schedules(self._scope.tenant, most)
            coming = [
                schedule
                for schedule in schedules
                if self._is_reached(schedule) and not schedule.paused and schedule.next_due is not None
            ]
            if len(coming) >= limit or len(schedules) < most:
                break
            most *= 4  # the caller cannot see some of them
        ordered = sorted(coming, key=lambda schedule: (schedule.next_due, schedule.name))
        return [view_of(schedule) for schedule in ordered[:limit]]

    async def show(self, name: str) -> ScheduleView:
        return view_of(await self._schedule(name))

    async def pause(self, name: str) -> ScheduleView:
        return await self._change(name, rules.paused)

    async def resume(self, name: str) -> ScheduleView:
        now = self._engine.wall.now()
        return await self._change(name, lambda current: rules.resumed(current, now) if current.paused else current)

    async def remove(self, name: str) -> None:
        await self._schedule(name)
        if not await self._engine.store.remove_schedule(self._scope.tenant, name):
            raise _unknown(name)

    async def backfill(self, name: str, first: str, last: str) -> builtins.list[str]:
        start, end, now = _moment(first), _moment(last), self._engine.wall.now()
        if end < start:
            raise RequestRejected(f"{last} is before {first}")
        if end > now:
            raise RequestRejected(f"{last} is in the future; a backfill covers past times only")
        most = self._engine.settings.integer("schedules.max_catch_up")
        due = rules.between(await self._schedule(name), start, end, most)
        if due:
            await self._change(name, lambda current: rules.backfilled(current, due, most))
        return [timestamp(moment) for moment in due]

    async def _change(self, name: str, change: Callable[[Schedule], Schedule]) -> ScheduleView:
        for _ in range(_MAX_CONFLICTS):
            try:
                return view_of(await self._engine.store.change_schedule(change(await self._schedule(name))))
            except Conflict:
                continue
        raise Conflict(f"schedule {name} is being changed by others; try again")

    async def _schedule(self, name: str) -> Schedule:
        schedule = await self._engine.store.schedule(self._scope.tenant, name)
        if schedule is None or not self._is_reached(schedule):
            raise _unknown(name)
        return schedule

    def _is_reached(self, schedule: Schedule) -> bool:
        return self._boundary.sees(Scope(schedule.tenant, schedule.project, schedule.environment))


async def take_room(engine: Engine, tenant: str, new: int) -> None:
    """Check that a tenant may have `new` more schedules. Raises RequestRejected if it may not."""
    room = engine.schedule_room.get(tenant, 0)
    if room < new:
        most = engine.settings.integer("schedules.max_per_tenant")
        existing = await engine.store.count_schedules(tenant)
        if existing + new > most:
            raise RequestRejected(
                f"tenant {tenant} has {existing} schedules and cannot have {new} more: schedules.max_per_tenant is {most}. "
                "Remove schedules that are not needed (`arclog schedule rm NAME`), or raise the setting"
            )
        room = min(most - existing, max(_COUNTED_EVERY, new))
    engine.schedule_room[tenant] = room - new


async def _to_run(engine: Engine, scope: Scope, path: str, version: int) -> tuple[PlanRecord, Program]:
    """Return the playbook that a schedule starts."""
    entry = await engine.store.catalog_path(path, **scope.parts)
    plan = await engine.store.registered(path, version, **scope.parts) if 0 <= version <= MAX_ID else None
    if entry is None or plan is None:
        which = f" in version {version}" if version else ""
        raise NotFound(f"no playbook is registered as {path[:200]!r}{which}; register it: arclog catalog register FILE")
    if entry.archived_at is not None:
        raise RequestRejected(f"{path} is archived and cannot start runs; `arclog catalog register FILE` restores it")
    program = await engine.live.program(plan.digest)
    file = next(called_files(program.plan), "")
    if file:
        raise RequestRejected(f"{path} calls file {file!r}, which the catalog cannot hold; call it by `path:`")
    return plan, program


def view_of(schedule: Schedule) -> ScheduleView:
    return ScheduleView(
        name=schedule.name,
        cron=schedule.cron,
        tz=schedule.zone,
        path=schedule.path,
        version=schedule.version,
        workload=schedule.workload,
        catch_up=schedule.catch_up,
        overlap=schedule.overlap,
        paused=schedule.paused,
        created_at=timestamp(schedule.created_at),
        next_due=None if schedule.paused or schedule.next_due is None else timestamp(schedule.next_due),
        queued=[timestamp(due) for due in schedule.queue],
        last_due=timestamp(schedule.last_due) if schedule.last_due else None,
        last_execution=str(schedule.last_execution) if schedule.last_execution else None,
        skipped=schedule.skipped,
        note=schedule.note,
    )


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no schedule {name[:200]!r}; `arclog schedule list` shows all schedules")


def _moment(text: str) -> int:
    try:
        return micros(text)
    except (ValueError, OverflowError):
        raise RequestRejected(f"{text[:60]!r} is not a time; write it as 2026-01-31T12:00:00Z") from None
