"""Variables of a playbook: `set`, `set_ctx` and `vars` of steps, tasks, rules and arcs, and the names that read
them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from arclog.authoring.migration.conditions import renamed_in
from arclog.authoring.migration.policies import rules_of
from arclog.authoring.migration.source import TEMPLATE, Change, Source, Undecided
from arclog.authoring.spans import (
    Edit,
    by_name,
    column_of,
    end,
    entries,
    entry,
    is_flow,
    is_map,
    items,
    raw,
    scalar,
    scalars,
    start,
    templates,
)

# ── variables ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_WHERE = "set_ctx: {…} keeps a value for the run, set_iter: {…} for the iteration"
_LAST = "the task that makes the value sets it: spec: {set_ctx: {…}}"
_SET = ("set", "set_ctx", "vars")


def sets(source: Source) -> Iterator[Change]:
    """Convert the values that tasks, their rules, steps and arcs set."""
    for step in [*source.steps, None]:
        tasks = items(entry(source.root, "workbook")) if step is None else source.tasks(step)
        for task in tasks:
            for rule in rules_of(task):
                for then in (entry(rule, "then"), entry(rule, "else", "then")):
                    yield from _decided(source, _of_rule, step, then)
            yield from _decided(source, _of_task, step, task)
        if step is not None:
            yield from _decided(source, _of_step, step)
            yield from _decided(source, _of_arcs, step)


def _decided(source: Source, rule: Any, *nodes: Any) -> Iterator[Change]:
    try:
        change = rule(source, *nodes)
    except Undecided as why:
        source.leave(why.node, why.message, why.hint)
    else:
        if change is not None:
            yield change


# --- the four places ------------------------------------------------------------------------------------------------------


def _of_rule(source: Source, step: Any, then: Any) -> Change | None:
    """`set` of a rule: renamed to the scope that all its keys have, or split."""
    values = entry(then, "set")
    key = next((key for name, key, _ in entries(then) if name == "set"), None)
    if key is None or not is_map(values):
        return None
    groups = _groups(source, step, key, values)
    if len(groups) == 1:
        ((scope, parts),) = groups.items()
        if entry(then, scope) is not None:
            raise Undecided(key, f"set: beside {scope}", _WHERE)
        source.note(key, f"set → {scope}")
        names = tuple(Edit(start(part), int(part.end_mark.index), _bare(source, part)) for part, _ in parts)
        return (Edit(start(key), int(key.end_mark.index), scope), *names)
    flows = {scope: _flow(source, parts, key) for scope, parts in groups.items()}
    source.note(key, "set → set_ctx, set_iter")
    glue = ", " if is_flow(then) else "\n" + " " * column_of(key)
    text = glue.join(f"{scope}: {value}" for scope, value in flows.items())
    kept = source.comments(start(values), end(source.text, values))
    if kept and is_flow(then):
        raise Undecided(key, "set: comments in it", _WHERE)
    comments = "".join(f"{comment}\n{' ' * column_of(key)}" for comment in kept)
    return Edit(start(key), end(source.text, values), comments + text)


def _of_task(source: Source, step: Any, task: Any) -> Change | None:
    for name, key, value in entries(task):
        if name in ("set", "set_ctx"):
            return _moved(source, step, task, task, key, value)
    return None


def _of_step(source: Source, step: Any) -> Change | None:
    """Convert the values that a step sets: its last task sets them if it succeeds."""
    for name, key, value in entries(step):
        if name not in _SET:
            continue
        tasks = source.tasks(step)
        if entry(step, "loop") is not None or not tasks:
            raise Undecided(key, f"{name} of a step with a loop: it is unclear which item's value is meant", _LAST)
        if any(_ends_early(task) for task in tasks):
            message = f"{name} of a step whose tasks jump or break: it is unclear which task is the last"
            raise Undecided(key, message, _LAST)
        return _moved(source, step, step, tasks[-1], key, value)
    return None


def _of_arcs(source: Source, step: Any) -> Change | None:
    """Convert the values that arcs set: the task before sets them if the arc is the only way out of the step; else a
    new step does.
    """
    arcs = [arc for arc in items(entry(step, "next", "arcs")) if is_map(arc)]
    sets = [(arc, key, value) for arc in arcs for name, key, value in entries(arc) if name in ("set", "set_ctx")]
    if not sets:
        return None
    _, key, value = sets[0]
    tasks = source.tasks(step)
    about_event = any("event" in str(node.value) for _, node in scalars(value))
    only_way = len(arcs) == 1 and entry(arcs[0], "when") is None and entry(step, "loop") is None
    if only_way and tasks and not about_event and not any(map(_ends_early, tasks)):
        return _moved(source, step, step, tasks[-1], key, value, arc=arcs[0])
    return _step_between(source, step, *sets[0])


def _step_between(source: Source, step: Any, arc: Any, key: Any, value: Any) -> Change:
    """A step that only sets, on the way of one arc."""
    workflow, text = entry(source.root, "workflow"), source.text
    name, target = scalar(entry(step, "step")) or "", scalar(entry(arc, "step")) or ""
    between = next(
        word for n in range(1, 100) if (word := f"{name}_to_{target}" + (f"_{n}" if n > 1 else "")) not in source.names
    )
    followed = next((node for node in source.steps if scalar(entry(node, "step")) == target), None)
    about = [str(node.value) for _, node in scalars(value)]
    admitted = [str(node.value) for _, node in scalars(entry(followed, "spec", "policy", "admit"))]
    if any(re.search(r"(?<![\w.])(event|outcome|args)\b", part) for part in about) or any(
        "event" in p for p in admitted
    ):
        raise Undecided(
            key,
            f"{key.value}: an arc sets nothing",
            "set it in a task: spec: {set_ctx: {…}}; an arc passes args: {…}",
        )
    if (
        entry(arc, "args") is not None
        or is_flow(workflow)
        or (is_flow(arc) and source.comments(start(arc), end(text, arc)))
    ):
        raise Undecided(key, f"{key.value}: an arc that has args, too", "set it in a task: spec: {set_ctx: {…}}")
    groups = _groups(source, step, key, value, {"set_ctx"}) if key.value == "set" else {"set_ctx": _pairs(value)}
    if set(groups) != {"set_ctx"}:
        raise Undecided(key, "set: an arc has no iteration", _WHERE)
    flow = _flow(source, groups["set_ctx"], key)
    room = " " * column_of(workflow)
    put = source.put(
        step,
        f"\n{room}- step: {between}\n{room}  tool: {{kind: noop, spec: {{set_ctx: {flow}}}}}\n{room}  next: {{arcs: [{{step: {target}}}]}}\n",
    )
    node = entry(arc, "step")
    source.note(key, f"{key.value} of an arc → step {between}")
    renamed = Edit(start(node), end(text, node), between)
    if is_flow(arc):
        others = ", ".join(
            f"{raw(text, k)}: {raw(text, v)}" for word, k, v in entries(arc) if word not in (key.value, "step")
        )
        return (Edit(start(arc), end(text, arc), f"{{step: {between}{', ' + others if others else ''}}}"), put)
    if not source.has_own_lines(key):
        raise Undecided(key, f"{key.value}: the first key of an arc", "step: NAME comes first")
    removed = source.removal(key, value)
    if removed.end == put.start:  # the last lines of the step: one edit for both
        return (renamed, Edit(removed.start, removed.end, removed.text + put.text))
    return (renamed, removed, put)


# --- scopes ---------------------------------------------------------------------------------------------------------------


def _pairs(node: Any) -> list[tuple[Any, Any]]:
    return [(key, value) for _, key, value in entries(node)]


def _groups(
    source: Source, step: Any, key: Any, values: Any, only: set[str] | None = None
) -> dict[str, list[tuple[Any, Any]]]:
    """Return the values that are set, by scope. A name without a scope is kept for its readers. Raises Undecided."""
    groups: dict[str, list[tuple[Any, Any]]] = {}
    for name, part, value in entries(values):
        scope, dot, key_name = name.partition(".")
        if not dot and name.isidentifier():
            scope = "ctx" if only == {"set_ctx"} else _scope_of(source, step, part, name)
        elif scope not in ("ctx", "iter") or not key_name.isidentifier():
            raise Undecided(part, f"{key.value}: {name} is not a valid name", _WHERE)
        groups.setdefault(f"set_{scope}", []).append((part, value))
    if not groups:
        raise Undecided(key, f"{key.value}: it sets nothing", "remove it")
    return groups


def _scope_of(source: Source, step: Any, key: Any, name: str) -> str:
    """Return the scope of a name without one: the iteration if only its own step reads it, else the run."""
    labels = source.labels(step) if step is not None else set()
    if name in source.names | source.workload | labels:
        raise Undecided(
            key, f"set: {name} is the name of a step, a task or a value of the workload, too", "another name"
        )
    read = re.compile(rf"(?<![\w.'\"])(?:ctx\.|vars\.)?{re.escape(name)}\b")

    def reads(node: Any) -> bool:
        return any(
            read.search(template)
            for path, scalar_node in templates(node)
            if path[-1:] != ("code",)
            for template in TEMPLATE.findall(str(scalar_node.value))
        )

    elsewhere = any(reads(other) for other in source.steps if other is not step) or reads(
        entry(source.root, "executor")
    )
    if step is not None:
        elsewhere = elsewhere or reads(entry(step, "next")) or reads(entry(step, "case"))
    if not elsewhere and step is not None:
        return "iter"
    if step is None or entry(step, "loop") is not None:
        raise Undecided(key, f"set: {name} is read outside the loop that sets it", _WHERE)
    return "ctx"


def _bare(source: Source, key: Any) -> str:
    return re.sub(r"\b(ctx|iter)\.", "", raw(source.text, key), count=1)


def _flow(source: Source, parts: list[tuple[Any, Any]], at: Any) -> str:
    """Entries as a map on one line. Raises Undecided."""
    made: list[str] = []
    for key, value in parts:
        text = source.as_flow(value, without_comments=True)
        if not text:
            raise Undecided(at, f"{at.value}: {key.value} cannot be written on one line", _LAST)
        made.append(f"{_bare(source, key)}: {text}")
    return f"{{{', '.join(made)}}}"


def _ends_early(task: Any) -> bool:
    actions = [entry(rule, *path) for rule in rules_of(task) for path in (("then", "do"), ("else", "then", "do"))]
    return any(scalar(word) in ("jump", "break") for word in actions)


def _moved(source: Source, step: Any, owner: Any, task: Any, key: Any, value: Any, arc: Any = None) -> Change | None:
    """Move set values to the spec of a task; the step's own name, `self`, `output` and `result` then mean its
    outcome.
    """
    if not is_map(value):
        raise Undecided(key, f"{key.value}: not a map", _LAST)
    if key.value == "set":
        groups = _groups(source, step, key, value, {"set_ctx"} if owner is step else None)
    else:
        groups = {"set_ctx": _pairs(value)}
    if not source.has_own_lines(key) and (arc is None or not is_flow(arc)):
        raise Undecided(key, f"{key.value}: it is on a line with other keys", _LAST)
    kind = scalar(entry(task, "kind")) or ""
    own = {name for name in (scalar(entry(owner, "step")), scalar(entry(owner, "name"))) if name}
    own |= {"self", "this", "output"}
    edits: list[Edit] = []
    for scope, parts in groups.items():
        flow = _as_outcome(renamed_in(_flow(source, parts, key), kind, "outcome", key), own)
        added = source.put_in_spec(task, scope, flow)
        if added is None:
            raise Undecided(key, f"{key.value}: the task sets something already", _LAST)
        edits.append(added)
    if len({edit.start for edit in edits}) < len(edits):
        edits = [Edit(edits[0].start, edits[0].end, "".join(edit.text for edit in edits))]
        if edits[0].text.count("spec: {") > 1:
            edits = [edits[0]._replace(text=edits[0].text.replace("}\n" + " " * column_of(task) + "spec: {", ", "))]
    source.note(key, f"{key.value} → spec.{', spec.'.join(groups)} of the task")
    if arc is not None and is_flow(arc):
        others = [f"{raw(source.text, k)}: {raw(source.text, v)}" for word, k, v in entries(arc) if word != key.value]
        return (Edit(start(arc), end(source.text, arc), f"{{{', '.join(others)}}}"), *edits)
    return (source.removal(key, value), *edits)


def _as_outcome(text: str, names: set[str]) -> str:
    """The templates of a text with `outcome` in the place of some names; a name alone was the data."""
    words = "|".join(re.escape(name) for name in sorted(names))
    name = re.compile(rf"(?<![\w.'\"])(?:{words})(?=[.\s|}}\[])")
    text = re.sub(r"\{\{.*?\}\}", lambda match: name.sub("outcome", match[0]), text)
    return re.sub(r"\{\{\s*outcome\s*\}\}", "{{ outcome.data }}", text)


# --- names that read it ---------------------------------------------------------------------------------------------------


def kept_names(source: Source) -> Iterator[Change]:
    """`{{ vars.x }}`, and `{{ x }}` alone, of a value that a task sets."""
    rooted = {name for name, _, _ in entries(entry(source.root, "vars"))}
    written = {"set_ctx": set[str](), "set_iter": set[str]()}
    by_step: list[tuple[Any, set[str]]] = []
    for step in source.steps:
        own = {"set_ctx": set[str](), "set_iter": set[str]()}
        for task in source.tasks(step):
            places = [entry(task, "spec"), *(entry(rule, "then") for rule in rules_of(task))]
            places += [entry(rule, "else", "then") for rule in rules_of(task)]
            for place in places:
                for scope, names in own.items():
                    names |= {name for name, _, _ in entries(entry(place, scope))}
        written["set_ctx"] |= own["set_ctx"]
        by_step.append((step, own["set_iter"]))
    if not written["set_ctx"] and not any(names for _, names in by_step):
        return
    roots = [(entry(source.root, "executor"), set[str]())] if entry(source.root, "executor") is not None else []
    for node, iterated in [*by_step, *roots]:
        taken = source.names | source.workload | source.labels(node) | bound_names(node)
        for path, part in templates(node):
            if path[-1:] == ("code",) or not TEMPLATE.search(str(part.value)):
                continue
            for name in sorted(written["set_ctx"] - rooted):
                pattern = rf"(?<![\w.'\"])vars\.{re.escape(name)}\b"
                yield from source.in_templates(part, pattern, f"ctx.{name}", f"vars.{name} → ctx.{name}", name)
            scoped = [("iter", name) for name in iterated] if path[0] == "tool" else []
            scoped += [("ctx", name) for name in written["set_ctx"] - iterated]
            for scope, name in sorted(scoped):
                if name in taken or name in LANGUAGE:
                    continue
                pattern = rf"(?<![\w.'\"|])(?<!\| ){re.escape(name)}\b(?!['\"]|\s*=[^=]|\s*\()"
                yield from source.in_templates(part, pattern, f"{scope}.{name}", f"{name} → {scope}.{name}", name)


#: Names that templates have anyway.
LANGUAGE = frozenset(
    [
        "args",
        "ctx",
        "iter",
        "workload",
        "event",
        "outcome",
        "keychain",
        "execution_id",
        "run",
        "error",
        "and",
        "or",
        "not",
        "in",
        "is",
        "if",
        "else",
        "elif",
        "endif",
        "for",
        "endfor",
        "set",
        "true",
        "false",
        "none",
    ]
)


def bound_names(step: Any, *, args: bool = True) -> set[str]:
    """Return names that a step's own args and loops define, and those that its templates bind."""
    names = {name for name, _, _ in entries(entry(step, "args"))} if args else set[str]()
    loop = entry(step, "loop")
    while is_map(loop):
        names.add(scalar(entry(loop, "iterator")) or "")
        loop = entry(loop, "loop")
    for _, node in templates(step):
        for bound in () if "{%" not in node.value else re.findall(r"\{%-?\s*(?:for|set)\s+([\w, ]+)", str(node.value)):
            names |= {word.strip() for word in bound.split(",")}
    return names


# ── arguments ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Values that steps and arcs hand on: older releases put them among all other names, now they are `args`.


def argument_names(source: Source) -> Iterator[Change]:
    """Convert `{{ x }}` of a value that the step or an arc to it sets to `{{ args.x }}`."""
    arguments = {
        name: _argument_names(source, step, name) for step in source.steps if (name := scalar(entry(step, "step")))
    }
    for step in source.steps:
        words = arguments.get(scalar(entry(step, "step")) or "", set())
        if not words:
            continue
        words -= source.names | source.workload | source.labels(step) | _loops(step)
        if not (words := _unbound(step, words)):
            continue
        # Step args are not seen by each other; arc args are.
        handed_on = words - {name for name, _, _ in entries(entry(step, "args"))}
        for path, node in templates(step):
            if path[-1:] != ("code",):
                yield from _read(source, node, handed_on if path[0] == "args" else words)
    for node in items(entry(source.root, "workbook")):
        name, kind = scalar(entry(node, "name")), source.kind_of(node)
        if kind is None or any(field.name == "args" for field in kind.fields):
            continue
        callers = [step for step in source.steps if _calls(source, step, name)]
        common = [arguments.get(scalar(entry(step, "step")) or "", set()) for step in callers]
        words = set.intersection(*common) - source.names - source.workload if common else set()
        for path, part in templates(node) if (words := _unbound(node, words)) else ():
            if path[-1:] != ("code",):
                yield from _read(source, part, words)


def _unbound(owner: Any, words: set[str]) -> set[str]:
    """Those of the words that no loop and no statement of the owner's templates binds."""
    return words - LANGUAGE - bound_names(owner, args=False) if words else words


def _read(source: Source, node: Any, words: set[str]) -> Iterator[Change]:
    for name in sorted(words):
        pattern = rf"(?<![\w.'\"|])(?<!\| ){name}\b(?!['\"]|\s*=[^=]|\s*\()"
        yield from source.in_templates(node, pattern, f"args.{name}", f"{name} → args.{name}", name)


def _argument_names(source: Source, step: Any, name: str) -> set[str]:
    """Return the names of the args that a step has and that arcs to it set."""
    return {
        word for word in source.arc_args.get(name, set()).union(by_name(entry(step, "args"))) if word.isidentifier()
    }


def _calls(source: Source, step: Any, name: str | None) -> bool:
    return any(
        scalar(entry(task, "kind")) == "workbook" and scalar(entry(task, "name")) == name for task in source.tasks(step)
    )


def _loops(step: Any) -> set[str]:
    loops: set[str] = set()
    loop = entry(step, "loop")
    while is_map(loop):
        loops.add(scalar(entry(loop, "iterator")) or "")
        loop = entry(loop, "loop")
    return loops


def argument_parameters(source: Source) -> Iterator[Change]:
    """Pass parameters of `main()` that only arcs set to the task as args."""
    for step in source.steps:
        tasks = source.tasks(step)
        if len(tasks) != 1 or scalar(entry(tasks[0], "kind")) != "python" or entry(tasks[0], "args") is not None:
            continue
        (task,) = tasks
        arguments = _argument_names(source, step, scalar(entry(step, "step")) or "")
        needed = _needed(scalar(entry(task, "code")) or "")
        if not needed or not set(needed) <= arguments:
            continue
        flow = ", ".join(f'{name}: "{{{{ args.{name} }}}}"' for name in needed)
        key = next(key for name, key, _ in entries(task) if name == "code")
        source.note(key, "args of the arc → args of the task")
        if is_flow(task):
            at = end(source.text, task) - 1
            yield Edit(at, at, f", args: {{{flow}}}")
        else:
            yield source.put(task, f"{' ' * column_of(task)}args: {{{flow}}}\n")


def _needed(code: str) -> list[str]:
    """Return parameters of `main()` without a default; none if there are others that could take values."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "main":
            args = node.args
            if args.vararg or args.kwarg or args.posonlyargs:
                return []
            plain = args.args[: len(args.args) - len(args.defaults)]
            strict = [arg for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default is None]
            return [arg.arg for arg in [*plain, *strict] if arg.arg not in ("input_data", "context")]
    return []
