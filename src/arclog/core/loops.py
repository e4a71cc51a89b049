"""Loops: their items, and when they are over. Iterations run on workers; the server writes loop.started and loop.done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from arclog.core.state import Loop
from arclog.model.errors import InvariantBroken
from arclog.model.events import Event
from arclog.model.outcome import TaskError, error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arclog.core.decide import Decision
    from arclog.plan.program import StepProgram

_encode = msgspec.json.Encoder().encode


def encoded_size(payload: Mapping[str, Any]) -> int:
    """Bytes that a payload takes in the log; the small common ones are not measured."""
    if all(isinstance(value, int | float | bool | None) or key == "tokens" for key, value in payload.items()):
        return 0
    return len(_encode(payload))


def items(decision: Decision, step: StepProgram, scope: Any) -> tuple[list[Any], TaskError | None]:
    """The evaluated `loop.in`, and what is wrong with it."""
    found = step.items.evaluate(scope)
    if not isinstance(found, list):
        kind = {dict: "a map", str: "text", type(None): "null"}.get(type(found), type(found).__name__)
        return [], error("config", f"loop.in of step {step.name} gave {kind}, not a list", code="NOT_A_LIST")
    cap = decision.program.plan.limits.max_iterations
    if len(found) > cap:
        message = f"loop.in of step {step.name} gave {len(found)} items; at most {cap} are run (limits.max_iterations)"
        return [], error("limit", message, code="MAX_ITERATIONS")
    return found, None


def begin(decision: Decision, event: Event) -> None:
    """A worker began a step run: if it is a loop, say so."""
    step_run = decision.state.run_of(event.step, event.run)
    if step_run is not None and step_run.loop is not None:
        _say_started(decision, event.step, event.run, step_run.loop, len(decision.txn.events) - 1)
        _say_scheduled(decision, event, step_run.loop)


def go_on(decision: Decision, event: Event) -> bool:
    """An iteration ended. Ends the loop after the last one, or after a failure that breaks it; True when it is over."""
    loop = _loop(decision, event.step, event.run)
    cause = len(decision.txn.events) - 1
    if loop.broken is not None:
        problem = {**loop.broken, "message": f"iteration {loop.index - 1}: {loop.broken.get('message', '')}"}
        decision.fail_step(event.step, event.run, problem, cause)
        return True
    cap = decision.program.plan.limits.max_loop_results_bytes
    if loop.results_bytes > cap:
        message = (
            f"the results of the loop of step {event.step} take more than {cap} bytes (limits.max_loop_results_bytes)"
        )
        problem = error("limit", message, code="MAX_LOOP_RESULTS_BYTES").as_dict()
        decision.fail_step(event.step, event.run, problem, cause)
        return True
    if loop.index < loop.total:
        _say_scheduled(decision, event, loop)
        return False
    _end(decision, event.step, event.run, loop, cause)
    return True


def end_empty(decision: Decision, step: str, run: int, cause: int) -> None:
    """A loop without items is done at once, without a worker."""
    loop = _loop(decision, step, run)
    _say_started(decision, step, run, loop, cause)
    _end(decision, step, run, loop, cause)


def _end(decision: Decision, step: str, run: int, loop: Loop, cause: int) -> None:
    # Imported late: routing and loops call each other through the decision.
    from arclog.core import routing

    payload: dict[str, Any] = {"total": loop.total, "ok": loop.ok, "failed": loop.failed}
    if loop.errors:
        payload["errors"] = loop.errors
    decision.say("loop.done", payload, step=step, run=run, cause=cause)
    done = decision.say("step.done", {"source": "server"}, step=step, run=run, cause=cause)
    routing.route(decision, step, run, done)


def _say_started(decision: Decision, step: str, run: int, loop: Loop, cause: int) -> None:
    mode = decision.program.steps[step].loop.mode
    decision.say("loop.started", {"total": loop.total, "mode": mode}, step=step, run=run, cause=cause)


def _say_scheduled(decision: Decision, event: Event, loop: Loop) -> None:
    """Name the next iteration, when the step asks for that."""
    if "loop.iteration.scheduled" in decision.program.steps[event.step].emit:
        decision.emit(
            Event("loop.iteration.scheduled", decision.now, step=event.step, run=event.run, iteration=(loop.index,))
        )


def _loop(decision: Decision, step: str, run: int) -> Loop:
    step_run = decision.state.run_of(step, run)
    if step_run is None or step_run.loop is None:
        raise InvariantBroken(f"step {step} run {run} is no open loop")
    return step_run.loop
