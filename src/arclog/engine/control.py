"""The engine's side of `ports.control`: claims, leases, fences and the ordered report stream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from arclog.core.inputs import Continue, GivenBack, LeaseEnded, Reclaimed, WorkReported
from arclog.core.projection import command_of
from arclog.core.state import OpenCommand, State
from arclog.engine.batch import Claimant
from arclog.engine.engine import Engine
from arclog.engine.sightings import Sightings
from arclog.model.commands import Command, Report, ReportAnswer, Revocation
from arclog.model.errors import ReportGap, RequestRejected, StaleFence
from arclog.model.ids import MICROS
from arclog.model.kept import Kept
from arclog.model.outcome import data_of
from arclog.plan.program import Program
from arclog.ports.control import LoopItem, LoopPage, WorkerInfo
from arclog.ports.store import CommandRecord
from arclog.ports.task_logs import LogLine

#: Work offered by another process is found by looking again after this long.
_LOOK_AGAIN_S = 1.0
_WORKERS_KNOWN = 10_000


class EngineControl:
    """Implements `ports.control.Control`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lease_us = round(engine.settings.number("leases.seconds") * MICROS)
        #: who holds which command, as far as this process gave them out
        self._holders: dict[int, _Holder] = {}
        self._revoked: dict[str, list[Revocation]] = {}
        #: workers as they last claimed: what one of them can be granted
        self._workers: Kept[str, WorkerInfo] = Kept(_WORKERS_KNOWN)
        self._news = asyncio.Event()
        self._sightings = Sightings(engine.store, engine.clock, engine.settings)
        #: workers that were told to leave
        self._leaving: Kept[str, bool] = Kept(_WORKERS_KNOWN)
        engine.hints.on_leaving.append(self._tell_to_leave)
        engine.hints.on_closed.append(self._on_closed)
        engine.hints.on_caught_up.append(self._on_caught_up)

    async def claim(self, worker: WorkerInfo, limit: int, wait_s: float = 0.0) -> list[Command]:
        engine = self._engine
        self._workers.put(worker.worker_id, worker)
        if await self._sightings.claims(worker, limit):
            self._tell_to_leave(worker.worker_id)
        deadline = engine.clock.monotonic() + wait_s
        with engine.hints.on_offer() as news:
            while not self._is_leaving(worker.worker_id):
                offers = engine.queues.offers
                records = await engine.store.claim(
                    worker.worker_id,
                    limit=limit,
                    lease_until=self._lease_until(),
                    kinds=worker.kinds,
                    pools=worker.pools,
                    execution_id=worker.execution_id,
                    tenant=worker.tenant,
                )
                found = [command for record in records if (command := await self._command(record)) is not None]
                if len(records) < limit and not (worker.execution_id or worker.tenant):
                    engine.queues.emptied(worker.pools, offers)
                left = deadline - engine.clock.monotonic()
                if found or left <= 0:
                    self._sightings.began(worker.worker_id, [command.command_id for command in found])
                    return found
                await news.heard(min(left, _LOOK_AGAIN_S, await engine.queues.until_token(engine.clock)))
        await engine.clock.sleep(max(deadline - engine.clock.monotonic(), 0.0))
        return []

    async def loop_results(self, execution_id: int, step: str, run: int, after: int, limit: int) -> LoopPage:
        events = await self._engine.store.step_events(execution_id, step, run, after=after, limit=limit)
        items = [
            LoopItem(one.event.iteration, data_of(record), record.get("result_ref"))
            for one in events
            if one.event.type in ("task.done", "task.failed")
            and one.event.iteration is not None
            and not one.event.informative
            for record in (one.event.payload["outcome"],)
        ]
        return LoopPage(items, events[-1].seq if len(events) == limit else None)

    async def report(self, report: Report) -> ReportAnswer:
        lease_until = self._lease_until()
        by = (report.command_id, report.fence, report.n)
        given = WorkReported(report.command_id, report.fence, report.n, report.worker_id, report.events)
        claimant = self._claimant(report, lease_until, by) if report.wants else None
        extend = (report.command_id, report.fence, lease_until)
        answer = await self._engine.put(report.execution_id, given, claimant=claimant, extend=extend)
        refused = answer.refused
        if refused is None:
            for command in answer.commands:
                self._holders[command.command_id] = _Holder(report.worker_id, report.execution_id, command.fence)
            self._sightings.began(report.worker_id, [command.command_id for command in answer.commands])
            return ReportAnswer(report.n, answer.commands, pause=answer.pausing)
        match refused.reason:
            case "duplicate":
                return ReportAnswer(report.n, await self._granted(by), pause=answer.pausing)
            case "closed" | "ended":
                # What was granted shows that this is the last report again, and not one that comes too late.
                granted = await self._granted(by)
                return ReportAnswer(report.n, granted, closed=not granted)
            case "gap":
                raise ReportGap(report.command_id, refused.expected, report.n)
            case "stale":
                raise StaleFence(refused.message)
            case _:
                raise RequestRejected(refused.message)

    def _claimant(self, report: Report, lease_until: int, by: tuple[int, int, int]) -> Claimant | None:
        """A worker that is not known here (the server was started anew) gets its next command by a claim."""
        worker = self._workers.get(report.worker_id)
        if worker is None:
            return None
        kinds = frozenset(worker.kinds)
        return Claimant(report.worker_id, lease_until, by, report.wants, kinds, bool(worker.execution_id))

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]]) -> list[int]:
        lost = await self._engine.store.heartbeat(worker_id, held, self._lease_until())
        if await self._sightings.beats(worker_id, len(held)):
            self._tell_to_leave(worker_id)
        return lost

    async def holder_of(self, execution_id: int, command_id: int) -> str:
        """The worker that holds a command, '' when none does."""
        known = self._holders.get(command_id)
        if known is not None and known.execution_id == execution_id:
            return known.worker_id
        for record in await self._engine.store.commands(execution_id):
            if record.command_id == command_id:
                return record.worker_id
        return ""

    async def give_back(self, worker_id: str, execution_id: int, command_id: int, fence: int) -> None:
        self._holders.pop(command_id, None)
        await self._engine.put(execution_id, GivenBack(command_id, fence, worker_id))

    async def revoked(self, worker_id: str, wait_s: float) -> list[Revocation]:
        if worker_id not in self._revoked:
            self._news.clear()
            try:
                # Not wait_for: on Python 3.11 that swallows a cancellation which meets the news, and the worker never stops.
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                return []
        return self._revoked.pop(worker_id, [])

    async def program(self, digest: str) -> Program:
        return await self._engine.live.program(digest)

    async def write_logs(self, lines: Sequence[LogLine]) -> None:
        await self._engine.store.append_logs(lines, self._engine.settings.integer("logs.max_execution_bytes"))

    async def end_lease(self, record: CommandRecord) -> None:
        """Take a command from a worker that is gone or did not keep up its lease."""
        max_losses = self._engine.settings.integer("leases.max_losses")
        lost = LeaseEnded(record.command_id, record.fence, record.worker_id, max_losses)
        await self._engine.put(record.execution_id, lost)

    async def sweep(self) -> None:
        """End the leases that are over."""
        for record in await self._engine.store.expired(self._engine.clock.now()):
            await self.end_lease(record)

    async def watch(self) -> None:
        """Notice what other processes appended to the runs that workers of this one are busy with."""
        for execution_id in {holder.execution_id for holder in self._holders.values()}:
            await self._engine.look(execution_id)

    async def _command(self, record: CommandRecord) -> Command | None:
        """The body of a claimed command; None when it is over by now, or when its run is about to pause."""
        if await self._open(record) is None:
            # Another process may have issued it: what is known here can be old.
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
            await self.give_back(record.worker_id, record.execution_id, record.command_id, record.fence)
            return None
        self._holders[record.command_id] = _Holder(record.worker_id, record.execution_id, record.fence)
        return command_of(live.program, live.state, command, record.lease_until)

    async def _open(self, record: CommandRecord) -> OpenCommand | None:
        live = await self._engine.live.get(record.execution_id)
        command = live.state.commands.get(record.command_id)
        return command if command is not None and command.fence == record.fence else None

    async def _granted(self, by: tuple[int, int, int]) -> list[Command]:
        records = await self._engine.store.granted(by)
        return [command for record in records if (command := await self._command(record)) is not None]

    def _lease_until(self) -> int:
        return self._engine.clock.now() + self._lease_us

    def _is_leaving(self, worker_id: str) -> bool:
        return self._leaving.get(worker_id) is not None

    def _tell_to_leave(self, worker_id: str) -> None:
        """Once: a worker that leaves gets nothing more, however often it asks."""
        if not self._is_leaving(worker_id):
            self._leaving.put(worker_id, True)
            self._revoked.setdefault(worker_id, []).append(Revocation(0, leave=True))
            self._news.set()

    def _on_closed(self, closed: Sequence[int], revoked: Sequence[Revocation]) -> None:
        """Tell the holders of revoked commands; whoever ended a command itself needs no word."""
        for one in revoked:
            self._tell(one)
        for command_id in closed:
            self._holders.pop(command_id, None)
        self._sightings.ended(closed)

    def _on_caught_up(self, state: State) -> None:
        """Another process changed a run: tell those here who still work for it."""
        held = [(key, holder) for key, holder in self._holders.items() if holder.execution_id == state.execution_id]
        kill = state.terminal is not None and (state.error or {}).get("code") == "EMERGENCY_STOP"
        for command_id, holder in held:
            command = state.commands.get(command_id)
            if command is None or command.fence != holder.fence:
                self._tell(Revocation(command_id, kill=kill))
            elif state.pause is not None:
                self._tell(Revocation(command_id, pause=True))

    def _tell(self, revocation: Revocation) -> None:
        holder = self._holders.get(revocation.command_id)
        if holder is not None:
            if not revocation.pause:
                del self._holders[revocation.command_id]
            self._revoked.setdefault(holder.worker_id, []).append(revocation)
            self._news.set()


class _Holder(NamedTuple):
    worker_id: str
    execution_id: int
    fence: int
