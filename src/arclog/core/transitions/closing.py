"""Closes open work that something else ends: the end of the run, a failed loop, a time limit, or a signal.

Invariant: the end of a run first closes, in the same transaction, every open command, task, iteration and step run.
Such an end has the error kind `cancelled` and a `reason` in its payload. It has no other effect: templates do not see
it as an outcome, it writes no ctx, is not routed, and is never the cause of a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from arclog.core.transitions.state import State, StepRun, path_of
from arclog.model.commands import Pipeline
from arclog.model.errors import shortened
from arclog.model.events import Event
from arclog.model.ids import milliseconds
from arclog.model.outcome import TaskError, error, failed

if TYPE_CHECKING:
    from arclog.core.transitions.decide import Decision

#: Maximum length of a message; thousands of events may carry the same one.
MAX_MESSAGE = 200


class Reason(Struct, frozen=True):
    """The reason why open work was closed."""

    #: one of `model.events.CLOSING_REASONS`
    name: str
    message: str

    @property
    def problem(self) -> TaskError:
        return error("cancelled", self.message)


def run_cancelled(reason: str) -> Reason:
    return Reason("run_cancelled", clipped(f"the run was cancelled: {reason}"))


def run_failed(problem: dict[str, Any]) -> Reason:
    return Reason("run_failed", clipped(f"the run failed: {problem.get('message', '')}"))


def loop_failed(problem: dict[str, Any]) -> Reason:
    return Reason("loop_failed", clipped(f"the loop failed: {problem.get('message', '')}"))


def clipped(text: str) -> str:
    return shortened(text, MAX_MESSAGE)


# -- deciding ---------------------------------------------------------------------------------------------------------


def end_step_runs(decision: Decision, reason: Reason, cause: int) -> None:
    """End every open step run and everything open in it. Their commands must have been withdrawn before."""
    for step_run in list(decision.state.open.values()):
        if step_run.state == "open":
            end_parts(decision, step_run, reason, cause)
            payload = step_failed(step_run, reason.problem.as_dict()) | {"reason": reason.name}
            decision.record("step.failed", payload, step=step_run.step, run=step_run.run, cause=cause)


def end_parts(
    decision: Decision,
    step_run: StepRun,
    reason: Reason,
    cause: int,
    failed_at: tuple[int, ...] = (),
    problem: dict[str, Any] | None = None,
) -> None:
    """End the open tasks and iterations of a step run, the innermost first.

    Outer iterations around `failed_at` are not cancelled: they fail with `problem`.
    """
    if step_run.pipeline is not None:
        end_task(decision, step_run, None, step_run.pipeline, reason.problem, cause, reason.name)
    payload = {"error": reason.problem.as_dict(), "reason": reason.name, "source": "server"}
    for key, iteration in list(step_run.iterations.items()):
        path = path_of(key)
        end_task(decision, step_run, path, iteration.pipeline, reason.problem, cause, reason.name)
        _emit(decision, "loop.iteration.failed", step_run, path, payload, cause, iteration.started_at)
    inner = [loop for loop in step_run.loops.values() if loop.path]
    own_failure = {"error": problem, "source": "server"}
    for loop in sorted(inner, key=lambda loop: (-len(loop.path), loop.path)):
        around = len(loop.path) < len(failed_at) and failed_at[: len(loop.path)] == loop.path
        ending = own_failure if around else payload
        _emit(decision, "loop.iteration.failed", step_run, loop.path, ending, cause, loop.started_at)


def end_task(
    decision: Decision,
    step_run: StepRun,
    path: tuple[int, ...] | None,
    place: Pipeline,
    problem: TaskError,
    cause: int,
    reason: str = "",
) -> None:
    """End the current task run of a pipeline, if there is one.

    Without a reason, it counts as the task's own failure.
    """
    if not place.attempt:
        return
    step = decision.program.steps[step_run.step]
    task = step.tasks[place.at].plan
    spelled_out = place.attempt > 1 or (task.runs_on != "engine" and "task.attempt.failed" in step.emit)
    # A pending retry has not started.
    meta = _meta(decision, place, place.attempt if place.in_flight else place.attempt - 1)
    if place.in_flight and spelled_out:
        end_attempt(decision, step_run, path, place, problem, cause, reason)
    record = {**task.helper, **failed(problem).as_record(), "meta": meta}
    _emit(decision, "task.failed", step_run, path, _payload(record, reason), cause, place=place)


def end_attempt(
    decision: Decision,
    step_run: StepRun,
    path: tuple[int, ...] | None,
    place: Pipeline,
    problem: TaskError,
    cause: int,
    reason: str = "",
    attempt: int = 0,
) -> None:
    """End the attempt in progress; `attempt` is its number if the pipeline is already at the next one."""
    attempt = attempt or place.attempt
    record = {**failed(problem).as_record(), "meta": _meta(decision, place, attempt)}
    payload = _payload(record, reason)
    _emit(decision, "task.attempt.failed", step_run, path, payload, cause, place=place, attempt=attempt)


def tokens_left(state: State) -> list[int]:
    """Return the ids of the tokens that no step has taken."""
    waiting = [token.id for places in state.waiting.values() for queue in places.values() for token in queue]
    return sorted([*state.tokens, *waiting])


def step_failed(step_run: StepRun | None, problem: dict[str, Any]) -> dict[str, Any]:
    """Return the payload of a step.failed that the server records. For a loop it includes the counts of loop.done."""
    payload: dict[str, Any] = {"error": problem, "source": "server"}
    loop = None if step_run is None or not step_run.started else step_run.loop
    if loop is not None:
        payload["loop"] = {"total": loop.total, "ok": loop.ok, "failed": loop.failed, "cancelled": loop.cancelled}
    return payload


def _payload(record: dict[str, Any], reason: str) -> dict[str, Any]:
    payload: dict[str, Any] = {"outcome": record, "source": "server"}
    if reason:
        payload["reason"] = reason
    return payload


def _meta(decision: Decision, place: Pipeline, attempt: int) -> dict[str, Any]:
    took = milliseconds(place.since, decision.now) if place.in_flight else 0
    return {"attempt": max(attempt, 1), "duration_ms": took or 0}


def _emit(
    decision: Decision,
    kind: str,
    step_run: StepRun,
    path: tuple[int, ...] | None,
    payload: dict[str, Any],
    cause: int,
    began: int = 0,
    *,
    place: Pipeline | None = None,
    attempt: int = 0,
) -> None:
    task = "" if place is None else decision.program.steps[step_run.step].tasks[place.at].plan.name
    decision.emit(
        Event(
            type=kind,
            at=decision.now,
            step=step_run.step,
            run=step_run.run,
            iteration=path,
            task=task,
            task_run=0 if place is None else place.runs[task],
            attempt=attempt,
            duration_ms=milliseconds(began, decision.now),
            cause=len(decision.txn.events) - cause if cause >= 0 else 0,
            payload=payload,
        )
    )


# -- folding: called by core.apply only ----------------------------------------------------------------------------------


def fold_task(place: Pipeline) -> None:
    """Fold the end of a task run that was closed from outside: its pipeline stops there."""
    place.attempt = 0
    place.in_flight = False
