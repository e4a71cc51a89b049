"""What recorded signals change in a State. `core.transitions.apply` calls this; `core.boundary.signals` decides which signals are recorded."""

from __future__ import annotations

from arclog.core.transitions.state import KeptSignal, Pause, Signalled, State, Token, run_key
from arclog.model.commands import Pipeline
from arclog.model.events import Event
from arclog.plan.program import Program

#: Place of a token that a signal put there: its step fires without admission.
RETRIED = "retry"


def received(program: Program, state: State, event: Event) -> None:
    payload = event.payload
    name = payload["signal"]
    problem = (payload.get("error") or {}).get("message", "")
    state.signals[payload["signal_id"]] = Signalled(name, problem, payload.get("kept", False))
    if problem:
        return
    if payload.get("kept"):
        kept = KeptSignal(payload["signal_id"], name, payload.get("step", ""), payload.get("data"))
        state.kept_signals = [*state.kept_signals, kept]
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


def paused(_: Program, state: State, event: Event) -> None:
    state.paused_at = event.at
    state.pauses += 1


def resumed(_: Program, state: State, _event: Event) -> None:
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
    """The attempt in progress counts as made; a retry that is waited for is due now."""
    if pipeline.attempt:
        pipeline.attempt += pipeline.in_flight
        pipeline.in_flight = False
        pipeline.due = 0
