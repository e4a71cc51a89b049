"""`case` of a step: reactions to an event. Its sinks become tasks, its sets and retries rules, its routes arcs.

Invariants: the entries of a case are tried in order and the first match is taken. A case is converted as a whole to an
equivalent form, or stays unchanged and is listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from arclog.authoring.migration.conditions import Condition, condition_of, expression_of, quoted, renamed, renamed_in
from arclog.authoring.migration.policies import ERROR, retry_rule
from arclog.authoring.migration.sinks import Sink, sink_tasks
from arclog.authoring.migration.source import Change, Source, Undecided
from arclog.authoring.spans import (
    Edit,
    column_of,
    end,
    entries,
    entry,
    is_flow,
    is_list,
    is_map,
    items,
    line_end,
    line_start,
    raw,
    scalar,
    start,
)

_HINTS = {
    "collect": "gather pages in a task list: spec: {set_iter: {…}} and a rule with do: jump, or until: {do: […], when: …}",
    "result": 'executor: {spec: {result: "{{ … }}"}}',
    "call": "a task of the list: tool: [{name: LABEL, kind: …}]",
    "log": "python's print, or kind: noop with data",
    "fail": "a rule of the task: then: {do: fail, message: …}",
    "skip": "an arc to the step that comes next",
}
_HINT = "next: {arcs: […]} for routes; rules of the task for its variables and retries"


class Target(NamedTuple):
    """A step to go to."""

    step: str
    #: node of its args; None without
    args: Any


@dataclass
class Entry:
    """One entry of a case."""

    node: Any
    #: the `when`; None of an `else`
    when: Any
    condition: Condition
    #: key and value nodes of its actions, and the list item that has only that action
    actions: dict[str, tuple[Any, Any, Any]] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)

    @property
    def phase(self) -> str:
        return self.condition.phase


def cases(source: Source) -> Iterator[Change]:
    """One stage of each case: first its sinks, then what belongs to the task, then its routes."""
    for step in source.steps:
        key = next((key for name, key, _ in entries(step) if name == "case"), None)
        if key is None or is_flow(step):
            continue
        try:
            read = read_case(step)
            change = _sinks(source, step, read) or _outcomes(source, step, read) or _routes(source, step, key, read)
        except Undecided as why:
            source.leave(why.node, why.message, why.hint)
        else:
            yield change


# --- reading --------------------------------------------------------------------------------------------------------------


def read_case(step: Any) -> list[Entry]:
    """The entries of a step's case. Raises Undecided when some part of it has no one meaning."""
    node = entry(step, "case")
    if not items(node):
        raise Undecided(node, "case: not a list of entries", _HINT)
    read = [case for part in items(node) for case in _read_entry(part, last=part is items(node)[-1])]
    _check_order(step, read)
    return read


def _read_entry(node: Any, *, last: bool) -> list[Entry]:
    """Read an entry; it becomes two if the last one has an `else` next to its `then`."""
    parts = {name: value for name, _, value in entries(node)}
    when = parts.get("when") or parts.get("expr")
    if not parts or not set(parts) <= {"when", "expr", "then", "else"} or (when is None) == ("then" in parts):
        raise Undecided(node, "case: an entry is {when, then}", _HINT)
    if "else" in parts and not last:
        raise Undecided(node, "case: an else before the last entry", _HINT)
    read: list[Entry] = []
    for word in ("then", "else"):
        if word not in parts:
            continue
        condition = condition_of(when) if word == "then" else Condition("done", "", explicit=False)
        made = Entry(node, when if word == "then" else None, condition)
        if made.phase == "enter":
            hint = "a step before sets it: spec: {set_ctx: {…}}, or workload has it"
            raise Undecided(when, "case: actions at the start of a step", hint)
        then = parts[word]
        for part in items(then) if is_list(then) else [then]:
            _read_action(made, part, in_list=is_list(then))
        read.append(made)
    if len(read) > 1 and any(part.actions for part in read):
        raise Undecided(node, "case: an else beside a then that does more than route", "a separate entry: - else: …")
    return read


def _read_action(read: Entry, part: Any, *, in_list: bool) -> None:
    if scalar(part):
        read.targets.append(Target(scalar(part) or "", None))
        return
    if entry(part, "step") is not None:
        read.targets.append(_target(part))
        return
    pairs = list(entries(part))
    if not pairs:
        raise Undecided(read.node, "case: it does nothing", _HINT)
    for name, key, value in pairs:
        if name == "next":
            read.targets += [_target(target) for target in (items(value) if is_list(value) else [value])]
            continue
        if name == "result" and scalar(entry(value, "from")) in ("response", "result"):
            continue  # the result of a step is its data
        elif name not in ("sink", "set", "set_ctx", "vars", "retry"):
            raise Undecided(key, f"case: {name} has no equivalent", _HINTS.get(name, _HINT))
        elif name in read.actions:
            raise Undecided(key, f"case: {name} occurs twice", _HINT)
        read.actions[name] = (key, value, part if in_list and len(pairs) == 1 else None)


def _target(node: Any) -> Target:
    if scalar(node):
        return Target(scalar(node) or "", None)
    names = {name for name, _, _ in entries(node)}
    if "step" not in names or not names <= {"step", "args", "with", "input", "data"} or len(names) > 2:
        raise Undecided(node, "next: a step and its args", "arcs: [{step: NAME, args: {…}}]")
    args = next((value for name, _, value in entries(node) if name != "step"), None)
    return Target(scalar(entry(node, "step")) or "", args)


def _check_order(step: Any, read: list[Entry]) -> None:
    """Refuse a case whose order of entries cannot be expressed by separate rules and arcs. Raises Undecided."""
    for phase in ("done", "failed", "loop"):
        seen = [part for part in read if part.phase == phase]
        for part in seen[:-1]:
            if not part.condition.others and "retry" not in part.actions:
                raise Undecided(part.node, "case: the entries after this one are never reached", "remove one of them")
        for part in seen:
            later = seen[seen.index(part) + 1 :]
            silent = not part.targets and not (phase == "failed" and "retry" in part.actions)
            if silent and any(other.targets for other in later) and entry(step, "next") is None:
                hint = "an arc for it, before the others: next: {arcs: […]}"
                raise Undecided(part.node, "case: an entry that goes nowhere before entries that do", hint)
    for part in read:
        _check_actions(step, part, read)
    routes = [part for part in read if part.targets]
    if any(len(part.targets) > 1 for part in routes) and (len(routes) > 1 or entry(step, "next") is not None):
        hint = "a step of kind noop for them: next: {spec: {mode: inclusive}, arcs: […]}"
        raise Undecided(
            next(part.node for part in routes if len(part.targets) > 1), "case: several steps at once", hint
        )


def _check_actions(step: Any, part: Entry, read: list[Entry]) -> None:
    for name, (key, _, _) in part.actions.items():
        if name in ("sink", "set", "set_ctx", "vars") and part.phase != "done":
            hint = "a separate step after an arc with event.name == 'step.failed'"
            raise Undecided(key, f"case: {name} after a failure, or after all items", hint)
        if name in ("set", "set_ctx", "vars") and entry(step, "loop") is not None:
            hint = "set it in the task that computes the value; executor.spec.ctx defines how the values of items are combined"
            raise Undecided(key, f"case: {name} in a loop: it is unclear which item's value is meant", hint)
        if name == "retry" and (part.phase != "failed" or len(part.actions) > 1 or part.targets):
            hint = "until: {do: [tasks], when: …, max: N} repeats tasks until something holds"
            raise Undecided(key, "case: retry after a success", hint)
        if name == "retry" and any(
            other.phase == "failed" and "retry" not in other.actions for other in read[: read.index(part)]
        ):
            raise Undecided(key, "case: retry after another entry for failures", "retries come first")


# --- writing --------------------------------------------------------------------------------------------------------------


def _without(source: Source, part: Entry, name: str) -> Edit:
    """Return the removal of one action, or of the whole entry if it has no other. Raises Undecided."""
    key, value, item = part.actions[name]
    text = source.text
    whole = len(part.actions) == 1 and not part.targets
    if whole or item is not None:
        node = part.node if whole else item
        first, stop = line_start(text, start(node)), line_end(text, end(text, node))
        before = text[first : start(node)]
        if before.strip() != "-":
            raise Undecided(key, f"case: {name} in a case on one line", _HINT)
        column = len(before) - len(before.lstrip())
        kept = [] if name == "sink" else source.comments(first, stop)
        return Edit(first, stop, "".join(f"{' ' * column}{comment}\n" for comment in kept))
    then = entry(part.node, "then" if part.when is not None else "else")
    if is_flow(then) and is_map(then):
        others = [f"{raw(text, k)}: {raw(text, v)}" for word, k, v in entries(then) if word != name]
        return Edit(start(then), end(text, then), f"{{{', '.join(others)}}}")
    if not source.has_own_lines(key):
        raise Undecided(key, f"case: {name} in a case on one line", _HINT)
    return source.removal(key, value, moved=name == "sink")


def _task_of(source: Source, step: Any, node: Any) -> Any:
    tasks = list(source.tasks(step))
    if len(tasks) != 1:
        raise Undecided(
            node,
            "case: a step with several tasks",
            "write it on the task that it belongs to: spec: {policy: {rules: […]}}",
        )
    return tasks[0]


def _sinks(source: Source, step: Any, read: list[Entry]) -> Change | None:
    """Convert the sinks of a case to tasks after the step's own."""
    stored = [part for part in read if "sink" in part.actions]
    if not stored:
        return None
    task = _task_of(source, step, stored[0].node)
    kind = scalar(entry(task, "kind")) or ""
    if not kind:
        raise Undecided(stored[0].node, "sink: a step without a tool", "tool: {kind: …}")
    done = [part for part in read if part.phase == "done"]
    if len(done) > len(stored) and any(part.condition.others for part in done[: done.index(stored[-1])]):
        raise Undecided(stored[0].node, "sink: entries before it hold for others", "tool: […, {choose: […]}]")
    sinks = []
    for part in stored:
        key, value, _ = part.actions["sink"]
        sinks.append(Sink(key, value, part.condition.others))
    routed = any(part.targets for part in read) or entry(step, "next") is not None
    # An entry is removed with its comments, so that one with only a sink leaves nothing behind.
    edits = [_without(source, part, "sink") for part in stored]
    if len(stored) == len(read) and all(len(part.actions) == 1 and not part.targets for part in stored):
        key = next(key for name, key, _ in entries(step) if name == "case")
        edits = [source.removal(key, entry(step, "case"), moved=True)]
    asked = " ".join(expression_of(part.when) for part in read if part.when is not None and part.targets)
    source.note(stored[0].actions["sink"][0], "sink → a task")
    return (*sink_tasks(source, step, task, sinks, routed=routed, asked=asked), *edits)


def _outcomes(source: Source, step: Any, read: list[Entry]) -> Change | None:
    """Convert sets and retries to rules of the step's task."""
    about = [part for part in read if {"set", "set_ctx", "vars", "retry"} & part.actions.keys()]
    if not about:
        return None
    task = _task_of(source, step, about[0].node)
    kind = scalar(entry(task, "kind")) or ""
    if entry(task, "spec", "policy") is not None or entry(task, "spec", "set_ctx") is not None:
        raise Undecided(about[0].node, "case: the task already has rules", "rules: […] of the task")
    rules: list[str] = []
    edits: list[Edit] = []
    for part in read:
        if "retry" in part.actions:
            key, value, _ = part.actions["retry"]
            when_text = renamed(part.condition.others, kind, "outcome", part.when) if part.condition.others else ""
            rules.append(retry_rule(value, when_text, key))
            edits.append(_without(source, part, "retry"))
    done = [part for part in read if part.phase == "done"]
    setting = [part for part in done if part not in read or {"set", "set_ctx", "vars"} & part.actions.keys()]
    plain = ""
    if setting:
        last = done.index(setting[-1])
        rules.append(f"{{when: {quoted(ERROR)}, then: {{do: fail}}}}")
        for part in done[: last + 1]:
            name = next((name for name in ("set", "set_ctx", "vars") if name in part.actions), "")
            value = values_set(source, part.actions[name], kind) if name else ""
            action = f"{{do: continue, set_ctx: {value}}}" if value else "{do: continue}"
            if part.condition.others:
                when = quoted(renamed(part.condition.others, kind, "outcome", part.when))
                rules.append(f"{{when: {when}, then: {action}}}")
            else:
                rules.append(f"{{else: {{then: {action}}}}}")
                plain = value
            if name:
                edits.append(_without(source, part, name))
    if len(setting) == 1 and plain and len(rules) == 2:
        added = source.put_in_spec(task, "set_ctx", plain)
        source.note(about[0].node, "case: set → spec.set_ctx")
    else:
        rules += [] if rules[-1].startswith("{else") else ["{else: {then: {do: continue}}}"]
        added = source.put_in_spec(task, "policy", f"{{rules: [{', '.join(rules)}]}}")
        source.note(about[0].node, "case → spec.policy.rules")
    if added is None:
        raise Undecided(about[0].node, "case: the task has a spec that cannot be added to", "rules: […] of the task")
    key = next(key for name, key, _ in entries(step) if name == "case")
    whole = all(len(part.actions) == 1 and not part.targets for part in about)
    if whole and len(about) == len(read):
        edits = [source.removal(key, entry(step, "case"))]
    return (added, *edits)


def values_set(source: Source, action: tuple[Any, Any, Any], kind: str) -> str:
    """Return the values of a `set` as a map on one line: `{a: …}`, `{ctx: {a: …}}` or `[{name: a, value: …}]`. Raises
    Undecided.
    """
    key, value, _ = action
    pairs: list[tuple[str, Any]] = []
    if is_list(value):
        for part in items(value):
            if {name for name, _, _ in entries(part)} != {"name", "value"}:
                raise Undecided(part, "set: an entry is {name, value}", "spec: {set_ctx: {…}}")
            pairs.append((scalar(entry(part, "name")) or "", entry(part, "value")))
    else:
        for name, part, inner in entries(value):
            if name == "ctx" and is_map(inner):
                pairs += [(within, deep) for within, _, deep in entries(inner)]
            elif name == "iter":
                raise Undecided(part, "set: iter of a step without a loop", "spec: {set_iter: {…}} of a task")
            else:
                pairs.append((name.removeprefix("ctx."), inner))
    made = []
    for name, inner in pairs:
        flow = source.as_flow(inner, without_comments=True)
        if not name.isidentifier() or not flow:
            raise Undecided(
                key, f"set: {name or 'a key'} cannot be written on one line", "spec: {set_ctx: {…}} of the task"
            )
        made.append(f"{name}: {renamed_in(flow, kind, 'outcome', inner)}")
    if not made:
        raise Undecided(key, "set: it sets nothing", "remove it")
    return f"{{{', '.join(made)}}}"


def _routes(source: Source, step: Any, key: Any, read: list[Entry]) -> Change:
    """Convert a case that only routes, and the step's own `next` for the rest, to arcs."""
    text = source.text
    value, node = entry(step, "case"), entry(step, "next")
    task = next(iter(source.tasks(step)), None)
    kind = scalar(entry(task, "kind")) or ""
    column = column_of(key) + 2
    room = " " * column
    done = "loop.done" if entry(step, "loop") is not None else "step.done"
    lines: list[str] = []
    at = start(key)
    several = any(len(part.targets) > 1 for part in read)
    for part in read:
        stop = max(at, line_end(text, end(text, part.node)))
        lines += [f"{room}  {comment}\n" for comment in source.comments(at, stop)]
        at = stop
        for target in part.targets:
            lines.append(_arc(source, target, _arc_when(part, kind, done), kind, column + 2))
    default_edits: list[Edit] = []
    if node is not None:
        default = _default(node)
        next_key = next(key for name, key, _ in entries(step) if name == "next")
        if not source.has_own_lines(next_key):
            raise Undecided(next_key, "next: beside a case on one line", _HINT)
        lines += [
            f"{room}  {comment}\n" for comment in source.comments(start(next_key), line_end(text, end(text, node)))
        ]
        lines += [_arc(source, target, "", kind, column + 2) for target in default]
        default_edits = [source.removal(next_key, node, moved=True)]
        several = several or len(default) > 1
    if several:
        lines.insert(0, "")
    spec = f"{room}spec: {{mode: inclusive}}\n" if several else ""
    source.note(key, "case → next.arcs")
    made = f"next:\n{spec}{room}arcs:\n" + "".join(lines)
    return (Edit(start(key), line_end(text, end(text, value)), made), *default_edits)


def _default(node: Any) -> list[Target]:
    arcs = items(entry(node, "arcs")) if is_map(node) and entry(node, "arcs") is not None else None
    parts = arcs if arcs is not None else items(node) if is_list(node) else [node]
    targets = [_target(part) for part in parts]
    if len(targets) != 1:
        raise Undecided(node, "next: several steps beside a case", "one arc for each, with its condition")
    return targets


def _arc_when(part: Entry, kind: str, done: str) -> str:
    """The `when` of an arc; '' for a success without conditions."""
    if part.when is None:
        return ""
    when_text = renamed(part.condition.others, kind, "outcome", part.when) if part.condition.others else ""
    if part.phase == "failed":
        asked = ["event.name == 'step.failed'"]
    elif part.condition.explicit or "outcome" in when_text:
        asked = [f"event.name == '{done}'"]
    else:
        asked = []
    return quoted(" and ".join([*asked, *([when_text] if when_text else [])]))


def _arc(source: Source, target: Target, when: str, kind: str, column: int) -> str:
    room = " " * column
    condition = f", when: {when}" if when else ""
    if target.args is None:
        return f"{room}- {{step: {target.step}{condition}}}\n"
    flow = source.as_flow(target.args)
    if flow:
        return f"{room}- {{step: {target.step}{condition}, args: {renamed_in(flow, kind, 'outcome', target.args)}}}\n"
    first = target.args.value[0][0] if is_map(target.args) and target.args.value else None
    lines = (
        source.lines_at(first, target.args, column + 4) if first is not None and source.has_own_lines(first) else None
    )
    if lines is None:
        raise Undecided(target.args, "args: they cannot be moved", "arcs: [{step: NAME, args: {…}}]")
    head = f"{room}- step: {target.step}\n" + (f"{room}  when: {when}\n" if when else "")
    return f"{head}{room}  args:\n{renamed_in(lines, kind, 'outcome', target.args)}"
