"""A loaded playbook file: its values, and the location of each key and value in the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from arclog.model.data.lazy import pattern
from arclog.model.errors import Position

# The locations of the characters of a YAML text in its file.
#
# Quotes, escapes, folded lines and indentation change white space and the spelling of characters, but never the order
# of the other characters: the n-th non-white character of the value is the n-th of the file.


#: Maximum number of lines of one text that are searched.
_MOST_LINES = 10_000
#: Number of digits after the letter of an escape.
_DIGITS = {"x": 2, "u": 4, "U": 8}
#: Escapes for white space.
_WHITE = frozenset(" \ttnvfrN_LP")


class Places:
    """The locations of one text's characters; `line` returns a line of the file by its number."""

    def __init__(self, text: str, line: Callable[[int], str], at: Position) -> None:
        self._text = text
        self._at = at
        self._written = _written(line, at)
        #: locations that have been computed
        self._computed: list[Position] = []
        self._counted = (0, 0)

    def at(self, offset: int) -> Position:
        """Return the location of a character that is not white space, or that of the text if it is unknown."""
        start, number = self._counted if self._counted[0] <= offset else (0, 0)
        number += sum(not char.isspace() for char in self._text[start:offset])
        self._counted = offset, number
        self._computed += islice(self._written, max(0, number + 1 - len(self._computed)))
        return self._computed[number] if number < len(self._computed) else self._at


def _written(line_of: Callable[[int], str], at: Position) -> Iterator[Position]:
    """Iterate over the locations of the characters that are not white space, of a text that begins at a location."""
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


#: The path of a value in the document: map keys and list indexes from the root.
Path = tuple[str | int, ...]

#: The line breaks that libyaml counts.
_BREAK = pattern("\r\n|[\r\n\x85\u2028\u2029]")


class Document:
    """A loaded playbook file: its value, its text, and the locations of all parts."""

    __slots__ = ("_lines", "_marks", "file", "source", "value")

    def __init__(self, value: Any, marks: Any, source: str, file: str) -> None:
        self.value = value
        self.source = source
        self.file = file
        self._marks = marks
        self._lines: list[str] | None = None

    def at(self, path: Path) -> Position:
        """Return the location of the value at a path; for a path that does not exist, of its nearest ancestor."""
        mark = self._marks
        for part in path:
            below = _below(mark, part)
            if below is None:
                break
            mark = below
        return Position(mark[0], mark[1])

    def path_at(self, at: Position) -> Path | None:
        """Return the path of the map that begins at a location; None if there is none."""
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
        """Return the location of the key of the value at a path; for a list item, of the item."""
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
        """Return the location of the first character of a text value: after its quote, or in the line below its `|`."""
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
        """Return a line of the file, counted from 1."""
        if self._lines is None:
            self._lines = lines_of(self.source)
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""

    def first_of(self, number: int) -> Position:
        """Return the location of the first character of a line that is not white space."""
        text = self.line(number)
        return Position(number, len(text) - len(text.lstrip()) + 1)

    def places(self, path: Path, text: str) -> Places:
        """Return the locations of the characters of the text value at a path."""
        return Places(text, self.line, self.at(path))


def lines_of(source: str) -> list[str]:
    """Return the lines of a playbook as its positions count them."""
    return _BREAK.split(source)


def texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Iterate over the texts inside a value, each with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from texts(part, (*path, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from texts(part, (*path, index))


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
    """Return the number of values inside a value; counting stops soon after `most`."""
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
