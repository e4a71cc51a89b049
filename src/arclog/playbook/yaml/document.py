"""A loaded playbook file: its values, and where each key and value stands in the text."""

from __future__ import annotations

import re
from typing import Any

from arclog.model.errors import Position
from arclog.playbook.yaml.scalars import Places

#: Where a value stands in the document: map keys and list indexes from the root.
Path = tuple[str | int, ...]

#: The line breaks that libyaml counts.
_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")


class Document:
    """A loaded playbook file: its value, its text, and where everything stands."""

    __slots__ = ("_lines", "_marks", "file", "source", "value")

    def __init__(self, value: Any, marks: Any, source: str, file: str) -> None:
        self.value = value
        self.source = source
        self.file = file
        self._marks = marks
        self._lines: list[str] | None = None

    def at(self, path: Path) -> Position:
        """Where the value at a path begins; for a path that is not there, its nearest ancestor."""
        mark = self._marks
        for part in path:
            below = _below(mark, part)
            if below is None:
                break
            mark = below
        return Position(mark[0], mark[1])

    def path_at(self, at: Position) -> Path | None:
        """The path of the map that begins at a place; None when none does."""
        pending: list[tuple[Path, Any]] = [((), self._marks)]
        while pending:
            path, mark = pending.pop()
            if len(mark) == 4:
                if (mark[0], mark[1]) == (at.line, at.column):
                    return path
                pending += [((*path, key), below) for key, below in mark[3].items()]
            elif len(mark) == 3:
                pending += [((*path, index), below) for index, below in enumerate(mark[2])]
        return None

    def key_at(self, path: Path) -> Position:
        """Where the key that holds the value at a path stands; a list item's own place."""
        if not path:
            return self.at(path)
        mark = self._marks
        for part in path[:-1]:
            below = _below(mark, part)
            if below is None:
                return Position(mark[0], mark[1])
            mark = below
        if len(mark) == 4 and path[-1] in mark[2]:
            line, column = mark[2][path[-1]]
            return Position(line, column)
        return self.at(path)

    def text_at(self, path: Path) -> Position:
        """Where the first character of a text value stands: behind its quote, or in the line below its `|`."""
        at = self.at(path)
        opener = self.line(at.line)[at.column - 1 : at.column]
        if opener in ("'", '"'):
            return Position(at.line, at.column + 1)
        if opener in ("|", ">"):
            for number in range(at.line + 1, len(self._lines or ()) + 1):
                if self.line(number).strip():
                    return self.first_of(number)
        return at

    def line(self, number: int) -> str:
        """A line of the file, counted from 1."""
        if self._lines is None:
            self._lines = lines_of(self.source)
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""

    def first_of(self, number: int) -> Position:
        """Where the text of a line begins."""
        text = self.line(number)
        return Position(number, len(text) - len(text.lstrip()) + 1)

    def places(self, path: Path, text: str) -> Places:
        """Where the characters of the text that is the value at a path stand."""
        return Places(text, self.line, self.at(path))


def lines_of(source: str) -> list[str]:
    """The lines of a playbook as its positions count them."""
    return _BREAK.split(source)


def _below(mark: Any, part: str | int) -> Any:
    if len(mark) == 4:
        return mark[3].get(part)
    if len(mark) == 3 and isinstance(part, int) and 0 <= part < len(mark[2]):
        return mark[2][part]
    return None
