"""A playbook's text on its way from older forms to present ones, with its tree and the names in it."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from operator import itemgetter
from typing import Any

from arclog.authoring.spans import (
    Edit,
    by_name,
    column_of,
    edited,
    end,
    entries,
    entry,
    is_flow,
    is_map,
    items,
    line_end,
    line_of,
    line_start,
    raw,
    scalar,
    start,
)
from arclog.model.config.kinds import KindSpec
from arclog.model.errors import Finding, Position
from arclog.playbook.engine_kinds import ENGINE_KINDS

TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
COMMENT = re.compile(r"(^|\s)#")
#: One edit, or several that are applied together or not at all.
Change = Edit | tuple[Edit, ...]
_COMMENTS = re.compile(r"(?m)(?:^|(?<=[ \t]))#[^\n]*")


class Undecided(Exception):
    """A form whose meaning is not certain: its place, the reason, and what its author can write."""

    def __init__(self, node: Any, message: str, hint: str) -> None:
        super().__init__(message)
        self.node, self.message, self.hint = node, message, hint


class KnownKinds(dict[str, KindSpec | None]):
    """Kinds by name, each looked up once."""

    def __init__(self, kinds: Mapping[str, KindSpec]) -> None:
        super().__init__()
        self._all = kinds
        self._fields: dict[str, frozenset[str]] = {}

    def fields(self, kind: KindSpec) -> frozenset[str]:
        names = self._fields.get(kind.name)
        if names is None:
            names = self._fields[kind.name] = frozenset(field.name for field in kind.fields)
        return names

    def __missing__(self, name: str) -> KindSpec | None:
        spec = self[name] = ENGINE_KINDS.get(name) or self._all.get(name)
        return spec

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self[name] is not None


class Source:
    """One text."""

    def __init__(self, text: str, root: Any, kinds: KnownKinds) -> None:
        self.text = text
        self.root = root
        self.kinds = kinds
        self.steps = [node for node in items(entry(root, "workflow")) if is_map(node)]
        self.names = {name for node in self.steps if (name := scalar(entry(node, "step")))}
        self.workload = {name for name, _, _ in entries(entry(root, "workload"))}
        self.notes: list[tuple[int, str]] = []
        #: forms that only the author can decide
        self.undecided: list[Finding] = []
        self._scalars: list[tuple[int, int]] | None = None
        self._tasks: dict[int, list[Any]] = {}

    def tasks(self, step: Any) -> list[Any]:
        """The task maps of a step, in blocks of `choose`, `while` and `until` too."""
        tasks = self._tasks.get(id(step))
        if tasks is None:
            tasks = self._tasks[id(step)] = list(self._tasks_of(step))
        return tasks

    def _tasks_of(self, step: Any) -> Iterator[Any]:
        tool = entry(step, "tool")
        if is_map(tool):
            yield tool
        pending = items(tool)
        while pending:
            node = pending.pop(0)
            if not is_map(node):
                continue
            parts = by_name(node)
            block = parts.get("choose") or parts.get("while") or parts.get("until")
            if block is None:
                yield node
            else:
                for part in items(block) or [block]:
                    for name in ("then", "do", "else"):
                        pending += items(entry(part, name))

    def all_tasks(self) -> Iterator[Any]:
        for step in self.steps:
            yield from self.tasks(step)
        for node in items(entry(self.root, "workbook")):
            if is_map(node):
                yield node

    def kind_of(self, task: Any) -> KindSpec | None:
        return self.kinds[scalar(entry(task, "kind")) or ""]

    def fields(self, kind: KindSpec | None) -> frozenset[str]:
        """Return the names of the fields of a kind; none without a kind."""
        return frozenset() if kind is None else self.kinds.fields(kind)

    def kind_name(self, task: Any) -> str:
        """The kind of a task; of one of the workbook, its entry's."""
        kind = scalar(entry(task, "kind")) or ""
        if kind == "workbook":
            for node in items(entry(self.root, "workbook")):
                if scalar(entry(node, "name")) == scalar(entry(task, "name")):
                    return scalar(entry(node, "kind")) or kind
        return kind

    @cached_property
    def arc_args(self) -> dict[str, set[str]]:
        """Return the names of the args that arcs to a step set, by step."""
        names: dict[str, set[str]] = {}
        for step in self.steps:
            for arc in items(entry(step, "next", "arcs")):
                if words := by_name(entry(arc, "args")):
                    names.setdefault(scalar(entry(arc, "step")) or "", set()).update(words)
        return names

    def labels(self, step: Any) -> set[str]:
        return {name for task in self.tasks(step) if (name := scalar(entry(task, "name")))}

    # --- results ------------------------------------------------------------------------------------------------------

    def note(self, node: Any, text: str) -> None:
        self.notes.append((line_of(node), text))

    def leave(self, node: Any, message: str, hint: str) -> None:
        """List a form whose meaning is not certain."""
        self.undecided.append(Finding("undecided", message, Position(line_of(node), column_of(node) + 1), hint=hint))

    # --- comments -----------------------------------------------------------------------------------------------------

    def comments(self, first: int, last: int) -> list[str]:
        """The comments between two places of the text; a `#` inside a value is none."""
        if self._scalars is None:
            self._scalars = sorted(self._spans(self.root))
        comments: list[str] = []
        for match in _COMMENTS.finditer(self.text, first, last):
            at = bisect_right(self._scalars, (match.start(), len(self.text))) - 1
            if at < 0 or self._scalars[at][1] <= match.start():
                comments.append(match[0].rstrip())
        return comments

    def _spans(self, node: Any) -> Iterator[tuple[int, int]]:
        pending = [node]
        while pending:
            node = pending.pop()
            if is_map(node):
                pending += [part for pair in node.value for part in pair]
            elif items(node):
                pending += items(node)
            elif scalar(node) is not None:
                yield start(node), end(self.text, node)

    # --- edits --------------------------------------------------------------------------------------------------------

    def rename(self, node: Any, old: str, new: str) -> Iterator[Edit]:
        """Rename a key of a map, unless the new one already exists."""
        if entry(node, new) is None:
            for name, key, _ in entries(node):
                if name == old:
                    self.note(key, f"{old} → {new}")
                    quote = key.style or ""  # as in JSON
                    yield Edit(start(key), int(key.end_mark.index), f"{quote}{new}{quote}")

    def has_own_lines(self, key: Any) -> bool:
        """Return whether only white space precedes a key on its line."""
        return not self.text[line_start(self.text, start(key)) : start(key)].strip()

    def removal(self, key: Any, value: Any, *, moved: bool = False) -> Edit:
        """Return the removal of a block entry that has its own lines. Comments in it stay, unless they were moved
        along.
        """
        first, stop = line_start(self.text, start(key)), line_end(self.text, end(self.text, value))
        kept = [] if moved else self.comments(first, stop)
        return Edit(first, stop, "".join(f"{' ' * column_of(key)}{comment}\n" for comment in kept))

    def lines_at(self, first: Any, last: Any, column: int) -> str | None:
        """The lines from one node to the end of another, moved to a column; None when they cannot be moved as they are."""
        at, stop = line_start(self.text, start(first)), line_end(self.text, end(self.text, last))
        by = column - column_of(first)
        made: list[str] = []
        for line in self.text[at:stop].splitlines():
            room = len(line) - len(line.lstrip(" "))
            if not line.strip():
                made.append(line)
            elif room + by < 0:
                return None
            else:
                made.append(" " * (room + by) + line[room:])
        return "\n".join(made) + "\n"

    def block_at(self, key: Any, value: Any, column: int) -> Edit | None:
        """Return the lines of a map's entry, with the comments directly above it, moved to a column; None if they
        cannot be moved.

        The range of the edit is the text to remove.
        """
        lines = self.lines_at(key, value, column)
        if lines is None:
            return None
        first, last = line_start(self.text, start(key)), line_end(self.text, end(self.text, value))
        if not self.has_own_lines(key):  # the first key, after the dash of a list
            dash = self.text[first : start(key)]
            return (
                Edit(start(key), last, " " * column + lines[len(dash) + column - column_of(key) :])
                if dash.strip() == "-"
                else None
            )
        above: list[str] = []
        while first:
            before = line_start(self.text, first - 1)
            comment = self.text[before:first].strip()
            if not comment.startswith("#") or not self.comments(before, first):
                break
            above.insert(0, f"{' ' * column}{comment}\n")
            first = before
        return Edit(first, last, "".join(above) + lines)

    def put(self, node: Any, lines: str) -> Edit:
        """Add lines at the end of a block map or list."""
        at = line_end(self.text, end(self.text, node))
        gap = "" if self.text[:at].endswith("\n") else "\n"
        return Edit(at, at, gap + lines)

    def put_in_spec(self, task: Any, key: str, value: str) -> Edit | None:
        """Add `key: value` to the spec of a task, which gets one if it has none."""
        spec = entry(task, "spec")
        if is_map(spec) and entry(spec, key) is not None:
            return None
        if spec is None:
            if is_flow(task):
                at = end(self.text, task) - 1
                return Edit(at, at, f", spec: {{{key}: {value}}}")
            return self.put(task, f"{' ' * column_of(task)}spec: {{{key}: {value}}}\n")
        if is_flow(spec):
            at = end(self.text, spec) - 1
            return Edit(at, at, f"{', ' if spec.value else ''}{key}: {value}")
        return self.put(spec, f"{' ' * column_of(spec)}{key}: {value}\n") if is_map(spec) else None

    def as_flow(self, node: Any, *, without_comments: bool = False) -> str:
        """A value on one line; '' when that cannot be written without losing a comment or a line break."""
        if is_flow(node) or scalar(node) is not None:
            text = raw(self.text, node)
            if "\n" in text or getattr(node, "style", None) in ("|", ">"):
                return ""
            # A plain text may contain characters that have a meaning inside braces.
            plain = scalar(node) is not None and node.style is None and re.search(r"[,\[\]{}#]", text)
            return f'"{text}"' if plain and '"' not in text and "\\" not in text else "" if plain else text
        if not without_comments and self.comments(start(node), end(self.text, node)):
            return ""
        if is_map(node):
            made = [(key, self.as_flow(value, without_comments=without_comments)) for _, key, value in entries(node)]
            parts = [f"{raw(self.text, key)}: {value}" for key, value in made]
            return f"{{{', '.join(parts)}}}" if all(value for _, value in made) else ""
        parts = [self.as_flow(value, without_comments=without_comments) for value in items(node)]
        return f"[{', '.join(parts)}]" if parts and all(parts) else ""

    def in_templates(self, node: Any, pattern: str, new: str, change: str, word: str = "") -> Iterator[Edit]:
        """Replace a pattern inside the templates of a scalar. `word` is a text that each of its matches has."""
        if word not in node.value or ("{{" not in node.value and "{%" not in node.value):
            return
        text, first, last = self.text, start(node), end(self.text, node)
        for template in TEMPLATE.finditer(text, first, last):
            for match in re.finditer(pattern, text[template.start() : template.end()]):
                at = template.start() + match.start()
                self.notes.append((text.count("\n", 0, at) + 1, change))
                yield Edit(at, at + len(match.group()), new)


Rule = Callable[[Source], Iterator[Change]]


def changed(text: str, changes: Iterable[Change]) -> str:
    """Apply changes to a text. Of two that overlap the first one is applied; a change is left out as a whole."""
    taken: list[Edit] = []
    last, longest = -1, 0
    for change in changes:
        group = (change,) if isinstance(change, Edit) else change
        # Most changes come in the order of the text.
        if any(edit.start <= last and _overlaps(edit, taken, longest) for edit in group):
            continue
        for edit in group:
            insort(taken, edit, key=itemgetter(0, 1))
            last, longest = max(last, edit.end), max(longest, edit.end - edit.start)
    return edited(text, taken)


def _overlaps(edit: Edit, taken: list[Edit], longest: int) -> bool:
    """Return whether an edit overlaps one of the others, which are in order of their start and have at most `longest`
    characters.
    """
    first = bisect_left(taken, edit.start - longest, key=itemgetter(0))
    last = bisect_right(taken, edit.end, key=itemgetter(0))
    return any(_overlap(edit, other) for other in taken[first:last])


def _overlap(edit: Edit, other: Edit) -> bool:
    if edit.start == edit.end and other.start == other.end:
        return edit.start == other.start
    return edit.start < other.end and other.start < edit.end


def shifted(text: str, first: int, last: int, by: int) -> Iterator[Edit]:
    """Move whole lines to the left or right."""
    at = first
    while at < last:
        stop = line_end(text, at)
        line = text[at:stop]
        if line.strip():
            room = len(line) - len(line.lstrip(" "))
            if by > 0:
                yield Edit(at, at, " " * by)
            elif room >= -by:
                yield Edit(at, at - by, "")
        at = stop
