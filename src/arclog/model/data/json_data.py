"""JSON data: how deep it is nested, what it takes in memory, and how maps are merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# How deep data from outside may be nested: what is written must be read again from any depth of calls.


#: Levels of a workload or of a signal's data; a task's result may have as many.
DEEPEST_INPUT = 200


def nested_deeper(value: Any, levels: int) -> bool:
    """Whether JSON data has more levels of lists and maps; walks level by level, so that depth costs no stack."""
    level = [value]
    while level := [nested for nested in level if isinstance(nested, dict | list)]:
        if levels == 0:
            return True
        levels -= 1
        level = [part for nested in level for part in (nested.values() if isinstance(nested, dict) else nested)]
    return False


# What JSON takes once it is decoded, worked out from its text before anything is decoded.


#: Bytes of one value as an object, with its place in a list or map.
VALUE_BYTES = 64


def values_size(text: bytes) -> int:
    """Bytes that the values of a text of JSON take as objects, beside their characters."""
    return VALUE_BYTES * (len(text) - len(text.translate(None, b",[{")))


def decoded_size(text: bytes) -> int:
    """Bytes that a text of JSON takes in memory, estimated from above: brackets and commas inside of texts count, too."""
    return len(text) + values_size(text)


class ValueCount:
    """Counts the values of JSON that comes in pieces; what stands inside of texts is none."""

    __slots__ = ("_in_text", "_left", "values")

    def __init__(self) -> None:
        self.values = 0
        self._in_text = False
        #: a backslash at the end of the last piece: what it escapes has not come yet
        self._left = b""

    def add(self, piece: bytes) -> int:
        """Count the values of a piece; how many there are by now."""
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
    """How many values a text of JSON has. It is looked at in pieces: between them other threads go on."""
    count = ValueCount()
    for start in range(0, len(text), at_once):
        count.add(text[start : start + at_once])
    return count.values


# How layers are laid over each other, everywhere: scalars inner wins, maps merge deeply, lists replace.


def deep_merge(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> dict[str, Any]:
    """`inner` laid over `outer`; neither is changed."""
    merged = dict(outer)
    for key, value in inner.items():
        below = merged.get(key)
        merged[key] = deep_merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
