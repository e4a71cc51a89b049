"""Steps of the first releases: the kind of a step and the keys of its tool are on the step itself.

A key moves into the tool unchanged; the rules for tasks, which run afterwards, convert its meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from arclog.authoring.migration.conditions import SQL
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
    scalars,
    start,
    templates,
)

#: Kinds of the first releases that only routed.
_ROUTING = frozenset({"end", "start", "router", "noop", "pass"})
#: Kinds of the first releases that are not here: their keys move all the same, and `check` names the kind.
_ELSEWHERE = frozenset({"snowflake", "container", "script", "ducklake", "gcs"})
#: Keys that belong to a step, in one release or another.
_OF_STEP = frozenset(
    [
        "step",
        "desc",
        "description",
        "when",
        "spec",
        "args",
        "loop",
        "next",
        "case",
        "retry",
        "sink",
        "save",
        "vars",
        "set",
        "set_ctx",
        "set_iter",
        "pass",
        "end_loop",
    ]
)
#: Names of a task's values in the first releases.
_VALUES = ("with", "data", "input", "payload")
#: Kinds whose tasks have their own args.
_WITH_ARGS = frozenset({"python", "playbook", "workbook"})
_LOOP = ("collection", "element", "mode", "concurrency", "in", "items", "item", "iterator", "max_in_flight")
_SECRETS = "keychain: [{name: NAME, kind: secret_manager}] at the root; tasks read {{ keychain.NAME.value }}"


def root_names(source: Source) -> Iterator[Change]:
    """`name` and `path` at the root belong to `metadata`; `context` and `spec` were the workload."""
    version = entry(source.root, "apiVersion")
    if scalar(version) == "noetl.io/v1":
        source.note(version, "noetl.io/v1 → noetl.io/v10")
        yield Edit(start(version), end(source.text, version), "noetl.io/v10")
    moved = [(key, value) for name, key, value in entries(source.root) if name in _METADATA]
    if entry(source.root, "metadata") is None and entry(source.root, "name") is not None and not is_flow(source.root):
        yield _metadata(source, moved)
    for word in ("context", "spec"):
        if not is_map(entry(source.root, word)) or entry(source.root, "workload") is not None:
            continue
        yield from source.rename(source.root, word, "workload")
        for part in ("workflow", "workbook"):
            for path, node in templates(entry(source.root, part)):
                if path[-1:] != ("code",):
                    pattern = rf"(?<![\w.'\"]){word}\.(?=\w)"
                    yield from source.in_templates(node, pattern, "workload.", f"{word}. → workload.", f"{word}.")


_METADATA = ("name", "path", "version", "description")


def _metadata(source: Source, moved: list[tuple[Any, Any]]) -> Change:
    text = source.text
    lines = [source.lines_at(key, value, 2) or "" for key, value in moved]
    source.note(moved[0][0], ", ".join(key.value for key, _ in moved) + " → metadata")
    first, *rest = [source.removal(key, value, moved=True) for key, value in moved]
    gap = "" if text[: first.start].endswith("\n") or not first.start else "\n"
    return (Edit(first.start, first.end, f"{gap}metadata:\n{''.join(lines)}"), *rest)


def step_names(source: Source) -> Iterator[Change]:
    """`my-step` is `my_step`, where it is named and where arcs lead to it."""
    renamed = {
        name: new
        for name in sorted(source.names)
        if "-" in name and (new := name.replace("-", "_")).isidentifier() and new not in source.names
    }
    if not renamed or len(set(renamed.values())) < len(renamed):
        return
    places = [(path, node) for step in source.steps for path, node in scalars(step)]
    places += [(("entry_step",), node) for node in [entry(source.root, "executor", "spec", "entry_step")] if node]
    for path, node in places:
        is_name = path in (("step",), ("entry_step",)) or (
            path[:1] in (("next",), ("case",)) and (isinstance(path[-1], int) or path[-1] in ("step", "then", "next"))
        )
        new = renamed.get(str(node.value), "") if is_name else ""
        if new:
            source.note(node, f"{node.value} → {new}")
            yield Edit(start(node), end(source.text, node), new)


# --- the tool of a step ---------------------------------------------------------------------------------------------------


def flat_steps(source: Source) -> Iterator[Change]:
    """Convert `type: http` or `tool: http` of a step, with the keys of the tool next to it."""
    for step in source.steps:
        try:
            yield from _called(source, step)
            yield from _flat(source, step)
        except Undecided as why:
            source.leave(why.node, why.message, why.hint)


def _called(source: Source, step: Any) -> Iterator[Change]:
    """`call: {type: python, …}` is the tool."""
    call = entry(step, "call")
    if is_map(call) and entry(step, "tool") is None and entry(step, "type") is None:
        kind_name = scalar(entry(call, "type")) or scalar(entry(call, "kind")) or ""
        if entry(call, "name") is None and scalar(entry(call, "task")) is not None:
            yield from source.rename(call, "task", "name")
        elif kind_name == "secrets":
            raise Undecided(call, "call: a secret is not a task", _SECRETS)
        elif _is_kind(source, kind_name):
            yield from source.rename(step, "call", "tool")


def _flat(source: Source, step: Any) -> Iterator[Change]:
    owner = next(
        ((key, value) for name, key, value in entries(step) if name in ("type", "tool") and scalar(value)), None
    )
    if owner is None:
        if is_map(entry(step, "result")) and entry(step, "tool") is None and not is_flow(step):
            yield _tool(source, step, None, "noop", [_pair(step, "result")], {"result": "data"})
        return
    key, value = owner
    kind = scalar(value) or ""
    if kind == "secrets":
        raise Undecided(key, "type secrets: a secret is not a step", _SECRETS)
    if kind == "iterator":
        yield _iterator(source, step, owner)
        return
    if kind == "save":
        kind, rename = _saved(step, key)
    elif kind in _ROUTING:
        kind, rename = "noop", {"result": "data"}
    elif _is_kind(source, kind):
        rename = _renamed(source, step, kind)
    else:
        return  # `check` lists it, with the kinds that there are
    takes = _takes_args(source, step, kind)
    gone = {"args"} if "args" in rename or takes else set()
    kept = _OF_STEP - gone if takes else _OF_STEP - gone | _values_of_step(source, kind) - set(rename)
    moved = [(k, v) for name, k, v in entries(step) if k is not key and name not in kept]
    if takes and sum(is_map(entry(step, name)) for name in ("args", *_VALUES)) > 1:
        raise Undecided(key, f"{key.value}: {kind}: values under two names", "one map of them: args: {…}")
    yield _tool(source, step, owner, kind, [pair for pair in moved if pair[0].value not in ("type", "tool")], rename)


def _takes_args(source: Source, step: Any, kind: str) -> bool:
    """Return whether a task has its own args; one of a workbook does if its entry does."""
    if kind != "workbook":
        return kind in _WITH_ARGS
    wanted = scalar(entry(step, "name")) or scalar(entry(step, "task"))
    for node in items(entry(source.root, "workbook")):
        if wanted in (scalar(entry(node, "name")), scalar(entry(node, "task"))):
            own = scalar(entry(node, "kind")) or scalar(entry(node, "type")) or scalar(entry(node, "tool", "kind"))
            return own is None or own in _WITH_ARGS
    return True


def _values_of_step(source: Source, kind: str) -> set[str]:
    """Return names of values that a task of a kind does not accept itself, so that they are args of the step."""
    spec = source.kinds[kind]
    own = {"data", "payload"} if kind == "http" else set[str]()
    return set(_VALUES) - own - ({field.name for field in spec.fields} if spec is not None else set())


def _is_kind(source: Source, word: str) -> bool:
    return word == "workbook" or word in source.kinds or word in _ELSEWHERE


def _pair(node: Any, name: str) -> tuple[Any, Any]:
    return next((key, value) for word, key, value in entries(node) if word == name)


def _renamed(source: Source, step: Any, kind: str) -> dict[str, str]:
    """The names that keys of a flat step have in a task of a kind."""
    names = {name for name, _, _ in entries(step)}
    rename = {"task": "name"} if scalar(entry(step, "task")) is not None and "name" not in names else {}
    if _takes_args(source, step, kind) and "args" not in names:
        rename |= {old: "args" for old in _VALUES if is_map(entry(step, old))}
    return rename


def _saved(step: Any, key: Any) -> tuple[str, dict[str, str]]:
    """A step of type `save`: a row of a table, or data that the log has anyway."""
    storage = scalar(entry(step, "storage")) or ""
    if entry(step, "save") is not None or is_map(entry(step, "storage")):
        raise Undecided(key, "type save: the storage is below another key", "tool: {kind: postgres, …}")
    if storage in ("", "event", "event_log"):
        return "noop", {"args": "data", "storage": ""}
    if storage not in SQL:
        raise Undecided(key, f"type save: there is no kind {storage!r} here", "tool: {kind: postgres, …}")
    return storage, {"data": "args", "args": "args", "storage": "", "statement": "command"}


def _tool(
    source: Source,
    step: Any,
    owner: tuple[Any, Any] | None,
    kind: str,
    moved: list[tuple[Any, Any]],
    rename: dict[str, str],
) -> Change:
    """The step with `tool: {kind: …}` and the moved keys in it. Raises Undecided."""
    word = "result" if owner is None else f"{owner[0].value}: {scalar(owner[1])}"
    at = moved[0][0] if owner is None else owner[0]
    if is_flow(step):
        return _flow_tool(source, step, owner, kind, moved, rename)
    column = column_of(at)
    room = " " * column
    body: list[str] = []
    edits: list[Edit] = []
    for key, value in moved:
        new = rename.get(key.value, key.value)
        part = source.block_at(key, value, column + 2)
        if part is None:
            raise Undecided(key, f"{key.value}: it cannot be moved", f"tool: {{kind: {kind}, …}}")
        edits.append(Edit(part.start, part.end, ""))
        if new:
            body.append(re.sub(rf"(?m)^( *){re.escape(key.value)}(?= *:)", rf"\g<1>{new}", part.text, count=1))
    head = f"{room}tool:\n{room}  kind: {kind}"
    text = source.text
    if owner is None:
        edits[0] = edits[0]._replace(text=f"{head}\n{''.join(body)}")
    else:
        own = end(text, owner[1])
        behind = text[own : line_end(text, own)].rstrip("\n")
        first = start(owner[0]) if not source.has_own_lines(owner[0]) else line_start(text, start(owner[0]))
        edits.append(Edit(first, line_end(text, own), f"{head}{behind}\n{''.join(body)}"))
    edits = _behind_dash(source, step, edits)
    source.note(at, f"{word} → tool: {{kind: {kind}, …}}")
    return tuple(edits)


def _behind_dash(source: Source, step: Any, edits: list[Edit]) -> list[Edit]:
    """Return the edits of a step's entries. If the first entry is removed, the first remaining one is moved after the
    dash.
    """
    text = source.text
    gone = {edit.start: edit for edit in edits}
    at = start(step)
    if at not in gone:
        return edits
    stays = next(((k, v) for _, k, v in entries(step) if not any(e.start <= start(k) < e.end for e in edits)), None)
    if stays is None or not source.has_own_lines(stays[0]):
        raise Undecided(step, "a step whose name is not on a separate line", "- step: NAME")
    lead = [edit for edit in edits if edit.start < start(stays[0])]
    last = max(edit.end for edit in lead)
    if source.comments(last, start(stays[0])):
        raise Undecided(step, "comments before the first key that stays", "- step: NAME comes first")
    added = "".join(edit.text for edit in lead)
    after = line_end(text, end(text, stays[1]))
    made = [edit for edit in edits if edit not in lead]
    if added:
        made.append(Edit(after, after, added))
    return [Edit(at, start(stays[0]), ""), *made]


def _flow_tool(
    source: Source,
    step: Any,
    owner: tuple[Any, Any] | None,
    kind: str,
    moved: list[tuple[Any, Any]],
    rename: dict[str, str],
) -> Change:
    text = source.text
    if source.comments(start(step), end(text, step)) or owner is None:
        raise Undecided(step, "a step on one line", f"tool: {{kind: {kind}, …}}")
    gone = {id(key) for key, _ in moved}
    inner = [f"kind: {kind}"]
    inner += [f"{new}: {raw(text, v)}" for k, v in moved if (new := rename.get(k.value, raw(text, k)))]
    parts = [
        f"tool: {{{', '.join(inner)}}}" if key is owner[0] else f"{raw(text, key)}: {raw(text, value)}"
        for _, key, value in entries(step)
        if id(key) not in gone
    ]
    source.note(owner[0], f"{owner[0].value}: {scalar(owner[1])} → tool: {{kind: {kind}, …}}")
    return Edit(start(step), end(text, step), f"{{{', '.join(parts)}}}")


def _iterator(source: Source, step: Any, owner: tuple[Any, Any]) -> Change:
    """`type: iterator` with `collection`, `element` and `task`: a loop around the task. Raises Undecided."""
    key, value = owner
    task = entry(step, "task")
    hint = "loop: {in: …, iterator: …} and tool: {kind: …}"
    if is_flow(step) or is_flow(task) or not is_map(task) or not task.value or entry(step, "loop") is not None:
        raise Undecided(key, "type iterator: the task is not on separate lines", hint)
    if entry(step, "save") is not None and entry(task, "save") is not None:
        raise Undecided(key, "type iterator: values are kept of each item and of all", hint)
    task_key, _ = _pair(step, "task")
    moved = [(k, v) for name, k, v in entries(step) if name in _LOOP]
    kept = next(((k, v) for name, k, v in entries(task) if name in ("save", "sink")), None)
    column = column_of(key)
    room = " " * column
    whole = source.block_at(task_key, task, column)
    blocks = [source.block_at(k, v, column + 2) for k, v in moved]
    inner = [source.block_at(k, v, column + 2) for _, k, v in entries(task) if kept is None or k is not kept[0]]
    below = None if kept is None else source.block_at(*kept, column)
    if (
        None in blocks
        or None in inner
        or (kept and below is None)
        or not source.has_own_lines(key)
        or not moved
        or whole is None
    ):
        raise Undecided(key, "type iterator: it cannot be moved", hint)
    loop = f"{room}loop:\n" + "".join(block.text for block in blocks if block)
    text = f"{room}tool:\n" + "".join(block.text for block in inner if block) + (below.text if below else "")
    source.note(key, "type: iterator → loop, tool")
    return (
        Edit(line_start(source.text, start(key)), line_end(source.text, end(source.text, value)), loop),
        *(Edit(block.start, block.end, "") for block in blocks if block),
        Edit(whole.start, whole.end, text),
    )


# --- keys that stay on a step
# ---------------------------------------------------------------------------------------------


def saves(source: Source) -> Iterator[Change]:
    """`save` of a step is what later releases called `sink`."""
    for step in source.steps:
        node = entry(step, "save")
        if node is None or entry(step, "sink") is not None:
            continue
        key, _ = _pair(step, "save")
        if not is_map(node) or is_flow(node) or is_list(node):
            source.leave(key, "save: not a map on separate lines", "a task behind: tool: [{…}, {name: store, …}]")
            continue
        storage = entry(node, "storage")
        for old, new in (("storage", "tool"), ("type", "tool"), ("data", "args"), ("statement", "command")):
            if entry(node, old) is not None and (old != "type" or storage is None):
                yield from source.rename(node, old, new)
        if is_map(storage):
            for name, key_of, value in entries(storage):
                if name == "type" and scalar(value):
                    yield Edit(start(key_of), int(key_of.end_mark.index), "kind")
        yield from source.rename(step, "save", "sink")


def credentials(source: Source) -> Iterator[Change]:
    """`auth: {pg: {type: postgres, key: NAME}}` and `auth: {type: …, credential: NAME}` name one entry."""
    for task in source.all_tasks():
        node = entry(task, "auth")
        if not is_map(node) or not node.value:
            continue
        fields = list(entries(node))
        inner = fields[0][2] if len(fields) == 1 and is_map(fields[0][2]) else node
        name = scalar(entry(inner, "key")) or scalar(entry(inner, "credential"))
        words = {word for word, _, _ in entries(inner)}
        if name and "{{" not in name and words <= {"type", "key", "credential", "source", "kind"} and len(words) <= 3:
            source.note(node, f"auth: {{…}} → auth: {name}")
            key, _ = _pair(task, "auth")
            yield Edit(start(key), end(source.text, node), f"auth: {name}")
