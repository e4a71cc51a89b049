"""Filters and tests with regular expressions, in linear time (`model.data.regex`), with counted work."""

from __future__ import annotations

from typing import Any

from arclog.expr.budget import SLOT, TEXT, Budget, Failure, char_bytes, text_size
from arclog.expr.convert import text
from arclog.expr.filters.text import read, whole
from arclog.model.data.regex import Match, Regex, RegexError, compiled

#: bytes of a match, without its texts
_MATCH = 320


def _expression(budget: Budget, pattern: Any) -> Regex:
    budget.charge(1)
    try:
        return compiled(text(budget, pattern))
    except RegexError as problem:
        raise Failure(str(problem)) from None


def _charge(budget: Budget) -> Any:
    """Return a function that counts the steps of a match: each takes as long as several operations of a template."""
    return lambda steps: budget.charge(4 * steps)


def regex_search(budget: Budget, value: Any, pattern: Any, group: Any = None) -> Any:
    source, regex = read(budget, value), _expression(budget, pattern)
    match = regex.search(source, 0, _charge(budget))
    if match is None:
        return None
    return source[match.start : match.end] if group is None else _group(regex, match, source, group)


def _group(regex: Regex, match: Match, source: str, group: Any) -> str | None:
    number = regex.names.get(group, -1) if isinstance(group, str) else whole(group, "group")
    if not 0 <= number <= regex.groups:
        raise Failure(f"the expression has no group {str(group)[:60]!r}")
    return match.groups[number - 1] if number else source[match.start : match.end]


def _all(budget: Budget, regex: Regex, source: str, most: int) -> list[Match]:
    matches: list[Match] = []
    charge = _charge(budget)
    place = 0
    while place <= len(source) and (not most or len(matches) < most):
        match = regex.search(source, place, charge)
        if match is None:
            break
        budget.charge(1)
        budget.room(_MATCH + (TEXT + SLOT) * regex.groups + 2 * (match.end - match.start) * char_bytes(source))
        matches.append(match)
        place = match.end if match.end > match.start else match.end + 1
    return matches


def regex_findall(budget: Budget, value: Any, pattern: Any) -> list[Any]:
    source, regex = read(budget, value), _expression(budget, pattern)
    matches = _all(budget, regex, source, 0)
    if regex.groups == 0:
        return [source[match.start : match.end] for match in matches]
    return [
        (match.groups[0] or "") if regex.groups == 1 else [group or "" for group in match.groups] for match in matches
    ]


def regex_replace(budget: Budget, value: Any, pattern: Any, replacement: Any = "", count: Any = 0) -> str:
    source, regex = read(budget, value), _expression(budget, pattern)
    parts = _parts(text(budget, replacement), regex)
    made: list[str] = []
    place = 0
    for match in _all(budget, regex, source, whole(count, "count")):
        put = "".join(part if isinstance(part, str) else _group(regex, match, source, part) or "" for part in parts)
        made += [source[place : match.start], put]
        # In parts, and as a whole.
        budget.room(2 * text_size(put))
        place = match.end
    return "".join([*made, source[place:]])


def _parts(replacement: str, regex: Regex) -> list[str | int]:
    r"""Split a replacement into texts and numbers of groups (`\1`, `\g<name>`)."""
    parts: list[str | int] = []
    place = 0
    while (mark := replacement.find("\\", place)) >= 0:
        parts.append(replacement[place:mark])
        following = replacement[mark + 1 : mark + 2]
        if following.isdecimal():
            parts.append(int(following))
            place = mark + 2
        elif following == "g" and (end := replacement.find(">", mark)) > 0 and replacement[mark + 2 : mark + 3] == "<":
            name = replacement[mark + 3 : end]
            parts.append(int(name) if name.isdecimal() and len(name) < 5 else regex.names.get(name, -1))
            place = end + 1
        else:
            parts.append(following or "\\")
            place = mark + 2
    return [*parts, replacement[place:]]


def matches(budget: Budget, value: Any, pattern: Any) -> bool:
    return isinstance(value, str) and _expression(budget, pattern).match(value, _charge(budget)) is not None


def searches(budget: Budget, value: Any, pattern: Any) -> bool:
    return isinstance(value, str) and _expression(budget, pattern).search(value, 0, _charge(budget)) is not None
