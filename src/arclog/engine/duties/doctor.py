"""Health checks over the store: pools, leases, duties, timers, schedules, webhooks, and runs that make no progress.

Read-only: nothing is claimed, leased or written. Ids of runs are shown to their own tenant only ('' sees all).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from arclog.engine.commits.engine import Engine
from arclog.engine.dispatch.worker_registry import silent_before
from arclog.engine.duties.garbage_collection import GC, LOOK_S
from arclog.engine.views.api import EngineApi
from arclog.model.errors import ArclogError
from arclog.model.ids import EPOCH_MS, MICROS, compose, minted_at_ms, timestamp
from arclog.ports.boundary import ANYWHERE, Boundary
from arclog.ports.storage.duties import DutyRecord
from arclog.ports.storage.pools import WorkerRecord
from arclog.ports.storage.store import Backlog, ExecutionRecord, Scope
from arclog.ports.views.checks import FAIL, OK, WARN, Check

_PAGE = 100
#: maximum number of late schedules that are counted
_SCHEDULES = 1000
#: maximum number of ids in one finding
_NAMED = 3
#: maximum number of idle runs that are folded to learn what they wait for
_FOLDED = 20
#: maximum number of live runs that are examined, in total and at a time
_LIVE, _LIVE_AT_ONCE = 2000, 1000
#: Waits of a run that need neither work nor a timer.
_PATIENT = frozenset({"signal", "approval", "child", "slot", "pause"})


class WorkDoctor:
    """The checks of one engine's store, as one tenant may see them. `served` means that the engine belongs to a
    server.
    """

    def __init__(self, engine: Engine, api: EngineApi, boundary: Boundary, *, served: bool = True) -> None:
        self._store = engine.store
        self._clock = engine.clock
        self._wall = engine.wall
        self._settings = engine.settings
        self._api = api
        self._boundary = boundary
        self._served = served

    def probes(self) -> list[Probe]:
        return [
            ("pools", self.pools),
            ("leases", self.leases),
            ("duties", self.duties),
            ("timers", self.timers),
            ("schedules", self.schedules),
            ("webhooks", self.webhooks),
            ("runs", self.runs),
        ]

    async def pools(self) -> list[Check]:
        """Return one check for each pool with open work."""
        backlog = await self._store.backlog()
        if not backlog:
            return [Check("pools", OK, "no open commands")]
        since = silent_before(self._clock, self._settings)
        workers = [worker for worker in await self._store.workers() if worker.seen_at >= since and not worker.draining]
        return [self._pool(pool, workers) for pool in sorted(backlog, key=lambda pool: pool.pool)]

    def _pool(self, pool: Backlog, workers: Sequence[WorkerRecord]) -> Check:
        name = f"pool {pool.pool}"
        there = sum(not worker.pools or pool.pool in worker.pools for worker in workers)
        age = max(0.0, self._clock.now() / MICROS - minted_at_ms(pool.oldest) / 1000) if pool.issued else 0.0
        detail = f"{pool.issued} waiting, {pool.claimed} with workers, {there} workers seen"
        if pool.issued:
            detail += f"; the oldest has been waiting for {_span(age)}"
        if not pool.issued or age <= self._settings.number("doctor.waiting_s"):
            return Check(name, OK, detail)
        if not there:
            return Check(
                name,
                FAIL,
                detail,
                f"no worker takes these commands: start one (arclog worker --server URL --pool {pool.pool})",
            )
        if not pool.claimed:
            remedy = (
                "no worker takes these commands: the workers lack a kind or have another tenant's key, or a limit "
                "applies (see `arclog why ID`, `arclog pool list`, `arclog resource list`)"
            )
            return Check(name, FAIL, detail, remedy)
        return Check(name, WARN, detail, f"the pool is too small: start more workers of pool {pool.pool}")

    async def leases(self) -> list[Check]:
        """Commands with an expired lease that were not released."""
        now = self._clock.now()
        over = await self._store.expired(now, _PAGE)
        # A lease that expired just now is the sweeper's next work.
        late = now - round((3 * self._settings.number("engine.sweep_s") + 5) * MICROS)
        left = [command for command in over if command.lease_until < late]
        if not left:
            return [Check("leases", OK, f"{len(over)} expired just now" if over else "none has expired")]
        longest = (now - min(command.lease_until for command in left)) / MICROS
        detail = f"{_count(len(left))} expired and not released, for up to {_span(longest)}"
        remedy = "no server releases them: start a server on this store, or read its log for failed sweeps"
        return [Check("leases", FAIL, detail, remedy)]

    async def duties(self) -> list[Check]:
        """Duties and their holders, and duties without one."""
        records = await self._store.duties()
        if not records:
            return [Check("duties", OK, "not leased: a single process performs all duties")]
        return [self._duty(record) for record in records]

    def _duty(self, record: DutyRecord) -> Check:
        name, now = f"duty {record.duty}", self._clock.now()
        if record.duty == GC:
            return self._gc(name, record, now)
        if record.until > now:
            return Check(name, OK, f"{record.owner} holds it until {timestamp(record.until)}")
        detail = f"no server holds it; {record.owner} held it until {timestamp(record.until)}"
        # Without a server, no duty needs to be held; a running server would have acquired it by now.
        if not self._served or now - record.until <= round(self._settings.number("doctor.waiting_s") * MICROS):
            return Check(name, OK, detail)
        return Check(name, WARN, detail, "a running server should have acquired it: read its log")

    def _gc(self, name: str, record: DutyRecord, now: int) -> Check:
        """The duty of garbage collection. A server holds it only while it runs."""
        every_s, waiting_s = self._settings.number("gc.every_s"), self._settings.number("doctor.waiting_s")
        if not every_s:
            return Check(name, OK, "off (gc.every_s): run `arclog gc` yourself")
        if record.until > now:  # also before it has recorded its start
            return Check(name, OK, f"every {_span(every_s)}; {record.owner} is running it now")
        detail = f"every {_span(every_s)}; last started by {record.owner} at {timestamp(record.position)}"
        # The collection of a server that died continues one interval later.
        if not self._served or (now - record.position) / MICROS <= every_s + waiting_s + 2 * LOOK_S:
            return Check(name, OK, detail)
        return Check(name, WARN, detail, "a running server should have started again by now: read its log")

    async def timers(self) -> list[Check]:
        now = self._clock.now()
        due = await self._store.due_timers(now, _PAGE)
        late = (now - due[0].due) / MICROS if due else 0.0
        if late <= self._settings.number("doctor.waiting_s"):
            return [Check("timers", OK, "none is overdue")]
        detail = f"{_count(len(due))} overdue, the first for {_span(late)}"
        return [Check("timers", FAIL, detail, "no server fires them: start a server on this store, or read its log")]

    async def schedules(self) -> list[Check]:
        now, late_us = self._wall.now(), round(self._settings.number("doctor.waiting_s") * MICROS)
        late = sorted(
            (late_schedule.next_due, late_schedule.name, late_schedule.tenant)
            for late_schedule in await self._store.late_schedules(now - late_us, _SCHEDULES)
            if late_schedule.next_due is not None and late_schedule.next_due < now - late_us
        )
        if not late:
            return [Check("schedules", OK, "none is late")]
        names = [name for _, name, tenant in late if self._boundary.sees(Scope(tenant, "", ""))][:_NAMED]
        count = f"{len(late)}{'+' if len(late) == _SCHEDULES else ''}"
        detail = f"{count} late, since {timestamp(late[0][0])}{_such(names)}"
        remedy = "no server starts them (`arclog run` does not): start `arclog server` or `arclog up` on this store"
        return [Check("schedules", FAIL, detail, remedy)]

    async def webhooks(self) -> list[Check]:
        """Check for webhook deliveries that were given up recently."""
        since_ms = (self._clock.now() - round(self._settings.number("doctor.webhooks_s") * MICROS)) // 1000
        dead = await self._store.given_up(compose(max(since_ms, EPOCH_MS), 0, 0), _PAGE)
        if not dead:
            return [Check("webhooks", OK, "none was abandoned recently")]
        own = [delivery for delivery in dead if await self._is_seen(delivery.execution_id)]
        detail = (
            f"{_count(len(dead))} abandoned recently{_such([str(delivery.execution_id) for delivery in own[:_NAMED]])}"
        )
        if own and own[0].problem:
            detail += f"; the last one: {own[0].problem}"
        remedy = (
            "repair the receiver; missed notifications are in the runs' logs (arclog show ID) and are not sent again"
        )
        return [Check("webhooks", WARN, detail, remedy)]

    async def runs(self) -> list[Check]:
        """Runs that have neither work nor a timer and are not waiting for anything."""
        before = self._clock.now() - round(self._settings.number("doctor.idle_s") * MICROS)
        stuck: list[str] = []
        idle: list[ExecutionRecord] = []
        last = looked = 0
        while len(idle) < _FOLDED and looked < _LIVE:
            page = await self._store.idle(before, after=last, limit=_LIVE_AT_ONCE)
            idle += page.records
            last, looked = page.last, looked + _LIVE_AT_ONCE
            if not last:
                break
        count = 0
        for record in idle[:_FOLDED]:
            why = await self._api.why(str(record.execution_id))
            if not any(wait.what in _PATIENT for wait in why.waits):
                count += 1
                if self._boundary.sees(record.new.scope):
                    stuck.append(str(record.execution_id))
        if not count:
            of = f"each of the {looked} oldest runs that have not ended" if last else "every run"
            return [Check("runs", OK, f"{of} has work, a timer, or something to wait for")]
        detail = f"{_count(count)} without anything that would continue them{_such(stuck[:_NAMED])}"
        remedy = "`arclog resume ID` makes the engine check again, `arclog why ID` shows where it stopped; please report this"
        return [Check("runs", FAIL, detail, remedy)]

    async def _is_seen(self, execution_id: int) -> bool:
        record = await self._store.execution(execution_id)
        return self._boundary.sees(ANYWHERE if record is None else record.new.scope)


def _count(number: int) -> str:
    return f"{number}{'+' if number >= _PAGE else ''}"


def _such(names: Sequence[str]) -> str:
    return f" ({', '.join(names)}{', …' if len(names) == _NAMED else ''})" if names else ""


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


#: a check's name, and the function that runs it
Probe = tuple[str, Callable[[], Awaitable[Sequence[Check]]]]


async def examined(probes: Sequence[Probe], limit_s: float) -> list[Check]:
    """Run checks concurrently, each with a time limit, and return their results in order. A check that hangs or raises is a failed
    check, and does not affect the others.
    """
    results = await asyncio.gather(*(_looked(name, look, limit_s) for name, look in probes))
    return [check for checks in results for check in checks]


async def _looked(name: str, look: Callable[[], Awaitable[Sequence[Check]]], limit_s: float) -> Sequence[Check]:
    try:
        async with asyncio.timeout(limit_s):
            return await look()
    except TimeoutError:
        remedy = "the checked service hangs or is overloaded; see the other checks and the server's log, then try again"
        return [Check(name, FAIL, f"no answer within {limit_s:g} s (doctor.check_s)", remedy)]
    except ArclogError as problem:
        return [failed(name, problem)]
    except Exception as bug:  # noqa: BLE001 - the other checks are needed most when something unforeseen is wrong
        return [Check(name, FAIL, f"{type(bug).__name__}: {bug}", "this is a bug in arclog; please report it")]


def failed(name: str, problem: ArclogError) -> Check:
    """Return the failed check for an error. Messages of ArclogError have the remedy after the last semicolon."""
    message, _, remedy = str(problem).rpartition("; ")
    return Check(name, FAIL, message or remedy, remedy if message else "fix the reported problem, then try again")
