"""Filters of text, as Jinja documents them, with limits.

Every filter takes the budget and a value that `convert.admit` accepted. Strings stay strings: nothing is escaped
automatically, so `safe` changes nothing and `escape` escapes each time.
"""

from __future__ import annotations

import re
from typing import Any

from arclog.expr.budget import LIST, SLOT, TEXT, Budget, Failure, char_bytes, text_size
from arclog.expr.compiler.operators import joint_width, search_cost
from arclog.expr.convert import text
from arclog.expr.values import kind_of

_WORD_START = re.compile(r"([-\s({\[<]+)")
_WORD = re.compile(r"\w+")
_BAD_ATTRIBUTE_KEY = re.compile(r"[\s/>=]", flags=re.ASCII)
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_MAX_DIGITS = 400


def read(budget: Budget, value: Any, growth: int = 1) -> str:
    """Return `value` as text whose filtered form may take `growth` times as many bytes."""
    source = text(budget, value)
    budget.room(TEXT + growth * len(source) * char_bytes(source))
    budget.charge(growth * len(source) >> 7)
    return source


def cased(budget: Budget, value: Any) -> str:
    """Return `value` as text whose case is to change: one letter may become three, or need wider characters."""
    source = text(budget, value)
    budget.room(TEXT + len(source) * (1 if source.isascii() else 3 * max(char_bytes(source), 2)))
    budget.charge(len(source) >> 6)
    return source


def whole(value: Any, argument: str) -> int:
    """Return an argument that must be an integer."""
    if isinstance(value, int):
        return int(value)
    raise Failure(f"{argument} must be a whole number, not a {kind_of(value)}")


def split_lines(budget: Budget, source: str, *, keep_ends: bool = False) -> list[str]:
    """Return the lines of a text."""
    budget.charge(1 + (len(source) >> 7))
    count = sum(map(source.count, _LINE_ENDS)) + 1
    budget.charge(count >> 3)
    budget.room(text_size(source) + LIST + (SLOT + TEXT + 16) * count)
    return source.splitlines(keep_ends)


def string(budget: Budget, value: Any) -> str:  # documented by Jinja, as all below
    return text(budget, value)


def safe(budget: Budget, value: Any) -> str:
    return text(budget, value)


def upper(budget: Budget, value: Any) -> str:
    return cased(budget, value).upper()


def lower(budget: Budget, value: Any) -> str:
    return cased(budget, value).lower()


def capitalize(budget: Budget, value: Any) -> str:
    return cased(budget, value).capitalize()


def title(budget: Budget, value: Any) -> str:
    source = cased(budget, value)
    width = char_bytes(source)
    words: list[str] = []
    at = 0
    for gap in _WORD_START.finditer(source):
        # The word, the gap after it, and both again in another case.
        budget.room(4 * (SLOT + TEXT) + 2 * width * (gap.end() - at))
        words += (source[at : gap.start()], gap[0])
        at = gap.end()
    budget.room(4 * width * (len(source) - at))
    words.append(source[at:])
    return "".join([word[0].upper() + word[1:].lower() for word in words if word])


def trim(budget: Budget, value: Any, chars: Any = None) -> str:
    source = read(budget, value)
    if chars is None:
        return source.strip()
    budget.charge(search_cost(source, text(budget, chars), backwards=True))
    return source.strip(text(budget, chars))


def replaced(budget: Budget, source: str, old: str, new: str, count: int = -1) -> str:
    """Replace, after computing the length of the result."""
    budget.charge(search_cost(source, old))
    occurrences = source.count(old)
    if count >= 0:
        occurrences = min(occurrences, count)
    budget.room(TEXT + (len(source) + occurrences * max(len(new) - len(old), 0)) * joint_width(source, new))
    return source.replace(old, new, count)


def replace(budget: Budget, value: Any, old: Any, new: Any, count: Any = None) -> str:
    limit = -1 if count is None else whole(count, "count")
    return replaced(budget, text(budget, value), text(budget, old), text(budget, new), limit)


def center(budget: Budget, value: Any, width: Any = 80) -> str:
    source = text(budget, value)
    budget.room(TEXT + max(whole(width, "width"), len(source)) * char_bytes(source))
    return source.center(width)


def indent(budget: Budget, value: Any, width: Any = 4, first: Any = False, blank: Any = False) -> str:
    if not isinstance(width, str):
        budget.room(max(whole(width, "width"), 0))
        width = " " * width
    source = read(budget, value)
    count = source.count("\n") + 1
    lines = split_lines(budget, source + "\n")
    # The lines with their indents, the list of them, and the whole.
    joint = joint_width(source, width)
    budget.room(LIST + (SLOT + TEXT) * count + 3 * joint * (len(source) + len(width) * (count + 1)))
    head, tail = lines[0], lines[1:]
    indented = "\n".join([head, *(width + line if line or blank else line for line in tail)])
    return width + indented if first else indented


def truncate(
    budget: Budget,
    value: Any,
    length: Any = 255,
    killwords: Any = False,
    end: Any = "...",
    leeway: Any = None,
) -> str:
    source, tail = read(budget, value), text(budget, end)
    slack = 5 if leeway is None else whole(leeway, "leeway")
    if whole(length, "length") < len(tail) or slack < 0:
        raise Failure(f"truncate needs a length of at least {len(tail)} and no negative leeway")
    if len(source) <= length + slack:
        return source
    budget.room(TEXT + len(source) + len(tail) * joint_width(source, tail))
    cut = source[: length - len(tail)]
    return (cut if killwords else cut.rsplit(" ", 1)[0]) + tail


def wordcount(budget: Budget, value: Any) -> int:
    source = read(budget, value)
    count = 0
    for _ in _WORD.finditer(source):
        count += 1
        budget.charge(1)
    return count


def wordwrap(
    budget: Budget,
    value: Any,
    width: Any = 79,
    break_long_words: Any = True,
    wrapstring: Any = None,
    break_on_hyphens: Any = True,
) -> str:
    from textwrap import wrap  # rarely used, slow to import

    if whole(width, "width") < 1:
        raise Failure("width must be at least 1")
    joint = "\n" if wrapstring is None else text(budget, wrapstring)
    wrapped: list[str] = []
    for line in split_lines(budget, read(budget, value)):
        # textwrap's patterns are quadratic on lines made of hyphens or single long words
        budget.charge(20 + len(line) + (len(line) * len(line) >> 10))
        # It splits a line into chunks, and joins them to lines.
        budget.room(LIST + (SLOT + TEXT) * 3 * len(line) + 2 * text_size(line))
        parts = wrap(
            line,
            width=width,
            expand_tabs=False,
            replace_whitespace=False,
            break_long_words=bool(break_long_words),
            break_on_hyphens=bool(break_on_hyphens),
        )
        wrapped.extend(parts or [""])
    wide = max(map(char_bytes, wrapped), default=1)
    budget.room(TEXT + (sum(map(len, wrapped)) + len(joint) * len(wrapped)) * max(wide, char_bytes(joint)))
    return joint.join(wrapped)


def escape(budget: Budget, value: Any) -> str:
    source = read(budget, value, 10)
    for char, entity in (("&", "&amp;"), (">", "&gt;"), ("<", "&lt;"), ("'", "&#39;"), ('"', "&#34;")):
        source = source.replace(char, entity)
    return source


def striptags(budget: Budget, value: Any) -> str:
    from html import unescape  # rarely used, its table of entities is long

    source = read(budget, value)
    bare = _without(budget, _without(budget, source, "<!--", "-->"), "<", ">")
    budget.charge(len(bare) >> 3)
    budget.room((SLOT + TEXT) * (len(bare) // 2 + 1) + 4 * text_size(bare))
    # An entity may stand for a wider character than those around it.
    if "&" in bare:
        budget.room(4 * len(bare))
    return unescape(" ".join(bare.split()))


def _without(budget: Budget, source: str, start: str, end: str) -> str:
    # One pass; markupsafe's loop copies the rest for each tag.
    kept: list[str] = []
    at = 0
    while (begin := source.find(start, at)) != -1 and (close := source.find(end, begin)) != -1:
        budget.room(TEXT + SLOT + (begin - at) * 4)
        kept.append(source[at:begin])
        at = close + len(end)
    kept.append(source[at:])
    budget.room(text_size(source))
    return "".join(kept)


def xmlattr(budget: Budget, value: Any, autospace: Any = True) -> str:
    if not isinstance(value, dict):
        raise Failure(f"xmlattr takes a map, not a {kind_of(value)}")
    pairs: list[str] = []
    for key, part in value.items():
        if part is None:
            continue
        if _BAD_ATTRIBUTE_KEY.search(text(budget, key)):
            raise Failure("xmlattr: a key contains a space, '/', '>' or '='")
        name, content = escape(budget, key), escape(budget, part)
        budget.room(TEXT + SLOT + (len(name) + len(content)) * joint_width(name, content))
        pairs.append(f'{name}="{content}"')
    budget.room(TEXT + 2 * (sum(map(len, pairs)) + len(pairs)) * max(map(char_bytes, pairs), default=1))
    joined = " ".join(pairs)
    return " " + joined if autospace and joined else joined


def filesizeformat(_: Budget, value: Any, binary: Any = False) -> str:
    try:
        size = float(value[:_MAX_DIGITS] if isinstance(value, str) else value)
    except (TypeError, ValueError):
        raise Failure(f"a {kind_of(value)} is not a size in bytes") from None
    base = 1024 if binary else 1000
    if size == 1:
        return "1 Byte"
    if size < base:
        return f"{int(size)} Bytes"
    power = 2
    while size >= base**power and power < 9:  # yotta is the last prefix
        power += 1
    prefix = "KMGTPEZY"[power - 2] if binary else "kMGTPEZY"[power - 2]
    return f"{base * size / base**power:.1f} {prefix}{'iB' if binary else 'B'}"
