"""Values that steps and arcs hand on: older releases put them among all other names, now they are `args`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from arclog.authoring.migration.source import Change, Source
from arclog.authoring.migration.variables import LANGUAGE, bound_names
from arclog.authoring.spans import Edit, column_of, end, entries, entry, is_flow, is_map, items, scalar, scalars


def names(source: Source) -> Iterator[Change]:
    """`{{ x }}` of a value that the step or an arc to it gives is `{{ args.x }}`."""
    given = {name: _given(source, step, name) for step in source.steps if (name := scalar(entry(step, "step")))}
    for step in source.steps:
        words = given.get(scalar(entry(step, "step")) or "", set())
        words -= source.names | source.workload | source.labels(step) | _loops(step)
        if not (words := _unbound(step, words)):
            continue
        # Step args are not seen by each other; arc args are.
        handed_on = words - {name for name, _, _ in entries(entry(step, "args"))}
        for path, node in scalars(step):
            if path[-1:] != ("code",):
                yield from _read(source, node, handed_on if path[0] == "args" else words)
    for node in items(entry(source.root, "workbook")):
        name, kind = scalar(entry(node, "name")), source.kind_of(node)
        if kind is None or any(field.name == "args" for field in kind.fields):
            continue
        callers = [step for step in source.steps if _calls(source, step, name)]
        common = [given.get(scalar(entry(step, "step")) or "", set()) for step in callers]
        words = set.intersection(*common) - source.names - source.workload if common else set()
        for path, part in scalars(node) if (words := _unbound(node, words)) else ():
            if path[-1:] != ("code",):
                yield from _read(source, part, words)


def _unbound(owner: Any, words: set[str]) -> set[str]:
    """Those of the words that no loop and no statement of the owner's templates binds."""
    return words - LANGUAGE - bound_names(owner, args=False) if words else words


def _read(source: Source, node: Any, words: set[str]) -> Iterator[Change]:
    for name in sorted(words):
        pattern = rf"(?<![\w.'\"|])(?<!\| ){name}\b(?!['\"]|\s*=[^=]|\s*\()"
        yield from source.in_templates(node, pattern, f"args.{name}", f"{name} → args.{name}", name)


def _given(source: Source, step: Any, name: str) -> set[str]:
    """Names of the args that a step has and that arcs to it give."""
    words = {word for word, _, _ in entries(entry(step, "args"))}
    for other in source.steps:
        for arc in items(entry(other, "next", "arcs")):
            if scalar(entry(arc, "step")) == name:
                words |= {word for word, _, _ in entries(entry(arc, "args"))}
    return {word for word in words if word.isidentifier()}


def _calls(source: Source, step: Any, name: str | None) -> bool:
    return any(
        scalar(entry(task, "kind")) == "workbook" and scalar(entry(task, "name")) == name for task in source.tasks(step)
    )


def _loops(step: Any) -> set[str]:
    found: set[str] = set()
    loop = entry(step, "loop")
    while is_map(loop):
        found.add(scalar(entry(loop, "iterator")) or "")
        loop = entry(loop, "loop")
    return found


def parameters(source: Source) -> Iterator[Change]:
    """Parameters of `main()` that only arcs give: the task takes them as args."""
    for step in source.steps:
        tasks = source.tasks(step)
        if len(tasks) != 1 or scalar(entry(tasks[0], "kind")) != "python" or entry(tasks[0], "args") is not None:
            continue
        (task,) = tasks
        given = _given(source, step, scalar(entry(step, "step")) or "")
        needed = _needed(scalar(entry(task, "code")) or "")
        if not needed or not set(needed) <= given:
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
    """Parameters of `main()` without a default; none when there are others that could take values."""
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
