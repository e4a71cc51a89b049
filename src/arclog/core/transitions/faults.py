"""The failures of a run, and which of them came first: the part of the state from which the root cause is read.

Invariant: a failure that is the consequence of another one (kind `cancelled`) is never the first. The number of steps
bounds the size, whatever the run's length.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from typing import Any

from arclog.core.transitions.state import Fault, ItemFault, Loop, State, StepRun, StepTally, path_key
from arclog.model import errors
from arclog.model.commands import Pipeline
from arclog.model.events import Event
from arclog.model.outcome import is_consequence
from arclog.plan.program import StepProgram

#: Maximum number of failed items that are kept for a loop step: those with the lowest indexes.
MAX_ITEM_FAULTS = 10
#: Maximum number of unhandled failures whose origin is kept; the first of them is the run's.
MAX_FAULTS = 20
MAX_MESSAGE = 500
#: The end of a traceback is kept: it names the line that failed.
MAX_TRACEBACK = 16_384


def tally_of(state: State, step: str) -> StepTally:
    tally = state.tally.get(step)
    if tally is None:
        tally = state.tally[step] = StepTally()
    return tally


def scheduled(state: State, event: Event, loop: Loop | None) -> None:
    """Count a scheduled step run."""
    tally = tally_of(state, event.step)
    tally.since = event.at
    if loop is not None:
        tally.total += loop.total


def step_ended(state: State, step_run: StepRun, at: int | None) -> None:
    """Count an ended step run; `at` is None if the step run was open when the run ended."""
    tally = tally_of(state, step_run.step)
    if at is not None:
        tally.took = max(0, at - tally.since)
    if step_run.loop is not None:
        tally.ok += step_run.loop.ok


def denied(state: State, event: Event) -> None:
    """Count a token that the step's admission rules denied."""
    tally = tally_of(state, event.step)
    index = event.payload.get("matched_rule_index")
    tally.denied += 1
    tally.denied_by = 0 if index is None else index + 1


def item_failed(step: StepProgram, state: State, step_run: StepRun, event: Event, pipeline: Pipeline | None) -> None:
    """Keep the failure of an iteration.

    An outer iteration has no pipeline and fails only because an inner item failed.
    """
    problem = event.payload.get("error") or {}
    path = event.iteration or ()
    if is_consequence(problem):
        return
    tally = tally_of(state, event.step)
    if len(path) == 1:
        tally.failed += 1
        state.failed_items += 1
    if pipeline is None:
        return
    fault = _pipeline_fault(step, state, event, pipeline, problem)
    step_run.fault = step_run.fault or fault
    own = fault.own or fault.error
    item_fault = ItemFault(path, fault.task, str(own.get("kind")), shortened(str(own.get("message", ""))))
    insort(tally.item_faults, item_fault, key=lambda earlier: earlier.path)
    del tally.item_faults[MAX_ITEM_FAULTS:]


def step_failed(step: StepProgram, state: State, step_run: StepRun, event: Event) -> None:
    """Find the failure that made a step run fail, in its tasks or in the step itself."""
    problem = event.payload.get("error") or {}
    tally = tally_of(state, event.step)
    tally.error = {"kind": problem.get("kind"), "message": shortened(str(problem.get("message", "")))}
    if is_consequence(problem):
        step_run.fault = None
    elif step_run.pipeline is not None:
        step_run.fault = _pipeline_fault(step, state, event, step_run.pipeline, problem)
    elif step_run.fault is None or not explains(step_run.fault, problem):
        # Not the failure of an item: the loop as a whole exceeded its time, or its writes to ctx conflict.
        step_run.fault = Fault(state.head, problem, event.step, event.run)


def unhandled(state: State, step_run: StepRun, key: str) -> None:
    """Keep a failure that no arc handled: the first ones, and the newest, since that may end the run."""
    if step_run.fault is None:
        return
    if len(state.faults) >= MAX_FAULTS:
        state.faults.popitem()
    state.faults[key] = step_run.fault


def run_failed(state: State, problem: Mapping[str, Any]) -> None:
    """Keep, of the unhandled failures of a failed run, the one that explains its error."""
    step = str(problem.get("step", ""))
    of_step = [fault for fault in state.faults.values() if fault.step == step]
    origin = next((fault for fault in of_step if explains(fault, problem)), None)
    if origin is None and problem.get("cause") is not None:
        # A failure while a failed step was routed: the failure of the step came first.
        origin = next(reversed(of_step), None)
    state.fault = origin or Fault(state.head, dict(problem), step)
    state.faults = {}


def _pipeline_fault(
    step: StepProgram, state: State, event: Event, pipeline: Pipeline, problem: dict[str, Any]
) -> Fault:
    fault = Fault(state.head, problem, event.step, event.run, event.iteration)
    if pipeline.state == "failed" and not is_consequence(pipeline.error or {}):
        record = pipeline.results.get(pipeline.prev) or {}
        own = record.get("error")
        fault.task = pipeline.prev
        fault.task_run = pipeline.runs.get(pipeline.prev, 0)
        fault.attempt = (record.get("meta") or {}).get("attempt") or 1
        fault.rule = pipeline.rule
        fault.own = own if own and own != problem else None
        fault.traceback = str((record.get("py") or {}).get("traceback") or "")[-MAX_TRACEBACK:]
        fault.child = str((record.get("child") or {}).get("execution_id") or "")
    elif pipeline.state == "failed":
        # The step failed as a whole and has closed its task.
        fault.task, fault.task_run = pipeline.prev, pipeline.runs.get(pipeline.prev, 0)
    elif pipeline.attempt and pipeline.at < len(step.tasks):
        fault.task = step.tasks[pipeline.at].plan.name
        fault.task_run, fault.attempt = pipeline.runs.get(fault.task, 0), pipeline.attempt
    return fault


def explains(fault: Fault, problem: Mapping[str, Any]) -> bool:
    """Return whether a fault led to an error: the error repeats its message, in a loop after the iteration."""
    same = problem.get("kind") == fault.error.get("kind")
    return same and str(problem.get("message", "")).endswith(str(fault.error.get("message", "")))


def shortened(message: str) -> str:
    """Return the message, cut to MAX_MESSAGE characters."""
    return errors.shortened(message, MAX_MESSAGE)


def item_name(path: tuple[int, ...] | None) -> str:
    """Return the item's name for people: '3', '3.1' in a nested loop, '' outside loops."""
    return "" if path is None else path_key(path)
