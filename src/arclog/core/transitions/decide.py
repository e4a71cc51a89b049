"""Decides which events follow an input. No I/O; the state changes only by applying the events that are emitted here.

`decide` runs on a working state: each event is applied at once, so decisions cascade (step.done → next → schedule →
completion), and the result is one Txn. If that Txn is not committed, the state must be discarded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arclog.core.boundary import leases, signals, wire_reports
from arclog.core.boundary.inputs import (
    Abort,
    ChildEnded,
    Continue,
    Forked,
    GaveUp,
    GivenBack,
    Input,
    LeaseEnded,
    NewWork,
    Observed,
    ParentNotified,
    Reclaimed,
    Refused,
    Request,
    Signal,
    TakeSlot,
    TimerFired,
    Txn,
    WorkReported,
)
from arclog.core.boundary.reports import HANDOVERS, check_report, numbered
from arclog.core.flow import arrivals, final_step, joins, loops, routing, waits
from arclog.core.flow.scopes import result_scope
from arclog.core.transitions import closing
from arclog.core.transitions.apply import apply
from arclog.core.transitions.items import apply_item, item_end
from arclog.core.transitions.state import OpenCommand, State, path_key
from arclog.expr import Meter, Stored
from arclog.model import ids, status
from arclog.model.errors import ExpressionError
from arclog.model.events import Event
from arclog.model.ids import milliseconds
from arclog.model.outcome import TaskError, error
from arclog.plan.net import Plan, Webhook
from arclog.plan.program import Program

#: A decision starts no further step runs after this many events; a Continue starts the rest.
EVENTS_PER_DECISION = 500
#: Number of events that may follow a report beyond its own, so that a long report can still issue the next commands.
EVENTS_AFTER_REPORT = 50
#: Tokens wait while this many commands are open, so that all of them and their tasks can be ended in one transaction.
MAX_OPEN_COMMANDS = 1000
#: The same limit for iterations: a command with parallel items counts once for each item that may be in progress.
MAX_OPEN_PIPELINES = 5000
#: Events of a report that require further decisions.
_LEADING = frozenset({
    "step.started", "step.done", "step.failed", "result.manifest.updated", "loop.iteration.done", "loop.iteration.failed",
    "task.started", "task.attempt.started", "policy.task.evaluated",
})  # fmt: skip
#: Event types with a duration. The duration of a task is in its outcome.
_TIMED = frozenset({
    "step.done", "step.failed", "loop.done", "loop.iteration.done", "loop.iteration.failed",
    "workflow.finished", "playbook.finished", "execution.cancelled",
})  # fmt: skip


def decide(program: Program, state: State, incoming: Input, now: int, base_id: int, meter: Meter | None = None) -> Txn:
    """Return the transaction for the input `incoming`.

    `base_id` is the event_id of its first event; `meter` limits the total cost of the templates that it evaluates.
    """
    return Decision(program, state, now, base_id, meter).run(incoming)


class Decision:
    """A decision in progress. Routing, loops and joins add their events to it."""

    def __init__(self, program: Program, state: State, now: int, base_id: int, meter: Meter | None = None) -> None:
        self.program = program
        self.meter = meter
        self.state = state
        self.now = now
        self.base_id = base_id
        self.txn = Txn()
        self._enough = EVENTS_PER_DECISION
        #: token that this decision created → index of the event that created it
        self.made: dict[int, int] = {}
        #: index of the input's own event; -1 if it has none
        self._input = -1

    def run(self, incoming: Input, items: dict[int, int] | None = None) -> Txn:
        """Decide about an input. `items` has the start and the end of items in one piece in a report, if they are known."""
        if isinstance(incoming, ParentNotified):
            return self._parent_notified()
        if isinstance(incoming, Observed):
            record_observed(self, incoming)
            return self.txn
        if isinstance(incoming, Signal) and signals.answered(self, incoming):
            return self.txn
        if self.state.terminal is not None:
            return self._refuse("ended", f"the execution has ended ({self.state.status})")
        match incoming:
            case WorkReported():
                incoming = numbered(self.state, incoming)
                sent = incoming.events[0] if incoming.from_wire and incoming.events else None
                if sent is not None:
                    completed = wire_reports.completed(self, incoming)
                    if isinstance(completed, Refused):
                        self.txn.refused = completed
                        return self.txn
                    incoming = completed
                    self.txn.spoken = wire_reports.spoken(incoming, sent)
                items = {} if items is None else items
                refused = check_report(self.program, self.state, incoming, items)
                if refused is not None:
                    self.txn.refused = refused
                    return self.txn
                self._take_report(incoming, items)
            case Request():
                self._start(incoming)
            case LeaseEnded():
                leases.lose(self, incoming)
            case GaveUp():
                leases.give_up(self, incoming)
            case Reclaimed():
                leases.reclaim(self, incoming)
            case TimerFired():
                waits.fire_timer(self, incoming)
            case ChildEnded():
                self._take_child(incoming)
            case Signal():
                signals.receive(self, incoming)
                if incoming.signal == "RESUME" and self.state.pause is None:
                    loops.go_on_with_all(self)
            case GivenBack():
                leases.take_back(self, incoming)
            case TakeSlot():
                take_slot(self, incoming)
            case Abort():
                self.fail_execution(incoming.problem.as_dict(), bare=incoming.bare)
            case Continue():
                loops.go_on_with_all(self)
            case Forked():
                continue_fork(self)
        if self.txn.events and not isinstance(incoming, Continue | Forked):
            self._input = 0
        self._advance()
        return self.txn

    def run_valid(self, report: WorkReported) -> Txn:
        """Take a report that this process made by `core.flow.pipeline` for an open command. It is not checked."""
        self._take_report(report, {})
        self._input = 0
        self._advance()
        return self.txn

    def _refuse(self, reason: str, message: str) -> Txn:
        self.txn.refused = Refused(reason, message)
        return self.txn

    # -- emitting -----------------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Add an event to the transaction and apply it to the state."""
        self.txn.events.append(event)
        moves = apply(self.program, self.state, event)
        if moves:
            self.txn.timers.update(moves)

    def record(
        self,
        kind: str,
        payload: dict[str, Any] | None = None,
        *,
        step: str = "",
        run: int = 0,
        cause: int = -1,
        event_status: str = "",
        command_id: int = 0,
    ) -> int:
        """Emit a server event and return its index; `cause` is the index of the event that caused it."""
        txn = self.txn
        index = len(txn.events)
        event = Event(
            type=kind,
            at=self.now,
            step=step,
            run=run,
            status=event_status,
            command_id=command_id,
            cause=index - cause if cause >= 0 else 0,
            payload=payload or {},
        )
        if kind in _TIMED:
            self.measure(event)
        txn.events.append(event)  # `emit`, inlined for speed
        moves = apply(self.program, self.state, event)
        if moves:
            txn.timers.update(moves)
        return index

    def measure(self, event: Event) -> None:
        """Set the duration of an event that is the end of something."""
        if not event.step:
            event.duration_ms = milliseconds(self.state.started_at or 0, event.at)
            return
        step_run = self.state.run_of(event.step, event.run)
        if step_run is None:
            return
        if event.iteration is None:
            loop = step_run.loop
            began = loop.started_at if loop is not None and event.type == "loop.done" else step_run.started_at
        else:
            # An outer iteration starts and ends with its inner loop.
            key = path_key(event.iteration)
            part = step_run.iterations.get(key) or step_run.loops.get(key)
            began = 0 if part is None else part.started_at
        event.duration_ms = milliseconds(began, event.at)

    def cause_of(self, token: int) -> int:
        """Return the cause of taking a token: the event that created it, or the input that released it."""
        return self.made.get(token, self._input)

    @property
    def next_id(self) -> int:
        """event_id of the next event; a command has the id of the event that issues it."""
        return ids.moved(self.base_id, len(self.txn.events))

    @property
    def is_full(self) -> bool:
        """Return whether this decision has reached its limit; a Continue does the rest."""
        meter = self.meter
        return len(self.txn.events) >= self._enough or (meter is not None and meter.is_half_spent)

    @property
    def has_room_for_commands(self) -> bool:
        commands, wide = self.state.commands, self.program.side_by_side
        if len(commands) >= MAX_OPEN_COMMANDS:
            return False
        return not wide or sum(wide.get(command.step, 1) for command in commands.values()) < MAX_OPEN_PIPELINES

    def issue(self, command_id: int, step: str, run: int) -> None:
        program = self.program.steps[step]
        plan, requested = program.plan, self.state.priority
        priority = (
            plan.priority
            if plan.priority is not None
            else self.program.plan.priority
            if requested is None
            else requested
        )
        self.txn.issue.append(NewWork(command_id, step, run, program.kinds, plan.pool, priority, plan.resources))

    # -- inputs -------------------------------------------------------------------------------------------------------

    def _start(self, request: Request) -> None:
        payload: dict[str, Any] = {"path": request.path, "version": str(request.version), "plan": self.program.digest}
        if request.workload:
            payload["workload"] = request.workload
        if request.scope:
            payload["scope"] = request.scope
        if request.parent is not None:
            payload.update(parent=request.parent, depth=request.depth)
        if request.files:
            payload["files"] = request.files
        if request.original_run_id:
            payload["original_run_id"] = request.original_run_id
        if request.origin is not None:
            payload["origin"] = request.origin
        if request.priority is not None:
            payload["priority"] = request.priority
        if request.file:
            payload["file"] = request.file
        refused = request.problem
        oversized = self.too_large(payload, "the workload and files of the request")
        if oversized is not None:
            payload = {key: value for key, value in payload.items() if key not in ("workload", "files")}
            refused = refused or oversized
        request_index = self.record("playbook.execution.requested", payload)
        if refused is not None:
            problem = refused.as_dict()
            self.record("playbook.request.evaluated", {"error": problem}, event_status="error", cause=request_index)
            self.record("playbook.finished", {"error": problem}, event_status="error", cause=request_index)
            self._processed(request_index)
            return
        if self.program.plan.approval:
            self.record("playbook.request.evaluated", {"waits_for": "approval"}, cause=request_index)
        elif not self.state.pending_for:
            self.record("playbook.request.evaluated", cause=request_index)
            self.begin(request_index)

    def begin(self, cause: int) -> None:
        """Start the run: neither an approval nor a concurrency slot is pending any more."""
        self.record("playbook.started", cause=cause)
        token = self.state.tokens_made + 1
        self.made[token] = self.record("workflow.started", {"token": token}, cause=cause)

    def _take_report(self, report: WorkReported, items: Mapping[int, int]) -> None:
        self.txn.digests.update(report.digests)
        first = report.events[0]
        first.report, first.command_id, first.fence = report.n, report.command_id, report.fence
        first.worker_id = report.worker_id
        self._enough = max(EVENTS_PER_DECISION, len(report.events) + EVENTS_AFTER_REPORT)
        program, state, txn = self.program, self.state, self.txn
        events = report.events
        coming = iter(events)
        append = txn.events.append
        at = -1
        for event in coming:
            at += 1
            kind = event.type
            if kind == "loop.iteration.started":
                end = items.get(at) or item_end(events, at)
                if end > at and apply_item(program, state, events, at, end):
                    item = events[at:end]
                    txn.events += item
                    last = item[-1]
                    last.duration_ms = milliseconds(event.at, last.at)
                    for _ in range(at + 1, end):
                        next(coming)
                    at = end - 1
                    loops.iteration_ended(self, last, report.command_id, coming)
                    continue
            if kind in _TIMED:
                self.measure(event)
            append(event)  # `emit`, without its call
            moves = apply(program, state, event)
            if moves:
                txn.timers.update(moves)
            if kind not in _LEADING:
                continue
            # Tasks and items come first: the report of a loop has thousands of them.
            if kind in HANDOVERS:
                if event.payload and waits.suspends(program, event):
                    waits.suspend(self, event, report.command_id)
                continue
            match kind:
                case "loop.iteration.done" | "loop.iteration.failed":
                    loops.iteration_ended(self, event, report.command_id, coming)
                case "step.started":
                    loops.begin(self, event)
                case "step.done" | "step.failed":
                    self.txn.close.append(report.command_id)
                    routing.route(self, event.step, event.run, len(self.txn.events) - 1)
                case "result.manifest.updated":
                    self.txn.close.append(report.command_id)
                    loops.expanded(self, event)

    def reissue(self, command: OpenCommand, payload: dict[str, Any]) -> None:
        """Withdraw a command from its holder and offer it again, unless the run is pausing."""
        fence = command.fence
        self.record("command.issued", payload, step=command.step, run=command.run, command_id=command.id)
        if command.held:
            self.txn.hold.append((command.id, fence))
        else:
            self.txn.release.append(command.id)

    def cancel(self, reason: str, cause: int = -1, code: str = "") -> None:
        """Cancel the run at once; with a code, tasks are killed without a grace period."""
        payload = {"reason": reason, "code": code} if code else {"reason": reason}
        problem, closed_by = error("cancelled", reason, code=code or None).as_dict(), closing.run_cancelled(reason)
        self.withdraw_commands(reason, kill=bool(code), cause=cause)
        final = {"state": "cancelled", "reason": reason, "error": problem}
        if not code and final_step.begin(self, final, closed_by, cause):
            return
        self._end_workflow(closed_by, problem, cause)
        self.record("execution.cancelled", payload, cause=cause)
        self._processed(cause)

    def _end_workflow(self, reason: closing.Reason | None, problem: dict[str, Any], cause: int) -> None:
        """Close all open work, then end the workflow. Remaining tokens end with it."""
        if self.state.workflow != status.RUNNING:
            return
        if reason is not None:
            closing.end_step_runs(self, reason, cause)
        payload: dict[str, Any] = {"error": problem}
        if left := closing.tokens_left(self.state):
            payload["tokens"] = left
        self.record("workflow.finished", payload, event_status="error", cause=cause)

    def _take_child(self, ended: ChildEnded) -> None:
        wait = self.state.waits.get(ended.key)
        if wait is None or wait.child != ended.child:
            self._refuse("closed", "nothing waits for that child")
            return
        waits.resolve(self, ended.key, ended.record, -1)

    def _parent_notified(self) -> Txn:
        if self.state.terminal is None or self.state.processed:
            return self._refuse("closed", "the run has not ended, or all was taken care of before")
        self.record("playbook.processed")
        return self.txn

    def _processed(self, cause: int = -1) -> None:
        """Record playbook.processed, unless a parent or a webhook has yet to be notified."""
        if self.state.parent is None and not webhooks_for(self.program.plan, self.state.status):
            self.record("playbook.processed", cause=cause)

    # -- advancing ----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Start ready step runs, oldest token first; end the run when nothing is left."""
        state = self.state
        while state.terminal is None and state.pause is None and (state.tokens or state.waiting):
            firing = None if state.tokens else joins.next_firing(self.program, state)
            if not state.tokens and firing is None:
                return
            if self.is_full:
                self.txn.more = True
                return
            if not self.has_room_for_commands:
                return
            if firing is None:
                token = next(iter(state.tokens.values()))
                arrivals.arrive(self, token, {"tokens": [token.id]})
            else:
                arrivals.fire(self, firing)
        # A pause holds the final step like every other step.
        holds = state.pause is not None and bool(self.program.plan.final_step)
        idle = not (state.open or state.tokens or state.waiting or holds)
        if state.terminal is None and state.workflow == status.RUNNING and idle:
            self._complete()
        signals.settle_pause(self)

    @property
    def event_room(self) -> int:
        """Maximum bytes of a payload."""
        return self.program.event_room

    def too_large(self, payload: dict[str, Any], name: str) -> TaskError | None:
        cap = self.event_room
        size = loops.encoded_size(payload)
        if size <= cap:
            return None
        message = f"{name} take {size} bytes; an event holds {cap} (limits.max_payload_bytes)"
        return error("limit", message, code="MAX_PAYLOAD_BYTES")

    def _complete(self) -> None:
        """End the workflow and the run: nothing is live any more."""
        final = self.state.final or {}
        problem = final.get("error") or self.state.error
        payload: dict[str, Any] = {}
        if problem is None:
            try:
                payload = self._result()
            except ExpressionError as failure:
                problem = error("template", f"the execution's result: {failure}").as_dict()
            else:
                oversized = self.too_large(payload, "the execution's result")
                problem = oversized.as_dict() if oversized is not None else None
        if problem is not None:
            self.fail_execution(problem)
            return
        if final_step.begin(self, {"state": "completed"}, None, -1):
            return
        self.record("workflow.finished")
        self.record("playbook.finished", payload)
        self._processed()

    def _result(self) -> dict[str, Any]:
        """Return the result for the last event of the run: the data, or the ref of stored data."""
        value, ref = self.state.last_data, self.state.last_ref
        if self.program.result is not None:
            scope = result_scope(self.program, self.state, self.meter)
            value, ref = self.program.result.evaluate_items(scope), None
            if isinstance(value, Stored) and value.is_whole:
                ref = dict(value.ref)
            elif isinstance(value, Stored | range):
                value = self.program.result.evaluate(scope)
        if ref is not None:
            return {"result_ref": ref}
        return {} if value is None else {"result": value}

    # -- failing ------------------------------------------------------------------------------------------------------

    def fail_step(self, step: str, run: int, problem: dict[str, Any], cause: int) -> None:
        """Fail a step run on the server, in place of its worker. Its open work must have been closed before."""
        step_run = self.state.run_of(step, run)
        if step_run is not None and step_run.loop is not None and step_run.loop.results_in_log:
            loops.emit_manifest(self, step_run, cause)
        payload = closing.step_failed(step_run, problem)
        failed = self.record("step.failed", payload, step=step, run=run, cause=cause)
        routing.route(self, step, run, failed)

    def fail_execution(self, problem: dict[str, Any], cause: int = -1, *, bare: bool = False) -> None:
        """Fail the run with an unhandled error: withdraw open work and finish, in this transaction."""
        self.withdraw_commands("the execution failed", cause=cause)
        final = self.state.final
        if not bare:
            if final_step.begin(self, {"state": "failed", "error": problem}, closing.run_failed(problem), cause):
                return
            if final is not None and final["state"] == "cancelled":
                self.cancel(final["reason"], cause)
                return
            problem = (final or {}).get("error") or problem
        self._end_workflow(None if bare else closing.run_failed(problem), problem, cause)
        self.record("playbook.finished", {"error": problem}, event_status="error", cause=cause)
        self._processed(cause)

    def withdraw_commands(
        self, reason: str, of: tuple[str, int] | None = None, but: int = 0, *, kill: bool = False, cause: int = -1
    ) -> None:
        """Withdraw all open commands, or those of one step run."""
        for command in list(self.state.commands.values()):
            if command.id != but and (of is None or of == (command.step, command.run)):
                self.withdraw(command, reason, kill=kill, cause=cause)

    def withdraw(self, command: OpenCommand, reason: str, *, kill: bool = False, cause: int = -1) -> None:
        payload: dict[str, Any] = {"reason": closing.clipped(reason)}
        if kill:
            payload["kill"] = True
        self.record(
            "command.cancelled", payload, step=command.step, run=command.run, command_id=command.id, cause=cause
        )
        self.txn.close.append(command.id)


def record_observed(decision: Decision, observed: Observed) -> None:
    """Record external events for readers of the log, or reject all of them. Ended runs accept them as well.

    Invariant: they have no effect. No run starts, ends or continues because of them, and the limits of the playbook do
    not count them; they have a separate limit.
    """
    room = observed.most - decision.state.informative
    if len(observed.events) > room:
        decision.txn.refused = Refused(
            "full", f"the run has {decision.state.informative} events from outside; it takes {observed.most}"
        )
        return
    for event in observed.events:
        event.informative = True
        decision.emit(event)
    decision.txn.digests.update(observed.digests)


def take_slot(decision: Decision, request: TakeSlot) -> None:
    """Start a run that waits for a concurrency slot (`executor.spec.concurrency`).

    If all slots are held, fail the run (`on_excess: reject`) or leave it waiting (`queue`).

    Invariant: a run holds a slot from playbook.started to its end. The store checks that a slot is free in the commit
    of playbook.started; a decision assumes a free slot, and is repeated if there is none.
    """
    state, plan = decision.state, decision.program.plan
    if state.pending_for != "slot":
        decision.txn.refused = Refused("closed", "the run does not wait for a concurrency slot")
        return
    if not request.holders:
        if not plan.approval:
            decision.record("playbook.request.evaluated")
        decision.begin(-1)
        decision.txn.slot = True
        return
    message = (
        f"{plan.concurrency} at a time of this playbook may run (executor.spec.concurrency); "
        f"running: {', '.join(map(str, request.holders[:5]))}{', …' if len(request.holders) > 5 else ''}"
    )
    if plan.on_excess == "queue":
        decision.txn.refused = Refused("no_slot", message)
        return
    problem = error("limit", message, code="CONCURRENCY").as_dict()
    if not plan.approval:
        decision.record("playbook.request.evaluated", {"error": problem}, event_status="error")
    decision.fail_execution(problem)


def continue_fork(decision: Decision) -> None:
    """Continue a run that began with the events of another run.

    Offers its open commands, routes ended step runs, and issues the remaining items of loops.

    Invariant: the copied events are complete up to a boundary between tasks. Their open commands have not been offered
    to any worker, some ended step runs have not been routed, and loops may have items that no command has.
    """
    state = decision.state
    for command in list(state.commands.values()):
        decision.issue(command.id, command.step, command.run)
    for step_run in list(state.open.values()):
        if state.run_of(step_run.step, step_run.run) is None:
            continue  # routing another step run has ended it
        if step_run.state != "open":
            routing.route(decision, step_run.step, step_run.run, -1)
    if state.terminal is None:
        loops.go_on_with_all(decision)


#: state of an ended run → its name in `executor.spec.webhooks[].on`
ENDS = {status.COMPLETED: "completed", status.FAILED: "failed", status.CANCELLED: "cancelled"}


def webhooks_for(plan: Plan, state: str) -> tuple[Webhook, ...]:
    """Return the webhooks that are called when a run ends in this state."""
    return tuple(webhook for webhook in plan.webhooks if ENDS.get(state) in webhook.on) if plan.webhooks else ()
