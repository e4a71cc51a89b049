"""Names in templates that are called otherwise now."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from arclog.authoring.migration.conditions import renamed_in
from arclog.authoring.migration.source import Change, Source, Undecided
from arclog.authoring.spans import Edit, end, entries, entry, is_map, items, raw, scalar, scalars, start


def names(source: Source) -> Iterator[Change]:
    for step in source.steps:
        loop = entry(step, "loop")
        variables: list[str] = []
        inner = loop
        while is_map(inner):
            if name := scalar(entry(inner, "iterator")):
                variables.append(name)
            inner = entry(inner, "loop")
        done = "loop.done" if is_map(loop) else "step.done"
        known = source.names | source.workload | source.labels(step)
        for path, node in scalars(step):
            if path[-1:] == ("code",):
                continue
            if path[0] == "next":
                yield from _events(source, node, done)
            if path[0] in ("next", "tool"):
                yield from _outcomes(source, node)
                if "job" not in known:
                    yield from _job(source, node)
            if "output" not in known and (
                "policy" in path or path[0] == "next" or path[-2:-1] in (("set_ctx",), ("set_iter",))
            ):
                yield from source.in_templates(
                    node, r"(?<![\w.'\"])output(?=[.\s|}\[])", "outcome", "output → outcome", "output"
                )
            if path[0] == "tool" and variables:
                own = scalar(entry(step, "step")) or ""
                pattern = rf"(?<![\w.'\"]){re.escape(own)}\.result_index\b"
                what = f"{own}.result_index → iter.index"
                yield from source.in_templates(node, pattern, "iter.index", what, "result_index")
                yield from source.in_templates(
                    node, r"(?<![\w.'\"])loop_index\b", "iter.index", "loop_index → iter.index", "loop_index"
                )
                for name in variables:
                    if name not in known:
                        pattern = rf"(?<![\w.'\"]){re.escape(name)}\b(?!['\"]|\s*=[^=]|\s*\()"
                        yield from source.in_templates(node, pattern, f"iter.{name}", f"{name} → iter.{name}", name)

    for node in items(entry(source.root, "workbook")):
        for path, part in scalars(node):
            if path[-1:] != ("code",) and "job" not in source.names | source.workload:
                yield from _job(source, part)


def _job(source: Source, node: Any) -> Iterator[Change]:
    pattern = r"(?<![\w.'\"])job\.(?:execution_id|uuid|id)\b"
    yield from source.in_templates(node, pattern, "execution_id", "job.… → execution_id", "job.")


def answers(source: Source) -> Iterator[Change]:
    """`result`, `response` and `this` on arcs: what the step gave."""
    for step in source.steps:
        tasks = source.tasks(step)
        known = source.names | source.workload | {name for name, _, _ in entries(entry(step, "args"))}
        if not tasks or known & {"result", "response", "this", "error"}:
            continue
        kind = source.kind_name(tasks[-1])
        for path, node in scalars(entry(step, "next")):
            text = raw(source.text, node)
            if path[-1:] == ("step",) or not _ANSWERS.search(text) or "{{" not in text:
                continue
            try:
                made = renamed_in(text, kind, "outcome", node)
            except Undecided as why:
                source.leave(why.node, why.message, why.hint)
                continue
            if made != text:
                source.note(node, "result → outcome")
                yield Edit(start(node), end(source.text, node), made)


_ANSWERS = re.compile(r"(?<![\w.'\"])(?:result|response|this)\b")


def _events(source: Source, node: Any, done: str) -> Iterator[Change]:
    for old, new in (("call.done", done), ("step.exit", done), ("call.error", "step.failed")):
        pattern = rf"(?<=['\"]){re.escape(old)}(?=['\"])"
        yield from source.in_templates(node, pattern, new, f"{old} → {new}", old)


def _outcomes(source: Source, node: Any) -> Iterator[Change]:
    for old, new in (("outcome.response", "outcome.result"), ("outcome.error.status", "outcome.http.status")):
        yield from source.in_templates(node, rf"\b{re.escape(old)}\b", new, f"{old} → {new}", old)


def data(source: Source) -> Iterator[Change]:
    """`{{ step }}` alone was the step's data; now it is its whole view. In python args and arc args it is meant as data."""
    for step in source.steps:
        own = source.labels(step)
        for path, node in scalars(step):
            if "args" not in path or path[0] not in ("tool", "next", "args"):
                continue
            match = re.fullmatch(r"\s*\{\{\s*(\w+)\s*\}\}\s*", str(node.value))
            if match is None or match[1] not in source.names | own or match[1] in source.workload:
                continue
            name = match[1]
            yield from source.in_templates(
                node, rf"(?<=[{{\s]){name}(?=[\s}}])", f"{name}.data", f"{name} → {name}.data"
            )


def envelopes(source: Source) -> Iterator[Change]:
    """`{{ step.data.x }}` of python code that returns `{"status": …, "data": {"x": …}}`: that `data` is a key of its result now.

    Only where the code is seen to return `x` there and nowhere else.
    """
    for step in source.steps:
        tasks = source.tasks(step)
        if not tasks or scalar(entry(tasks[-1], "kind")) != "python" or entry(step, "loop") is not None:
            continue
        within = _enveloped(scalar(entry(tasks[-1], "code")) or "")
        if not within:
            continue
        keys = "|".join(map(re.escape, sorted(within)))
        name = scalar(entry(step, "step")) or ""
        for root in (entry(source.root, "workflow"), entry(source.root, "executor")):
            for path, node in scalars(root):
                if path[-1:] != ("code",):
                    pattern = rf"(?<![\w.'\"]){re.escape(name)}\.data(?=\.(?:{keys})\b)"
                    what = f"{name}.data → {name}.result.data"
                    yield from source.in_templates(node, pattern, f"{name}.result.data", what, name)
        for part in (entry(tasks[-1], "spec"), entry(step, "next")):
            for _, node in scalars(part):
                pattern = rf"\boutcome\.data(?=\.(?:{keys})\b)"
                what = "outcome.data → outcome.result.data"
                yield from source.in_templates(node, pattern, "outcome.result.data", what, "outcome")


def _enveloped(code: str) -> set[str]:
    """Keys below `data` of every value that the code gives, and not beside it; none when a value is not written out."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return) or _sets_result(node)]  # type: ignore[attr-defined]  # both have one
    within: set[str] | None = None
    for value in values:
        outer = _keys(value)
        inner = _keys(outer["data"]) if outer is not None and "data" in outer else None
        if outer is None or inner is None:
            return set()
        own = inner.keys() - outer.keys()
        within = own if within is None else within & own
    return within or set()


def _sets_result(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "result" for to in node.targets)


def _keys(node: ast.AST | None) -> dict[str, ast.AST] | None:
    """A map that is written out, by key; None of anything else."""
    if not isinstance(node, ast.Dict):
        return None
    pairs = list(zip(node.keys, node.values, strict=True))
    if not all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key, _ in pairs):
        return None
    return {str(getattr(key, "value", "")): value for key, value in pairs}
