"""The engine's side of `ports.control`: claims, leases, fences and the ordered report stream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from arclog.core.inputs import LeaseEnded, Reclaimed, WorkReported
from arclog.core.projection import command_of
from arclog.engine.engine import MICROS, Claimant, Engine
from arclog.model.commands import Command, Report, ReportAnswer
from arclog.model.errors import ReportGap, RequestRejected, StaleFence
from arclog.plan.program import Program
from arclog.ports.control import WorkerInfo
from arclog.ports.store import CommandRecord, LogLine

#: Work offered by another process is found by looking again after this long.
_LOOK_AGAIN_S = 1.0


class EngineControl:
    """Implements `ports.control.Control`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lease_us = round(engine.settings.number("leases.seconds") * MICROS)
        #: who holds which command, as far as this process gave them out
        self._holders: dict[int, str] = {}
        self._revoked: dict[str, list[int]] = {}
        self._news = asyncio.Event()
        engine.hints.on_closed = self._on_closed

    async def claim(self, worker: WorkerInfo, limit: int, wait_s: float = 0.0) -> list[Command]:
        engine = self._engine
        deadline = engine.clock.monotonic() + wait_s
        while True:
            records = await engine.store.claim(
                worker.worker_id,
                limit=limit,
                lease_until=self._lease_until(),
                kinds=worker.kinds,
                pools=worker.pools,
                execution_id=worker.execution_id,
            )
            found = [command for record in records if (command := await self._command(record)) is not None]
            left = deadline - engine.clock.monotonic()
            if found or left <= 0:
                return found
            await engine.hints.wait_offered(min(left, _LOOK_AGAIN_S))

    async def report(self, report: Report) -> ReportAnswer:
        lease_until = self._lease_until()
        by = (report.command_id, report.fence, report.n)
        given = WorkReported(report.command_id, report.fence, report.n, report.worker_id, report.events)
        claimant = Claimant(report.worker_id, lease_until, by, report.wants) if report.wants else None
        extend = (report.command_id, report.fence, lease_until)
        answer = await self._engine.put(report.execution_id, given, claimant=claimant, extend=extend)
        refused = answer.refused
        if refused is None:
            for command in answer.commands:
                self._holders[command.command_id] = report.worker_id
            return ReportAnswer(report.n, answer.commands)
        match refused.reason:
            case "duplicate":
                return ReportAnswer(report.n, await self._granted(by))
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

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]]) -> list[int]:
        return await self._engine.store.heartbeat(worker_id, held, self._lease_until())

    async def revoked(self, worker_id: str, wait_s: float) -> list[int]:
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
        await self._engine.store.append_logs(lines)

    async def end_lease(self, record: CommandRecord) -> None:
        """Take a command from a worker that is gone or did not keep up its lease."""
        max_losses = self._engine.settings.integer("leases.max_losses")
        lost = LeaseEnded(record.command_id, record.fence, record.worker_id, max_losses)
        await self._engine.put(record.execution_id, lost)

    async def sweep(self) -> None:
        """End the leases that are over."""
        for record in await self._engine.store.expired(self._engine.clock.now()):
            await self.end_lease(record)

    async def _command(self, record: CommandRecord) -> Command | None:
        """The body of a claimed command; None when it is over by now."""
        if record.fence > 1:
            answer = await self._engine.put(
                record.execution_id, Reclaimed(record.command_id, record.fence, record.worker_id)
            )
            if answer.refused is not None:
                return None
        live = await self._engine.live.get(record.execution_id)
        command = live.state.commands.get(record.command_id)
        if command is None or command.losses + 1 != record.fence:
            return None
        self._holders[record.command_id] = record.worker_id
        return command_of(live.program, live.state, command, record.lease_until)

    async def _granted(self, by: tuple[int, int, int]) -> list[Command]:
        records = await self._engine.store.granted(by)
        return [command for record in records if (command := await self._command(record)) is not None]

    def _lease_until(self) -> int:
        return self._engine.clock.now() + self._lease_us

    def _on_closed(self, closed: Sequence[int], withdrawn: Sequence[int]) -> None:
        """Tell the holders of withdrawn commands; whoever ended a command itself needs no word."""
        for command_id in closed:
            holder = self._holders.pop(command_id, None)
            if holder is not None and command_id in withdrawn:
                self._revoked.setdefault(holder, []).append(command_id)
                self._news.set()
