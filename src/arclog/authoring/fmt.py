"""Formats a playbook: white space, indentation, the order of well-known keys. Values, comments and quotes stay.

Invariants: the formatted text loads to the same values and has the same comments, or the text is returned unchanged.
Formatting is idempotent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import yaml

from arclog.authoring.spans import (
    column_of,
    compose,
    end,
    entries,
    entry,
    is_flow,
    is_list,
    is_map,
    items,
    line_end,
    line_of,
    line_start,
    scalars,
    start,
)
from arclog.model.errors import PlaybookError
from arclog.playbook.load import load

# ── indentation ───────────────────────────────────────────────────────────────────────────────────────────────────────
# Indents blocks by two columns per level, including lists below their key. Multi-line texts and flows move with them.

_INDENT = 2


class _Place(NamedTuple):
    """The old and the new column of a line's first key or value, and the text before it now."""

    old: int
    new: int
    prefix: str


def indented(text: str, root: Any) -> str:
    """The text with its blocks indented again; `root` is its tree."""
    placed: dict[int, _Place] = {}
    _place(root, 0, "", placed)
    inside = _inside(root)
    lines = text.split("\n")
    rooms = [len(line) - len(line.lstrip(" ")) for line in lines]
    made: list[str] = []
    by = 0
    for number, line in enumerate(lines):
        if number in placed:
            place = placed[number]
            by = place.new - place.old
            made.append(place.prefix + line[place.old :])
        elif not line.strip():
            made.append(line)
        elif line.lstrip(" ").startswith("#") and number not in inside:
            made.append(" " * _of_comment(number, rooms, placed) + line.lstrip(" "))
        else:
            made.append(" " * max(rooms[number] + by, 0) + line.lstrip(" "))
    return "\n".join(made)


def _place(node: Any, column: int, prefix: str, placed: dict[int, _Place]) -> None:
    """Determine the columns of a block's lines. `prefix` is the text before its first part: the dashes of the lists
    that contain it.
    """
    if is_map(node) and not is_flow(node):
        for number, (_, key, value) in enumerate(entries(node)):
            line = int(key.start_mark.line)
            placed[line] = _Place(column_of(key), column, prefix if number == 0 and prefix else " " * column)
            if int(value.start_mark.line) > line:
                _place(value, column + _INDENT, "", placed)
    elif is_list(node) and not is_flow(node):
        for number, item in enumerate(items(node)):
            before = (prefix if number == 0 and prefix else " " * column) + "- "
            if (is_map(item) or is_list(item)) and not is_flow(item):
                _place(item, column + _INDENT, before, placed)
            else:
                placed[int(item.start_mark.line)] = _Place(column_of(item), column + _INDENT, before)


def _inside(root: Any) -> set[int]:
    """Continuation lines of texts and flows: a `#` there does not begin a comment."""
    lines: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if is_map(node) and not is_flow(node):
            pending += [part for pair in node.value for part in pair]
        elif is_list(node) and not is_flow(node):
            pending += items(node)
        else:
            # A block text ends where the next token begins, on a line that is not its own.
            own = 1 if getattr(node, "style", None) in ("|", ">") else 0
            lines.update(range(int(node.start_mark.line) + 1, int(node.end_mark.line) + 1 - own))
    return lines


def _of_comment(number: int, rooms: list[int], placed: dict[int, _Place]) -> int:
    """Return the column of a comment: that of the next line that was below it, else of the last line in its column."""

    def place_at(line: int) -> int | None:
        place = placed[line]
        if rooms[number] == rooms[line]:
            return len(place.prefix) - len(place.prefix.lstrip(" "))
        return place.new if rooms[number] == place.old else None

    below = next((line for line in range(number + 1, len(rooms)) if line in placed), None)
    if below is not None and (column := place_at(below)) is not None:
        return column
    for line in range(number - 1, -1, -1):
        if line in placed and (column := place_at(line)) is not None:
            return column
    return rooms[number]


# ── key order ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Puts the well-known keys of a playbook into the order of the reference, and one empty line between steps.
#
# A key moves with its value and the comments above it. Maps with free keys (`workload`, `args`, `data` …) are not
# reordered.

#: Keys in order; those in one entry keep the author's order. Other keys are placed at `…`, in their own order.
_ROOT = ("apiVersion", "kind", "metadata", "…", "keychain", "executor workload", "workbook", "workflow")
_METADATA = ("name", "path", "version", "description", "labels", "tags", "…")
_STEP = ("step", "desc", "spec args loop", "…", "tool", "next")
_LOOP = ("in", "iterator", "spec", "…", "loop")
_TASK = ("name", "kind desc", "…", "spec")
_NEXT = ("spec", "…", "arcs")
_ARC = ("step", "when", "args", "…")
_RULE = ("when", "else", "…", "then")
_THEN = ("do", "…")


def ordered(text: str, root: Any) -> str:
    """The text with one map put into order, the first that is not; `root` is its tree. The text itself when all are."""
    for node, order in _maps(root):
        made = _in_order(text, node, order)
        if made != text:
            return made
    return text


def spaced(text: str, root: Any) -> str:
    """The text with one empty line before each step but the first; steps on one line stay together."""
    lines = text.split("\n")
    for before, step in reversed(
        list(zip(items(entry(root, "workflow")), items(entry(root, "workflow"))[1:], strict=False))
    ):
        if is_flow(step) or is_flow(before):
            continue
        at = text.count("\n", 0, start(step))
        column = len(lines[at]) - len(lines[at].lstrip(" "))
        while at > 0 and lines[at - 1].lstrip(" ").startswith("#") and _room(lines[at - 1]) == column:
            at -= 1
        if lines[at - 1].strip():
            lines.insert(at, "")
    return "\n".join(lines)


def _room(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _maps(root: Any) -> Iterator[tuple[Any, Sequence[str]]]:
    """The maps whose keys have an order."""
    yield root, _ROOT
    yield entry(root, "metadata"), _METADATA
    for task in items(entry(root, "workbook")):
        yield from _task(task)
    for step in items(entry(root, "workflow")):
        yield step, _STEP
        loop = entry(step, "loop")
        while is_map(loop):
            yield loop, _LOOP
            loop = entry(loop, "loop")
        tool = entry(step, "tool")
        for task in [tool] if is_map(tool) else items(tool):
            yield from _task(task)
        yield entry(step, "next"), _NEXT
        for arc in items(entry(step, "next", "arcs")):
            yield arc, _ARC


def _task(task: Any) -> Iterator[tuple[Any, Sequence[str]]]:
    if entry(task, "kind") is None:
        return  # choose, while, until: their keys read in the author's order
    yield task, _TASK
    for rule in items(entry(task, "spec", "policy", "rules")):
        yield rule, _RULE
        yield entry(rule, "then"), _THEN
        yield entry(rule, "else", "then"), _THEN


def _in_order(text: str, node: Any, order: Sequence[str]) -> str:
    """Return the text with the keys of a block map in order, if each key has its own lines."""
    pairs = list(entries(node)) if is_map(node) and not is_flow(node) else []
    ranks = {name: rank for rank, names in enumerate(order) for name in names.split()}
    wanted = sorted(range(len(pairs)), key=lambda n: ranks.get(pairs[n][0], ranks["…"]))
    if wanted == list(range(len(pairs))):
        return text
    column = column_of(node)
    starts = [line_start(text, start(key)) for _, key, _ in pairs]
    prefix = text[starts[0] : start(pairs[0][1])]
    if len(set(starts)) < len(starts) or any(text[at : at + column].strip() for at in starts[1:]):
        return text
    # A chunk is an entry with the comments above it; text between chunks stays in place.
    stops = [line_end(text, end(text, value)) for _, _, value in pairs]
    firsts = [starts[0], *(_with_comments(text, starts[n], stops[n - 1], column) for n in range(1, len(pairs)))]
    if any(firsts[n] < stops[n - 1] for n in range(1, len(pairs))):
        return text
    if not text.endswith("\n") and stops[-1] == len(text):
        return text
    chunks = [text[first:stop] for first, stop in zip(firsts, stops, strict=True)]
    chunks[0] = " " * column + chunks[0][len(prefix) :]
    gaps = [text[stop:first] for stop, first in zip(stops, [*firsts[1:], stops[-1]], strict=True)]
    made = [chunks[n] for n in wanted]
    head, made[0] = _split(made[0], column)
    dash = _room(prefix) if prefix.strip() else column
    above = "".join(" " * dash + line.lstrip(" ") + "\n" for line in head)
    made[0] = above + prefix + made[0][column:]
    return text[: starts[0]] + "".join(chunk + gap for chunk, gap in zip(made, gaps, strict=True)) + text[stops[-1] :]


def _with_comments(text: str, at: int, least: int, column: int) -> int:
    """Return the start of the comments directly above a line, in its column."""
    while at > least:
        before = line_start(text, at - 1)
        line = text[before : at - 1]
        if before < least or not line.lstrip(" ").startswith("#") or _room(line) != column:
            break
        at = before
    return at


def _split(chunk: str, column: int) -> tuple[list[str], str]:
    """The comments above an entry, and the entry."""
    lines = chunk.split("\n")
    count = 0
    while lines[count].lstrip(" ").startswith("#") and _room(lines[count]) == column:
        count += 1
    return lines[:count], "\n".join(lines[count:])


# ── fmt ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

#: The most passes; each pass reorders one map.
_ROUNDS = 10_000


def formatted(text: str) -> str:
    """The text in the form that all playbooks share. Files of tests are indented, and keep their order of keys."""
    made = _tidied(text)
    made = _passed(made, indented)
    root = compose(made)
    if root is not None and is_list(entry(root, "workflow")):
        for _ in range(_ROUNDS):
            next_one = _passed(made, ordered)
            if next_one == made:
                break
            made = next_one
        made = _passed(made, spaced)
    return _tidied(made)


def _passed(text: str, change: Callable[[str, Any], str]) -> str:
    """The text after a change; the text itself if the change would alter its meaning."""
    root = compose(text)
    made = text if root is None else change(text, root)
    return made if made != text and _same(text, made) and _comments(text) == _comments(made) else text


def _tidied(text: str) -> str:
    """Line feeds, no white space at line ends, at most one empty line in a row, one line feed at the end."""
    root = compose(text)
    if root is None:
        return text
    kept = _lines_of_texts(root)
    lines: list[str] = []
    source = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    for number, line in enumerate(source, 1):
        if number in kept:
            lines.append(line)
            continue
        bare = re.sub(r"(?<=\S)[ \t]+$", "", line) if line.strip() else ""
        if bare or not lines or lines[-1]:
            lines.append(bare)
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    result = "\n".join(lines) + "\n"
    return result if _same(text, result) else text


def _lines_of_texts(root: yaml.Node) -> set[int]:
    """Lines of multi-line texts, whose white space may be part of the value."""
    lines: set[int] = set()
    for _, node in scalars(root):
        first, last = line_of(node), int(node.end_mark.line)
        if node.style in ("|", ">"):
            lines.update(range(first + 1, last + 1))
        elif last + 1 > first:
            lines.update(range(first, last + 2))
    return lines


def _comments(text: str) -> list[str]:
    """Return the lines with comments, or with texts that look like comments, in no order, since they move with their
    keys. The dash of a list belongs to the key that comes first.
    """
    return sorted(re.sub(r"^(?:- +)+", "", line.strip()) for line in text.split("\n") if "#" in line)


def _same(text: str, other: str) -> bool:
    try:
        return bool(load(text, "a").value == load(other, "b").value)
    except PlaybookError:
        return False
