"""Items of a list as lines of JSON, and back.

Only plain JSON data passes: what an encoder would quietly change (NaN, bytes, times, sets) is refused with its place.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from arclog.model.errors import ResultUnavailable

_ENCODER = msgspec.json.Encoder()
_PLAIN: frozenset[type] = frozenset({str, int, bool, type(None)})
_TEXT: frozenset[type] = frozenset({str})


def encoded(items: Sequence[Any], first: int, at_least: int) -> list[tuple[bytes, int]]:
    """The items as lines, in runs of at least so many bytes (but the last) and whole items: (bytes, items).
    `first` is the index of the first item in its list.
    """
    runs: list[tuple[bytes, int]] = []
    held: list[bytes] = []
    size = 0
    for number, item in enumerate(items, first):
        line = _line(item, number)
        held.append(line)
        size += len(line) + 1
        if size >= at_least:
            runs.append((b"\n".join(held) + b"\n", len(held)))
            held, size = [], 0
    if held:
        runs.append((b"\n".join(held) + b"\n", len(held)))
    return runs


def decoded(lines: Sequence[bytes]) -> list[Any]:
    """The values of some lines."""
    values: list[Any] = msgspec.json.decode(b"[" + b",".join(lines) + b"]")
    return values


def preview(beginning: bytes, most: int) -> str:
    """The beginning of some content as text of at most so many bytes; a character that is cut is left out."""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(beginning[:most])
    return text.encode()[:most].decode("utf-8", "ignore")


def _line(item: Any, number: int) -> bytes:
    try:
        for path, problem in _misfits(item):
            raise _refused(number, path, problem)
        return _ENCODER.encode(item)
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


def _misfits(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """What in a value is no JSON. Whole maps and lists of plain scalars pass in one look, as rows mostly are."""
    kind = type(value)
    if kind in _PLAIN:
        return
    if kind is dict:
        if not _TEXT.issuperset(map(type, value)):
            odd = next(key for key in value if type(key) is not str)
            yield path, f"has the key {odd!r:.80}, a {type(odd).__name__} and no text"
        if not _PLAIN.issuperset(map(type, value.values())):
            for key, inner in value.items():
                yield from _misfits(inner, f"{path}.{key}" if path else str(key))
    elif kind is list or kind is tuple:
        if not _PLAIN.issuperset(map(type, value)):
            for index, inner in enumerate(value):
                yield from _misfits(inner, f"{path}[{index}]")
    elif kind is float:
        if value - value != 0:  # only of NaN and the infinities
            yield path, f"is {value}, which JSON does not have"
    else:
        yield path, f"is a {kind.__name__}, which JSON does not have"
