"""The engine's side of `ports.control`: claims, leases, fences and the ordered report stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec import Struct

from arclog.core.boundary.inputs import Continue, GivenBack, LeaseEnded, Reclaimed, WorkReported
from arclog.core.boundary.projection import command_of
from arclog.core.transitions.state import OpenCommand, State
from arclog.engine.commits.batch import Claimant
from arclog.engine.commits.engine import Engine
from arclog.engine.commits.groups import batched
from arclog.engine.commits.hints import either
from arclog.engine.dispatch.refusals import Refusals
from arclog.engine.dispatch.waiting_claims import Claim, IdleLooks
from arclog.engine.dispatch.worker_registry import WorkerRegistry
from arclog.engine.duties.duty import Has, always
from arclog.model.commands import Command, Report, ReportAnswer, Revocation
from arclog.model.data.lru import LruCache
from arclog.model.errors import Conflict, InvariantBroken, NewerLog, NotFound, ReportGap, RequestRejected, StaleFence
from arclog.model.events import LIFTS, is_closing, lifted
from arclog.model.ids import MICROS
from arclog.model.outcome import data_of
from arclog.model.status import PENDING, RUNNING
from arclog.plan.program import Program
from arclog.ports.control import Held, LoopItem, LoopPage, Until, WorkerInfo
from arclog.ports.storage.store import CommandRecord, ExecutionFilter, Scope
from arclog.ports.storage.task_logs import LogLine

log = logging.getLogger("arclog.engine")

_WORKERS_KNOWN = 10_000
_PLANS_KNOWN = 10_000
#: Number of expired leases that are ended at a time, and of runs that are read at a time.
_PAGE = 100


class EngineControl:
    """Implements `ports.control.Control`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lease_us = round(engine.settings.number("leases.seconds") * MICROS)
        self._idle = IdleLooks(engine)
        self._holders = Holders()
        #: workers at their last claim, which shows what they can be granted
        self._workers: LruCache[str, WorkerInfo] = LruCache(_WORKERS_KNOWN)
        #: plans that workers of a scope may read
        self._plans: LruCache[tuple[Scope, str], bool] = LruCache(_PLANS_KNOWN)
        #: expired commands of runs that this process does not handle: logged once, then skipped
        self._skipped: set[int] = set()
        self._registry = WorkerRegistry(engine.store, engine.clock, engine.settings)
        self._refusals = Refusals(engine)
        #: workers that were asked to leave
        self._leaving: LruCache[str, bool] = LruCache(_WORKERS_KNOWN)
        engine.hints.on_leaving.append(self._start_draining)
        engine.hints.on_closed.append(self._on_closed)
        engine.hints.on_caught_up.append(self._holders.compare)

    async def claim(
        self, worker: WorkerInfo, limit: int, wait_s: float = 0.0, until: Until | None = None
    ) -> list[Command]:
        engine, clock = self._engine, self._engine.clock
        self._workers.replace(worker.worker_id, worker)
        asked_at = clock.monotonic()
        deadline = asked_at + wait_s
        with engine.hints.on_offer(worker.pools, until) as news:
            # A claim that does not wait is answered from the store.
            woken = not wait_s or self._idle.is_outdated(worker)
            while not news.is_over:
                if await self._registry.claims(worker, limit):
                    self._start_draining(worker.worker_id)
                if self._is_leaving(worker.worker_id):
                    break
                if woken or not self._idle.due_in(worker):
                    waited_ms = int((clock.monotonic() - asked_at) * 1000)
                    if commands := await self._look(worker, limit, news):
                        for command in commands:
                            command.waited_ms = waited_ms
                        return commands
                left = deadline - clock.monotonic()
                if left <= 0:
                    return []
                token_s = await engine.queues.until_token(clock, woken=woken)
                wait_s = min(left, token_s, self._idle.due_in(worker))
                woken = await news.heard(wait_s) or wait_s == token_s
                if not woken and clock.monotonic() >= deadline:
                    return []
        if not news.is_over:
            # A leaving worker gets no more commands; it is notified by a revocation.
            waits: list[Coroutine[Any, Any, object]] = [clock.sleep(max(deadline - clock.monotonic(), 0.0))]
            await either(*waits, *([] if until is None else [until()]))
        return []

    async def _look(self, worker: WorkerInfo, limit: int, news: Claim) -> list[Command]:
        """Claim commands from the store for a worker."""
        engine = self._engine
        self._idle.looks(worker)
        offers = engine.queues.offers
        records = await engine.store.claim(
            worker.worker_id,
            limit=limit,
            lease_until=self._lease_until(),
            kinds=worker.kinds,
            pools=worker.pools,
            execution_id=worker.execution_id,
            tenant=worker.tenant,
            project=worker.project,
            environment=worker.environment,
        )
        await self._load([record.execution_id for record in records])
        commands = [command for record in records if (command := await self._command(record)) is not None]
        if len(records) < limit and not (worker.execution_id or worker.tenant):
            engine.queues.emptied(worker.pools, offers)
        news.looked(len(commands), limit)
        if records:
            self._idle.claimed(worker, given=bool(commands))
        self._registry.began(worker.worker_id, [command.command_id for command in commands])
        return commands

    async def _load(self, execution_ids: Sequence[int]) -> None:
        """Load the runs of claimed commands that are not in memory, together. A run that cannot be loaded is left to
        the delivery of its command.
        """
        unknown = [each for each in dict.fromkeys(execution_ids) if self._engine.live.kept(each) is None]
        if len(unknown) > 1:
            await asyncio.gather(*map(self._engine.load, unknown), return_exceptions=True)

    async def loop_results(self, execution_id: int, step: str, run: int, after: int, limit: int) -> LoopPage:
        # The scope is not checked here: a worker in this process holds commands of all tenants, and asks for loops of
        # its current runs. Workers elsewhere use ScopedControl, which knows their scope.
        events = await self._engine.store.step_events(execution_id, step, run, after=after, limit=limit)
        items: list[LoopItem] = []
        depth = 0
        for event in (stored.event for stored in events):
            path = event.iteration
            if path is None or event.informative:
                continue
            if event.type in ("task.done", "task.failed"):
                record = event.payload["outcome"]
                items.append(LoopItem(path, data_of(record), record.get("result_ref")))
            elif event.type == "loop.iteration.failed" and is_closing(event):
                # An item that did not end has no result, even if its first tasks returned data.
                depth = depth or await self._depth(execution_id, step)
                if len(path) == depth:
                    items.append(LoopItem(path))
        return LoopPage(items, events[-1].seq if len(events) == limit else None)

    async def _depth(self, execution_id: int, step: str) -> int:
        """Depth of nested loops of a step."""
        record = await self._engine.store.execution(execution_id)
        if record is None:
            raise NotFound(f"there is no execution {execution_id}")
        level = (await self._engine.live.program(record.new.plan)).steps[step].plan.loop
        depth = 0
        while level is not None:
            level, depth = level.inner, depth + 1
        return depth

    async def report(self, report: Report) -> ReportAnswer:
        if report.n < 1:
            raise RequestRejected(f"n: {report.n} is not a report number; reports are numbered from 1 for each claim")
        lease_until = self._lease_until()
        by = (report.command_id, report.fence, report.n)
        events = [lifted(event) for event in report.events] if LIFTS else report.events
        given = WorkReported(report.command_id, report.fence, report.n, report.worker_id, events)
        claimant = self._claimant(report, lease_until, by) if report.wants else None
        extend = (report.command_id, report.fence, lease_until)
        # With other commands running, it shares a commit with their reports: commands that were granted together often
        # end together.
        at_once = claimant is not None and len(self._holders) <= 1
        answer = await self._engine.put(report.execution_id, given, claimant=claimant, extend=extend, at_once=at_once)
        refused = answer.refused
        if refused is None:
            for command in answer.commands:
                self._holders.has(command.command_id, Holder(report.worker_id, report.execution_id, command.fence))
            if answer.commands:
                self._idle.forget(report.worker_id)
            self._registry.began(report.worker_id, [command.command_id for command in answer.commands])
            return ReportAnswer(report.n, answer.commands, pause=answer.pausing)
        match refused.reason:
            case "duplicate":
                return ReportAnswer(report.n, await self._granted(report.worker_id, by), pause=answer.pausing)
            case "closed" | "ended":
                # The grant shows that this is a repetition of the last report, not a late one.
                granted = await self._granted(report.worker_id, by)
                return ReportAnswer(report.n, granted, closed=not granted)
            case "poison":
                return ReportAnswer(report.n, [], closed=True)
            case "gap":
                raise ReportGap(report.command_id, refused.expected, report.n)
            case "stale":
                raise StaleFence(refused.message)
            case _:
                claim = (report.execution_id, report.command_id, report.fence)
                await self._refusals.note(claim, report.worker_id, refused)
                raise RequestRejected(refused.message)

    def _claimant(self, report: Report, lease_until: int, by: tuple[int, int, int]) -> Claimant | None:
        """Return the claimant of the next command. A worker unknown here (after a restart of the server) has to claim
        instead.
        """
        worker = self._workers.get(report.worker_id)
        if worker is None:
            return None
        kinds, pools = frozenset(worker.kinds), frozenset(worker.pools)
        return Claimant(report.worker_id, lease_until, by, report.wants, kinds, pools, bool(worker.execution_id))

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]]) -> list[int]:
        lost = await self._engine.store.heartbeat(worker_id, held, self._lease_until())
        if await self._registry.beats(worker_id, len(held)):
            self._start_draining(worker_id)
        return lost

    async def holder_of(self, execution_id: int, command_id: int, worker_id: str) -> str | None:
        """Return the worker that holds a command; '' if none does, None if the command is closed. If the cached holder
        is `worker_id`, it is returned; otherwise the store is queried, because another server may have granted the
        command.
        """
        known = self._holders.get(command_id)
        if known is not None and (known.execution_id, known.worker_id) == (execution_id, worker_id):
            return worker_id
        for record in await self._engine.store.commands(execution_id):
            if record.command_id == command_id:
                return record.worker_id if record.state == "claimed" else ""
        return None

    async def give_back(self, worker_id: str, execution_id: int, command_id: int, fence: int) -> None:
        self._holders.over([command_id])
        await self._engine.put(execution_id, GivenBack(command_id, fence, worker_id))

    async def revoked(self, worker_id: str, wait_s: float, held: Sequence[Held] = ()) -> list[Revocation]:
        if unknown := self.unknown(worker_id, held):
            await self._adopt(worker_id, unknown)
        return await self._holders.pending(worker_id, wait_s)

    def unknown(self, worker_id: str, held: Sequence[Held]) -> list[Held]:
        """Return the commands of a worker that this process does not know it holds."""
        return [
            command for command in held if self._holders.get(command[1]) != Holder(worker_id, command[0], command[2])
        ]

    async def _adopt(self, worker_id: str, held: Sequence[Held]) -> None:
        """Watch commands that another server granted to a worker that polls this server for revocations. The store decides
        whether the worker holds them.
        """
        for execution_id in {command[0] for command in held}:
            records = await self._engine.store.commands(execution_id)
            theirs = {(record.command_id, record.fence) for record in records if record.worker_id == worker_id}
            try:
                state = (await self._engine.seen(execution_id)).state
            except (NewerLog, NotFound) as problem:
                log.debug("worker %s: its commands cannot be read: %s", worker_id, problem)
                continue
            for _, command_id, fence in [command for command in held if command[0] == execution_id]:
                if (command_id, fence) in theirs:
                    self._holders.has(command_id, Holder(worker_id, execution_id, fence))
                else:
                    self._holders.revoke(worker_id, Revocation(command_id, kill=is_emergency(state)))
            self._holders.compare(state)

    async def serves_plan(self, scope: Scope, digest: str) -> bool:
        """Return whether a run of that scope has this plan. Plans of granted commands are already known."""
        if not scope.tenant or self._plans.get((scope, digest)) is not None:
            return True
        store = self._engine.store
        if await store.plan(digest) is None:
            return False
        where = ExecutionFilter(
            states=(PENDING, RUNNING), tenant=scope.tenant, project=scope.project, environment=scope.environment
        )
        before = 0
        while page := await store.executions(where, before=before, limit=_PAGE):
            if any(record.new.plan == digest for record in page):
                self.note_plan(scope, digest)
                return True
            before = page[-1].execution_id
        return False

    def note_plan(self, scope: Scope, digest: str) -> None:
        """Record that a run of that scope has this plan."""
        self._plans.replace((scope, digest), True)

    async def program(self, digest: str) -> Program:
        return await self._engine.live.program(digest)

    async def write_logs(self, lines: Sequence[LogLine]) -> None:
        await self._engine.store.append_logs(lines, self._engine.settings.integer("logs.max_execution_bytes"))

    async def end_lease(self, record: CommandRecord) -> None:
        """Withdraw a command from a worker that is gone or did not renew its lease."""
        max_losses = self._engine.settings.integer("leases.max_losses")
        lost = LeaseEnded(record.command_id, record.fence, record.worker_id, max_losses)
        await self._engine.put(record.execution_id, lost)

    async def sweep(self, has: Has = always) -> None:
        """End expired leases while this process has the duty to do so."""
        for record in await self._engine.store.expired(self._engine.clock.now(), _PAGE + len(self._skipped)):
            if record.command_id in self._skipped:
                continue
            if not await has():
                return
            try:
                await self.end_lease(record)
            except Conflict as problem:
                log.info("command %s: its expired lease could not be released yet: %s", record.command_id, problem)
            except (NewerLog, InvariantBroken) as problem:
                self._skipped.add(record.command_id)
                log.error("command %s: its expired lease cannot be released: %s", record.command_id, problem)

    async def watch(self) -> None:
        """Load events that other processes appended to runs whose commands workers of this process hold."""
        for execution_ids in batched(list(self.busy_with()), _PAGE):
            await asyncio.gather(*map(self._watch, execution_ids))

    async def _watch(self, execution_id: int) -> None:
        try:
            await self._engine.look(execution_id)
        except NewerLog as problem:
            log.debug("execution %s is not watched: %s", execution_id, problem)

    def busy_with(self) -> set[int]:
        """Return the executions of whose commands workers of this process hold some."""
        return self._holders.executions

    async def _command(self, record: CommandRecord) -> Command | None:
        """Return the body of a claimed command; None if it has ended, if its run is about to pause, or if this process
        cannot handle the run (a server that understands its log ends the lease). Other commands of the same claim are
        delivered.
        """
        try:
            return await self._body(record)
        except (NewerLog, InvariantBroken) as problem:
            log.error("command %s was claimed but cannot be delivered: %s", record.command_id, problem)
            return None

    async def _body(self, record: CommandRecord) -> Command | None:
        if await self._open(record) is None:
            # Another process may have issued it, so the state here may be outdated.
            await self._engine.put(record.execution_id, Continue())
            if await self._open(record) is None:
                return None
        if record.fence > 1:
            answer = await self._engine.put(
                record.execution_id, Reclaimed(record.command_id, record.fence, record.worker_id)
            )
            if answer.refused is not None:
                return None
        command = await self._open(record)
        if command is None:
            return None
        live = await self._engine.live.get(record.execution_id)
        if live.state.pause is not None:
            # Another server may have resumed the run.
            await self._engine.put(record.execution_id, Continue())
            live = await self._engine.live.get(record.execution_id)
        if live.state.pause is not None:
            await self.give_back(record.worker_id, record.execution_id, record.command_id, record.fence)
            return None
        self._holders.has(record.command_id, Holder(record.worker_id, record.execution_id, record.fence))
        return command_of(live.program, live.state, command, record.lease_until)

    async def _open(self, record: CommandRecord) -> OpenCommand | None:
        live = await self._engine.live.get(record.execution_id)
        command = live.state.commands.get(record.command_id)
        return command if command is not None and command.fence == record.fence else None

    async def _granted(self, worker_id: str, by: tuple[int, int, int]) -> list[Command]:
        """Return the commands granted with a report. Only the sender of the report gets them when it is repeated."""
        records = [record for record in await self._engine.store.granted(by) if record.worker_id == worker_id]
        return [command for record in records if (command := await self._command(record)) is not None]

    def _lease_until(self) -> int:
        return self._engine.clock.now() + self._lease_us

    def _is_leaving(self, worker_id: str) -> bool:
        return self._leaving.get(worker_id) is not None

    def _start_draining(self, worker_id: str) -> None:
        """Notify a worker, once, that it should leave. From then on it gets no more commands."""
        if not self._is_leaving(worker_id):
            self._leaving.put(worker_id, True)
            self._holders.revoke(worker_id, Revocation(0, leave=True))

    def _on_closed(self, closed: Sequence[int], revoked: Sequence[Revocation]) -> None:
        """Notify the holders of revoked commands, except a holder that ended its command itself."""
        for revocation in revoked:
            self._holders.notify(revocation)
        self._holders.over(closed)
        self._registry.ended(closed)


# Holders of commands known to this process, and their pending revocations.
#
# This is a cache of hints; the store is authoritative. A worker may get a command from one server and poll another one for
# revocations; it then sends what it holds, and that server watches those runs from then on. A worker that misses a
# revocation learns of it from its next heartbeat or report.


#: Maximum number of workers whose revocations are kept, and of revocations for each; older ones are dropped.
_MOST_WORKERS = 10_000
_MOST_REVOCATIONS = 1_000


class Holder(Struct, frozen=True):
    worker_id: str
    execution_id: int
    fence: int


class Holders:
    """Holders of commands; one instance per engine."""

    def __init__(self) -> None:
        self._by_command: dict[int, Holder] = {}
        #: pending revocations of each worker, by command
        self._pending: dict[str, dict[int, Revocation]] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._by_command)

    def get(self, command_id: int) -> Holder | None:
        return self._by_command.get(command_id)

    def has(self, command_id: int, holder: Holder) -> None:
        self._by_command[command_id] = holder

    def over(self, command_ids: Sequence[int]) -> None:
        for command_id in command_ids:
            self._by_command.pop(command_id, None)

    @property
    def executions(self) -> set[int]:
        return {holder.execution_id for holder in self._by_command.values()}

    def compare(self, state: State) -> None:
        """Notify the holders of a run's commands after the run was or may have been changed elsewhere."""
        kill = is_emergency(state)
        for command_id, holder in list(self._by_command.items()):
            if holder.execution_id != state.execution_id:
                continue
            command = state.commands.get(command_id)
            if command is None or command.fence != holder.fence:
                self.notify(Revocation(command_id, kill=kill))
            elif state.pause is not None:
                self.notify(Revocation(command_id, pause=True))

    def notify(self, revocation: Revocation) -> None:
        """Notify the holder of a command, if this process knows one."""
        holder = self._by_command.get(revocation.command_id)
        if holder is None:
            return
        if not revocation.pause:
            del self._by_command[revocation.command_id]
        self.revoke(holder.worker_id, revocation)

    def revoke(self, worker_id: str, revocation: Revocation) -> None:
        """Notify a worker about a command that it holds or held."""
        revocations = self._pending.pop(worker_id, {})
        revocations[revocation.command_id] = revocation
        self._pending[worker_id] = revocations
        if len(revocations) > _MOST_REVOCATIONS:
            del revocations[next(iter(revocations))]
        if len(self._pending) > _MOST_WORKERS:
            del self._pending[next(iter(self._pending))]
        self._changed.set()

    async def pending(self, worker_id: str, wait_s: float) -> list[Revocation]:
        """Return the pending revocations of a worker. Waits up to the given time for a revocation of any worker."""
        if worker_id not in self._pending:
            self._changed.clear()
            try:
                # Not wait_for: on Python 3.11 it may swallow a cancellation that coincides with the wake-up, so that
                # the worker never stops.
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                return []
        return list(self._pending.pop(worker_id, {}).values())


def is_emergency(state: State) -> bool:
    """Return whether the run was ended without a grace period for running tasks."""
    return state.terminal is not None and (state.error or {}).get("code") == "EMERGENCY_STOP"
