"""Loops: decisions about which items go to which command, and when a loop ends.

A loop with `exec: local` is one command. Otherwise the server issues chunks of items, up to the number that may run at
the same time, and expands the outer loops of a nested loop as it proceeds. Workers run the iterations; the server
records loop.started, loop.done and the iterations of outer loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from arclog.core.flow import reducers, routing
from arclog.core.flow.scopes import inner_scope
from arclog.core.transitions import closing
from arclog.core.transitions.iterations import as_payload, iter_of, level_of, loop_at, manifest_of
from arclog.core.transitions.state import Gathered, Loop, StepRun, path_key, path_of
from arclog.expr import Stored, Unread
from arclog.model.errors import ExpressionError, InvariantBroken
from arclog.model.events import Event
from arclog.model.outcome import TaskError, error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from arclog.core.transitions.decide import Decision
    from arclog.expr import Tree
    from arclog.plan.net import LoopPlan
    from arclog.plan.program import StepProgram

#: A chunk should keep a worker busy for CHUNK_US microseconds, and has at most MAX_CHUNK items.
CHUNK_US = 100_000
MAX_CHUNK = 200

_INNER_STORED = (
    "the items of an inner loop are stored outside the log, where the server cannot read them; "
    "make them part of the outer items, or loop over them in a separate step"
)

_ENDS = frozenset({"loop.done", "loop.iteration.done", "loop.iteration.failed"})

#: Types of values that can have any size.
_MEASURED = (str, list, dict)
#: For a loop whose iterations wrote no ctx. Never changed.
_NOTHING = Gathered()

_encode = msgspec.json.Encoder().encode


def encoded_size(payload: Mapping[str, Any]) -> int:
    """Return the size of a payload in the log, or 0 for a payload of small values only."""
    if not any(isinstance(value, _MEASURED) and value for key, value in payload.items() if key != "tokens"):
        return 0
    return len(_encode(payload))


def items(
    decision: Decision, step: StepProgram, level: Tree, scope: Any
) -> tuple[list[Any] | range | None, TaskError | None]:
    """Evaluate `loop.in` of one level.

    Returns the items and the error, if any. Both are None if the expression reads data that only a worker can read.
    """
    try:
        value = level.evaluate_items(scope)
    except ExpressionError as failure:
        if isinstance(failure.__cause__, Unread):
            return None, None
        raise
    if isinstance(value, Stored):
        return None, None
    if not isinstance(value, list | range):
        return [], not_a_list(step.name, value)
    return value, too_many(step.name, len(value), decision.program.plan.limits.max_iterations)


def not_a_list(step: str, value: Any) -> TaskError:
    kind = {dict: "a map", str: "text", type(None): "null"}.get(type(value), type(value).__name__)
    return error("config", f"loop.in of step {step} gave {kind}, not a list", code="NOT_A_LIST")


def too_many(step: str, total: int, cap: int) -> TaskError | None:
    if total <= cap:
        return None
    message = f"loop.in of step {step} gave {total} items; at most {cap} are run (limits.max_iterations)"
    return error("limit", message, code="MAX_ITERATIONS")


def on_one_lease(step: StepProgram) -> bool:
    """Return whether a single command runs the whole loop."""
    plan = step.loop
    return plan.inner is None and plan.exec == "local"


def begin(decision: Decision, event: Event) -> None:
    """Record loop.started if a worker started a step run with a loop."""
    step_run = decision.state.run_of(event.step, event.run)
    if step_run is not None and step_run.loop is not None:
        _emit_started(decision, step_run, len(decision.txn.events) - 1)


def expanded(decision: Decision, event: Event) -> None:
    """Start a loop whose items a worker evaluated."""
    step_run = decision.state.run_of(event.step, event.run)
    if step_run is None:
        raise InvariantBroken(f"{event.type} of step {event.step}, which is not open")
    _emit_started(decision, step_run, len(decision.txn.events) - 1)
    _go_on(decision, step_run, ())


def spread(decision: Decision, step_run: StepRun, cause: int) -> None:
    """Start a loop whose items go to several commands. A loop without items ends at once."""
    step, run = step_run.step, step_run.run
    decision.record("step.started", {"source": "server"}, step=step, run=run, cause=cause)
    _emit_started(decision, step_run, cause)
    _go_on(decision, step_run, ())


def go_on_with_all(decision: Decision) -> None:
    """Issue the items that an earlier decision had no room for."""
    for step_run in list(decision.state.open.values()):
        for key in list(step_run.loops):
            if key in step_run.loops and step_run.state == "open" and step_run.started:
                _go_on(decision, step_run, path_of(key) if key else ())


def iteration_ended(decision: Decision, event: Event, command_id: int = 0, coming: Iterable[Event] = ()) -> None:
    """Handle the end of an iteration of the innermost loop: close its command, issue more items, or end the loop.

    `coming` is the rest of the report. If the loop fails here, these events are recorded without effect.
    """
    step_run = decision.state.run_of(event.step, event.run)
    if step_run is None or event.iteration is None:
        raise InvariantBroken(f"{event.type} of step {event.step}, which is no open loop")
    problem = _stops(decision, step_run, event.iteration)
    if problem is not None:
        cause = len(decision.txn.events) - 1
        for beyond in coming:
            beyond.informative = True
            decision.emit(beyond)
        _fail(decision, step_run, problem, command_id, cause, _broken_at(step_run, event.iteration))
        return
    if command_id and command_id not in decision.state.commands:
        decision.txn.close.append(command_id)
    _go_on(decision, step_run, event.iteration[:-1])


def _stops(decision: Decision, step_run: StepRun, path: tuple[int, ...]) -> dict[str, Any] | None:
    """Return the error that stops the loop; None if it continues."""
    outer = path[:-1]
    loop = loop_at(step_run, outer)
    if loop.broken is not None:
        return {**loop.broken, "message": f"iteration {path_key(path)}: {loop.broken.get('message', '')}"}
    gathered = step_run.gathered or _NOTHING
    if gathered.problem is not None:
        return gathered.problem
    cap = decision.program.plan.limits.max_loop_results_bytes
    own = loop_at(step_run, ()) if outer else loop
    if own.results_bytes > cap or gathered.ordered_bytes > cap:
        step = step_run.step
        message = f"the results of the loop of step {step} take more than {cap} bytes (limits.max_loop_results_bytes)"
        if gathered.ordered_bytes > cap:
            message = (
                f"the ctx values of the loop of step {step} take more than {cap} bytes (limits.max_loop_results_bytes); "
                f"let its tasks return them, and read {{{{ {step}.results }}}} in later steps"
            )
        return error("limit", message, code="MAX_LOOP_RESULTS_BYTES").as_dict()
    return None


def _go_on(decision: Decision, step_run: StepRun, path: tuple[int, ...]) -> None:
    """Issue commands while there is room; when a level is finished, continue one level up."""
    while True:
        loop = loop_at(step_run, path)
        if loop.handed < loop.total:
            _hand_out(decision, step_run, loop)
        if not _is_over(step_run, loop) or not _close(decision, step_run, loop) or not path:
            return
        path = path[:-1]


def _is_over(step_run: StepRun, loop: Loop) -> bool:
    return step_run.state == "open" and loop.ok + loop.failed == loop.total


def _close(decision: Decision, step_run: StepRun, loop: Loop) -> bool:
    """End the outer iteration or the step after all items of a level have ended. Returns whether the loop continues."""
    cause = len(decision.txn.events) - 1
    if loop.path:
        _emit_done(decision, step_run, loop, cause)
        _end_outer(decision, step_run, loop)
        problem = _stops(decision, step_run, loop.path)
    else:
        _, problem = reducers.outcome(decision.program, decision.state, step_run)
        if problem is None:
            if loop.results_in_log:
                emit_manifest(decision, step_run, cause)
            _emit_done(decision, step_run, loop, cause)
            done = decision.record("step.done", {"source": "server"}, step=step_run.step, run=step_run.run, cause=cause)
            routing.route(decision, step_run.step, step_run.run, done)
    if problem is not None:
        _fail(decision, step_run, problem, failed_at=_broken_at(step_run, loop.path) if loop.path else ())
    return problem is None


def _broken_at(step_run: StepRun, path: tuple[int, ...]) -> tuple[int, ...]:
    """Return the path if the failure of this iteration stops the loop, else ()."""
    return path if loop_at(step_run, path[:-1]).broken is not None else ()


def _fail(
    decision: Decision,
    step_run: StepRun,
    problem: dict[str, Any],
    command_id: int = 0,
    cause: int = -1,
    failed_at: tuple[int, ...] = (),
) -> None:
    """Fail the step run and withdraw its other commands.

    `command_id` is the command whose report is being applied, `failed_at` the iteration whose failure stops the loop.
    """
    cause = cause if cause >= 0 else len(decision.txn.events) - 1
    if command_id:
        decision.txn.close.append(command_id)
    decision.withdraw_commands("the loop failed", (step_run.step, step_run.run), command_id, cause=cause)
    closing.end_parts(decision, step_run, closing.loop_failed(problem), cause, failed_at, problem)
    decision.fail_step(step_run.step, step_run.run, problem, cause)


def _hand_out(decision: Decision, step_run: StepRun, loop: Loop) -> None:
    plan = level_of(decision.program.steps[step_run.step], loop.path)
    if plan.inner is None:
        _issue_chunks(decision, step_run, loop, plan)
    else:
        _start_outer(decision, step_run, loop, plan)


def _issue_chunks(decision: Decision, step_run: StepRun, loop: Loop, plan: LoopPlan) -> None:
    """Issue commands for items of the innermost loop, up to the limit of commands; quick items make larger chunks."""
    if loop.handed >= loop.total:
        return
    at_a_time = plan.max_in_flight if plan.mode == "parallel" and plan.exec == "distributed" else 1
    chunks = step_run.chunks
    # All chunks of a loop that is not nested belong to it.
    busy = sum(1 for chunk in chunks.values() if chunk.path == loop.path) if loop.path else len(chunks)
    while busy < at_a_time and loop.handed < loop.total:
        if decision.state.pause is not None:
            return
        if decision.is_full:
            decision.txn.more = True
            return
        if busy and not decision.has_room_for_commands:
            return
        first = loop.handed
        # A step that uses a resource takes one token of it for each item.
        single = bool(decision.program.steps[step_run.step].plan.resources)
        size = 1 if single else _chunk_size(loop, at_a_time)
        last = loop.total if plan.exec == "local" else first + size
        command_id = decision.next_id
        payload = {"reason": "loop", "items": [loop.path, first, last]}
        decision.record("command.issued", payload, step=step_run.step, run=step_run.run, command_id=command_id)
        _emit_scheduled(decision, step_run, loop, first, last)
        decision.issue(command_id, step_run.step, step_run.run)
        busy += 1


def _chunk_size(loop: Loop, at_a_time: int) -> int:
    """Return enough items for CHUNK_US at the measured speed, but at most a fair share of the remaining items."""
    size = int(CHUNK_US / loop.item_us) if loop.item_us else 1
    share = -(-(loop.total - loop.handed) // at_a_time)
    return max(1, min(size, share, MAX_CHUNK))


def _start_outer(decision: Decision, step_run: StepRun, loop: Loop, plan: LoopPlan) -> None:
    """Start iterations of an outer loop; their inner items are evaluated at the start."""
    step = decision.program.steps[step_run.step]
    at_a_time = plan.max_in_flight if plan.mode == "parallel" else 1
    busy = sum(1 for inner in step_run.loops.values() if inner.path[:-1] == loop.path and inner.path)
    while step_run.state == "open" and loop.handed < loop.total:
        if busy >= at_a_time or (busy and not decision.has_room_for_commands):
            return
        if decision.state.pause is not None:
            return
        if decision.is_full:
            decision.txn.more = True
            return
        path = (*loop.path, loop.handed)
        iteration = iter_of(plan, loop, path[-1])
        try:
            scope = inner_scope(decision.program, decision.state, step_run, iteration, decision.meter)
            inner_items, problem = items(decision, step, step.items_at(len(path)), scope)
            if inner_items is None:
                inner_items, problem = [], error("result", _INNER_STORED, code="INNER_STORED")
        except ExpressionError as failure:
            inner_items, problem = [], error("template", str(failure))
        payload: dict[str, Any] = {"total": len(inner_items), "items": as_payload(inner_items)}
        problem = problem or decision.too_large(payload, f"the inner loop items of step {step.name}")
        if problem is not None:
            message = f"iteration {path_key(path)}: {problem.message}"
            _fail(decision, step_run, {**problem.as_dict(), "message": message}, failed_at=path)
            return
        inner = plan.inner
        mode = inner.mode if inner is not None else plan.mode
        _emit_of(decision, step_run, "loop.iteration.started", path)
        _emit_of(decision, step_run, "loop.started", path, {**payload, "mode": mode})
        below = loop_at(step_run, path)
        _hand_out(decision, step_run, below)
        if _is_over(step_run, below):
            _close(decision, step_run, below)
        else:
            busy += 1


def _end_outer(decision: Decision, step_run: StepRun, inner: Loop) -> None:
    """End an outer iteration after its inner loop. It fails if any of its items failed."""
    if inner.failed:
        problem = {key: value for key, value in inner.errors[0].items() if key != "index"}
        _emit_of(decision, step_run, "loop.iteration.failed", inner.path, {"error": problem})
    else:
        _emit_of(decision, step_run, "loop.iteration.done", inner.path)


def emit_manifest(decision: Decision, step_run: StepRun, cause: int) -> None:
    """Record where the results of a loop are in the log."""
    payload = {"manifest": manifest_of(decision.program, decision.state, step_run), "source": "server"}
    decision.record("result.manifest.updated", payload, step=step_run.step, run=step_run.run, cause=cause)


def _emit_done(decision: Decision, step_run: StepRun, loop: Loop, cause: int) -> None:
    payload: dict[str, Any] = {"total": loop.total, "ok": loop.ok, "failed": loop.failed}
    payload |= errors_of(decision, loop)
    if loop.path:
        _emit_of(decision, step_run, "loop.done", loop.path, payload)
    else:
        decision.record("loop.done", payload, step=step_run.step, run=step_run.run, cause=cause)


def errors_of(decision: Decision, loop: Loop) -> dict[str, Any]:
    """Return the first errors of a loop, as many as fit in an event."""
    shown = loop.errors
    while shown and encoded_size({"errors": shown}) > decision.event_room:
        shown = shown[: len(shown) // 2]
    return {"errors": shown} if shown else {}


def _emit_started(decision: Decision, step_run: StepRun, cause: int) -> None:
    loop = loop_at(step_run, ())
    plan = decision.program.steps[step_run.step].loop
    payload = {"total": loop.total, "mode": plan.mode}
    decision.record("loop.started", payload, step=step_run.step, run=step_run.run, cause=cause)
    if on_one_lease(decision.program.steps[step_run.step]):
        _emit_scheduled(decision, step_run, loop, 0, loop.total)


def _emit_scheduled(decision: Decision, step_run: StepRun, loop: Loop, first: int, last: int) -> None:
    """Record loop.iteration.scheduled for issued iterations if the step emits it, up to MAX_CHUNK of them."""
    if "loop.iteration.scheduled" in decision.program.steps[step_run.step].emit:
        for index in range(first, min(last, first + MAX_CHUNK)):
            _emit_of(decision, step_run, "loop.iteration.scheduled", (*loop.path, index))


def _emit_of(
    decision: Decision, step_run: StepRun, kind: str, path: tuple[int, ...], payload: dict[str, Any] | None = None
) -> None:
    """Emit a server event of one iteration."""
    fields = {**(payload or {}), "source": "server"} if kind.startswith("loop.iteration.") else payload or {}
    event = Event(kind, decision.now, step=step_run.step, run=step_run.run, iteration=path, payload=fields)
    if kind in _ENDS:
        decision.measure(event)
    decision.emit(event)
