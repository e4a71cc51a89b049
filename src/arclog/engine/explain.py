"""Why a run stands where it stands: what each thing that is still open waits for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from arclog.core.state import State, StepRun
from arclog.engine import holding
from arclog.model.ids import timestamp
from arclog.ports.api import Wait, Why
from arclog.ports.store import CommandRecord


def explain(state: State, commands: Iterable[CommandRecord], now: int, slot_holders: Sequence[int] = ()) -> Why:
    """The waits of a run; one that has ended waits for nothing."""
    execution_id = str(state.execution_id)
    if state.terminal is not None:
        text = f"the run has ended: {state.status}"
        if state.error is not None:
            where = f" in step {state.error['step']}" if "step" in state.error else ""
            text += f"{where}: {state.error.get('kind')}: {state.error.get('message')}"
        return Why(execution_id, state.status, text, [])
    by_id = {command.command_id: command for command in commands}
    held = holding.waits(state, slot_holders)
    waits = [
        Wait(
            "token",
            f"step {token.step} is ready to start; the engine has not gone on (`arclog resume {execution_id}`)",
            token.step,
        )
        for token in state.tokens.values()
        if state.pause is None
    ]
    waits += [
        _wait(step_run, by_id.get(step_run.command_id), execution_id, now)
        for step_run in state.open.values()
        if not holding.is_held(state, step_run)
    ]
    waits = held + waits
    if not waits:
        waits = [Wait("none", f"nothing is open, yet the run has not ended (`arclog resume {execution_id}`)")]
    return Why(execution_id, state.status, waits[0].text, waits)


def _wait(step_run: StepRun, command: CommandRecord | None, execution_id: str, now: int) -> Wait:
    what = f"step {step_run.step} (run {step_run.run})"
    if command is None:
        return Wait("none", f"{what} has no open command (`arclog resume {execution_id}`)", step_run.step)
    if command.state == "issued":
        kinds = ", ".join(command.kinds)
        return Wait(
            "worker",
            f"{what} waits for a worker that knows {kinds} (`arclog resume {execution_id}` brings one)",
            step_run.step,
        )
    until = timestamp(command.lease_until)
    pipeline = step_run.pipeline
    if command.lease_until < now:
        text = f"{what} was held by worker {command.worker_id}, whose lease ended at {until}; it will be handed out again (`arclog resume {execution_id}`)"
        return Wait("lease", text, step_run.step, until)
    if pipeline is not None and pipeline.due > now:
        text = f"{what} waits for attempt {pipeline.attempt}, due at {timestamp(pipeline.due)}"
        return Wait("retry", text, step_run.step, timestamp(pipeline.due))
    task = ""
    if pipeline is not None and pipeline.in_flight:
        label = max(pipeline.runs, key=lambda name: pipeline.runs[name]) if len(pipeline.runs) == 1 else ""
        task = f", task {label}" if label else ""
    text = f"{what}{task} runs on worker {command.worker_id}, lease until {until}"
    return Wait("lease", text, step_run.step, until)
