"""The only code that changes a State: one function per event type. Replay runs the same functions.

An event that is informational only (an allowed policy.admit, command.claimed …) advances the head and changes nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from arclog import __version__
from arclog.core.flow import final_step, joins, reducers, waits
from arclog.core.flow import pipeline as pipelines
from arclog.core.flow.scopes import capture
from arclog.core.transitions import closing, faults, iterations, timers
from arclog.core.transitions.state import (
    Failure,
    KeptSignal,
    OpenCommand,
    Pause,
    Signalled,
    State,
    StepRun,
    Token,
    run_key,
)
from arclog.model import status
from arclog.model.commands import Pipeline
from arclog.model.data.json_data import deep_merge
from arclog.model.errors import InvariantBroken, NewerLog
from arclog.model.events import REGISTRY, Event, is_closing, is_newer, status_of
from arclog.model.ids import timestamp
from arclog.model.outcome import data_of
from arclog.plan.program import Program
from arclog.plan.reach import ENTRY

#: Place of a token that a signal created: its step runs without admission.
RETRIED = "retry"


def apply(program: Program, state: State, event: Event) -> Sequence[timers.Move]:
    """Apply one event to the state. Returns the timers that it opened and closed.

    Raises NewerLog, and leaves the state unchanged, for an event that only a newer release understands.
    """
    if event.informative:
        state.head += 1
        state.informative += 1
        return ()
    rule = _BY_TYPE.get(event.type)
    if rule is None or (event.version != 1 and is_newer(event)):
        raise newer_log(state.execution_id, state.head + 1, event)
    state.head += 1
    if event.report:
        _count_report(state, event)
    moves_of, closes, effect = rule
    # In most runs, an event that can only close timers has none to close.
    if moves_of is None or (closes and not state.timers and not state.stopped):
        if effect is not None:
            effect(program, state, event)
        return ()
    moves = timers.moved(moves_of, program, state, event)
    if effect is not None:
        effect(program, state, event)
    return moves


def newer_log(execution_id: int, seq: int, event: Event) -> NewerLog:
    """Return the error for an event that only a newer release understands."""
    return NewerLog(
        f"event {seq} of execution {execution_id} is {event.type} in version {event.version}, which a "
        f"newer arclog wrote; this one ({__version__}) leaves the run alone: update it"
    )


def _count_report(state: State, event: Event) -> None:
    command = state.commands.get(event.command_id)
    if command is not None:
        command.report = event.report


def _requested(program: Program, state: State, event: Event) -> None:
    state.workload = deep_merge(program.plan.workload, event.payload.get("workload") or {})
    state.scope = event.payload.get("scope", "")
    state.parent = event.payload.get("parent")
    state.depth = event.payload.get("depth", 0)
    state.priority = event.payload.get("priority")
    state.file = event.payload.get("file", "")
    state.origin = event.payload.get("origin")
    state.files = {
        plan: {file: (path, version) for file, (path, version) in versions.items()}
        for plan, versions in event.payload.get("files", {}).items()
    }
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
    _move(state, "workflow", state.workflow, status.RUNNING)
    state.workflow = status.RUNNING
    arrival = {**boundary("playbook.started", event), "payload": {}}
    _put(program, state, Token(event.payload["token"], ENTRY, program.plan.entry, {}, arrival))


def _scheduled(program: Program, state: State, event: Event) -> None:
    payload, step = event.payload, program.steps[event.step]
    final = payload.get("final")
    if final is None:
        arrival = _take(state, event)
    else:
        arrival = final_step.arrival(final, event.at)
        final_step.fold(state, final)
    step_run = StepRun(
        step=event.step,
        run=event.run,
        args=payload.get("args") or {},
        captured=capture(state, step.needs),
        scheduled_at=event.at,
        arrival=arrival,
    )
    if payload.get("expand"):
        step_run.expanding = capture(state, step.items_needs)
    if final is not None:
        for captured in (step_run.captured, step_run.expanding):
            if captured is not None:
                captured.bare = {**final_step.names(arrival), **captured.bare}
    loop = iterations.open_loop(event, keeps_results=event.step in program.results_read)
    if loop is not None:
        step_run.loops[""] = loop
    state.open[run_key(event.step, event.run)] = step_run
    state.failures.pop(event.step, None)
    state.runs[event.step] = event.run
    state.step_runs += 1
    state.latest[event.step] = "running"
    faults.scheduled(state, event, loop)
    state.current_step = event.step
    if event.command_id:
        chunk = 0 if loop is None else iterations.open_chunk(step_run, (), 0, loop.total).id
        state.commands[event.command_id] = open_command(state, event, chunk)


def _step_started(_: Program, state: State, event: Event) -> None:
    step_run = _run(state, event)
    step_run.started = True
    step_run.started_at = event.at
    faults.tally_of(state, event.step).since = event.at
    if step_run.loop is None and step_run.expanding is None:
        step_run.pipeline = Pipeline()


def _task_event(program: Program, state: State, event: Event) -> None:
    pipeline = iterations.pipeline_of(_run(state, event), event.iteration)
    pipelines.FOLD[event.type](pipeline, program.steps[event.step], event)
    if event.payload and not waits.FOLDED_KEYS.isdisjoint(event.payload):
        waits.fold_task(program, state, event)


def _task_failed(program: Program, state: State, event: Event) -> None:
    if not is_closing(event):
        _task_event(program, state, event)
        return
    closing.fold_task(iterations.pipeline_of(_run(state, event), event.iteration))
    waits.fold_task(program, state, event)


def _iteration_started(program: Program, state: State, event: Event) -> None:
    iterations.started(program, _run(state, event), event)


def _iteration_ended(program: Program, state: State, event: Event) -> None:
    iterations.ended(program, state, _run(state, event), event)


def _loop_started(program: Program, state: State, event: Event) -> None:
    step_run = _run(state, event)
    if event.iteration is not None:
        iterations.inner_started(program.steps[event.step], step_run, event)
    else:
        iterations.loop_at(step_run, ()).started_at = event.at


def _loop_done(program: Program, state: State, event: Event) -> None:
    if event.iteration is not None:
        return
    step_run = _run(state, event)
    step_run.boundary = boundary("loop.done", event)
    reducers.finish(program, state, step_run)
    # For a loop that an older release skipped, only the iterations that had ended are listed.
    iterations.keep_results(program, state, step_run, {"status": "ok"}, gaps="cancelled" in event.payload)


def _manifest(program: Program, state: State, event: Event) -> None:
    """Fold the items of a loop that a worker reported."""
    if "items" not in event.payload:
        return
    step_run = _run(state, event)
    step_run.expanding = None
    loop = step_run.loops[""] = iterations.opened(event, keeps_results=event.step in program.results_read)
    faults.tally_of(state, event.step).total += loop.total
    for command in _commands_of(state, event):
        del state.commands[command.id]


def _step_ended(program: Program, state: State, event: Event) -> None:
    step_run = _run(state, event)
    failed = event.type == "step.failed"
    closed = failed and is_closing(event)
    faults.step_ended(state, step_run, event.at)
    if failed:
        faults.step_failed(program.steps[event.step], state, step_run, event)
    step_run.state = "failed" if failed else "done"
    step_run.error = event.payload.get("error")
    if step_run.boundary is None or failed:
        step_run.boundary = boundary(event.type, event)
    if failed and "loop" in event.payload:
        if step_run.gathered is not None and step_run.gathered.problem is None:
            reducers.finish(program, state, step_run)
        iterations.keep_results(program, state, step_run, {"status": "error", "error": step_run.error}, gaps=True)
    pipeline = step_run.pipeline
    if pipeline is not None and not closed:
        if pipeline.ctx:
            reducers.finish_step(program, state, step_run, pipeline)
        skipped = failed or event.status == "skipped"
        step_run.record = pipelines.last_record(program.steps[event.step], pipeline, failed=skipped)
    if step_run.record is not None:
        state.results[event.step] = step_run.record
    if closed:
        state.latest[event.step] = "cancelled"
    else:
        state.latest[event.step] = "failed" if failed else ("skipped" if event.status == "skipped" else "done")
    if failed and not closed:
        state.failures[event.step] = Failure(event.run, step_run.args, step_run.arrival)
    state.current_step = event.step
    for command in _commands_of(state, event):
        del state.commands[command.id]
    if closed:
        # Its tasks, and their waits, were ended before. It is not routed.
        del state.open[run_key(event.step, event.run)]
    elif state.waits:
        waits.drop_run(state, event.step, event.run)


def _next_evaluated(program: Program, state: State, event: Event) -> None:
    step_run = state.open.pop(run_key(event.step, event.run))
    arcs = program.steps[event.step].plan.arcs
    selected = event.payload.get("selected") or ()
    for choice in selected:
        arc = arcs[choice["arc"]]
        if choice.get("absorbed"):
            joins.absorb(state, arc.target, arc.place)
            state.tokens_made = choice.get("token", state.tokens_made)  # events of older releases have no token id
            continue
        args, arrival = choice.get("args") or {}, step_run.boundary or {}
        _put(program, state, Token(choice["token"], arc.place, arc.target, args, arrival))
    if not selected:
        if step_run.state == "done" and state.final is None:
            record = step_run.record or {}
            state.last_ref = record.get("result_ref")
            state.last_data = None if state.last_ref is not None else data_of(record)
            if "end" in event.payload:
                _token_ended(state, event)
        elif step_run.state != "done":
            state.unhandled[run_key(event.step, event.run)] = {**(step_run.error or {}), "step": event.step}
            state.error = next(iter(state.unhandled.values()))
            faults.unhandled(state, step_run, run_key(event.step, event.run))
    joins.settle(program, state)
    newest = next(reversed(state.open.values()), None)
    if newest is not None:
        state.current_step = newest.step


def _token_ended(state: State, event: Event) -> None:
    """Fold the end of a token in a step that decides the run's state."""
    problem = event.payload["end"].get("error")
    if problem is None:
        state.unhandled.clear()
        state.faults = {}
        state.error = None
        return
    state.unhandled[run_key(event.step, event.run)] = problem
    state.error = next(iter(state.unhandled.values()))


def _admitted(program: Program, state: State, event: Event) -> None:
    if event.payload.get("tokens"):
        faults.denied(state, event)
        _take(state, event)
        joins.settle(program, state)


def _command_issued(_: Program, state: State, event: Event) -> None:
    """Fold new work for a part of a loop, work that continues after a wait, or work that is offered again."""
    command = state.commands.get(event.command_id)
    if command is not None:
        if event.payload.get("reason") == "lease_lost":
            command.losses += 1
        else:
            command.returns += 1
        command.report = 0
        command.held = state.pause is not None
        return
    step_run = _run(state, event)
    if "items" in event.payload:
        path, first, last = event.payload["items"]
        chunk = iterations.open_chunk(step_run, tuple(path), first, last).id
    else:
        state.waits.pop(event.payload["wait"], None)
        chunk = 0 if event.iteration is None else iterations.chunk_with(step_run, event.iteration).id
    state.commands[event.command_id] = open_command(state, event, chunk)


def _command_completed(_: Program, state: State, event: Event) -> None:
    waits.fold_suspended(state, event)


def _command_over(_: Program, state: State, event: Event) -> None:
    state.commands.pop(event.command_id, None)


def _workflow_finished(_: Program, state: State, event: Event) -> None:
    after = status.FAILED if status_of(event) == "error" else status.COMPLETED
    _move(state, "workflow", state.workflow, after)
    state.workflow = after
    _clear(state)


def _playbook_finished(_: Program, state: State, event: Event) -> None:
    after = status.FAILED if status_of(event) == "error" else status.COMPLETED
    _end(state, event, after)
    state.result = event.payload.get("result")
    state.result_ref = event.payload.get("result_ref")
    state.error = event.payload.get("error")
    if state.error is not None:
        faults.run_failed(state, state.error)


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
    _clear(state)
    for step, how in state.latest.items():
        if how == "running":
            state.latest[step] = "cancelled"
    state.commands.clear()
    state.waits.clear()
    state.timers.clear()
    state.stopped.clear()
    state.failures.clear()
    state.unhandled.clear()
    state.pending_for = ""
    state.pause, state.paused_at = None, None
    state.kept_signals = []


def _clear(state: State) -> None:
    for step_run in state.open.values():
        if step_run.state == "open":
            faults.step_ended(state, step_run, None)
    state.tokens.clear()
    state.waiting.clear()
    state.absorbs.clear()
    state.open.clear()
    state.waits.clear()


def _move(state: State, layer: str, before: str, after: str) -> None:
    if not status.may(layer, before, after):
        raise InvariantBroken(f"execution {state.execution_id}: {layer} may not go from {before} to {after}")


def open_command(state: State, event: Event, chunk: int) -> OpenCommand:
    """Return the command that an event creates. During a pause it cannot be claimed."""
    return OpenCommand(event.command_id, event.step, event.run, chunk, held=state.pause is not None)


def _put(program: Program, state: State, token: Token) -> None:
    state.tokens_made = token.id
    if program.steps[token.step].plan.join == "any":
        state.tokens[token.id] = token
    else:
        joins.put(state, token)


def _take(state: State, event: Event) -> dict[str, Any]:
    """Remove the tokens that an event names. Returns the event that the last of them arrived with."""
    tokens = event.payload["tokens"]
    if len(tokens) == 1 and tokens[0] in state.tokens:
        return state.tokens.pop(tokens[0]).event
    if all(token in state.tokens for token in tokens):
        return [state.tokens.pop(token).event for token in tokens][-1]
    arrival = joins.last_arrival(state, event.step, tokens)
    joins.take(state, event.step, tokens, event.payload.get("absorbs") or ())
    return arrival


def _run(state: State, event: Event) -> StepRun:
    step_run = state.open.get(f"{event.step}#{event.run}")  # `run_key`, inlined for speed
    if step_run is None:
        raise InvariantBroken(f"{event.type} of step {event.step} run {event.run}, which is not open")
    return step_run


def _commands_of(state: State, event: Event) -> list[OpenCommand]:
    """Return the open commands of the event's step run."""
    if not state.commands:
        return []
    step, run = event.step, event.run
    return [command for command in state.commands.values() if command.run == run and command.step == step]


def boundary(name: str, event: Event) -> dict[str, Any]:
    """Return the value of `event` in templates."""
    return {
        "name": name,
        "step": event.step,
        "status": status_of(event),
        "timestamp": timestamp(event.at),
        "payload": event.payload,
    }


# The effects of recorded signals. `core.boundary.signals` decides which signals are recorded.


def _received(program: Program, state: State, event: Event) -> None:
    payload = event.payload
    name = payload["signal"]
    problem = (payload.get("error") or {}).get("message", "")
    state.signals[payload["signal_id"]] = Signalled(name, problem, payload.get("kept", False))
    if problem:
        return
    if payload.get("kept"):
        signal = KeptSignal(payload["signal_id"], name, payload.get("step", ""), payload.get("data"))
        state.kept_signals = [*state.kept_signals, signal]
    match name:
        case "PAUSE":
            state.pause = Pause(payload["signal_id"], payload.get("by", ""), payload.get("reason", ""), event.at)
            for command_id in payload.get("held") or ():
                state.commands[command_id].held = True
        case "RESUME" if state.paused_at is None:
            _go_on(state)
        case "APPROVE" if state.pending_for == "approval":
            state.pending_for = "slot" if program.plan.concurrency is not None else ""
        case "UPDATE_PARAMS":
            state.ctx = {**state.ctx, **payload["data"]}
        case "RETRY_STEP":
            _retry(state, event)


def _paused(_: Program, state: State, event: Event) -> None:
    state.paused_at = event.at
    state.pauses += 1


def _resumed(_: Program, state: State, _event: Event) -> None:
    _go_on(state)


def _go_on(state: State) -> None:
    state.pause, state.paused_at = None, None
    for command in state.commands.values():
        command.held = False


def _retry(state: State, event: Event) -> None:
    step, token = event.step, event.payload.get("token")
    if token is None:
        for _, pipeline in state.open[run_key(step, event.run)].open_pipelines():
            _restart_attempt(pipeline)
        return
    failure = state.failures.pop(step)
    state.unhandled.pop(run_key(step, failure.run), None)
    state.faults.pop(run_key(step, failure.run), None)
    state.error = next(iter(state.unhandled.values()), None)
    state.tokens[token] = Token(token, RETRIED, step, failure.args, failure.event)
    state.tokens_made = token


def _restart_attempt(pipeline: Pipeline) -> None:
    """Count the attempt in progress as used, and make a pending retry due now."""
    if pipeline.attempt:
        pipeline.attempt += pipeline.in_flight
        pipeline.in_flight = False
        pipeline.due = 0


_EFFECTS: dict[str, Callable[[Program, State, Event], None]] = {
    "playbook.execution.requested": _requested,
    "playbook.request.evaluated": _request_evaluated,
    "playbook.started": _playbook_started,
    "playbook.paused": _paused,
    "playbook.resumed": _resumed,
    "signal.received": _received,
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
    "result.manifest.updated": _manifest,
    "task.started": _task_event,
    "task.attempt.started": _task_event,
    "task.attempt.done": _task_event,
    "task.attempt.failed": _task_event,
    "task.done": _task_event,
    "task.failed": _task_failed,
    "policy.task.evaluated": _task_event,
    "command.issued": _command_issued,
    "command.completed": _command_completed,
    "command.failed": _command_over,
    "command.cancelled": _command_over,
}

#: event type → the timers that it moves, whether it only closes timers, and the function that applies it
_BY_TYPE = {name: (timers.MOVES.get(name), name in timers.CLOSING, _EFFECTS.get(name)) for name in REGISTRY}
