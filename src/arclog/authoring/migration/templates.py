"""Names in templates that are called otherwise now."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from arclog.authoring.migration.conditions import SQL, renamed_in
from arclog.authoring.migration.source import Change, Source, Undecided
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
    start,
    tag_of,
    templates,
)

# ── templates ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def names(source: Source) -> Iterator[Change]:
    for step in source.steps:
        if not templates(step):
            continue
        loop = entry(step, "loop")
        variables: list[str] = []
        inner = loop
        while is_map(inner):
            if name := scalar(entry(inner, "iterator")):
                variables.append(name)
            inner = entry(inner, "loop")
        done = "loop.done" if is_map(loop) else "step.done"
        taken = source.names | source.workload | source.labels(step)
        for path, node in templates(step):
            if path[-1:] == ("code",):
                continue
            if path[0] == "next":
                yield from _events(source, node, done)
            if path[0] in ("next", "tool"):
                yield from _outcomes(source, node)
                if "job" not in taken:
                    yield from _job(source, node)
            if "output" not in taken and (
                "policy" in path or path[0] == "next" or path[-2:-1] in (("set_ctx",), ("set_iter",))
            ):
                yield from source.in_templates(
                    node, r"(?<![\w.'\"])output(?=[.\s|}\[])", "outcome", "output → outcome", "output"
                )
            if path[0] == "tool" and variables:
                own = scalar(entry(step, "step")) or ""
                pattern = rf"(?<![\w.'\"]){re.escape(own)}\.result_index\b"
                change = f"{own}.result_index → iter.index"
                yield from source.in_templates(node, pattern, "iter.index", change, "result_index")
                yield from source.in_templates(
                    node, r"(?<![\w.'\"])loop_index\b", "iter.index", "loop_index → iter.index", "loop_index"
                )
                for name in variables:
                    if name not in taken:
                        pattern = rf"(?<![\w.'\"]){re.escape(name)}\b(?!['\"]|\s*=[^=]|\s*\()"
                        yield from source.in_templates(node, pattern, f"iter.{name}", f"{name} → iter.{name}", name)

    for node in items(entry(source.root, "workbook")):
        for path, part in templates(node):
            if path[-1:] != ("code",) and "job" not in source.names | source.workload:
                yield from _job(source, part)


def _job(source: Source, node: Any) -> Iterator[Change]:
    pattern = r"(?<![\w.'\"])job\.(?:execution_id|uuid|id)\b"
    yield from source.in_templates(node, pattern, "execution_id", "job.… → execution_id", "job.")


def answers(source: Source) -> Iterator[Change]:
    """Rename `result`, `response` and `this` on arcs to the step's result."""
    for step in source.steps:
        tasks, conditions = source.tasks(step), templates(entry(step, "next"))
        if not tasks or not conditions:
            continue
        taken = source.names | source.workload | by_name(entry(step, "args")).keys()
        if taken & {"result", "response", "this", "error"}:
            continue
        kind = source.kind_name(tasks[-1])
        for path, node in conditions:
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
    """Convert `{{ step }}` in python args and arc args: it was the step's data, and is its whole view now."""
    for step in source.steps:
        own = source.labels(step)
        for path, node in templates(step):
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
            for path, node in templates(root):
                if path[-1:] != ("code",):
                    pattern = rf"(?<![\w.'\"]){re.escape(name)}\.data(?=\.(?:{keys})\b)"
                    change = f"{name}.data → {name}.result.data"
                    yield from source.in_templates(node, pattern, f"{name}.result.data", change, name)
        for part in (entry(tasks[-1], "spec"), entry(step, "next")):
            for _, node in templates(part):
                pattern = rf"\boutcome\.data(?=\.(?:{keys})\b)"
                change = "outcome.data → outcome.result.data"
                yield from source.in_templates(node, pattern, "outcome.result.data", change, "outcome")


def _enveloped(code: str) -> set[str]:
    """Return keys below `data` of every value that the code returns, and not next to it; none if a value is not
    literal.
    """
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
    """Return a literal map by key; None for anything else."""
    if not isinstance(node, ast.Dict):
        return None
    pairs = list(zip(node.keys, node.values, strict=True))
    if not all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key, _ in pairs):
        return None
    return {str(getattr(key, "value", "")): value for key, value in pairs}


# ── sql ───────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Templates in SQL: a value is bound, so it is a separate expression; a name is quoted by a filter.

_NAME = re.compile(
    r"\b((?:TABLE|INTO|UPDATE|FROM|JOIN)(?:\s+IF(?:\s+NOT)?\s+EXISTS)?\s+)\{\{\s*([\w.]+)\s*\}\}(?![.\w])",
    re.IGNORECASE,
)
#: The parts of a statement, as far as they matter for its templates.
_PIECES = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<dollar>\$(\w*)\$.*?\$\3\$)
      | (?P<name>"(?:\{\{.*?\}\}|[^"])*")
      | (?P<text>'(?:\{\{.*?\}\}|''|[^'])*')
      | (?P<template>\{\{.*?\}\})""",
    re.DOTALL | re.VERBOSE,
)
_PART = re.compile(r"\{\{.*?\}\}")


def sql_statements(source: Source) -> Iterator[Change]:
    for task in source.all_tasks():
        kind = source.kind_of(task)
        for key in kind.sql if kind is not None else ():
            node = entry(task, key)
            # In quotes of YAML, a quote of SQL may be written in two ways.
            if scalar(node) is None or "{{" not in node.value or node.style in ("'", '"'):
                continue
            first, last = start(node), end(source.text, node)
            for match in _NAME.finditer(source.text, first, last):
                at = match.end(2)
                source.notes.append((source.text.count("\n", 0, at) + 1, f"{match[2]} → {match[2]} | identifier"))
                yield Edit(at, at, " | identifier")
            for match in _PIECES.finditer(source.text, first, last):
                joined = _joined(match["text"][1:-1]) if match["text"] else ""
                if joined:
                    source.notes.append((source.text.count("\n", 0, match.start()) + 1, "text around a template → ||"))
                    yield Edit(match.start(), match.end(), joined)


def _joined(text: str) -> str:
    """Return a text with templates as joined values; '' if a single template is the whole text, which is bound
    unchanged.
    """
    parts: list[str] = []
    at = 0
    for match in _PART.finditer(text):
        if text[at : match.start()]:
            parts.append(f"'{text[at : match.start()]}'")
        parts.append(match[0])
        at = match.end()
    if not at:
        return ""
    if text[at:]:
        parts.append(f"'{text[at:]}'")
    return f"({' || '.join(parts)})" if len(parts) > 1 else ""


# --- tables ---------------------------------------------------------------------------------------------------------------

_TABLE = "command: INSERT INTO … VALUES ({{ … }}, {{ … }})"
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def sql_tables(source: Source) -> Iterator[Change]:
    """`table` with `args` or `data` of an SQL task: the row that it writes, as a statement."""
    for task in source.all_tasks():
        key = next((key for name, key, _ in entries(task) if name == "table"), None)
        kind = source.kind_of(task)
        if key is None or kind is None or kind.name not in SQL or is_flow(task) or entry(task, "command") is not None:
            continue
        try:
            yield _row(source, task, key)
        except Undecided as why:
            source.leave(why.node, why.message, why.hint)


def _row(source: Source, task: Any, key: Any) -> Change:
    row_key, row = next(
        ((k, v) for name, k, v in entries(task) if name in ("args", "data") and is_map(v) and v.value), (None, None)
    )
    mode = scalar(entry(task, "mode")) or "insert"
    if row_key is None or mode not in ("insert", "upsert", "append"):
        raise Undecided(key, f"table: a row without known columns, or mode {mode}", _TABLE)
    keys_node = entry(task, "key")
    keys = [scalar(node) or "" for node in items(keys_node)] or [
        part.strip() for part in (scalar(keys_node) or "").split(",")
    ]
    keys = [name for name in keys if name]
    columns = [name for name, _, _ in entries(row)]
    if (mode == "upsert") != bool(keys) or not all(_IDENTIFIER.fullmatch(name) for name in [*columns, *keys]):
        raise Undecided(key, "table: mode upsert needs a key, and columns are names", _TABLE)
    values = [_value(value) for _, _, value in entries(row)]
    room = " " * (column_of(key) + 2)
    lines = [f"INSERT INTO {_table(entry(task, 'table'))} ({', '.join(columns)})", f"VALUES ({', '.join(values)})"]
    if keys:
        others = [name for name in columns if name not in keys]
        sets = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
        lines.append(f"ON CONFLICT ({', '.join(keys)}) DO {'UPDATE SET ' + sets if others else 'NOTHING'}")
    gone = [(k, v) for name, k, v in entries(task) if name in ("table", "mode", "key") or k is row_key]
    if not all(source.has_own_lines(k) for k, _ in gone):
        raise Undecided(key, "table: it is on a line with other keys", _TABLE)
    edits = [source.removal(k, v) for k, v in gone]
    text = f"{' ' * column_of(key)}command: |\n" + "".join(f"{room}{line}\n" for line in lines)
    at = next(number for number, (k, _) in enumerate(gone) if k is key)
    edits[at] = edits[at]._replace(text=edits[at].text + text)
    source.note(key, "table, args → command")
    return tuple(edits)


def _table(node: Any) -> str:
    name = scalar(node) or ""
    match = re.fullmatch(r"\{\{\s*(.+?)\s*\}\}", name)
    if match is None and not _IDENTIFIER.fullmatch(name):
        raise Undecided(node, f"table: {name!r} is not a valid name", _TABLE)
    return f"{{{{ {match[1]} | identifier }}}}" if match else name


def _value(node: Any) -> str:
    """A value of a row in SQL: a template is bound, a text is quoted."""
    text = scalar(node)
    if text is None or "{%" in text or "\n" in text:
        raise Undecided(node, "table: a value that is not a plain value or template", _TABLE)
    tag = tag_of(node)
    if tag.endswith(":null"):
        return "NULL"
    if tag.endswith((":int", ":float", ":bool")):
        return text.upper() if tag.endswith(":bool") else text
    if re.fullmatch(r"\{\{(?:(?!\}\}).)*\}\}", text):
        return text
    quoted = text.replace("'", "''") if "{{" not in text else text
    return _joined(text) or f"'{quoted}'"
