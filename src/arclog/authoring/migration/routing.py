"""Routing: admission, arcs, and the step that ends it all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

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
            elif is_list(value) and items(value):
                read = [_read_arc(node, last=node is items(value)[-1]) for node in items(value)]
                arcs = [arc for arc in read if arc is not None]
                if len(arcs) < len(read):
                    continue
                try:
                    edits = tuple(_arcs(source, key, value, arcs))
                except Undecided as why:
                    source.leave(why.node, why.message, why.hint)
                    continue
                source.note(key, "next → next.arcs")
                yield edits


_WHEN = ("when", "condition", "if", "expr")
_ARGS = ("args", "with", "input", "data", "payload")


class _Arc(NamedTuple):
    """An entry of a list that leads to one step."""

    step: str
    #: node of its condition and of its args; None without
    when: Any
    args: Any


def _read_arc(node: Any, *, last: bool) -> _Arc | None:
    """Parse an entry of a list: a name, `{step, when}`, `{when, then}` or, at the end, `{else}`; None otherwise."""
    if scalar(node):
        return _Arc(scalar(node) or "", None, None)
    parts = {name: value for name, _, value in entries(node)}
    conditions = [parts.pop(name) for name in _WHEN if name in parts]
    args = [parts.pop(name) for name in _ARGS if name in parts]
    if len(conditions) > 1 or len(args) > 1 or len(parts) != 1 or not all(map(is_map, args)):
        return None
    ((word, value),) = parts.items()
    if word == "step" and scalar(value):
        target = _Arc(scalar(value) or "", None, None)
    elif word == "then" or (word == "else" and last and not conditions):
        while is_list(value) and len(items(value)) == 1:
            value = items(value)[0]
        if word == "else" and [name for name, _, _ in entries(value)] == ["then"]:
            value = entry(value, "then")
            while is_list(value) and len(items(value)) == 1:
                value = items(value)[0]
        inner = None if is_list(value) else _read_arc(value, last=False)
        if inner is None or inner.when is not None or (inner.args is not None and args):
            return None
        target = inner
    else:
        return None
    return _Arc(target.step, conditions[0] if conditions else None, args[0] if args else target.args)


def _arcs(source: Source, key: Any, value: Any, read: list[_Arc]) -> Iterator[Edit]:
    text = source.text
    # Without conditions every step of the list was started.
    mode = "" if any(arc.when is not None for arc in read) or len(read) == 1 else "inclusive"
    inner: list[Edit] = []
    room = " " * (column_of(key) + 2)
    shift = 0 if is_flow(value) else max(len(room) + 2 - column_of(value), 0)
    for node, arc in zip(items(value), read, strict=True):
        inner += _arc(source, node, arc, shift)
    if is_flow(value):
        spec = f"spec: {{mode: {mode}}}, " if mode else ""
        yield Edit(start(value), start(value), f"{{{spec}arcs: ")
        yield from inner
        yield Edit(end(text, value), end(text, value), "}")
        return
    first = line_start(text, start(value))
    head = (f"{room}spec: {{mode: {mode}}}\n" if mode else "") + f"{room}arcs:\n"
    # The first line's shift is at the same place as the head, so both are one edit.
    lines = list(shifted(text, first, end(text, value), shift)) if shift else []
    yield Edit(first, first, head + " " * shift)
    yield from (line for line in lines[1:] if not any(edit.start < line.start < edit.end for edit in inner))
    yield from inner


def _arc(source: Source, node: Any, arc: _Arc, shift: int) -> Iterator[Edit]:
    """Return the edits that turn an entry into an arc. Raises Undecided."""
    text = source.text
    if scalar(node) is not None:
        yield Edit(start(node), end(text, node), f"{{step: {arc.step}}}")
        return
    for word, key, value in entries(node):
        if word in ("then", "else"):
            args = ""
            if arc.args is not None and entry(node, *[name for name in _ARGS if entry(node, name)][:1]) is not arc.args:
                flow = source.as_flow(arc.args, without_comments=True)
                if not flow:
                    hint = "next: {arcs: [{step: …, when: …, args: {…}}]}"
                    raise Undecided(key, f"{word}: args that cannot be written on one line", hint)
                args = f", args: {flow}" if is_flow(node) else f"\n{' ' * (column_of(key) + shift)}args: {flow}"
            comments = source.comments(end_of_key(key), end(text, value))
            behind = f"   {comments[0]}" if len(comments) == 1 and not is_flow(node) else ""
            if len(comments) > 1 or (comments and is_flow(node)):
                raise Undecided(key, f"{word}: comments inside it", "next: {arcs: [{step: …, when: …}]}")
            yield Edit(start(key), end(text, value), f"step: {arc.step}{behind}{args}")
            continue
        new = "when" if word in _WHEN else "args" if word in _ARGS else word
        if new != word:
            yield Edit(start(key), end_of_key(key), new)


def end_of_key(key: Any) -> int:
    return int(key.end_mark.index)


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
    """Add a step `end` that arcs lead to and that older releases had implicitly."""
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
