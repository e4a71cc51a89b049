"""Routing: admission, arcs, and the step that ends it all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from arclog.authoring.migration.conditions import expression_of, quoted
from arclog.authoring.migration.source import Change, Source, Undecided, shifted
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


def admission(source: Source) -> Iterator[Change]:
    """`when` of a step without a spec."""
    for step in source.steps:
        for name, key, value in entries(step):
            if name != "when" or scalar(value) is None or entry(step, "spec") is not None or is_flow(step):
                continue
            source.note(key, "when → spec.policy.admit")
            room = " " * column_of(key)
            head = f"spec:\n{room}  policy:\n{room}    admit:\n{room}      rules:\n{room}        - when: "
            yield Edit(
                start(key),
                end(source.text, value),
                f"{head}{raw(source.text, value)}\n{room}          then: {{allow: true}}",
            )


def arcs_of_lists(source: Source) -> Iterator[Change]:
    """`next` as a name or a list of arcs."""
    for step in source.steps:
        for name, key, value in entries(step):
            if name != "next":
                continue
            text = scalar(value)
            if text:
                source.note(key, "next → next.arcs")
                yield Edit(start(value), end(source.text, value), f"{{arcs: [{{step: {text}}}]}}")
            elif is_list(value) and items(value) and all(_is_arc(node) for node in items(value)):
                source.note(key, "next → next.arcs")
                yield from _arcs(source, key, value)


_ARC = frozenset({"step", "when", "condition", "if", "expr", "args", "with"})


def _is_arc(node: Any) -> bool:
    """Whether an entry of a list is a name, or a map that can be an arc."""
    if scalar(node):
        return True
    names = [name for name, _, _ in entries(node)]
    if "then" in names and set(names) <= {"when", "expr", "then", "args"}:
        return _only_step(entry(node, "then")) is not None
    return "step" in names and set(names) <= _ARC and len(set(names) & {"when", "condition", "if", "expr"}) <= 1


def _only_step(node: Any) -> str | None:
    """The one step that a `then` names."""
    if scalar(node):
        return scalar(node)
    if is_list(node) and len(items(node)) == 1:
        return _only_step(items(node)[0])
    if is_map(node) and [name for name, _, _ in entries(node)] == ["step"]:
        return scalar(entry(node, "step"))
    return None


def _arcs(source: Source, key: Any, value: Any) -> Iterator[Change]:
    text = source.text
    conditional = any(
        entry(node, name) is not None for node in items(value) for name in ("when", "condition", "if", "expr")
    )
    # Without conditions every step of the list was started.
    mode = "" if conditional or len(items(value)) == 1 else "inclusive"
    inner: list[Edit] = []
    for node in items(value):
        inner += _arc(text, node)
    if is_flow(value):
        spec = f"spec: {{mode: {mode}}}, " if mode else ""
        yield Edit(start(value), start(value), f"{{{spec}arcs: ")
        yield from inner
        yield Edit(end(text, value), end(text, value), "}")
        return
    room = " " * (column_of(key) + 2)
    first = line_start(text, start(value))
    head = (f"{room}spec: {{mode: {mode}}}\n" if mode else "") + f"{room}arcs:\n"
    shift = max(len(room) + 2 - column_of(value), 0)
    # The first line's own shift stands at the same place as the head: one edit for both.
    lines = list(shifted(text, first, end(text, value), shift)) if shift else []
    yield Edit(first, first, head + " " * shift)
    yield from (line for line in lines[1:] if not any(edit.start < line.start < edit.end for edit in inner))
    yield from inner


def _arc(text: str, node: Any) -> Iterator[Edit]:
    name = scalar(node)
    if name is not None:
        yield Edit(start(node), end(text, node), f"{{step: {name}}}")
        return
    for word, key, value in entries(node):
        new = {"condition": "when", "if": "when", "expr": "when", "with": "args", "then": "step"}.get(word)
        if word == "then":
            yield Edit(start(key), end(text, value), f"step: {_only_step(value)}")
        elif new is not None:
            yield Edit(start(key), int(key.end_mark.index), new)


def compared_texts(source: Source) -> Iterator[Change]:
    """`when: "{{ x }} == word"` on the way to a step: older releases compared the rendered texts."""
    for step in source.steps:
        node = entry(step, "next")
        for arc in items(entry(node, "arcs")) or items(node):
            when = entry(arc, "when")
            text = scalar(when)
            if (
                text is None
                or "\n" in raw(source.text, when)
                or not text.strip().startswith("{{")
                or text.strip().endswith("}}")
            ):
                continue
            try:
                expression = expression_of(when)
            except Undecided:
                continue
            source.note(when, "a comparison inside the braces")
            yield Edit(start(when), end(source.text, when), quoted(expression))


def tools(source: Source) -> Iterator[Change]:
    """A step without a tool, which only routes."""
    for step in source.steps:
        names = {name for name, _, _ in entries(step)}
        if "step" not in names or not names <= {"step", "desc", "spec", "next", "case", "args"} or is_flow(step):
            continue
        key, value = next((k, v) for name, k, v in reversed(list(entries(step))) if name in ("step", "desc"))
        at = line_end(source.text, end(source.text, value))
        source.note(key, "tool: {kind: noop}")
        gap = "" if source.text[:at].endswith("\n") else "\n"
        yield Edit(at, at, f"{gap}{' ' * column_of(step)}tool: {{kind: noop}}\n")


def end_step(source: Source) -> Iterator[Change]:
    """A step `end` that arcs lead to and that was there without being written."""
    workflow = entry(source.root, "workflow")
    if "end" in source.names or not source.steps or is_flow(workflow):
        return
    targets = {scalar(entry(arc, "step")) for step in source.steps for arc in items(entry(step, "next", "arcs"))}
    if "end" in targets:
        room = " " * column_of(workflow)
        at = end(source.text, workflow)
        at = line_end(source.text, at)
        gap = "" if source.text[:at].endswith("\n") else "\n"
        source.note(workflow, "step end written out")
        yield Edit(at, at, f"{gap}\n{room}- step: end\n{room}  tool: {{kind: noop}}\n")
