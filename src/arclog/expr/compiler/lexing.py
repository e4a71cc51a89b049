"""A short way to the tokens of plain expressions, which most templates are: what Jinja's lexer gives, in one pass.

Law: it answers with exactly the tokens of Jinja's lexer, or with None; whatever is not plain (another line, an escape,
a float, a letter beyond ASCII, brackets that do not match) is left to that lexer, and so is every message.
"""

from __future__ import annotations

import re
from typing import Any

_PLAIN = re.compile(
    r"[ \t]*(?:([A-Za-z_][A-Za-z0-9_]*)|(0|[1-9][0-9]*)(?![\w.])|'([^'\\]*)'|\"([^\"\\]*)\""
    r"|(//|\*\*|==|!=|>=|<=|[-+/*%~\[\](){}<>=.:|,])|$)"
)
_NAME, _INTEGER, _OPERATOR = 1, 2, 5
_CLOSES = {")": "(", "]": "[", "}": "{"}
#: Longer ones are rare, and their cost is elsewhere.
_LONGEST = 512


def lone(source: str) -> str | None:
    """The inside of a text that is one `{{ expression }}` on one line and nothing else, if that is easily told."""
    text = source.strip()
    if len(text) > _LONGEST or not text.startswith("{{") or not text.endswith("}}") or "\n" in source:
        return None
    inside = text[2:-2]
    if not inside or inside[0] in "-+" or inside[-1] in "-+":  # these take the white space around away
        return None
    if "}}" in inside or "{{" in inside or "{%" in inside or "{#" in inside:
        return None
    return inside


def plain_tokens(source: str, operators: dict[str, str], token: Any) -> list[Any] | None:
    """The tokens of a plain expression. `operators` and `token` are Jinja's own."""
    if len(source) > _LONGEST or not source.isascii() or "\n" in source or "\r" in source:
        return None
    found: list[Any] = []
    open_brackets: list[str] = []
    at, end, match = 0, len(source), _PLAIN.match
    while at < end:
        part = match(source, at)
        if part is None:
            return None
        at = part.end()
        group = part.lastindex
        if group is None:
            break
        value = part[group]
        if group == _NAME:
            found.append(token(1, "name", value))
        elif group == _OPERATOR:
            if value in "([{":
                open_brackets.append(value)
            elif value in _CLOSES and (not open_brackets or open_brackets.pop() != _CLOSES[value]):
                return None
            found.append(token(1, operators[value], value))
        elif group == _INTEGER:
            found.append(token(1, "integer", int(value)))
        else:
            found.append(token(1, "string", value))
    return None if open_brackets else found
