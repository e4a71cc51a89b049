"""The account of a run: what failed, the root cause with its place in the author's file, and the next actions.

`account` is a function of the state, the program and the playbook's text, without I/O, and the single source of
statements about a run: `run`, `show`, `why`, `--json`, the HTTP API and the clients show its result. `headline` is its
one-line form, which the store keeps with each run, so that lists need no state.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from arclog.core.transitions.faults import explains, item_name, shortened
from arclog.core.transitions.state import Fault, State, StepTally
from arclog.model import status
from arclog.model.commands import UNEVALUABLE, UNMATCHED
from arclog.model.data.lazy import pattern
from arclog.model.errors import ArclogError, Position
from arclog.model.outcome import is_consequence
from arclog.plan.net import TaskPlan
from arclog.plan.program import Program
from arclog.playbook.document import Document, Path
from arclog.playbook.load import load
from arclog.ports.views.insight import Account, Cause, ItemCounts, ItemError, Problem, StepSummary


class ChildAccount(Struct, frozen=True):
    """The account of the child whose failure a run failed with."""

    execution_id: str
    account: Account


def account(
    program: Program, state: State, *, source: str = "", file: str = "", child: ChildAccount | None = None
) -> Account:
    """Return the account of a run. `source` is the playbook's text, `file` its name as given by the author."""
    steps = step_summaries(state)
    cause = _cause(program, state, source, file, child)
    return Account(
        summary=_summary(state, cause),
        steps=steps,
        problems=_problems(program, state, steps),
        error=_error(state, cause, child),
        cause=cause,
        next=_next(state, cause),
    )


def headline(state: State) -> str | None:
    """Return the problem in one line, or None if there is none."""
    fault = state.fault
    if state.terminal is None or state.status == status.COMPLETED:
        return _failed_items(state) if state.failed_items else None
    if fault is None:
        return None if state.error is None else shortened(str(state.error.get("message", "")))
    own = _deepest(fault.own or fault.error)
    return shortened(f"{_where(fault)}{own.get('kind')}: {own.get('message')}")


def root_error(state: State) -> dict[str, Any] | None:
    """Return the root cause of a failed run, short enough for the log of the run that called it."""
    fault = state.fault
    if fault is None or state.status != status.FAILED:
        return None
    root = _deepest(fault.own or fault.error)
    brief = {
        "kind": root.get("kind"),
        "message": shortened(str(root.get("message", ""))),
        "code": root.get("code"),
        "execution_id": root.get("execution_id") or str(state.execution_id),
        "step": root.get("step") or fault.step,
        "task": root.get("task") or fault.task,
        "item": root.get("item") or item_name(fault.iteration),
    }
    return {key: value for key, value in brief.items() if value}


def step_summaries(state: State) -> dict[str, StepSummary]:
    """Return the steps that ran, or whose admission was denied."""
    steps: dict[str, StepSummary] = {}
    for name, tally in state.tally.items():
        items = _items(state, name, tally)
        steps[name] = StepSummary(
            status=_status(state, name, tally),
            runs=state.runs.get(name, 0),
            items=items,
            errors=[
                ItemError(item_name(fault.path), fault.task, fault.kind, fault.message) for fault in tally.item_faults
            ],
            denied=tally.denied,
            took_ms=None if tally.took is None else tally.took // 1000,
            error=tally.error,
        )
    return steps


def _status(state: State, step: str, tally: StepTally) -> str:
    if step not in state.latest:
        return "skipped"
    latest = state.latest[step]
    if latest == "failed" and is_consequence(tally.error or {}):
        return "cancelled"
    if latest != "running":
        return latest
    runs = [step_run for step_run in state.open.values() if step_run.step == step]
    return "running" if any(step_run.started for step_run in runs) else "queued"


def _items(state: State, step: str, tally: StepTally) -> ItemCounts | None:
    loops = [run.loop for run in state.open.values() if run.step == step and run.state == "open" and run.loop]
    if not tally.total and not loops:
        return None
    return ItemCounts(tally.total, tally.ok + sum(loop.ok for loop in loops), tally.failed)


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _problems(program: Program, state: State, steps: dict[str, StepSummary]) -> list[Problem]:
    problems = []
    for name, step in steps.items():
        tally = state.tally[name]
        if step.status == "failed" and tally.error is not None:
            handled = state.terminal is not None and state.status == status.COMPLETED
            how = "failed; an arc handled the failure" if handled else "failed"
            problems.append(Problem("failed", name, f"step {name} {how}: {_kind_and_message(tally.error)}"))
        elif step.status == "cancelled":
            problems.append(Problem("cancelled", name, f"step {name} was in progress when the run ended"))
        if step.items is not None and step.items.failed:
            problems.append(Problem("items", name, f"step {name}: {counted_items(step.items)}", step.errors))
        if tally.denied:
            problems.append(Problem("denied", name, _denial(program, name, tally)))
    return problems


def counted_items(items: ItemCounts) -> str:
    """Return `997 ok, 3 failed`, and the number of items that were not run."""
    text = f"{items.ok:,} ok, {items.failed:,} failed"
    left = items.total - items.ok - items.failed
    return f"{text}, {left:,} of {items.total:,} items not run" if left > 0 else text


def _failed_items(state: State) -> str:
    parts = []
    for name, tally in state.tally.items():
        items = _items(state, name, tally)
        if items is not None and items.failed:
            parts.append(f"step {name}: {items.ok:,} ok, {items.failed:,} failed")
            if len(parts) == 3:
                break
    return "; ".join(parts)


def _denial(program: Program, step: str, tally: StepTally) -> str:
    rules = program.steps[step].plan.admit or ()
    times = "" if tally.denied == 1 else f" {tally.denied:,} times"
    if not tally.denied_by or tally.denied_by > len(rules):
        if program.steps[step].plan.admit is None:
            return f"step {step} was skipped{times}: a branch that leads to it failed or was denied (join: all_ok)"
        return f"step {step} was not admitted{times}: no rule of its admission policy matched"
    rule = rules[tally.denied_by - 1]
    when = "else" if rule.when is None else f"when {rule.when}"
    where = f" at {rule.at}" if rule.at.line else ""
    return f"step {step} was not admitted{times}: rule {tally.denied_by}{where} ({when}) denies it"


def _kind_and_message(error: dict[str, Any]) -> str:
    return f"{error.get('kind')}: {error.get('message')}"


# ── the root cause ───────────────────────────────────────────────────────────────────────────────────────────────────


def _cause(program: Program, state: State, source: str, file: str, child: ChildAccount | None) -> Cause | None:
    fault = state.fault
    if fault is None or state.status != status.FAILED:
        return None
    if child is not None and child.account.cause is not None:
        below = child.account.cause
        return replace(below, via=[_call(fault), *below.via], execution_id=below.execution_id or child.execution_id)
    root = _deepest(fault.own or fault.error)
    if root.get("execution_id"):
        return _cause_below(fault, root)
    task = _task(program, fault)
    place = place_of(program, fault, task, source, file) if source else Place()
    step = program.steps.get(fault.step)
    at = task.at if task is not None and task.at.line else step.plan.at if step is not None else None
    code = root.get("code")
    return Cause(
        kind=str(root.get("kind")),
        message=str(root.get("message")),
        code=None if code is None else str(code),
        step=fault.step,
        step_run=fault.run,
        task=fault.task,
        task_run=fault.task_run,
        attempt=fault.attempt,
        iteration=item_name(fault.iteration),
        at=str(at) if at is not None and at.line else "",
        rule=_rule(state, fault, task),
        seq=fault.seq,
        file=file,
        line=place.line or (at.line if at is not None else 0),
        source=place.text,
        traceback=place.traceback or fault.traceback,
        execution_id=str(state.execution_id),
    )


def _cause_below(fault: Fault, root: dict[str, Any]) -> Cause:
    """Return the root cause of a child that is not available, as recorded in the log of its caller."""
    code = root.get("code")
    return Cause(
        kind=str(root.get("kind")),
        message=str(root.get("message")),
        code=None if code is None else str(code),
        step=str(root.get("step", "")),
        task=str(root.get("task", "")),
        iteration=str(root.get("item", "")),
        seq=fault.seq,
        execution_id=str(root["execution_id"]),
        via=[_call(fault)],
    )


def _deepest(error: dict[str, Any]) -> dict[str, Any]:
    """Follow the causes of an error to the deepest one. An error that only reports a cancellation is not a cause."""
    while isinstance(error.get("cause"), dict) and not is_consequence(error["cause"]):
        error = error["cause"]
    return error


def _task(program: Program, fault: Fault) -> TaskPlan | None:
    step = program.steps.get(fault.step)
    if step is None or fault.task not in step.index:
        return None
    return step.tasks[step.index[fault.task]].plan


def _rule(state: State, fault: Fault, task: TaskPlan | None) -> str:
    """Return the policy rule that made the task fail, or another effect of its error."""
    if state.error is not None and not explains(fault, state.error):
        return str(state.error.get("message", ""))
    if not fault.rule or task is None or task.policy is None:
        return ""
    if fault.rule == UNEVALUABLE:
        return f"its policy could not be evaluated: {fault.error.get('message')}"
    if fault.rule == UNMATCHED or fault.rule > len(task.policy.rules):
        return "no rule of its policy matched (on_unmatched: fail)"
    rule = task.policy.rules[fault.rule - 1]
    when = "else" if rule.when is None else f"when {rule.when}"
    where = f" at {rule.at}" if rule.at.line else ""
    if rule.then.do == "retry":
        return f"rule {fault.rule}{where} ({when}) chose retry, and all {rule.then.attempts} attempts were used"
    return f"rule {fault.rule}{where} ({when}) chose {rule.then.do}"


def _where(fault: Fault) -> str:
    """Return the place of a fault, as the beginning of a line."""
    item = item_name(fault.iteration)
    parts = [f"step {fault.step}"] if fault.step else []
    parts += [f"item {item}"] if item else []
    parts += [f"task {fault.task}"] if fault.task else []
    return f"{', '.join(parts)}: " if parts else ""


def _call(fault: Fault) -> str:
    return _where(fault).removesuffix(": ")


def cause_text(cause: Cause) -> str:
    """Return the root cause as one sentence."""
    parts = []
    if cause.step:
        parts.append(f"step {cause.step} (run {cause.step_run})" if cause.step_run > 1 else f"step {cause.step}")
    if cause.iteration:
        parts.append(f"item {cause.iteration}")
    if cause.task:
        parts.append(f"task {cause.task}")
    if cause.attempt > 1:
        parts.append(f"attempt {cause.attempt}")
    at = cause.at if cause.at.startswith(f"{cause.line}:") else str(cause.line or cause.at)
    where = f" ({cause.file or 'playbook'}:{at})" if cause.at else ""
    rule = f"; {cause.rule}" if cause.rule else ""
    via = "".join(f"{call} → " for call in cause.calls())
    run = f"run {cause.execution_id}, " if cause.via else ""
    return f"{via}{run}{', '.join(parts)}{where}{': ' if parts else ''}{cause.kind}: {cause.message}{rule}"


# ── the error of the run ─────────────────────────────────────────────────────────────────────────────────────────────


def _error(state: State, cause: Cause | None, child: ChildAccount | None) -> dict[str, Any] | None:
    """Return the run's error with its place. Every key exists, with None if there is no value."""
    if state.terminal is None or state.error is None:
        return None
    fault = state.fault or Fault(0, state.error)
    own = child is None or child.account.error is None
    below = None if own or child is None else {"execution_id": child.execution_id, **(child.account.error or {})}
    error = {key: value for key, value in state.error.items() if key != "cause"}
    return {
        **error,
        "step": state.error.get("step") or fault.step or None,
        "task": fault.task or None,
        "item": item_name(fault.iteration) or None,
        "traceback": (cause.traceback if cause is not None and own else fault.traceback) or None,
        "cause": below or _cause_of(state.error, fault),
    }


def _cause_of(error: dict[str, Any], fault: Fault) -> dict[str, Any] | None:
    """Return the error that caused the run's error, if the latter only reports a consequence."""
    recorded = error.get("cause")
    if isinstance(recorded, dict):
        return recorded
    if fault.rule == UNEVALUABLE and fault.own is not None:
        return fault.own
    return None


# ── sentences and commands ───────────────────────────────────────────────────────────────────────────────────────────


def _summary(state: State, cause: Cause | None) -> str:
    text = f"the run has ended: {state.status}" if state.terminal is not None else f"the run is {state.status}"
    if cause is not None:
        return f"{text}: {cause_text(cause)}"
    if state.terminal is not None and state.error is not None:
        where = f" in step {state.error['step']}" if "step" in state.error else ""
        return f"{text}{where}: {_kind_and_message(state.error)}"
    return f"{text}; {_failed_items(state)}" if state.failed_items else text


def _next(state: State, cause: Cause | None) -> list[str]:
    execution_id = str(state.execution_id)
    if state.terminal is None:
        return [f"arclog why {execution_id}", f"arclog resume {execution_id}"]
    if cause is None:
        return [f"arclog events {execution_id}"] if state.error is not None else [f"arclog show {execution_id}"]
    step = f" --step {cause.step}" if cause.step else ""
    where = cause.execution_id or execution_id
    return [
        f"arclog logs {where}{step}",
        f"arclog state {where} --at {max(cause.seq - 1, 0)}",
        # Steps that succeeded do not run again; a run that failed before its first step can only be repeated as a whole.
        f"arclog retry {execution_id} --failed" if cause.step else f"arclog retry {execution_id}",
    ]


# The place of a failure in the author's file: the line of python code, the position of a template, or else the task.
#
# No I/O. The sandbox counts lines from the beginning of `code:`; here they are converted to lines of the file.


#: The position in a template error.
_TEMPLATE_AT = pattern(r" at (\d+):(\d+)$")
_TEXT_MAX = 200


class Place(Struct, frozen=True):
    """A line of the playbook's file; 0 if unknown."""

    line: int = 0
    #: the text at that position
    text: str = ""
    #: the traceback with the lines of the file
    traceback: str = ""


def place_of(program: Program, fault: Fault, task: TaskPlan | None, source: str, file: str = "") -> Place:
    """Return the place of a fault in the text of its playbook."""
    try:
        document = load(source, file)
    except ArclogError:
        return Place()
    traceback, line = fault.traceback, 0
    if task is not None and fault.traceback:
        traceback, line = _in_file(document, fault, task, file)
    if not line:
        match = _TEMPLATE_AT.search(str((fault.own or fault.error).get("message", "")))
        line = int(match[1]) if match else _position(program, fault, task).line
    return Place(line, document.line(line).strip()[:_TEXT_MAX], traceback)


def _position(program: Program, fault: Fault, task: TaskPlan | None) -> Position:
    if task is not None and task.at.line:
        return task.at
    step = program.steps.get(fault.step)
    return step.plan.at if step is not None else Position()


def _in_file(document: Document, fault: Fault, task: TaskPlan, file: str) -> tuple[str, int]:
    """Return the traceback with lines of the file, and the line of its last frame; 0 if lines cannot be mapped."""
    if taken := task.files.get("code"):
        return re.sub(
            rf'File "<{re.escape(fault.step)}\.{re.escape(fault.task)}>"', f'File "{taken}"', fault.traceback
        ), 0
    first = _first_line(document, task)
    name = file or "playbook"
    last = 0

    def mapped(match: re.Match[str]) -> str:
        nonlocal last
        if first is None:
            return f'File "{name}, code of {fault.step}.{fault.task}", line {match[1]}'
        last = first + int(match[1]) - 1
        return f'File "{name}", line {last}'

    frame = re.compile(rf'File "<{re.escape(fault.step)}\.{re.escape(fault.task)}>", line (\d+)')
    return frame.sub(mapped, fault.traceback), last


def _first_line(document: Document, task: TaskPlan) -> int | None:
    """Return the line of the file with the first line of the task's code; None if YAML folds or escapes it."""
    path = _code_path(document, task)
    if path is None:
        return None
    at = document.at(path)
    opener = document.line(at.line)[at.column - 1 : at.column]
    if opener == "|":
        return at.line + 1
    return at.line if "\n" not in str(task.config.get("code", "")).rstrip("\n") else None


def _code_path(document: Document, task: TaskPlan) -> Path | None:
    """Return the place of the task's code: in the task, or in the workbook entry that the task names."""
    path = document.path_at(task.at)
    value = _value(document.value, path) if path is not None else None
    if path is None or not isinstance(value, dict):
        return None
    if "code" in value:
        return (*path, "code")
    workbook = document.value.get("workbook")
    for index, entry in enumerate(workbook if isinstance(workbook, list) else ()):
        if isinstance(entry, dict) and "code" in entry and entry.get("code") == task.config.get("code"):
            return ("workbook", index, "code")
    return None


def _value(value: Any, path: Path) -> Any:
    for part in path:
        value = value[part]
    return value
