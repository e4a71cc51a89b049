"""Puts the well-known keys of a playbook into the order of the reference, and one empty line between steps.

A key moves with its value and the comments above it. Maps that an author names freely (`workload`, `args`, `data` …) stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from arclog.authoring.spans import (
    column_of,
    end,
    entries,
    entry,
    is_flow,
    is_map,
    items,
    line_end,
    line_start,
    start,
)

#: Keys in their order; those of one entry in the author's. Others stand where `…` is, in their own order.
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
    """The text with the keys of a block map in order, if each has lines of its own."""
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
    # A chunk is an entry with the comments above it; what stands between chunks stays where it is.
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
    """Where the comments begin that stand right above a line, in its column."""
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
