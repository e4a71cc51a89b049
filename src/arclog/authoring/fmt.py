"""Formats a playbook: white space, indentation, the order of well-known keys. Values, comments and quotes stay.

Law: the formatted text loads to the same values and has the same comments, or the text comes back as it was; formatted again,
it stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from arclog.authoring.formatting.indentation import indented
from arclog.authoring.formatting.key_order import ordered, spaced
from arclog.authoring.spans import compose, entry, is_list, line_of, scalars
from arclog.model.errors import PlaybookError
from arclog.playbook.load import load

#: Each pass puts one map into order: more maps than a playbook has.
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
    """The text after a change; the text itself where that would mean something else."""
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
    """Lines of texts that go over several: their white space may be part of the value."""
    found: set[int] = set()
    for _, node in scalars(root):
        first, last = line_of(node), int(node.end_mark.line)
        if node.style in ("|", ">"):
            found.update(range(first + 1, last + 1))
        elif last + 1 > first:
            found.update(range(first, last + 2))
    return found


def _comments(text: str) -> list[str]:
    """The lines that hold comments, or texts that look like them; in no order, since they move with their keys. The dash of a
    list belongs to whichever key comes first.
    """
    return sorted(re.sub(r"^(?:- +)+", "", line.strip()) for line in text.split("\n") if "#" in line)


def _same(text: str, other: str) -> bool:
    try:
        return bool(load(text, "a").value == load(other, "b").value)
    except PlaybookError:
        return False
