"""Starts: the first decision on a run, and its commit.

Invariant: each attempt to begin a run has another id, so that crashes at its first decision are counted by what the run
is to do (`start_id`). A run that killed the process twice there is not decided again: it is created as failed, so that
whoever begins it again finds it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from arclog.core.boundary.inputs import Forked, Input, Request, TakeSlot
from arclog.core.transitions.state import State
from arclog.engine.commits.batch import Batch, end_notices
from arclog.engine.commits.decisions import Beginning
from arclog.engine.commits.marked_work import start_id, work_of
from arclog.engine.commits.quarantine import BegunElsewhere, Quarantine
from arclog.expr import OutOfTurn
from arclog.model.errors import Poisoned
from arclog.model.outcome import error
from arclog.model.status import RUNNING
from arclog.plan.program import Program
from arclog.ports.storage.store import NewExecution

if TYPE_CHECKING:
    from arclog.engine.commits.engine import Engine


class Starts:
    """Starts of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: counts crashes at first decisions; None if marks are not used
        self.quarantine: Quarantine | None = None

    async def start(
        self,
        program: Program,
        new: NewExecution,
        request: Request,
        content: Mapping[str, Any] | None,
        execution_id: int,
    ) -> int:
        """See `Engine.start`."""
        engine = self._engine
        execution_id = execution_id or await engine.new_id()
        mark = self.mark(new, request.workload if content is None else content)

        async def begin(refusal: str) -> State:
            problem = error("poison", f"{refusal}; `arclog retry {execution_id}` tries again") if refusal else None
            given = replace(request, problem=problem) if problem else await engine.evaluated(program, request)
            state, batch = await self._decided(program, given, execution_id, mark)
            append = batch.append(
                state, expected=0, new=new, deliveries=end_notices(program.plan, state, batch.events, new)
            )
            engine.begun(program, state, batch, append, await engine.append(append))
            return state

        # Children and the runs of schedules are begun again by other servers, without a request that says so.
        state = await self._begin(mark, request, begin, is_own=content is None and request.parent is None)
        if state.pending_for == "slot":
            await engine.put(execution_id, TakeSlot())
        return execution_id

    async def fork(self, program: Program, new: NewExecution, begin: Beginning, most: int) -> int:
        """See `Engine.fork`."""
        engine = self._engine
        execution_id = await engine.new_id()
        mark = self.mark(new, {"fork": new.idempotency_key or str(new.origin)})

        async def copy(refusal: str) -> State:
            if refusal:
                raise Poisoned(f"{refusal}; a request with another idempotency key tries again")
            state, batch = await engine.deciding.behind(program, begin, execution_id, most, mark)
            append = batch.append(
                state, expected=0, new=new, deliveries=end_notices(program.plan, state, batch.events, new)
            )
            # The copied events were measured when they were recorded. The run takes a concurrency slot in the same
            # commit.
            slots = program.plan.concurrency or 0 if state.status == RUNNING else 0
            appended = await engine.append(replace(append, max_event_bytes=0, slots=slots))
            engine.begun(program, state, batch, append, appended)
            return state

        await self._begin(mark, Forked(), copy, is_own=True)
        return execution_id

    def mark(self, new: NewExecution, content: Mapping[str, Any]) -> int:
        """Return the id by which crashes at the start of a run are counted; 0 if they are not."""
        return 0 if self.quarantine is None else start_id(new, content)

    def forget(self, new: NewExecution, workload: Mapping[str, Any]) -> None:
        """Forget that the start of such a run killed processes, since it has succeeded in another way."""
        if self.quarantine is not None and self.quarantine.knows(mark := start_id(new, workload)):
            self.quarantine.release(mark)

    async def _begin(self, mark: int, given: Input, begin: Callable[[str], Awaitable[State]], *, is_own: bool) -> State:
        """Create a run with `begin`, whose argument is the reason if the run must not be decided, and '' otherwise.
        `is_own` means that only the sender of the request repeats it.
        """
        quarantine = self.quarantine
        if quarantine is None or quarantine.is_idle:
            return await begin("")
        while True:
            try:
                records = await quarantine.must_record(mark, given, is_kept=is_own)
                if refusal := quarantine.start_refusal(mark):
                    return await begin(refusal)
                async with quarantine.attempt(mark, work_of(given)) if records else nullcontext():
                    state = await begin("")
            except BegunElsewhere:
                continue
            quarantine.ended(mark, given, state)
            return state

    async def _decided(self, program: Program, request: Request, execution_id: int, mark: int) -> tuple[State, Batch]:
        deciding, given = self._engine.deciding, [(request, None)]
        if not deciding.is_heavy(program):
            state = State(execution_id=execution_id, scope=request.scope)
            try:
                return state, deciding.at_once(program, state, given, marked_as=mark)
            except OutOfTurn:
                deciding.mark_heavy(program)
        state = State(execution_id=execution_id, scope=request.scope)
        batch = await deciding.aside(program, state, given, mark)
        if batch is None:
            state = State(execution_id=execution_id, scope=request.scope)
            batch = deciding.at_once(program, state, given, bounded=False, marked_as=mark)
        return state, batch
