"""Routing: which arcs of an ended step run fire. Each step run has exactly one next.evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arclog.core.flow import joins
from arclog.core.flow.scopes import arc_scope
from arclog.core.transitions.state import StepRun
from arclog.model.errors import ExpressionError, InvariantBroken
from arclog.model.outcome import error
from arclog.plan.program import ArcProgram, StepProgram

if TYPE_CHECKING:
    from arclog.core.transitions.decide import Decision


def route(decision: Decision, step_name: str, run: int, cause: int) -> None:
    """Choose the successors of a step run that has just ended."""
    state = decision.state
    step_run = state.run_of(step_name, run)
    if step_run is None:
        raise InvariantBroken(f"step {step_name} run {run} is routed but not open")
    step = decision.program.steps[step_name]
    payload: dict[str, Any] = {"mode": step.plan.mode, "matched": [], "selected": []}
    problem = _written_badly(step_run)
    if problem is None:
        try:
            payload["matched"], payload["selected"] = _select(decision, step, step_run)
        except ExpressionError as failure:
            problem = error("template", f"routing after step {step_name}: {failure}").as_dict()
        else:
            problem = _oversized(decision, step_name, payload)
    if problem is not None:
        problem = {**problem, "step": step_name}
        if step_run.error is not None:
            problem["cause"] = step_run.error
        refused = {"mode": step.plan.mode, "matched": [], "selected": [], "error": problem}
        decision.record("next.evaluated", refused, step=step_name, run=run, cause=cause, event_status="error")
        decision.fail_execution(problem, cause)
        return
    selected = payload["selected"]
    failure_error = step_run.error if step_run.state == "failed" else None
    unmatched = step_run.state == "done" and not selected and bool(step.plan.arcs) and step.plan.on_no_match == "fail"
    if step.plan.end and step_run.state == "done" and not selected and not unmatched:
        payload["end"] = _end(decision, step)
    routed = decision.record("next.evaluated", payload, step=step_name, run=run, cause=cause)
    for choice in selected:
        decision.made[choice["token"]] = routed
    if unmatched:
        message = f"no arc of step {step_name} matched and next.spec.on_no_match is fail"
        decision.fail_execution({**error("config", message, code="NO_MATCH").as_dict(), "step": step_name}, cause)
    elif step_run.state == "failed" and not selected and step.plan.failure_mode == "fail_fast":
        problem = {**(failure_error or error("internal", "the step failed").as_dict()), "step": step_name}
        decision.fail_execution(problem, cause)


def _end(decision: Decision, step: StepProgram) -> dict[str, Any]:
    """Return the end state that a token that ends in this step gives the run.

    A failed run names the newest handled failure.
    """
    if step.plan.end == "completed":
        return {"state": "completed"}
    failed = [(tally.since, name, tally.error) for name, tally in decision.state.tally.items() if tally.error]
    message = f"step {step.name} ends the run as failed"
    problem = error("exception", message, code="END").as_dict()
    if failed:
        _, name, own = max(failed, key=lambda failure: failure[0])
        cause = {**(own or {}), "step": name}
        kind = str(cause.get("kind") or "exception")
        problem = {
            **problem,
            "kind": kind,
            "message": f"{message}: step {name}: {cause.get('message', '')}",
            "cause": cause,
        }
    return {"state": "failed", "error": {**problem, "step": step.name}}


def _written_badly(step_run: StepRun) -> dict[str, Any] | None:
    """Return why the ctx values of a step run without a loop cannot be applied, or None."""
    if step_run.gathered is None or step_run.loop is not None:
        return None
    return step_run.gathered.problem


def _oversized(decision: Decision, step: str, payload: dict[str, Any]) -> dict[str, Any] | None:
    """Return why the args of the arcs cannot be recorded, or None."""
    for choice in payload["selected"]:
        if "args" in choice:
            break
    else:
        return None
    problem = decision.too_large(payload, f"the args that the arcs of step {step} give")
    return None if problem is None else {**problem.as_dict(), "step": step}


def _select(
    decision: Decision, step: StepProgram, step_run: StepRun
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the arcs that match and the arcs that fire, as next.evaluated records them."""
    if not step.arcs:
        return [], []
    state = decision.state
    scope: Any = None
    matched: list[dict[str, Any]] = []
    selected: list[dict[str, Any]] = []
    token = state.tokens_made
    for arc in step.arcs:
        if step_run.state == "failed" and not arc.plan.sees_failure:
            continue
        if scope is None and (arc.condition.template is not None or not arc.args.constant):
            scope = arc_scope(decision.program, state, step_run, decision.meter)
        if not arc.condition.holds(scope):
            continue
        matched.append(_match(arc))
        choice = _choice(arc, token + 1, scope)
        if joins.is_absorbed(state, arc.plan.target, arc.plan.place):
            # Its wave has fired. The args are still evaluated, so that an error in them does not depend on timing.
            choice = {"step": arc.plan.target, "arc": arc.plan.index, "token": token + 1, "absorbed": True}
        token += 1
        selected.append(choice)
        if step.plan.mode == "exclusive":
            break
    return matched, selected


def _match(arc: ArcProgram) -> dict[str, Any]:
    match: dict[str, Any] = {"step": arc.plan.target}
    if arc.condition.source:
        match["when"] = arc.condition.source
    return match


def _choice(arc: ArcProgram, token: int, scope: Any) -> dict[str, Any]:
    choice: dict[str, Any] = {"step": arc.plan.target, "arc": arc.plan.index, "token": token}
    if arc.plan.args:
        choice["args"] = arc.args.evaluate({} if scope is None else scope)
    return choice
