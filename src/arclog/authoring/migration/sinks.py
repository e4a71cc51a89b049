"""`sink`: storing the result of a step. It becomes an ordinary task after the one that produced the result."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from arclog.authoring.migration.conditions import quoted, renamed, renamed_in
from arclog.authoring.migration.source import TEMPLATE, Change, Source, Undecided
from arclog.authoring.spans import (
    Edit,
    column_of,
    entries,
    entry,
    is_flow,
    is_list,
    is_map,
    raw,
    scalar,
    scalars,
    start,
    templates,
)

_HINT = "storing is an ordinary task of the list: tool: [{name: LABEL, kind: …}, {name: store, kind: postgres, …}]"


class Sink(NamedTuple):
    """A sink and its parameters."""

    key: Any
    node: Any
    #: a condition in older words; '' for every success
    when: str = ""


def step_sinks(source: Source) -> Iterator[Change]:
    """`sink` of a step."""
    for step in source.steps:
        key = next((key for name, key, _ in entries(step) if name == "sink"), None)
        if key is None or is_flow(step):
            continue
        try:
            tasks = list(source.tasks(step))
            if len(tasks) != 1 or entry(step, "case") is not None or not source.has_own_lines(key):
                raise Undecided(key, "sink: a step with several tasks, or with a case", _HINT)
            node = entry(step, "sink")
            made = sink_tasks(source, step, tasks[0], [Sink(key, node)], routed=entry(step, "next") is not None)
        except Undecided as why:
            source.leave(why.node, why.message, why.hint)
        else:
            source.note(key, "sink → a task")
            yield (*made, source.removal(key, node, moved=True))


def sink_tasks(
    source: Source, step: Any, task: Any, sinks: list[Sink], *, routed: bool, asked: str = ""
) -> tuple[Edit, ...]:
    """Return the tool of a step as a list: its task, the sinks, and the task's data again if the step's view is read.

    `asked` are conditions of the step's routes, which read the step's result. Raises Undecided.
    """
    name = scalar(entry(step, "step")) or "step"
    kind = scalar(entry(task, "kind")) or ""
    tool_key, tool = next((key, value) for word, key, value in entries(step) if word == "tool")
    label = scalar(entry(task, "name")) or f"{name}_task"
    column = column_of(tool_key) + 2
    if is_list(tool) and not is_flow(tool):
        column = column_of(tool)
    taken = {label, *source.names}
    branching = any(sink.when for sink in sinks)
    parts = [_sink(source, sink, kind, label, column, taken, branching=branching) for sink in sinks]
    if sum(1 for sink in sinks if not sink.when) > 1:
        raise Undecided(sinks[-1].key, "sink: it is never reached", _HINT)
    room = " " * column
    stored = (f"{room}- choose:\n" if branching else "") + "".join(parts)
    stored += _view(source, step, name, kind, label, sinks, room, routed=routed, asked=asked)
    if is_list(tool):
        if is_flow(tool) or not scalar(entry(task, "name")):
            raise Undecided(sinks[0].key, "sink: a list of tasks without names, or on one line", _HINT)
        return (source.put(tool, stored),)
    own = _as_item(source, tool_key, tool, label, column)
    first = int(tool_key.end_mark.index)
    whole = source.removal(tool_key, tool, moved=True)
    behind = source.text[source.text.find(":", first) + 1 : start(tool)]
    kept = "".join(f"{room}{comment.strip()}\n" for comment in behind.split("\n") if comment.strip().startswith("#"))
    return (Edit(whole.start, whole.end, f"{' ' * column_of(tool_key)}tool:\n{kept}{own}{stored}"),)


def _as_item(source: Source, key: Any, tool: Any, label: str, column: int) -> str:
    """The one task of a step as an item of a list."""
    room = " " * column
    if not source.has_own_lines(key):
        raise Undecided(key, "sink: a step on one line", _HINT)
    has_name = entry(tool, "name") is not None
    if is_flow(tool):
        inner = raw(source.text, tool)
        return f"{room}- {inner}\n" if has_name else f"{room}- {{name: {label}, {inner[1:].lstrip()}\n"
    first = tool.value[0][0]
    lines = source.lines_at(first, tool, column + 2) if source.has_own_lines(first) else None
    if lines is None:
        raise Undecided(key, "sink: a tool that cannot be moved", _HINT)
    return f"{room}- {lines.lstrip(' ')}" if has_name else f"{room}- name: {label}\n{lines}"


def _sink(source: Source, sink: Sink, kind: str, label: str, column: int, taken: set[str], *, branching: bool) -> str:
    """One sink as a task of the list, or as a branch of a `choose`. Raises Undecided."""
    node, tool = sink.node, entry(sink.node, "tool")
    if not is_map(node) or is_flow(node) or tool is None:
        raise Undecided(sink.key, "sink: not a map with a tool", _HINT)
    made = scalar(tool) or scalar(entry(tool, "kind")) or ""
    name = next(word for n in range(1, 100) if (word := "store" if n == 1 else f"store_{n}") not in taken)
    taken.add(name)
    deeper = 0 if not branching else 8 if sink.when else 6
    inner = column + 2 + deeper
    lines = [f"{' ' * inner}kind: {scalar(tool)}\n"] if scalar(tool) else [_lines(source, sink, tool, inner)]
    for word, key, value in entries(node):
        if word != "tool":
            moved = source.lines_at(key, value, inner) if source.has_own_lines(key) else None
            if moved is None:
                raise Undecided(sink.key, "sink: it cannot be moved", _HINT)
            lines.append(moved)
    body = renamed_in("".join(lines), kind, label, sink.key)
    if made in ("event_log", "event"):  # the log has the result of every task
        body = re.sub(r"\bkind: *['\"]?event(_log)?['\"]?", "kind: noop", body, count=1)
    elif made not in source.kinds:
        raise Undecided(sink.key, f"sink: there is no kind {made!r}", _HINT)
    room = " " * (column + deeper)
    task = f"{room}- name: {name}\n{body}"
    if not branching:
        return task
    outer = " " * (column + 4)
    if not sink.when:
        return f"{outer}- else:\n{task}"
    when = quoted(renamed(sink.when, kind, label, sink.key))
    return f"{outer}- when: {when}\n{outer}  then:\n{task}"


def _lines(source: Source, sink: Sink, tool: Any, column: int) -> str:
    """The lines of a sink's tool at a column."""
    if is_map(tool) and tool.value and not is_flow(tool):
        first = tool.value[0][0]
        lines = source.lines_at(first, tool, column) if source.has_own_lines(first) else None
        if lines is not None:
            return lines
    if is_flow(tool):
        return "".join(f"{' ' * column}{raw(source.text, k)}: {raw(source.text, v)}\n" for _, k, v in entries(tool))
    raise Undecided(sink.key, "sink: its tool cannot be moved", _HINT)


def _view(
    source: Source,
    step: Any,
    name: str,
    kind: str,
    label: str,
    sinks: list[Sink],
    room: str,
    *,
    routed: bool,
    asked: str,
) -> str:
    """Return a last task that returns the data of the first one, which the step's name and `outcome` on its
    arcs mean.
    """
    reads = re.compile(rf"(?<![\w.'\"]){re.escape(name)}(?![\w'\"])")
    fields = re.compile(rf"(?<![\w.'\"]){re.escape(name)}\.(?:result|http|meta|pg)\b")
    inside = {id(node) for sink in sinks for _, node in scalars(sink.node)}
    texts = [
        template
        for path, node in templates(source.root)
        if id(node) not in inside and path[-1:] != ("code",)
        for template in TEMPLATE.findall(str(node.value))
    ]
    routes = asked + " ".join(str(node.value) for _, node in scalars(entry(step, "next")))
    if any(fields.search(text) for text in texts) or (kind == "http" and re.search(r"\.(http|status|headers)", routes)):
        hint = f"a separate step for the sink, which reads {{{{ {name}.data }}}}"
        raise Undecided(sinks[0].key, f"sink: {name}'s status and headers are read after it", hint)
    read = any(reads.search(text) for text in texts)
    if routed and not read and not re.search(r"\b(outcome|response|result)\b", routes):
        return ""
    return f'{room}- {{name: {name}_data, kind: noop, data: "{{{{ {label}.data }}}}"}}\n'
