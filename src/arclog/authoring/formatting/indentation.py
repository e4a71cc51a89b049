"""Indents blocks by two columns a level, lists below their key too. Texts and flows over several lines move along."""

from __future__ import annotations

from typing import Any, NamedTuple

from arclog.authoring.spans import column_of, entries, is_flow, is_list, is_map, items

_STEP = 2


class _Place(NamedTuple):
    """Where the first key or value of a line stood, where it stands, and what stands before it now."""

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
    """Say where the lines of a block begin. `prefix` stands before its first part: the dashes of lists that it is in."""
    if is_map(node) and not is_flow(node):
        for number, (_, key, value) in enumerate(entries(node)):
            line = int(key.start_mark.line)
            placed[line] = _Place(column_of(key), column, prefix if number == 0 and prefix else " " * column)
            if int(value.start_mark.line) > line:
                _place(value, column + _STEP, "", placed)
    elif is_list(node) and not is_flow(node):
        for number, item in enumerate(items(node)):
            before = (prefix if number == 0 and prefix else " " * column) + "- "
            if (is_map(item) or is_list(item)) and not is_flow(item):
                _place(item, column + _STEP, before, placed)
            else:
                placed[int(item.start_mark.line)] = _Place(column_of(item), column + _STEP, before)


def _inside(root: Any) -> set[int]:
    """Lines of texts and flows that began on a line before: a `#` there is no comment of its own."""
    found: set[int] = set()
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
            found.update(range(int(node.start_mark.line) + 1, int(node.end_mark.line) + 1 - own))
    return found


def _of_comment(number: int, rooms: list[int], placed: dict[int, _Place]) -> int:
    """The column of a comment: that of the next line which stood below it, else of the last line in its column."""

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
