"""Keys that have another name or another place now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from arclog.authoring.migration.conditions import SQL
from arclog.authoring.migration.source import Change, Source
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
    line_start,
    scalar,
    start,
    templates,
)
from arclog.playbook.schema import task_spec_fields


def root_keys(source: Source) -> Iterator[Change]:
    yield from source.rename(source.root, "steps", "workflow")
    if entry(source.root, "workload") is None and is_map(entry(source.root, "vars")):
        workflow = entry(source.root, "workflow") or entry(source.root, "steps")
        kept = {name for step in items(workflow) for name, _, _ in entries(entry(step, "vars"))}
        clash = next((key for name, key, _ in entries(entry(source.root, "vars")) if name in kept), None)
        if clash is not None:
            hint = "workload: {…} for the run's inputs, spec: {set_ctx: {…}} for values that a task sets"
            source.leave(clash, f"vars: {clash.value} is set by a step, too", hint)
            return
        others = "".join(rf"(?!{re.escape(name)}\b)" for name in sorted(kept))
        yield from source.rename(source.root, "vars", "workload")
        for _, node in templates(workflow):
            yield from source.in_templates(node, rf"(?<![\w.'\"])vars\.{others}", "workload.", "vars. → workload.")


_OF_STEPS = frozenset({"name", "description", "with", "input", "data"})
_OF_ARCS = frozenset({"condition", "cond", "if", "expr", "with", "input"})


def step_keys(source: Source) -> Iterator[Change]:
    for step in source.steps:
        arcs = items(entry(step, "next", "arcs"))
        if _OF_STEPS.isdisjoint(by_name(step)) and all(_OF_ARCS.isdisjoint(by_name(arc)) for arc in arcs):
            continue
        yield from source.rename(step, "name", "step")
        yield from source.rename(step, "description", "desc")
        for old in ("with", "input", "data"):
            if is_map(entry(step, old)) and (old != "data" or is_map(entry(step, "tool"))):
                yield from source.rename(step, old, "args")
        for arc in arcs:
            for old in ("condition", "cond", "if", "expr"):
                if scalar(entry(arc, old)) is not None:
                    yield from source.rename(arc, old, "when")
            for old in ("with", "input"):
                if is_map(entry(arc, old)):
                    yield from source.rename(arc, old, "args")


# fmt: off
_OF_TASKS = frozenset([
    "type", "tool", "task", "assert", "with", "input", "data", "credential", "endpoint", "payload", "cmds",
])
_OF_STATEMENTS = _OF_TASKS | {"query", "sql", "commands", "statement", "script", "code"}
# fmt: on


def task_keys(source: Source) -> Iterator[Change]:
    for task in source.all_tasks():
        name = scalar(entry(task, "kind"))
        if (_OF_TASKS if name not in SQL else _OF_STATEMENTS).isdisjoint(by_name(task)):
            continue
        for old in ("type", "tool"):
            word = scalar(entry(task, old))
            if word in source.kinds or word == "workbook":
                yield from source.rename(task, old, "kind")
                name = name or word  # its name from now on
        if scalar(entry(task, "task")) is not None:
            yield from source.rename(task, "task", "name")
        if is_map(entry(task, "assert")):
            yield from source.rename(task, "assert", "x-assert")
        kind = source.kinds[name or ""]
        fields = source.fields(kind)
        for old in ("with", "input", "data"):
            if is_map(entry(task, old)) and ("args" in fields or name == "workbook") and old not in fields:
                yield from source.rename(task, old, "args")
        if scalar(entry(task, "credential")) is not None and "credential" not in fields:
            yield from source.rename(task, "credential", "auth")
        if name in SQL:
            for old in ("query", "sql", "commands", "statement", "script", "code"):
                if scalar(entry(task, old)) is not None:
                    yield from source.rename(task, old, "command")
        elif name == "http":
            if scalar(entry(task, "endpoint")) is not None:
                yield from source.rename(task, "endpoint", "url")
            yield from _http_data(source, task)
            if is_map(entry(task, "payload")) and {"json", "form", "body"}.isdisjoint(by_name(task)):
                yield from source.rename(task, "payload", "json")
        elif name == "playbook":
            if is_map(entry(task, "payload")):
                yield from source.rename(task, "payload", "args")
        elif name == "shell":
            yield from _shell(source, task)


_BODIES = frozenset({"params", "json", "payload", "body", "form"})


def _http_data(source: Source, task: Any) -> Iterator[Change]:
    """`data` of a call without a body was its query, else the body."""
    data = entry(task, "data")
    if not is_map(data) or not _BODIES.isdisjoint(by_name(task)):
        return
    method = (scalar(entry(task, "method")) or "GET").upper()
    if by_name(data).keys() <= {"query", "body"} or "{{" in method:
        source.leave(data, "data: a query, a body, or values of either", "params: {…} is the query, json: {…} the body")
    else:
        yield from source.rename(task, "data", "params" if method in ("GET", "DELETE", "HEAD") else "json")


def empty_auth(source: Source) -> Iterator[Change]:
    """`auth: {}` is not an auth."""
    for task in source.all_tasks():
        for name, key, value in entries(task):
            if name == "auth" and is_map(value) and not value.value and source.has_own_lines(key):
                source.note(key, "auth: {} removed")
                yield source.removal(key, value)


def _shell(source: Source, task: Any) -> Iterator[Change]:
    """Convert `cmds` with one command to that command; for several, the effect of a failure would be unclear."""
    commands = entry(task, "cmds")
    if commands is None or entry(task, "command") is not None:
        return
    key = next(key for name, key, _ in entries(task) if name == "cmds")
    if scalar(commands) is not None:
        yield from source.rename(task, "cmds", "command")
    elif len(items(commands)) == 1 and scalar(items(commands)[0]) is not None:
        only = items(commands)[0]
        source.note(key, "cmds → command")
        yield Edit(start(key), start(only), "command: ")
        if is_flow(commands):
            yield Edit(end(source.text, only), end(source.text, commands), "")
    else:
        hint = "one task for each command, or one text with `set -e` on its first line"
        source.leave(key, "cmds has several commands; it is unclear what happens when one fails", hint)


def loop_keys(source: Source) -> Iterator[Change]:
    for step in source.steps:
        loop = entry(step, "loop")
        while is_map(loop):
            for old, new in (("collection", "in"), ("items", "in"), ("element", "iterator"), ("item", "iterator")):
                yield from source.rename(loop, old, new)
            if entry(loop, "spec") is None:
                yield from _loop_spec(source, loop)
            mode = entry(loop, "spec", "mode")
            word = {"async": "parallel", "sync": "sequential"}.get(scalar(mode) or "")
            if word:
                source.note(mode, f"{scalar(mode)} → {word}")
                yield Edit(start(mode), end(source.text, mode), word)
            loop = entry(loop, "loop")


def _loop_spec(source: Source, loop: Any) -> Iterator[Change]:
    old = ("mode", "max_in_flight", "concurrency")
    old_keys = {name: (key, value) for name, key, value in entries(loop) if name in old}
    if len(old_keys) != 1:
        return
    ((name, (key, value)),) = old_keys.items()
    word = {"async": "parallel", "sync": "sequential"}.get(str(scalar(value)), scalar(value))
    inner = f"mode: {word}" if name == "mode" else f"mode: parallel, max_in_flight: {word}"
    if name != "mode" or word in ("parallel", "sequential"):
        source.note(key, f"loop.{name} → loop.spec")
        yield Edit(start(key), end(source.text, value), f"spec: {{{inner}}}")


def conditions(source: Source) -> Iterator[Change]:
    """Rename `expr` to `when` in all conditions."""
    pending = [*source.steps, *items(entry(source.root, "workbook"))]
    while pending:
        node = pending.pop()
        if is_map(node):
            acts = entry(node, "then") or entry(node, "do") or entry(node, "step")
            if scalar(entry(node, "expr")) is not None and acts:
                yield from source.rename(node, "expr", "when")
            pending += [value for name, _, value in entries(node) if name not in ("args", "code", "data", "json")]
        else:
            pending += items(node)


def timeouts(source: Source) -> Iterator[Change]:
    """`timeout` of a task belongs to its spec."""
    for task in source.all_tasks():
        kind = source.kind_of(task)
        for name, key, value in entries(task):
            if name not in ("timeout", "timeout_seconds") or kind is None or not scalar(value):
                continue
            if any(field.name == name for field in kind.fields) or not source.has_own_lines(key):
                continue
            added = source.put_in_spec(task, "timeout", scalar(value) or "")
            if added is not None:
                source.note(key, f"{name} → spec.timeout")
                yield (source.removal(key, value), added)


def task_config(source: Source) -> Iterator[Change]:
    """Move config in `spec` to the task itself."""
    for task in source.all_tasks():
        spec = entry(task, "spec")
        kind = source.kind_of(task)
        if kind is None or not is_map(spec) or is_flow(spec) or is_flow(task):
            continue
        behaviour = {field.name for field in task_spec_fields(kind)} | {"policy", "set_ctx", "set_iter"}
        config = {field.name for field in kind.fields} | {"input", "auth", "endpoint", "payload", "query"}
        wrong = [(key, value) for name, key, value in entries(spec) if name in config - behaviour]
        spec_key = next(key for name, key, _ in entries(task) if name == "spec")
        if not wrong or not source.has_own_lines(spec_key):
            continue
        lines = [source.lines_at(key, value, column_of(task)) for key, value in wrong]
        if any(part is None for part in lines) or not all(source.has_own_lines(key) for key, _ in wrong):
            continue
        for key, _ in wrong:
            source.note(key, f"spec.{key.value} → {key.value}")
        text = "".join(part for part in lines if part is not None)
        at = line_start(source.text, start(spec_key))
        if len(wrong) == len(list(entries(spec))):
            yield Edit(at, source.removal(spec_key, spec).end, text)
        else:
            yield (Edit(at, at, text), *(source.removal(key, value, moved=True) for key, value in wrong))
