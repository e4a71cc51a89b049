"""Where the characters of a YAML text stand in its file.

Quotes, escapes, folded lines and indentation change the white space of a text and how its characters are written, never
the order of those that are no white space: the n-th of the value is the n-th of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from arclog.model.errors import Position

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
