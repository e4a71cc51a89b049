"""The engine: one transaction per input (or per few that came together), one writer per execution.

Law: inputs of one execution are decided one after the other on its live state and committed before the next are looked
at. Effects (answers, hints) leave only after the commit. A failed append throws the live state away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from arclog.core.decide import EVENTS_PER_DECISION, decide
from arclog.core.inputs import (
    Abort,
    Continue,
    Input,
    NewWork,
    Refused,
    Request,
    Signal,
    TakeSlot,
    Txn,
    WorkReported,
)
from arclog.core.projection import command_of
from arclog.core.state import State
from arclog.engine.hints import Hints
from arclog.engine.live import Live, LiveStates
from arclog.engine.minter import LONGEST_RUN, Minter
from arclog.engine.snapshots import Snapshots
from arclog.model.commands import Command, Revocation
from arclog.model.errors import Conflict, InvariantBroken, StoreError
from arclog.model.events import Event
from arclog.model.outcome import error
from arclog.model.settings import Settings
from arclog.plan.program import Program
from arclog.ports.clock import Clock
from arclog.ports.store import (
    Append,
    ExecutionRecord,
    ExecutionState,
    Grant,
    NewCommand,
    NewExecution,
    NoSlot,
    Store,
    Timer,
)

log = logging.getLogger("arclog.engine")

#: Inputs of one execution that share a commit at most.
INPUTS_PER_COMMIT = 64
#: Between attempts to go on with a run while the store cannot be written.
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 30.0
#: Appends that lose the race for the head are decided again this often.
MAX_CONFLICTS = 20
#: Inputs that depend on the store's own state, or on what other processes did: each has a commit to itself.
_ALONE = (Signal, TakeSlot, Continue)
#: Signals that need to know which commands no worker holds.
_NEEDS_IDLE = frozenset({"PAUSE", "RETRY_STEP"})


class Claimant(Grant, frozen=True):
    """A worker that wants commands in the commit of its own report."""

    wants: int = 0


@dataclass(slots=True)
class Answer:
    """What became of an input, after its commit."""

    refused: Refused | None = None
    commands: list[Command] = field(default_factory=list)
    #: the run is to pause: whoever works on it stops at the next task boundary
    pausing: bool = False


@dataclass(slots=True)
class _Job:
    given: Input
    claimant: Claimant | None
    #: (command_id, fence, lease_until) to extend
    extend: tuple[int, int, int] | None
    done: asyncio.Future[Answer]

    def answer(self, answer: Answer) -> None:
        if not self.done.done():
            self.done.set_result(answer)

    def fail(self, problem: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(problem)


@dataclass(slots=True)
class _Room:
    """Where the inputs of one execution wait for each other."""

    jobs: list[_Job] = field(default_factory=list)
    busy: bool = False


class Engine:
    """Puts inputs to executions."""

    def __init__(self, store: Store, clock: Clock, settings: Settings, minter: Minter) -> None:
        self.store = store
        self.clock = clock
        self.settings = settings
        self.minter = minter
        self.snapshots = Snapshots(store, settings)
        self.live = LiveStates(store, settings.integer("engine.cache_executions"), self.snapshots)
        self.hints = Hints()
        self._rooms: dict[int, _Room] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, program: Program, new: NewExecution, request: Request, execution_id: int = 0) -> int:
        """Create an execution; its id once it is durable. With an id given, one that exists is a Conflict."""
        execution_id = execution_id or self.minter.one()
        state = State(execution_id=execution_id)
        batch = self._decided(program, state, [(request, None)])
        append = self._append(batch, state, expected=0, new=new)
        await self.store.append(append)
        record = ExecutionRecord(execution_id, state.head, new, append.now)
        live = Live(program, state, record, self.snapshots.pace(0))
        self.live.put(live)
        self._committed(live, batch)
        if state.pending_for == "slot":
            await self.put(execution_id, TakeSlot())
        return execution_id

    async def put(
        self,
        execution_id: int,
        given: Input,
        *,
        claimant: Claimant | None = None,
        extend: tuple[int, int, int] | None = None,
    ) -> Answer:
        """Put an input to an execution; answers after the commit."""
        job = _Job(given, claimant, extend, asyncio.get_running_loop().create_future())
        room = self._rooms.setdefault(execution_id, _Room())
        room.jobs.append(job)
        if not room.busy:
            room.busy = True
            # A task of its own: a caller that is cancelled must not take the inputs of others down with it.
            self._later(self._serve(execution_id, room))
        return await job.done

    async def _serve(self, execution_id: int, room: _Room) -> None:
        """Commit what waits in the room, until nothing does."""
        while room.jobs:
            count = _together(room.jobs)
            jobs, room.jobs = room.jobs[:count], room.jobs[count:]
            try:
                taken = await self._commit(execution_id, jobs)
                room.jobs[:0] = jobs[taken:]
            except Exception as problem:  # noqa: BLE001 - it belongs to those who wait
                for job in jobs:
                    job.fail(problem)
        self._rooms.pop(execution_id, None)

    async def _commit(self, execution_id: int, jobs: list[_Job]) -> int:
        """Decide and commit inputs; how many of them were taken."""
        holders: tuple[int, ...] = ()
        for _ in range(MAX_CONFLICTS):
            # What these find impossible is not appended, so no conflict would tell that the state is old.
            news = isinstance(jobs[0].given, _ALONE) and await self.live.catch_up(execution_id)
            live = await self.live.get(execution_id)
            head = live.state.head
            given = [(await self._prepared(execution_id, job.given, holders), job.claimant) for job in jobs]
            try:
                batch = self._decided(live.program, live.state, given)
            except Exception as problem:  # noqa: BLE001 - whatever a decision does, only its own execution may suffer
                self.live.drop(execution_id)
                await self._quarantine(execution_id, jobs, problem)
                return len(jobs)
            if batch.events:
                extend = [
                    job.extend
                    for job, txn in zip(jobs, batch.txns, strict=False)
                    if job.extend and txn.refused is None and job.extend[0] not in batch.close
                ]
                append = self._append(batch, live.state, expected=head, extend=extend)
                try:
                    await self.store.append(append)
                except Conflict as lost:
                    self.live.drop(execution_id)
                    holders = lost.holders if isinstance(lost, NoSlot) else holders
                    continue
                except BaseException:
                    self.live.drop(execution_id)
                    raise
            self._committed(live, batch)
            if news:
                self.hints.caught_up(live.state)
            for job, answer in zip(jobs, batch.answers, strict=False):
                job.answer(answer)
            return len(batch.answers)
        raise Conflict(f"execution {execution_id}: others kept writing to it; lost {MAX_CONFLICTS} races for its head")

    async def _prepared(self, execution_id: int, given: Input, holders: tuple[int, ...]) -> Input:
        """The input with what only the store knows."""
        if isinstance(given, TakeSlot):
            return TakeSlot(holders)
        if isinstance(given, Signal) and given.signal in _NEEDS_IDLE:
            commands = await self.store.commands(execution_id)
            return replace(given, idle=tuple(each.command_id for each in commands if each.state == "issued"))
        return given

    async def look(self, execution_id: int) -> None:
        """Take in what other processes appended to an execution, if they did."""
        record = await self.store.execution(execution_id)
        if record is not None and record.head > self.live.head(execution_id):
            await self.put(execution_id, Continue())

    async def _quarantine(self, execution_id: int, jobs: list[_Job], problem: Exception) -> None:
        """A decision broke a rule of ours: end that one execution with the reason, and let the others be."""
        log.error("execution %s: %s; it is failed with kind internal", execution_id, problem, exc_info=problem)
        live = await self.live.get(execution_id)
        head = live.state.head
        message = f"arclog broke one of its own rules: {problem}"
        batch = self._decided(live.program, live.state, [(Abort(error("internal", message)), None)])
        if batch.events:
            try:
                await self.store.append(self._append(batch, live.state, expected=head))
            finally:
                self.live.drop(execution_id)
            self._committed(live, batch)
        for job in jobs:
            job.answer(Answer(Refused("closed", message)))

    def _decided(self, program: Program, state: State, given: Sequence[tuple[Input, Claimant | None]]) -> _Batch:
        """Decide inputs one after the other, as many as fit; ids of their events are one run."""
        base = self.minter.peek()
        batch = _Batch(base)
        for one, claimant in given:
            if batch.answers and len(batch.events) + _most_events(state, one) > LONGEST_RUN:
                break
            now = self.clock.now()
            txn = decide(program, state, one, now, base + len(batch.events))
            batch.take(txn, claimant)
        if len(batch.events) > LONGEST_RUN:
            raise InvariantBroken(f"a transaction of {len(batch.events)} events")
        batch.settle(program, state)
        self.minter.take(len(batch.events))
        return batch

    def _append(
        self,
        batch: _Batch,
        state: State,
        *,
        expected: int,
        new: NewExecution | None = None,
        extend: Sequence[tuple[int, int, int]] = (),
    ) -> Append:
        return Append(
            execution_id=state.execution_id,
            expected=expected,
            events=batch.events,
            base_id=batch.base_id,
            now=projected(state),
            new=new,
            issue=batch.issue,
            close=batch.close,
            release=batch.release,
            hold=batch.hold,
            unhold=batch.unhold,
            slots=batch.slots,
            extend=extend,
            set_timers=[Timer(state.execution_id, timer_id, due) for timer_id, due in batch.timers.items() if due],
            clear_timers=[timer_id for timer_id, due in batch.timers.items() if not due],
        )

    def _committed(self, live: Live, batch: _Batch) -> None:
        """Effects of a committed transaction."""
        state = live.state
        execution_id = state.execution_id
        if batch.events:
            self.hints.appended(execution_id)
        if batch.offers:
            self.hints.offered()
        revoked = [one for event in batch.events for one in _revocations(event, state)]
        if batch.close or revoked:
            self.hints.closed(batch.close, revoked)
        if batch.more:
            self._later(self._go_on(execution_id))
        for due in batch.timers.values():
            if due:
                self.hints.timer_set(due)
        self.hints.on_committed(state, batch.events)
        if state.terminal is not None:
            self.hints.ended(execution_id)
            # A child is kept until its parent has been told.
            if state.processed or state.parent is None:
                self.live.drop(execution_id)
        if self.snapshots.is_due(live.pace, state):
            self.keep_snapshot(live)

    def keep_snapshot(self, live: Live) -> None:
        """Keep a state that is exactly what was committed, without anybody waiting for it."""
        body = self.snapshots.taken(live.pace, live.state)
        if body is not None:
            self._later(self.snapshots.write(live.state.execution_id, live.state.head, live.program.digest, body))

    async def _go_on(self, execution_id: int) -> None:
        """Put the Continue that a long decision left; a store that cannot take it now is asked again."""
        pause = _FIRST_PAUSE_S
        while True:
            try:
                await self.put(execution_id, Continue())
            except StoreError as problem:
                log.warning("execution %s: cannot go on: %s; trying again in %g s", execution_id, problem, pause)
                await self.clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            else:
                return

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work failed: %s", task.exception())

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Batch:
    """Several decisions that are committed together."""

    def __init__(self, base_id: int) -> None:
        self.base_id = base_id
        self.txns: list[Txn] = []
        self.events: list[Event] = []
        self.issue: list[NewCommand] = []
        self.close: list[int] = []
        self.release: list[int] = []
        #: by id; 0 = cleared
        self.timers: dict[str, int] = {}
        self.answers: list[Answer] = []
        self.hold: list[tuple[int, int]] = []
        self.unhold: list[int] = []
        self.slots = 0
        self.more = False
        self.offers = False
        self._grants: dict[int, tuple[Answer, Claimant]] = {}
        self._new: list[NewWork] = []
        self._starts = False

    def take(self, txn: Txn, claimant: Claimant | None) -> None:
        answer = Answer(txn.refused)
        self.txns.append(txn)
        self.answers.append(answer)
        self.events.extend(txn.events)
        self.close.extend(txn.close)
        self.release.extend(txn.release)
        self.timers.update(txn.timers)
        self.hold.extend(txn.hold)
        self.unhold.extend(txn.unhold)
        self._starts = self._starts or txn.slot
        self._new.extend(txn.issue)
        self.more = self.more or txn.more
        if claimant is not None:
            for work in txn.issue[: claimant.wants]:
                self._grants[work.command_id] = (answer, claimant)

    def settle(self, program: Program, state: State) -> None:
        """Turn new work into commands; what was withdrawn in the same batch is neither issued nor closed."""
        self.slots = program.plan.concurrency or 0 if self._starts else 0
        for answer in self.answers:
            answer.pausing = state.pause is not None
        for work in self._new:
            command = state.commands.get(work.command_id)
            if command is None:
                self.close.remove(work.command_id)
                continue
            grant = self._grants.get(work.command_id)
            if grant is None or command.held:
                self.offers = True
                self.issue.append(NewCommand(work.command_id, work.step, work.run, work.kinds, held=command.held))
                continue
            answer, claimant = grant
            self.issue.append(
                NewCommand(
                    work.command_id,
                    work.step,
                    work.run,
                    work.kinds,
                    grant=Grant(claimant.worker_id, claimant.lease_until, claimant.by),
                )
            )
            answer.commands.append(command_of(program, state, command, claimant.lease_until))
        self.offers = self.offers or bool(self.release or self.unhold)


def _together(jobs: Sequence[_Job]) -> int:
    """How many of the first jobs share a commit."""
    for index, job in enumerate(jobs[:INPUTS_PER_COMMIT]):
        if isinstance(job.given, _ALONE):
            return max(index, 1)
    return min(len(jobs), INPUTS_PER_COMMIT)


def _revocations(event: Event, state: State) -> list[Revocation]:
    """What the holders of commands have to hear of an event."""
    payload = event.payload
    match event.type:
        case "command.cancelled":
            return [Revocation(event.command_id, kill=payload.get("kill", False))]
        case "command.issued" if payload["reason"] == "retry":
            return [Revocation(event.command_id)]
        case "signal.received" if payload["signal"] == "PAUSE" and state.pause is not None:
            return [Revocation(command.id, pause=True) for command in state.commands.values() if not command.held]
    return []


def _most_events(state: State, given: Input) -> int:
    """How many events a decision can have: the report, what may follow from it, and all open work withdrawn."""
    reported = len(given.events) if isinstance(given, WorkReported) else 0
    return reported + EVENTS_PER_DECISION + len(state.commands) + 64


def projected(state: State) -> ExecutionState:
    """The execution's record as its state says."""
    return ExecutionState(
        state=state.status,
        current_step=state.current_step,
        started_at=state.started_at,
        ended_at=state.ended_at,
        terminal_event=state.terminal,
        paused=state.paused_at is not None,
        error=state.error.get("message") if state.error and state.terminal else None,
    )
