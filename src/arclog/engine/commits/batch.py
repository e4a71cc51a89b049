"""A batch: decisions that are committed together, the append that makes them durable, and the answers to their callers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from arclog.core.boundary.inputs import NewWork, Refused, Txn
from arclog.core.boundary.projection import command_of
from arclog.core.transitions.decide import ENDS, webhooks_for
from arclog.core.transitions.state import State
from arclog.engine.dispatch.queues import Queues
from arclog.engine.views.account import headline
from arclog.model.commands import TOO_LONG, Command, Revocation
from arclog.model.events import ENVELOPE_BYTES, TERMINAL, Event
from arclog.model.ids import moved, timestamp
from arclog.plan.program import Program
from arclog.ports.storage.outbox import NewDelivery
from arclog.ports.storage.store import Append, ExecutionState, Grant, NewCommand, NewExecution, Timer

if TYPE_CHECKING:
    from arclog.plan.net import Plan


#: Types of events of which the holders of commands may have to be notified.
_REVOKING = frozenset({"command.cancelled", "command.issued", "signal.received"})


class Place(msgspec.Struct, frozen=True):
    """The queue of a command: tenants share a pool."""

    pool: str
    tenant: str


class Claimant(Grant, frozen=True):
    """A worker that wants commands in the commit of its own report."""

    wants: int = 0
    kinds: frozenset[str] = frozenset()
    #: empty means all pools
    pools: frozenset[str] = frozenset()
    #: the worker serves one run only, so other runs cannot use it
    own: bool = False

    def can_take(self, work: NewWork, place: Place) -> bool:
        """Return whether the worker can take a command. Tokens are only taken by claims. In the pool of the command
        that ends with the report, the next command takes its place, so that no limit can be exceeded.
        """
        if work.resources or work.pool != place.pool or (self.pools and work.pool not in self.pools):
            return False
        return self.kinds.issuperset(work.kinds)


class Answer(msgspec.Struct):
    """The result of an input, after its commit."""

    refused: Refused | None = None
    commands: list[Command] = msgspec.field(default_factory=list)
    #: something was waiting for the signal
    waiting: bool = False
    #: the run is about to pause; its workers stop at the next task boundary
    pausing: bool = False
    #: number of events that the input caused, including its own, and the index of the last one
    events: int = 0
    last_seq: int = 0
    last_id: int = 0
    #: for a report over the wire: type and index of the event that represents the one that was sent
    spoken: str = ""
    spoken_at: int = 0


class Batch:
    """Several decisions on one execution, and the one append that makes them durable."""

    # The first decision brings these.
    events: list[Event]
    close: list[int]
    release: list[int]
    #: by id; 0 = cleared
    timers: dict[str, int]
    hold: list[tuple[int, int]]
    unhold: list[int]
    digests: dict[int, str]
    _new: list[NewWork]

    slots = 0
    more = False
    _starts = False
    _asks = False
    _approvals = 0
    _max_event_bytes = 0

    def __init__(self, base_id: int, queues: Queues) -> None:
        self.base_id = base_id
        #: the run and the work of each input, which are marked while the batch is encoded
        self.marks: list[tuple[int, int]] = []
        self._queues = queues
        self.txns: list[Txn] = []
        self.issue: list[NewCommand] = []
        self.answers: list[Answer] = []
        #: number of commands for workers of each pool
        self.offers: dict[str, int] = {}
        self._grants: dict[int, tuple[Answer, Claimant]] = {}

    def take(self, txn: Txn, claimant: Claimant | None, last_seq: int, place: Place) -> None:
        """Add a decision. `last_seq` is the head after it, `place` the queue of its command."""
        events = txn.events
        count = len(events)
        if not self.txns:
            # Most batches have one decision, whose lists are used directly.
            self.events, self.close, self.release, self.timers = events, txn.close, txn.release, txn.timers
            self.hold, self.unhold, self.digests, self._new = txn.hold, txn.unhold, txn.digests, txn.issue
        else:
            self.events.extend(events)
            self.close.extend(txn.close)
            self.release.extend(txn.release)
            self.timers.update(txn.timers)
            self.hold.extend(txn.hold)
            self.unhold.extend(txn.unhold)
            self.digests.update(txn.digests)
            self._new.extend(txn.issue)
        last_id = moved(self.base_id, len(self.events) - 1)
        answer = Answer(txn.refused, waiting=txn.waiting, events=count, last_seq=last_seq, last_id=last_id)
        if count:
            answer.spoken, answer.spoken_at = events[txn.spoken].type, txn.spoken
        self.txns.append(txn)
        self.answers.append(answer)
        if txn.slot:
            self._starts = True
        if txn.more:
            self.more = True
        if claimant is not None:
            for work in [work for work in txn.issue if claimant.can_take(work, place)][: claimant.wants]:
                if claimant.own or self._queues.may_pass(work.pool, place.tenant):
                    self._grants[work.command_id] = (answer, claimant)

    def settle(self, program: Program, state: State) -> None:
        """Turn new work into commands. Work that was withdrawn in the same batch is neither issued nor closed."""
        if self._starts:
            self.slots = program.plan.concurrency or 0
        if program.asks:
            self._asks = True
            self._approvals = approvals_of(state)
        self._max_event_bytes = program.event_room + ENVELOPE_BYTES
        if state.pause is not None:
            for answer in self.answers:
                answer.pausing = True
        for work in self._new:
            command = state.commands.get(work.command_id)
            if command is None:
                self.close.remove(work.command_id)
                continue
            grant = self._grants.get(work.command_id)
            if grant is None or command.held:
                if not command.held:
                    self._offer(work.pool)
                self.issue.append(self._command(work, held=command.held))
                continue
            answer, claimant = grant
            self.issue.append(self._command(work, grant=Grant(claimant.worker_id, claimant.lease_until, claimant.by)))
            answer.commands.append(command_of(program, state, command, claimant.lease_until))
        if self.release or self.unhold:
            for command_id in (*self.release, *self.unhold):
                command = state.commands.get(command_id)
                if command is not None and not command.held:
                    self._offer(program.steps[command.step].plan.pool)

    def _offer(self, pool: str) -> None:
        self.offers[pool] = self.offers.get(pool, 0) + 1

    def _command(self, work: NewWork, *, grant: Grant | None = None, held: bool = False) -> NewCommand:
        return NewCommand(
            work.command_id,
            work.step,
            work.run,
            work.kinds,
            work.pool,
            grant=grant,
            held=held,
            order=self._queues.order(work.command_id, work.priority),
            resources=work.resources,
        )

    def append(
        self,
        state: State,
        *,
        expected: int,
        new: NewExecution | None = None,
        extend: Sequence[tuple[int, int, int]] = (),
        deliveries: Sequence[NewDelivery] = (),
    ) -> Append:
        """Return the transaction to commit. `state` is the state after the decisions."""
        set_timers: list[Timer] = []
        clear_timers: list[str] = []
        for timer_id, due in self.timers.items():
            if due:
                set_timers.append(Timer(state.execution_id, timer_id, due))
            else:
                clear_timers.append(timer_id)
        return Append(
            execution_id=state.execution_id,
            expected=expected,
            events=self.events,
            base_id=self.base_id,
            now=projected(state, self._approvals),
            new=new,
            issue=self.issue,
            close=self.close,
            release=self.release,
            hold=self.hold,
            unhold=self.unhold,
            slots=self.slots,
            extend=extend,
            set_timers=set_timers,
            deliveries=deliveries,
            clear_timers=clear_timers,
            digests=self.digests,
            asks=self._asks,
            max_event_bytes=self._max_event_bytes,
            marks=self.marks,
        )


def approvals_of(state: State) -> int:
    """The number of approvals that the run waits for."""
    if state.pending_for == "approval":
        return 1
    return sum(wait.kind == "approval" for wait in state.waits.values())


def projected(state: State, approvals: int) -> ExecutionState:
    """The execution's record, computed from its state."""
    return ExecutionState(
        state=state.status,
        current_step=state.current_step,
        started_at=state.started_at,
        ended_at=state.ended_at,
        terminal_event=state.terminal,
        paused=state.paused_at is not None,
        approvals=approvals,
        error=headline(state) if state.terminal is not None or state.failed_items else None,
    )


def end_notices(plan: Plan, state: State, events: Sequence[Event], new: NewExecution) -> list[NewDelivery]:
    """The webhook deliveries for a run that these events end; the append that ends the run writes them to the outbox. They
    have no result and no workload, and of an error only what the log has. `state` is the state after the events.
    """
    if not plan.webhooks or not any(event.type in TERMINAL and not event.informative for event in events):
        return []
    end = ENDS[state.status]
    cause = state.error or {}
    body = {
        "event": end_event_name(end),
        "execution_id": str(state.execution_id),
        "run_id": new.run_id,
        "name": new.name,
        "path": new.path,
        "version": str(new.version),
        "tenant_id": new.scope.tenant,
        "project_id": new.scope.project,
        "environment_id": new.scope.environment,
        "state": state.status,
        "started_at": None if state.started_at is None else timestamp(state.started_at),
        "ended_at": None if state.ended_at is None else timestamp(state.ended_at),
        "error": {key: cause[key] for key in ("kind", "message", "code", "step") if cause.get(key)} or None,
    }
    encoded = msgspec.json.encode(body)
    return [NewDelivery(webhook.url, webhook.secret, end, encoded) for webhook in webhooks_for(plan, state.status)]


def end_event_name(end: str) -> str:
    """The event of a webhook, as a lifecycle name."""
    return "execution.cancelled" if end == "cancelled" else f"playbook.{end}"


def revocations(events: Sequence[Event], state: State) -> list[Revocation]:
    """Return the notices to holders of commands that events cause."""
    return [notice for event in events if event.type in _REVOKING for notice in _revocations_of(event, state)]


def _revocations_of(event: Event, state: State) -> list[Revocation]:
    payload = event.payload
    match event.type:
        case "command.cancelled":
            late = payload.get("reason") == TOO_LONG
            return [Revocation(event.command_id, kill=payload.get("kill", False), late=late)]
        case "command.issued" if payload["reason"] == "retry":
            return [Revocation(event.command_id)]
        case "signal.received" if payload["signal"] == "PAUSE" and state.pause is not None:
            return [Revocation(command.id, pause=True) for command in state.commands.values() if not command.held]
    return []
