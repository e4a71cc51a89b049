"""Lint of parallel loops: ctx keys that iterations would set to different values. Codes stand in docs/findings.md."""

from __future__ import annotations

from typing import Any

from arclog.expr import compile_condition, compile_tree
from arclog.model.errors import ArclogError
from arclog.plan.net import LoopPlan, Plan, StepPlan, TaskRule
from arclog.playbook.walk import Findings

#: Names whose values differ from item to item; so do task labels.
_OWN = frozenset({"iter", "outcome", "_prev", "_task", "_attempt"})


def check_parallel(plan: Plan, findings: Findings) -> None:
    """Add what the plan's parallel loops show."""
    for step in plan.steps:
        if not _is_parallel(step.loop):
            continue
        for task in step.tasks:
            for rule in task.policy.rules if task.policy is not None else ():
                _rule(plan, step, rule, findings)


def _rule(plan: Plan, step: StepPlan, rule: TaskRule, findings: Findings) -> None:
    own = _OWN | {task.name for task in step.tasks}
    for key, value in rule.then.set_ctx.items():
        if "reducer" in plan.ctx.get(key, {}) or not _names(value) & own or _chooses(rule):
            continue
        message = (
            f"iterations of the parallel loop of step {step.name} can set ctx.{key} to different values: that fails it"
        )
        hint = f"declare executor.spec.ctx: {{{key}: {{reducer: …}}}}, or read {{{{ {step.name}.results }}}} behind the loop"
        findings.add("ctx-conflict", message, rule.at, hint, "warning")


def _chooses(rule: TaskRule) -> bool:
    """Whether the rule picks items: then perhaps one of them only."""
    if not isinstance(rule.when, str):
        return False
    try:
        return "iter" in compile_condition(rule.when, rule.at).free
    except ArclogError:
        return True  # a finding of its own


def _names(value: Any) -> set[str]:
    try:
        return {path[0] for path in compile_tree(value).paths}
    except ArclogError:
        return set()  # a finding of its own


def _is_parallel(loop: LoopPlan | None) -> bool:
    return loop is not None and (loop.mode == "parallel" or _is_parallel(loop.inner))
