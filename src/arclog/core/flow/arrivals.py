"""Tokens that reach their step: admission, then the step run. A join delivers several tokens as one.

Invariant: exactly one event takes a token: a `step.scheduled`, or a `policy.admit.evaluated` that denies it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from arclog.core.boundary import signals
from arclog.core.flow import joins, loops
from arclog.core.flow.scopes import arrival_scope
from arclog.core.transitions.iterations import as_payload
from arclog.core.transitions.state import Token, run_key
from arclog.model.data.json_data import deep_merge
from arclog.model.errors import ExpressionError
from arclog.model.outcome import TaskError, error
from arclog.plan.program import Condition

if TYPE_CHECKING:
    from arclog.core.transitions.decide import Decision

Admission = tuple[tuple[Condition, bool], ...]


def fire(decision: Decision, firing: joins.Firing) -> None:
    """Fire a join: its tokens start the step as one, or the step fails because too few tokens can come."""
    step = firing.token.step
    if firing.skipped:
        payload = {
            "allow": False,
            "matched_rule_index": None,
            "reason": f"join all_ok: {firing.skipped}",
            **firing.taken,
        }
        cause = decision.cause_of(firing.token.id)
        decision.record("policy.admit.evaluated", payload, step=step, event_status="skipped", cause=cause)
    elif firing.problem is None:
        arrive(decision, firing.token, firing.taken)
    elif not _over_limit(decision, step):
        _refuse(decision, firing.token, firing.taken, firing.token.args, firing.problem)


def arrive(decision: Decision, token: Token, taken: dict[str, Any]) -> None:
    """Handle a token at its step: evaluate admission, then start the step run.

    `taken` names the tokens that it represents.
    """
    try:
        allowed = admits(decision, token, taken)
    except ExpressionError as problem:
        failure = error("template", f"admission of step {token.step}: {problem}")
        decision.fail_execution({**failure.as_dict(), "step": token.step}, len(decision.txn.events) - 1)
        return
    if allowed:
        schedule(decision, token, taken)


def admits(decision: Decision, token: Token, taken: dict[str, Any] | None = None) -> bool:
    """Return whether the admission rules of a token's step admit it.

    A denial takes the tokens in `taken`. Raises ExpressionError.
    """
    step = decision.program.steps[token.step]
    if step.admit is None or token.place == signals.RETRIED:
        return True
    scope = partial(arrival_scope, decision.program, decision.state, token.event, token.args, decision.meter)
    allowed, index = _admission(step.admit, scope)
    payload: dict[str, Any] = {"allow": allowed, "matched_rule_index": index}
    if not allowed:
        payload |= taken or {}
    decision.record(
        "policy.admit.evaluated",
        payload,
        step=step.name,
        event_status="" if allowed else "skipped",
        cause=decision.cause_of(token.id),
    )
    return allowed


def _over_limit(decision: Decision, step: str) -> bool:
    """Return whether another step run would exceed the limit; if so, fail the run."""
    state, limits = decision.state, decision.program.plan.limits
    if state.step_runs < limits.max_step_runs and state.head - state.informative < limits.max_events:
        return False
    which = "max_step_runs" if state.step_runs >= limits.max_step_runs else "max_events"
    cap = getattr(limits, which)
    message = (
        f"the execution reached {cap} (limits.{which}) before step {step}; does a cycle of steps lack its way out?"
    )
    problem = {**error("limit", message, code=which.upper()).as_dict(), "step": step}
    decision.fail_execution(problem, len(decision.txn.events) - 1)
    return True


def schedule(decision: Decision, token: Token, taken: dict[str, Any]) -> None:
    """Start a step run with a token. `taken` has the other fields of its event, besides args and items."""
    state, step = decision.state, decision.program.steps[token.step]
    run = state.runs.get(step.name, 0) + 1
    if "final" not in taken and _over_limit(decision, step.name):
        return
    payload: dict[str, Any] = dict(taken)
    problem: TaskError | None = None
    args = token.args
    try:
        if step.plan.args:
            scope = arrival_scope(decision.program, state, token.event, token.args, decision.meter)
            args = deep_merge(step.args.evaluate(scope), token.args)
        if step.plan.loop is not None:
            scope = arrival_scope(decision.program, state, token.event, args, decision.meter)
            items, problem = loops.items(decision, step, step.items_at(0), scope)
            payload |= {"expand": True} if items is None else {"items": as_payload(items), "total": len(items)}
    except ExpressionError as failure:
        problem = error("template", str(failure))
    if args:
        payload["args"] = args
    if problem is None and len(payload) > 1:  # tokens alone always fit
        problem = decision.too_large(payload, f"the args and loop items of step {step.name}")
    if problem is not None:
        _refuse(decision, token, taken, args, problem)
        return
    if "total" in payload and (payload["total"] == 0 or not loops.on_one_lease(step)):
        scheduled = decision.record(
            "step.scheduled", payload, step=step.name, run=run, cause=decision.cause_of(token.id)
        )
        loops.spread(decision, state.open[run_key(step.name, run)], scheduled)
        return
    command_id = decision.next_id
    cause = decision.cause_of(token.id)
    decision.record("step.scheduled", payload, step=step.name, run=run, command_id=command_id, cause=cause)
    decision.issue(command_id, step.name, run)


def _refuse(decision: Decision, token: Token, taken: dict[str, Any], args: dict[str, Any], problem: TaskError) -> None:
    """Schedule and fail a step run before it begins.

    Its arcs and a retry still see the args, at least those of the token, so that a counter that a cycle carries does
    not start again.
    """
    step = token.step
    run = decision.state.runs.get(step, 0) + 1
    step_args = next(
        (some for some in (args, token.args) if some and not decision.too_large({**taken, "args": some}, "")), None
    )
    payload = taken if step_args is None else {**taken, "args": step_args}
    scheduled = decision.record("step.scheduled", payload, step=step, run=run, cause=decision.cause_of(token.id))
    decision.fail_step(step, run, problem.as_dict(), scheduled)


def _admission(rules: Admission, scope: Callable[[], Any]) -> tuple[bool, int | None]:
    """Evaluate admission rules. The first match decides; no match denies."""
    names: Any = None
    for index, (condition, allow) in enumerate(rules):
        if condition.template is not None and names is None:
            names = scope()
        if condition.holds(names):
            return allow, index
    return False, None
