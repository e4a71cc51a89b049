"""The only code that changes a State. One function per event type; replay is running them again.

An event that is only a fact for readers (policy.admit allowed, command.claimed …) moves the head and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.json import encode
from msgspec.structs import replace

from arclog.core import pipeline as pipelines
from arclog.core import signalled
from arclog.core.scopes import capture
from arclog.core.state import Failure, Loop, OpenCommand, State, StepRun, Token, run_key
from arclog.model import status
from arclog.model.commands import Captured, Pipeline
from arclog.model.errors import InvariantBroken
from arclog.model.events import Event, status_of
from arclog.model.ids import timestamp
from arclog.model.merge import deep_merge
from arclog.model.outcome import data_of
from arclog.plan.program import Program

#: How many errors loop.done names.
MAX_ERRORS = 100


def apply(program: Program, state: State, event: Event) -> None:
    """Take one event into the state."""
    state.head += 1
    if event.informative:
        return
    handler = _HANDLERS.get(event.type)
    if handler is not None:
        if event.report:
            _count_report(state, event)
        handler(program, state, event)


def _count_report(state: State, event: Event) -> None:
    command = state.commands.get(event.command_id)
    if command is not None:
        command.report = event.report


def _requested(program: Program, state: State, event: Event) -> None:
    state.workload = deep_merge(program.plan.workload, event.payload.get("workload") or {})
    state.scope = event.payload.get("scope", "")
    state.ctx = {name: spec["initial"] for name, spec in program.plan.ctx.items() if "initial" in spec}
    state.pending_for = "slot" if program.plan.concurrency is not None else ""


def _request_evaluated(_: Program, state: State, event: Event) -> None:
    state.pending_for = event.payload.get("waits_for", state.pending_for)


def _playbook_started(_: Program, state: State, event: Event) -> None:
    _move(state, "playbook", state.status, status.RUNNING)
    state.status = status.RUNNING
    state.started_at = event.at
    state.pending_for = ""


def _workflow_started(program: Program, state: State, event: Event) -> None:
    state.workflow = status.RUNNING
    arrival = {**boundary("playbook.started", event), "payload": {}}
    _put(state, event.payload["token"], "entry", program.plan.entry, {}, arrival)


def _scheduled(program: Program, state: State, event: Event) -> None:
    arrival: dict[str, Any] = {}
    for token in event.payload["tokens"]:
        arrival = state.tokens.pop(token).event
    step = program.steps[event.step]
    total = event.payload.get("total")
    loop = None
    if total is not None:
        keeps = event.step in program.results_read
        loop = Loop(total=total, items=event.payload.get("items", []), results=[] if keeps else None)
    state.open[run_key(event.step, event.run)] = StepRun(
        step=event.step,
        run=event.run,
        args=event.payload.get("args") or {},
        captured=capture(state, step.needs),
        scheduled_at=event.at,
        command_id=event.command_id,
        loop=loop,
        arrival=arrival,
    )
    state.failures.pop(event.step, None)
    state.runs[event.step] = event.run
    state.step_runs += 1
    state.latest[event.step] = "running"
    state.current_step = event.step
    if event.command_id:
        state.commands[event.command_id] = open_command(state, event)


def _step_started(_: Program, state: State, event: Event) -> None:
    step_run = _run(state, event)
    step_run.started = True
    if step_run.loop is None:
        step_run.pipeline = Pipeline()


def _task_event(program: Program, state: State, event: Event) -> None:
    step_run = _run(state, event)
    if step_run.pipeline is None:
        raise InvariantBroken(f"{event.type} of step {event.step} without an open pipeline")
    pipelines.fold(step_run.pipeline, program.steps[event.step], event)


def _iteration_started(program: Program, state: State, event: Event) -> None:
    step_run, loop = _run(state, event), _loop(state, event)
    if event.iteration is None:
        raise InvariantBroken(f"{event.type} of step {event.step} without an index")
    index = event.iteration[-1]
    loop.started = True
    loop.index = index
    step_run.pipeline = Pipeline(
        iter={program.steps[event.step].loop.iterator: loop.items[index], "index": index, "total": loop.total}
    )


def _iteration_ended(program: Program, state: State, event: Event) -> None:
    step_run = _run(state, event)
    loop, pipeline = step_run.loop, step_run.pipeline
    if loop is None or pipeline is None:
        raise InvariantBroken(f"{event.type} of step {event.step} without an open iteration")
    record = _last_record(pipeline)
    if record is not None:
        state.results[event.step] = record
    loop.index += 1
    if event.type == "loop.iteration.done":
        loop.ok += 1
    else:
        loop.failed += 1
        problem = event.payload.get("error") or {}
        if len(loop.errors) < MAX_ERRORS:
            loop.errors.append({"index": loop.index - 1, **problem})
        if program.steps[event.step].plan.failure_mode == "fail_fast" or problem.get("kind") == "conflict":
            loop.broken = problem
    if loop.results is not None:
        data = data_of(record) if record is not None else None
        loop.results.append(data)
        loop.results_bytes += len(encode(data))
    if pipeline.ctx:
        state.ctx = {**state.ctx, **pipeline.ctx}
        step_run.captured = with_ctx(step_run.captured, pipeline.ctx)
    step_run.pipeline = None


def _loop_started(_: Program, state: State, event: Event) -> None:
    _loop(state, event).started = True


def _loop_done(_: Program, state: State, event: Event) -> None:
    step_run = _run(state, event)
    step_run.boundary = boundary("loop.done", event)
    loop = _loop(state, event)
    if loop.results is not None:
        record = state.results.get(event.step) or {"status": "ok"}
        state.results[event.step] = {**record, "results": loop.results}


def _step_ended(_: Program, state: State, event: Event) -> None:
    step_run = _run(state, event)
    failed = event.type == "step.failed"
    step_run.state = "failed" if failed else "done"
    step_run.error = event.payload.get("error")
    if step_run.boundary is None or failed:
        step_run.boundary = boundary(event.type, event)
    pipeline = step_run.pipeline
    if pipeline is not None:
        if pipeline.ctx:
            state.ctx = {**state.ctx, **pipeline.ctx}
        record = _last_record(pipeline)
        if record is not None:
            state.results[event.step] = record
    state.latest[event.step] = "failed" if failed else ("skipped" if event.status == "skipped" else "done")
    if failed:
        state.failures[event.step] = Failure(event.run, step_run.args, step_run.arrival)
    state.current_step = event.step
    state.commands.pop(step_run.command_id, None)
    step_run.command_id = 0
    if state.waits:
        state.waits = {
            key: wait for key, wait in state.waits.items() if (wait.step, wait.run) != (event.step, event.run)
        }


def _next_evaluated(program: Program, state: State, event: Event) -> None:
    step_run = state.open.pop(run_key(event.step, event.run))
    arcs = program.steps[event.step].plan.arcs
    selected = event.payload.get("selected") or ()
    for choice in selected:
        arc = arcs[choice["arc"]]
        _put(state, choice["token"], arc.place, arc.target, choice.get("args") or {}, step_run.boundary or {})
    if not selected:
        record = state.results.get(event.step)
        if step_run.state == "done":
            state.last_data = data_of(record) if record is not None else None
        else:
            state.unhandled[run_key(event.step, event.run)] = {**(step_run.error or {}), "step": event.step}
            state.error = next(iter(state.unhandled.values()))
    newest = next(reversed(state.open.values()), None)
    if newest is not None:
        state.current_step = newest.step


def _admitted(_: Program, state: State, event: Event) -> None:
    for token in event.payload.get("tokens") or ():
        del state.tokens[token]


def _command_issued(_: Program, state: State, event: Event) -> None:
    command = state.commands[event.command_id]
    if event.payload.get("reason") == "lease_lost":
        command.losses += 1
    else:
        command.returns += 1
    command.report = 0
    command.held = state.pause is not None


def _command_over(_: Program, state: State, event: Event) -> None:
    state.commands.pop(event.command_id, None)


def _workflow_finished(_: Program, state: State, event: Event) -> None:
    state.workflow = status.FAILED if status_of(event) == "error" else status.COMPLETED
    state.tokens.clear()
    state.open.clear()


def _playbook_finished(_: Program, state: State, event: Event) -> None:
    after = status.FAILED if status_of(event) == "error" else status.COMPLETED
    _end(state, event, after)
    state.result = event.payload.get("result")
    state.error = event.payload.get("error")


def _cancelled(_: Program, state: State, event: Event) -> None:
    _end(state, event, status.CANCELLED)
    state.error = {
        "kind": "cancelled",
        "message": event.payload.get("reason") or "cancelled",
        "code": event.payload.get("code"),
        "retryable": False,
    }


def _processed(_: Program, state: State, _event: Event) -> None:
    state.processed = True


def _end(state: State, event: Event, after: str) -> None:
    _move(state, "playbook", state.status, after)
    state.status = after
    state.terminal = event.type
    state.ended_at = event.at
    state.tokens.clear()
    state.open.clear()
    state.commands.clear()
    state.failures.clear()
    state.unhandled.clear()
    state.pending_for = ""
    state.pause, state.paused_at = None, None


def _move(state: State, layer: str, before: str, after: str) -> None:
    if not status.may(layer, before, after):
        raise InvariantBroken(f"execution {state.execution_id}: {layer} may not go from {before} to {after}")


def open_command(state: State, event: Event) -> OpenCommand:
    """The command that an event brings; nobody gets it before a pause is over."""
    return OpenCommand(event.command_id, event.step, event.run, held=state.pause is not None)


def _put(state: State, token: int, place: str, step: str, args: dict[str, Any], event: dict[str, Any]) -> None:
    state.tokens[token] = Token(token, place, step, args, event)
    state.tokens_made = token


def _run(state: State, event: Event) -> StepRun:
    step_run = state.open.get(run_key(event.step, event.run))
    if step_run is None:
        raise InvariantBroken(f"{event.type} of step {event.step} run {event.run}, which is not open")
    return step_run


def _loop(state: State, event: Event) -> Loop:
    loop = _run(state, event).loop
    if loop is None:
        raise InvariantBroken(f"{event.type} of step {event.step}, which is no loop")
    return loop


def _last_record(pipeline: Pipeline) -> dict[str, Any] | None:
    return pipeline.results[pipeline.prev] if pipeline.prev else None


def with_ctx(captured: Captured, patch: dict[str, Any]) -> Captured:
    """What the next iteration of the same loop sees: the changes of the one before are in its ctx."""
    return replace(captured, ctx={**captured.ctx, **patch})


def boundary(name: str, event: Event) -> dict[str, Any]:
    """What templates see as `event`."""
    return {
        "name": name,
        "step": event.step,
        "status": status_of(event),
        "timestamp": timestamp(event.at),
        "payload": event.payload,
    }


_HANDLERS: dict[str, Callable[[Program, State, Event], None]] = {
    "playbook.execution.requested": _requested,
    "playbook.request.evaluated": _request_evaluated,
    "playbook.started": _playbook_started,
    "playbook.paused": signalled.paused,
    "playbook.resumed": signalled.resumed,
    "signal.received": signalled.received,
    "playbook.finished": _playbook_finished,
    "playbook.processed": _processed,
    "execution.cancelled": _cancelled,
    "workflow.started": _workflow_started,
    "workflow.finished": _workflow_finished,
    "policy.admit.evaluated": _admitted,
    "step.scheduled": _scheduled,
    "step.started": _step_started,
    "step.done": _step_ended,
    "step.failed": _step_ended,
    "loop.started": _loop_started,
    "loop.iteration.started": _iteration_started,
    "loop.iteration.done": _iteration_ended,
    "loop.iteration.failed": _iteration_ended,
    "loop.done": _loop_done,
    "next.evaluated": _next_evaluated,
    "task.started": _task_event,
    "task.attempt.started": _task_event,
    "task.attempt.done": _task_event,
    "task.attempt.failed": _task_event,
    "task.done": _task_event,
    "task.failed": _task_event,
    "policy.task.evaluated": _task_event,
    "command.issued": _command_issued,
    "command.failed": _command_over,
    "command.cancelled": _command_over,
}
