"""JSON data: its nesting depth, its size in memory, and merging of maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Maximum nesting depth of data from outside: stored data must be readable at any depth of the call stack.


#: Maximum number of levels of a workload, of a signal's data, or of a task's result.
DEEPEST_INPUT = 200
_NESTED = (dict, list)


def nested_deeper(value: Any, levels: int) -> bool:
    """Return whether JSON data has more than this many levels of lists and maps, without recursion."""
    level = [value] if isinstance(value, _NESTED) else []
    while level:
        if levels == 0:
            return True
        levels -= 1
        level = [
            part
            for nested in level
            for part in (nested.values() if isinstance(nested, dict) else nested)
            if isinstance(part, _NESTED)
        ]
    return False


# The size of decoded JSON in memory, estimated from its text before it is decoded.


#: Bytes of one value as an object, including its slot in a list or map.
VALUE_BYTES = 64


def values_size(text: bytes) -> int:
    """Return the bytes that the values of a JSON text take as objects, without their characters."""
    return VALUE_BYTES * (len(text) - len(text.translate(None, b",[{")))


def decoded_size(text: bytes) -> int:
    """Return an upper estimate of a JSON text's bytes in memory: brackets and commas in strings count as well."""
    return len(text) + values_size(text)


class ValueCount:
    """Counts the values of JSON that arrives in pieces, ignoring the content of strings."""

    __slots__ = ("_in_text", "_left", "values")

    def __init__(self) -> None:
        self.values = 0
        self._in_text = False
        #: a backslash at the end of the last piece, whose escaped character has not arrived
        self._left = b""

    def add(self, piece: bytes) -> int:
        """Count the values of a piece. Returns the total so far."""
        piece = (self._left + piece).replace(b"\\\\", b"") if b"\\" in piece or self._left else piece
        self._left = b""
        if piece.endswith(b"\\"):
            piece, self._left = piece[:-1], b"\\"
        parts = piece.replace(b'\\"', b"").split(b'"')
        outside = b" ".join(parts[int(self._in_text) :: 2])
        if not len(parts) % 2:
            self._in_text = not self._in_text
        self.values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        return self.values


def value_count(text: bytes, at_once: int = 65_536) -> int:
    """Return the number of values of a JSON text.

    The text is processed in pieces, so that other threads can run in between.
    """
    count = ValueCount()
    for start in range(0, len(text), at_once):
        count.add(text[start : start + at_once])
    return count.values


# Merging of layers, everywhere: for scalars the inner wins, maps merge deeply, lists are replaced.


def deep_merge(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> dict[str, Any]:
    """Return `inner` merged over `outer`; neither is changed."""
    merged = dict(outer)
    for key, value in inner.items():
        below = merged.get(key)
        merged[key] = deep_merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
