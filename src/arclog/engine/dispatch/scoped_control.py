"""Control for a worker on another machine: limited to the scope of its credential, and under its own name only.

Invariant: a worker's id is bound to its credential, so that only the worker that claimed a command can report on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from arclog.engine.dispatch.control import EngineControl
from arclog.model.commands import Command, Report, ReportAnswer, Revocation
from arclog.model.errors import NotFound, NotHolder
from arclog.plan.program import Program
from arclog.ports.boundary import Boundary
from arclog.ports.clock import Clock
from arclog.ports.control import Held, LoopPage, Until, WorkerInfo
from arclog.ports.storage.store import Store
from arclog.ports.storage.task_logs import LogLine


class ScopedControl:
    """Implements `ports.control.Control` for the workers of one credential."""

    def __init__(self, control: EngineControl, store: Store, clock: Clock, boundary: Boundary) -> None:
        self._control = control
        self._store = store
        self._clock = clock
        self._boundary = boundary

    async def claim(
        self, worker: WorkerInfo, limit: int, wait_s: float = 0.0, until: Until | None = None
    ) -> list[Command]:
        name, scope = self._boundary.worker_name(worker.worker_id), self._boundary.served
        known = replace(
            worker, worker_id=name, tenant=scope.tenant, project=scope.project, environment=scope.environment
        )
        return self._noted(await self._control.claim(known, limit, wait_s, until))

    async def report(self, report: Report) -> ReportAnswer:
        worker_id = self._boundary.worker_name(report.worker_id)
        await self._check_holder(worker_id, report.execution_id, report.command_id)
        answer = await self._control.report(replace(report, worker_id=worker_id))
        self._noted(answer.commands)
        return answer

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]]) -> list[int]:
        return await self._control.heartbeat(self._boundary.worker_name(worker_id), held)

    async def give_back(self, worker_id: str, execution_id: int, command_id: int, fence: int) -> None:
        worker_id = self._boundary.worker_name(worker_id)
        await self._check_holder(worker_id, execution_id, command_id)
        await self._control.give_back(worker_id, execution_id, command_id, fence)

    async def revoked(self, worker_id: str, wait_s: float, held: Sequence[Held] = ()) -> list[Revocation]:
        worker_id = self._boundary.worker_name(worker_id)
        held = [command for command in self._control.unknown(worker_id, held) if await self._is_served(command[0])]
        until = self._clock.monotonic() + wait_s
        while True:
            # A revocation for another worker ends the wait as well.
            revocations = await self._control.revoked(worker_id, max(0.0, until - self._clock.monotonic()), held)
            held = ()
            if revocations or self._clock.monotonic() >= until:
                return revocations

    async def program(self, digest: str) -> Program:
        if not await self._control.serves_plan(self._boundary.served, digest):
            raise NotFound(f"there is no plan {digest[:64]}")
        return await self._control.program(digest)

    async def loop_results(self, execution_id: int, step: str, run: int, after: int, limit: int) -> LoopPage:
        await self._check_scope(execution_id)
        return await self._control.loop_results(execution_id, step, run, after, limit)

    async def write_logs(self, lines: Sequence[LogLine]) -> None:
        for execution_id in {line.execution_id for line in lines}:
            await self._check_scope(execution_id)
        await self._control.write_logs(lines)

    def _noted(self, commands: list[Command]) -> list[Command]:
        """Record that the worker may read the plans of these commands."""
        for command in commands:
            self._control.note_plan(self._boundary.served, command.plan)
        return commands

    async def check_holder(self, worker_id: str, execution_id: int, command_id: int) -> None:
        """Refuse a report before it is processed. Raises NotFound or NotHolder."""
        await self._check_holder(self._boundary.worker_name(worker_id), execution_id, command_id)

    async def _check_holder(self, worker_id: str, execution_id: int, command_id: int) -> None:
        """Refuse callers that do not hold an open command. For an ended command, the report itself is refused later."""
        holder = await self._control.holder_of(execution_id, command_id, worker_id)
        if holder == worker_id:
            return
        # Checked first: nothing is disclosed about a run that is not served here, not even that its commands are claimed.
        await self._check_scope(execution_id)
        if holder is not None:
            raise NotHolder(f"command {command_id} is not held by this worker; stop the work")

    async def _check_scope(self, execution_id: int) -> None:
        if not await self._is_served(execution_id):
            raise NotFound(f"there is no execution {execution_id}")

    async def _is_served(self, execution_id: int) -> bool:
        record = await self._store.execution(execution_id)
        return record is not None and self._boundary.serves(record.new.scope)
