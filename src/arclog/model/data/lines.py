"""Items of a list as lines of JSON, and back.

Only plain JSON data passes: what an encoder would quietly change (NaN, bytes, times, sets) is refused with its place.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from arclog.model.errors import InvariantBroken, ResultUnavailable

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder()
#: items that are encoded in one call
_AT_A_TIME = 128
_PLAIN: frozenset[type] = frozenset({str, int, bool, type(None)})
_TEXT: frozenset[type] = frozenset({str})


def encoded(items: Sequence[Any], first: int, at_least: int) -> list[tuple[bytes, int]]:
    """The items as lines, in runs of at least so many bytes (but the last) and whole items: (bytes, items).
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
    """Lines in runs. JSON has no line end inside a value, so that every one ends an item."""
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
    """The values of some lines."""
    values: list[Any] = msgspec.json.decode(b"[" + b",".join(lines) + b"]")
    return values


def preview(beginning: bytes, most: int) -> str:
    """The beginning of some content as text of at most so many bytes; a character that is cut is left out."""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(beginning[:most])
    return text.encode()[:most].decode("utf-8", "ignore")


def _lines(items: Sequence[Any], first: int) -> bytes:
    some = list(items)
    try:
        text = _ENCODER.encode_lines(some)
        # What comes back as it was is JSON: two runs through C beat one look at every value. Tuples come back as lists.
        if _DECODER.decode_lines(text) == some or all(map(_is_plain, some)):
            return text
    except (RecursionError, UnicodeEncodeError, OverflowError, TypeError, ValueError):
        pass
    for number, item in enumerate(items, first):
        _check(item, number)
    raise InvariantBroken(f"items {first} to {first + len(items)} can be stored one by one and not together")


def _check(item: Any, number: int) -> None:
    """Raise what is wrong with an item, if anything is."""
    try:
        for path, problem in _misfits(item):
            raise _refused(number, path, problem)
        _ENCODER.encode(item)
    except UnicodeEncodeError:
        raise _refused(number, "", "holds half of a surrogate pair, which UTF-8 cannot carry") from None
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
    """Whether a value is JSON. Rows that are tuples pass here: one of scalars takes a single look."""
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
            if inner - inner != 0:  # only of NaN and the infinities
                return False
        elif not _is_plain(inner):
            return False
    return True


def _misfits(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """What in a value is not JSON, and where."""
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
