"""Renders a plan as text, as a Mermaid flowchart, or as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from arclog.model.errors import shortened
from arclog.plan.net import AdmitRule, ArcPlan, Block, Branch, LoopPlan, Plan, StepPlan, TaskPlan, TaskRule

_LONGEST = 100


def as_text(plan: Plan) -> str:
    """Render the steps in order, each with its tasks and arcs."""
    counts = f"{len(plan.steps)} steps, {sum(len(step.tasks) for step in plan.steps)} tasks, {len(plan.places)} places, {len(plan.transitions)} transitions"
    lines = [f"{plan.name} ({counts})"]
    if plan.description:
        lines.append(f"  {_short(plan.description)}")
    for step in plan.steps:
        lines.append("")
        lines += _step_lines(step, entry=step.name == plan.entry)
    if plan.result is not None:
        lines += ["", f"result: {_short(plan.result)}"]
    return "\n".join(lines)


def _step_lines(step: StepPlan, *, entry: bool) -> list[str]:
    lines = [f"{'▶' if entry else '●'} {step.name}{f'  {_short(step.desc)}' if step.desc else ''}"]
    rows: list[tuple[str, list[str]]] = []
    if step.join != "any":
        rows.append((f"join {step.join if step.join != 'count' else f'count {step.join_count}'}", []))
    rows += [(f"admit {_when(rule)} → {'allow' if rule.allow else 'deny'}", []) for rule in step.admit or ()]
    loop = step.loop
    while loop is not None:
        rows.append((_loop(loop), []))
        loop = loop.inner
    rows += _items(step, step.flow or range(len(step.tasks)))
    rows += [(_arc(arc), []) for arc in step.arcs]
    if not step.arcs:
        rows.append(("→ (end)", []))
    elif step.mode != "exclusive" or step.on_no_match != "end":
        rows.append((f"routing {step.mode}, no match: {step.on_no_match}", []))
    for number, (text, below) in enumerate(rows):
        last = number == len(rows) - 1
        lines.append(f"  {'└─' if last else '├─'} {text}")
        lines += [f"  {' ' if last else '│'}     {line}" for line in below]
    return lines


def _items(step: StepPlan, flow: Iterable[int | Block]) -> list[tuple[str, list[str]]]:
    """Return the tasks and blocks of a list, each with the lines below it."""
    rows: list[tuple[str, list[str]]] = []
    for item in flow:
        if isinstance(item, Block):
            rows.append(_block(step, item))
            continue
        task = step.tasks[item]
        rules = [_rule(rule) for rule in task.policy.rules] if task.policy is not None else []
        rows.append((f"{task.name}: {task.kind}", rules))
    return rows


def _block(step: StepPlan, block: Block) -> tuple[str, list[str]]:
    if block.word == "choose":
        lines: list[str] = []
        for branch in block.branches:
            lines.append(_when(branch))
            lines += [f"  {line}" for line in _nested(step, branch)]
        return block.word, lines
    most = f" (at most {block.max} rounds)" if block.max is not None else ""
    round_ = block.branches[0]
    return f"{block.word} {_short(round_.when)}{most}", _nested(step, round_)


def _nested(step: StepPlan, branch: Branch) -> list[str]:
    lines: list[str] = []
    for text, below in _items(step, branch.body):
        lines.append(text)
        lines += [f"  {line}" for line in below]
    return lines


def _when(rule: AdmitRule | TaskRule | Branch) -> str:
    return "else" if rule.when is None else f"when {_short(rule.when)}"


def _loop(loop: LoopPlan) -> str:
    how = loop.mode if loop.mode == "sequential" else f"{loop.mode}, {loop.max_in_flight} at a time, {loop.exec}"
    return f"loop {loop.iterator} in {_short(loop.items)} ({how})"


def _rule(rule: TaskRule) -> str:
    then = rule.then
    action = then.do
    if then.do == "jump":
        action = f"jump to {then.to}"
    elif then.do == "retry":
        action = f"retry, {then.attempts} attempts, delay {then.delay:g} s ({then.backoff})"
    sets = [f"{kind}.{key}" for kind, values in (("iter", then.set_iter), ("ctx", then.set_ctx)) for key in values]
    return f"{_when(rule)} → {action}" + (f", sets {', '.join(sets)}" if sets else "")


def _arc(arc: ArcPlan) -> str:
    return f"→ {arc.target}" + (f"  when {_short(arc.when)}" if arc.when is not None else "")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    line = " ".join(text.split())
    if line.startswith("{{") and line.endswith("}}") and line.count("{{") == 1:
        line = line[2:-2].strip()
    return shortened(line, _LONGEST)


def as_mermaid(plan: Plan) -> str:
    """Render a flowchart of steps. Admission and loops are in the boxes, conditions on the arrows."""
    ids = {step.name: f"s{number}" for number, step in enumerate(plan.steps)}
    lines = ["flowchart TD"]
    if plan.entry in ids:
        lines += ["  entry((start))", f"  entry --> {ids[plan.entry]}"]
    for step in plan.steps:
        kinds = [task.kind for task in step.tasks]
        parts = [step.name, ", ".join(kinds[:4]) + (", …" if len(kinds) > 4 else "")]
        if step.loop is not None:
            parts.append(_loop(step.loop))
        opener, closer = ("[[", "]]") if step.loop is not None else ("[", "]")
        label = "<br/>".join(_escaped(part) for part in parts if part)
        lines.append(f'  {ids[step.name]}{opener}"{label}"{closer}')
    for step in plan.steps:
        for arc in step.arcs:
            if arc.target not in ids:
                continue
            label = f'|"{_escaped(_short(arc.when))}"|' if arc.when is not None else ""
            lines.append(f"  {ids[step.name]} -->{label} {ids[arc.target]}")
    return "\n".join(lines) + "\n"


_ENTITIES = {character: f"#{ord(character)};" for character in '"#&<>[]{}()|`\\;'}


def _escaped(text: str) -> str:
    """Escape a label. Mermaid reads entities as `#34;`; every character that could end a label becomes one."""
    return "".join(_ENTITIES.get(character, character) for character in text if character.isprintable())


def as_json(plan: Plan) -> dict[str, Any]:
    """Return the net and the steps as plain data, for tools."""
    steps: list[dict[str, Any]] = [
        {
            "name": step.name,
            "desc": step.desc,
            "tasks": [_task_row(task) for task in step.tasks],
            "flow": [_flow_row(step, item) for item in step.flow or range(len(step.tasks))],
            "loop": None if step.loop is None else _loop_row(step.loop),
            "arcs": [
                {"step": arc.target, "when": arc.when, "place": arc.place, "args": arc.args, "line": arc.at.line}
                for arc in step.arcs
            ],
            "mode": step.mode,
            "join": step.join,
            "admit": None if step.admit is None else [_admit_row(rule) for rule in step.admit],
            "pool": step.pool,
            "line": step.at.line,
            "column": step.at.column,
        }
        for step in plan.steps
    ]
    return {
        "name": plan.name,
        "path": plan.path,
        "description": plan.description,
        "entry": plan.entry,
        "workload": plan.workload,
        "inputs": plan.inputs,
        "steps": steps,
        "places": [{"id": place.id, "role": place.role} for place in plan.places],
        "transitions": [
            {"id": transition.id, "step": transition.step, "role": transition.role} for transition in plan.transitions
        ],
        "arcs": [{"source": arc.source, "target": arc.target} for arc in plan.net],
    }


def _task_row(task: TaskPlan) -> dict[str, Any]:
    policy = task.policy
    return {
        "name": task.name,
        "kind": task.kind,
        "config": task.config,
        "rules": [] if policy is None else [_rule_row(rule) for rule in policy.rules],
        "line": task.at.line,
        "column": task.at.column,
    }


def _rule_row(rule: TaskRule) -> dict[str, Any]:
    return {"when": rule.when, "then": msgspec.to_builtins(rule.then), "line": rule.at.line}


def _admit_row(rule: AdmitRule) -> dict[str, Any]:
    return {"when": rule.when, "allow": rule.allow, "line": rule.at.line}


def _flow_row(step: StepPlan, item: int | Block) -> Any:
    """Return a task's label, or a block with its branches."""
    if isinstance(item, int):
        return step.tasks[item].name
    branches = [
        {"when": branch.when, "do": [_flow_row(step, inner) for inner in branch.body]} for branch in item.branches
    ]
    return {
        "word": item.word,
        "name": item.name,
        "branches": branches,
        "max": item.max,
        "line": item.at.line,
        "column": item.at.column,
    }


def _loop_row(loop: LoopPlan) -> dict[str, Any]:
    inner = None if loop.inner is None else _loop_row(loop.inner)
    return {
        "in": loop.items,
        "iterator": loop.iterator,
        "mode": loop.mode,
        "max_in_flight": loop.max_in_flight,
        "exec": loop.exec,
        "loop": inner,
    }
