"""Tasks: labels, the workbook, python code and its values."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from arclog.authoring.migration.source import Change, Source, shifted
from arclog.authoring.spans import (
    Edit,
    column_of,
    end,
    entries,
    entry,
    is_flow,
    is_map,
    items,
    line_end,
    line_start,
    raw,
    scalar,
    start,
    templates,
)

_RETURN = re.compile(r"^[ \t]*return\b", re.MULTILINE)


def labels(source: Source) -> Iterator[Change]:
    """`{label: {kind: …}}` is `{name: label, kind: …}`."""
    for step in source.steps:
        for node in items(entry(step, "tool")):
            pairs = list(entries(node))
            if len(pairs) != 1 or not is_map(pairs[0][2]):
                continue
            label, key, task = pairs[0]
            if not any(scalar(entry(task, word)) in source.kinds for word in ("kind", "type", "tool")):
                continue
            if entry(task, "name") is not None:
                continue
            text = source.text
            if is_flow(task):
                close = end(text, node) if is_flow(node) else end(text, task)
                inner = text[start(task) + 1 : end(text, task) - 1].strip()
                source.note(key, f"{label}: {{…}} → name: {label}")
                yield Edit(start(node), close, f"{{name: {label}, {inner}}}")
            elif not is_flow(node):
                first = line_start(text, start(task))
                shift = column_of(task) - column_of(key)
                if shift <= 0:
                    continue
                source.note(key, f"{label}: {{…}} → name: {label}")
                yield Edit(start(key), int(key.end_mark.index) + 1, f"name: {label}")
                yield from shifted(text, first, end(text, task), -shift)


def workbook(source: Source) -> Iterator[Change]:
    """Move `tool: {kind: …}` of a workbook entry to the entry itself; its `assert` only documents its inputs and
    results.
    """
    for node in items(entry(source.root, "workbook")):
        if is_map(entry(node, "assert")):
            yield from source.rename(node, "assert", "x-assert")
        for name, key, value in entries(node):
            if name != "tool" or not is_map(value) or entry(node, "kind") is not None:
                continue
            if is_flow(value):
                source.note(key, "tool: {…} of a workbook entry → the entry")
                inner = raw(source.text, value)[1:-1].strip()
                text = (
                    inner
                    if is_flow(node)
                    else "\n".join(f"{' ' * column_of(key)}{part}" for part in _parts(source, value))
                )
                yield Edit(start(key), end(source.text, value), text.lstrip(" "))
            elif source.has_own_lines(key) and value.value:
                first = value.value[0][0]
                lines = source.lines_at(first, value, column_of(key))
                if lines is not None and source.has_own_lines(first):
                    source.note(key, "tool: {…} of a workbook entry → the entry")
                    whole = source.removal(key, value)
                    yield Edit(whole.start, whole.end, lines)


def _parts(source: Source, node: Any) -> list[str]:
    """The entries of a map in flow style, each on its own."""
    return [f"{raw(source.text, key)}: {raw(source.text, value)}" for _, key, value in entries(node)]


# --- python ---------------------------------------------------------------------------------------------------------------


def step_args(source: Source) -> Iterator[Change]:
    """Args of a step that its python code reads: step args reach templates, a task's own args reach its code."""
    given_by_arcs = {
        scalar(entry(arc, "step"))
        for step in source.steps
        for arc in items(entry(step, "next", "arcs"))
        if entry(arc, "args") is not None
    }
    for step in source.steps:
        tasks, args = list(source.tasks(step)), entry(step, "args")
        if not is_map(args) or not args.value or len(tasks) != 1 or scalar(entry(tasks[0], "kind")) != "python":
            continue
        (task,) = tasks
        key = next(key for name, key, _ in entries(step) if name == "args")
        if entry(task, "args") is not None or any(
            "args." in node.value for _, node in templates(step) if "{{" in node.value
        ):
            continue
        if scalar(entry(step, "step")) in given_by_arcs:
            hint = 'pass the values that the task needs: args: {x: "{{ args.x }}"}'
            source.leave(
                key, "the step and an arc to it both have args; it is unclear which of them the code reads", hint
            )
        elif is_flow(args) and is_flow(task):
            at = end(source.text, task) - 1
            if source.has_own_lines(key):
                source.note(key, "args of the step → args of the task")
                yield (source.removal(key, args), Edit(at, at, f", args: {raw(source.text, args)}"))
        elif not is_flow(task) and source.has_own_lines(key):
            lines = source.lines_at(key, args, column_of(task))
            if lines is not None:
                source.note(key, "args of the step → args of the task")
                yield (source.removal(key, args, moved=True), source.put(task, lines))


def returns(source: Source) -> Iterator[Change]:
    """`return` in code that is not a function: one at the end sets `result`; of several, the code becomes `main`."""
    for task in source.all_tasks():
        code = entry(task, "code")
        if scalar(entry(task, "kind")) != "python" or not _RETURN.search(scalar(code) or ""):
            continue
        try:
            tree = ast.parse(code.value)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        outside = list(_returns(tree.body))
        if not outside:
            continue
        if len(outside) == 1 and tree.body[-1] is outside[0] and outside[0].value is not None and code.style == "|":
            at = start(code)
            for _ in range(outside[0].lineno):
                at = line_end(source.text, at)
            match = re.compile(r"[ \t]*return\b[ \t]*").match(source.text, at)
            if match is not None:
                source.notes.append((source.text.count("\n", 0, at) + 1, "return → result ="))
                yield Edit(match.end() - len(match.group().lstrip()), match.end(), "result = ")
        elif made := _as_function(task, tree):
            key = next(key for name, key, _ in entries(task) if name == "code")
            if source.has_own_lines(key):
                source.note(key, "code with return → def main()")
                yield Edit(start(code), end(source.text, code), made.rstrip("\n"))


def _as_function(task: Any, tree: ast.Module) -> str:
    """Return the code as `def main(args)`, in a literal block; '' if a name would then have another meaning."""
    args = entry(task, "args")
    names = [name for name, _, _ in entries(args) if name.isidentifier()]
    if args is not None and not is_map(args):
        return ""
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if bound & {"input_data", "context"} or any(isinstance(node, ast.Global) for node in ast.walk(tree)):
        return ""
    if any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value for node in ast.walk(tree)
    ):
        return ""  # a text over several lines would be indented with the code
    room = " " * (_column(task) + 2)
    lines = [
        f"{room}    {line}" if line.strip() else "" for line in str(scalar(entry(task, "code"))).rstrip().split("\n")
    ]
    head = f"{room}def main({', '.join(name for name in names if name in read)}):"
    return "|\n" + "\n".join([head, *lines])


def _column(task: Any) -> int:
    return next(column_of(key) for name, key, _ in entries(task) if name == "code")


def _returns(body: Iterable[ast.AST]) -> Iterator[ast.Return]:
    """Each `return` of some statements that is not in a function or a class."""
    for node in body:
        if isinstance(node, ast.Return):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for part in ("body", "handlers", "cases", "orelse", "finalbody"):
                yield from _returns(getattr(node, part, ()))
