"""A loaded playbook file: its values, and where each key and value stands in the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from arclog.model.data.patterns import pattern
from arclog.model.errors import Position

# Where the characters of a YAML text stand in its file.
#
# Quotes, escapes, folded lines and indentation change the white space of a text and how its characters are written, never
# the order of those that are no white space: the n-th of the value is the n-th of the file.


#: Lines of one text that are looked at.
_MOST_LINES = 10_000
#: Digits behind the letter of an escape.
_DIGITS = {"x": 2, "u": 4, "U": 8}
#: Escapes that stand for white space.
_WHITE = frozenset(" \ttnvfrN_LP")


class Places:
    """The places of one text's characters; `line` gives a line of the file by its number."""

    def __init__(self, text: str, line: Callable[[int], str], at: Position) -> None:
        self._text = text
        self._at = at
        self._written = _written(line, at)
        #: as far as it was looked
        self._known: list[Position] = []
        self._counted = (0, 0)

    def at(self, offset: int) -> Position:
        """The place of a character of the text that is not white space; where it cannot be told, the text's own."""
        start, number = self._counted if self._counted[0] <= offset else (0, 0)
        number += sum(not char.isspace() for char in self._text[start:offset])
        self._counted = offset, number
        self._known += islice(self._written, max(0, number + 1 - len(self._known)))
        return self._known[number] if number < len(self._known) else self._at


def _written(line_of: Callable[[int], str], at: Position) -> Iterator[Position]:
    """The place of each character that is not white space, of a text that begins at a place."""
    column = at.column - 1
    opener = line_of(at.line)[column : column + 1]
    if opener in ("", "*", "&", "!"):
        return
    quote = opener if opener in ("'", '"') else ""
    first, column = (1, 0) if opener in ("|", ">") else (0, column + len(quote))
    for row in range(at.line + first, at.line + _MOST_LINES):
        line = line_of(row)
        while column < len(line):
            char, width, white = line[column], 1, line[column].isspace()
            if quote and char == quote:
                if quote == '"' or line[column + 1 : column + 2] != "'":
                    return
                width = 2
            elif quote == '"' and char == "\\":
                escape = line[column + 1 : column + 2]
                width = 2 + _DIGITS.get(escape, 0)
                white = not escape or escape in _WHITE
                if escape in _DIGITS:
                    white = _coded(line[column + 2 : column + width]).isspace()
            if not white:
                yield Position(row, column + 1)
            column += width
        column = 0


def _coded(digits: str) -> str:
    try:
        return chr(int(digits, 16))
    except (ValueError, OverflowError):
        return "?"


#: Where a value stands in the document: map keys and list indexes from the root.
Path = tuple[str | int, ...]

#: The line breaks that libyaml counts.
_BREAK = pattern("\r\n|[\r\n\x85\u2028\u2029]")


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


def as_map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_text(value: Any, default: str = "") -> str:
    return value if isinstance(value, str) else default


def above_zero(value: Any) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return float(value)
    return None


def whole(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default


def priority_of(spec: dict[str, Any]) -> int | None:
    value = spec.get("priority")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def dig(value: Any, *keys: str) -> Any:
    for key in keys:
        value = as_map(value).get(key)
    return value


def size(value: Any, most: int) -> int:
    """How many values a value holds; counting ends soon after `most`."""
    count = 0
    waiting = [value]
    while waiting and count <= most:
        part = waiting.pop()
        count += 1
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return count
