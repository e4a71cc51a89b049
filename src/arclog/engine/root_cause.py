"""Why a run failed: from the run's error back to the task whose failure nothing handled, and the rule that let it fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arclog.core.state import State
from arclog.model.errors import Position
from arclog.model.events import Event, is_closing
from arclog.plan.program import Program, TaskProgram
from arclog.ports.insight import Cause
from arclog.ports.store import Store, StoredEvent

_PAGE = 1000
#: A failed task stands shortly before the failure of its step: they come in one report, or in two that follow closely.
_NEAR = 1000


async def root_cause(store: Store, program: Program, state: State) -> Cause | None:
    """The cause of a failed run."""
    problem = state.error
    if problem is None or state.terminal != "playbook.finished":
        return None
    failed = await _last_failure(store, state.execution_id, problem.get("step", ""))
    if failed is None:
        return cause_of(program, problem, None, [])
    near = await store.events(state.execution_id, after=max(0, failed.seq - _NEAR), limit=min(_NEAR, failed.seq))
    return cause_of(program, problem, failed, near)


async def _last_failure(store: Store, execution_id: int, step: str) -> StoredEvent | None:
    """The last step.failed of the step: the one that ended the run."""
    found: StoredEvent | None = None
    after = 0
    while step:
        page = await store.events(execution_id, after=after, limit=_PAGE, types=("step.failed",))
        found = next((one for one in reversed(page) if one.event.step == step and _counts(one.event)), found)
        if len(page) < _PAGE:
            break
        after = page[-1].seq
    return found


def cause_of(
    program: Program, problem: dict[str, Any], failed: StoredEvent | None, near: Sequence[StoredEvent]
) -> Cause:
    """The cause, given the failure of the step and the events before it."""
    kind, message, code = str(problem.get("kind")), str(problem.get("message")), problem.get("code")
    code = None if code is None else str(code)
    if failed is None or failed.event.step not in program.steps:
        return Cause(kind, message, code)
    event, step = failed.event, program.steps[failed.event.step]
    mine = [
        one
        for one in near
        if (one.event.step, one.event.run) == (event.step, event.run) and one.seq <= failed.seq and _counts(one.event)
    ]
    ended = next((one for one in reversed(mine) if one.event.type in {"task.failed", "task.done"}), None)
    decided = next((one for one in reversed(mine) if one.event.type == "policy.task.evaluated"), None)
    if ended is None or not _is_to_blame(ended, decided):
        return Cause(kind, message, code, event.step, event.run, at=_text(step.plan.at), seq=failed.seq)
    task = step.tasks[step.index[ended.event.task]]
    own = (ended.event.payload.get("outcome") or {}).get("error") or problem
    rule = decided if decided is not None and _same_task_run(decided.event, ended.event) else None
    return Cause(
        kind=str(own.get("kind")),
        message=str(own.get("message")),
        code=None if own.get("code") is None else str(own["code"]),
        step=event.step,
        step_run=event.run,
        task=task.plan.name,
        task_run=ended.event.task_run,
        attempt=_attempt(mine, ended),
        iteration="" if ended.event.iteration is None else ".".join(map(str, ended.event.iteration)),
        at=_text(task.plan.at if task.plan.at.line else step.plan.at),
        rule=_rule(task, rule),
        seq=ended.seq,
    )


def _counts(event: Event) -> bool:
    """What was ended because something else failed is no cause, and neither is what somebody outside says."""
    return not event.informative and not is_closing(event)


def _is_to_blame(ended: StoredEvent, decided: StoredEvent | None) -> bool:
    """Whether the task that ended last made the step fail; a time limit or a lost lease may have done it instead."""
    if decided is not None and _same_task_run(decided.event, ended.event):
        return bool(decided.event.payload.get("action", {}).get("do") == "fail")
    return ended.event.type == "task.failed"


def _same_task_run(one: Event, other: Event) -> bool:
    return (one.task, one.task_run, one.iteration) == (other.task, other.task_run, other.iteration)


def _attempt(events: Sequence[StoredEvent], ended: StoredEvent) -> int:
    """Attempts are spelled out from the first retry on."""
    tries = [one.event.attempt for one in events if _same_task_run(one.event, ended.event)]
    return max((1, *tries))


def _rule(task: TaskProgram, decided: StoredEvent | None) -> str:
    if decided is None:
        return ""
    payload = decided.event.payload
    index = payload.get("matched_rule_index")
    policy = task.plan.policy
    if index is None or policy is None or index >= len(policy.rules):
        if "error" in payload:
            return f"its policy could not be evaluated: {payload['error'].get('message')}"
        return "no rule of its policy matched (on_unmatched: fail)"
    rule = policy.rules[index]
    when = "else" if rule.when is None else f"when {rule.when}"
    where = f" at {rule.at}" if rule.at.line else ""
    if rule.then.do == "retry":
        return f"rule {index + 1}{where} ({when}) said retry, and all {rule.then.attempts} attempts were used"
    return f"rule {index + 1}{where} ({when}) said {rule.then.do}"


def _text(at: Position) -> str:
    return str(at) if at.line else ""
