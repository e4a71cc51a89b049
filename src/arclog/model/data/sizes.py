"""What JSON takes once it is decoded, worked out from its text: an estimate from above, before anything is decoded."""

from __future__ import annotations

#: Bytes of one value as an object, with its place in a list or map.
VALUE_BYTES = 64


def values_size(text: bytes) -> int:
    """Bytes that the values of a text of JSON take as objects, beside their characters."""
    return VALUE_BYTES * (text.count(b",") + text.count(b"[") + text.count(b"{"))


def decoded_size(text: bytes) -> int:
    """Bytes that a text of JSON takes in memory."""
    return len(text) + values_size(text)
