"""Items of a list as lines of JSON, and back.

Only plain JSON data is accepted: values that an encoder would silently change (NaN, bytes, times, sets) are refused
with their location.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from arclog.model.errors import InvariantBroken, ResultUnavailable

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder()
#: Number of items that are encoded in one call.
_AT_A_TIME = 128
_PLAIN: frozenset[type] = frozenset({str, int, bool, type(None)})
_TEXT: frozenset[type] = frozenset({str})


def encoded(items: Sequence[Any], first: int, at_least: int) -> list[tuple[bytes, int]]:
    """Encode items as lines, in blocks of whole items with at least `at_least` bytes, except the last: (bytes, items).

    `first` is the index of the first item in its list.
    """
    runs: list[tuple[bytes, int]] = []
    held: list[bytes] = []
    size = rows = 0
    for at in range(0, len(items), _AT_A_TIME):
        some = items[at : at + _AT_A_TIME]
        text = _lines(some, first + at)
        held.append(text)
        size += len(text)
        rows += len(some)
        if size >= at_least:
            runs += _cut(b"".join(held), rows, at_least)
            held, size, rows = [], 0, 0
    if held:
        runs.append((b"".join(held), rows))
    return runs


def _cut(text: bytes, rows: int, at_least: int) -> Iterator[tuple[bytes, int]]:
    """Split lines into blocks. JSON has no line break inside a value, so every line break ends an item."""
    start = 0
    while len(text) - start >= 2 * at_least:
        stop = text.index(b"\n", start + at_least - 1) + 1
        part = text[start:stop]
        count = part.count(b"\n")
        yield part, count
        start, rows = stop, rows - count
    if start < len(text):
        yield text[start:], rows


def decoded(lines: Sequence[bytes]) -> list[Any]:
    """Return the values of some lines."""
    values: list[Any] = msgspec.json.decode(b"[" + b",".join(lines) + b"]")
    return values


def preview(beginning: bytes, most: int) -> str:
    """Return the beginning of some content as text of at most `most` bytes, without an incomplete last character."""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(beginning[:most])
    return text.encode()[:most].decode("utf-8", "ignore")


def _lines(items: Sequence[Any], first: int) -> bytes:
    some = list(items)
    try:
        text = _ENCODER.encode_lines(some)
        # Values that survive a round trip are JSON: encoding and decoding in C is faster than checking each value.
        # Tuples come back as lists.
        if _DECODER.decode_lines(text) == some or all(map(_is_plain, some)):
            return text
    except (RecursionError, UnicodeEncodeError, OverflowError, TypeError, ValueError):
        pass
    for number, item in enumerate(items, first):
        _check(item, number)
    raise InvariantBroken(f"items {first} to {first + len(items)} can be stored one by one and not together")


def _check(item: Any, number: int) -> None:
    """Raise the error of an item that is not JSON."""
    try:
        for path, problem in _misfits(item):
            raise _refused(number, path, problem)
        _ENCODER.encode(item)
    except UnicodeEncodeError:
        raise _refused(number, "", "contains a lone surrogate, which UTF-8 cannot encode") from None
    except RecursionError:
        raise _refused(number, "", "is nested too deep") from None
    except (OverflowError, TypeError, ValueError) as problem:
        raise _refused(number, "", f"is not JSON ({problem})") from None


def _refused(number: int, path: str, problem: str) -> ResultUnavailable:
    where = f" at {path}" if path else ""
    return ResultUnavailable(
        f"item {number} of the list{where} {problem}; nothing of it was stored: make the items plain JSON data first"
    )


def _is_plain(value: Any) -> bool:
    """Return whether a value is JSON. Tuples of scalars are accepted as rows, with a single pass."""
    kind = type(value)
    if kind is dict:
        if not _TEXT.issuperset(map(type, value)):
            return False
        value = value.values()
    elif kind is not list and kind is not tuple:
        return kind in _PLAIN or (kind is float and value - value == 0)
    if _PLAIN.issuperset(map(type, value)):
        return True
    for inner in value:
        kind = type(inner)
        if kind in _PLAIN:
            continue
        if kind is float:
            if inner - inner != 0:  # only true for NaN and the infinities
                return False
        elif not _is_plain(inner):
            return False
    return True


def _misfits(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Return the problems of a value that is not JSON, with their locations."""
    kind = type(value)
    if _is_plain(value):
        return
    if kind is dict:
        for key, inner in value.items():
            if type(key) is not str:
                yield path, f"has the key {key!r:.80}, a {type(key).__name__} and no text"
            yield from _misfits(inner, f"{path}.{key}" if path else str(key))
    elif kind is list or kind is tuple:
        for index, inner in enumerate(value):
            yield from _misfits(inner, f"{path}[{index}]")
    elif kind is float:
        yield path, f"is {value}, which JSON does not have"
    else:
        yield path, f"is a {kind.__name__}, which JSON does not have"
