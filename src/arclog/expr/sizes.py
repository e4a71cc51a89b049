"""How many bytes values take: in memory, and written out. Estimates from above, made before anything is copied.

Python keeps a text with 1, 2 or 4 bytes for each character, whichever the widest of them needs.
"""

from __future__ import annotations

from sys import getsizeof

#: a list, a map, a short text or a number, beside what stands in them
LIST, MAP, TEXT, NUMBER = 64, 240, 64, 32
#: a place in a list; a place and a number; an entry of a map with a number
SLOT, ITEM, ENTRY = 8, 40, 104
#: a missing value
UNDEFINED = 256

#: Shorter texts are not looked through for what their spelling adds.
_SHORT = 64


def width(text: str) -> int:
    """Bytes that each character takes."""
    if text.isascii():
        return 1
    # Beyond a header of 72 bytes only characters, and at times the text in UTF-8 a second time.
    return min(4, (getsizeof(text) - 72) // (len(text) + 1)) or 1


def text_size(text: str) -> int:
    """Bytes of a text in memory."""
    return TEXT + len(text) * width(text)


def list_size(count: int) -> int:
    """Bytes of a new list whose items exist."""
    return LIST + SLOT * count


def utf8_size(text: str) -> int:
    """Bytes in JSON as events are written: UTF-8, and controls escaped."""
    size = len(text)
    if size <= _SHORT:
        return size + 2 if text.isascii() and text.isprintable() else 6 * size + 2
    if not text.isascii():
        size *= min(width(text) + 1, 4)
    return 2 + size + _escapes(text, 5)


def json_size(text: str) -> int:
    """Characters in JSON as `tojson` writes it: whatever is not ASCII is escaped."""
    size = len(text)
    if size <= _SHORT:
        return 2 * size + 2 if text.isascii() and text.isprintable() else 12 * size + 2
    if not text.isascii():
        size += (5 if width(text) < 4 else 11) * (size - len(text.encode("ascii", "ignore")))
    return 2 + size + _escapes(text, 5)


def repr_size(text: str) -> int:
    """Characters as Python prints it inside a list."""
    size = len(text)
    if size <= _SHORT:
        return 2 * size + 2 if text.isprintable() else 10 * size + 2
    if not text.isascii() and not text.isprintable():
        size *= 10
    return 2 + size + _escapes(text, 3)


def _escapes(text: str, each: int) -> int:
    """Characters that backslashes, quotes and controls add; `each` for a control without a short form."""
    found = text.count("\\") + text.count('"') + text.count("'")
    if text.isascii() and not text.isprintable():
        short = text.count("\n") + text.count("\t") + text.count("\r")
        plain = text.replace("\n", "").replace("\t", "").replace("\r", "") if short else text
        found += short if plain.isprintable() else each * len(text)
    elif not text.isascii() and not text.isprintable():
        found += each * sum(map(text.count, _CONTROLS))
    return found


_CONTROLS = tuple(map(chr, (*range(32), 127)))
