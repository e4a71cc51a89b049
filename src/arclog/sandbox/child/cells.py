"""Encoding of database values between a worker and its sandbox: msgpack, with extensions for types that JSON lacks.

Both sides use it. It needs msgspec, which the sandbox loads from the worker's packages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

_PLAIN = frozenset({int, float, str, bytes, bool, type(None)})
_I64 = 1 << 63
_TEXT, _DURATION, _MAP = 8, 9, 10


def _duration(value: timedelta) -> str:
    return f"{value.days} {value.seconds} {value.microseconds}"


#: type: (number of the extension, encoder, decoder)
_TYPES: dict[type, tuple[int, Callable[[Any], str], Callable[[str], Any]]] = {
    int: (1, str, int),
    Decimal: (2, str, Decimal),
    date: (3, date.isoformat, date.fromisoformat),
    time: (4, time.isoformat, time.fromisoformat),
    datetime: (5, datetime.isoformat, datetime.fromisoformat),
    UUID: (6, str, UUID),
    timedelta: (_DURATION, _duration, lambda text: timedelta(*map(int, text.split()))),
}
_READERS = {number: read for number, _, read in _TYPES.values()}


def packed(value: Any) -> bytes:
    """Encode a value. Values of unknown types are encoded as their text."""
    return msgspec.msgpack.encode(_sent(value))


def packed_rows(rows: Sequence[Sequence[Any]]) -> bytes:
    return msgspec.msgpack.encode([row if _is_plain(row) else [_sent(cell) for cell in row] for row in rows])


def unpacked(data: bytes) -> Any:
    """Decode a value. Raises ValueError, TypeError or ArithmeticError for invalid data."""
    return msgspec.msgpack.decode(data, ext_hook=_extension)


def _is_plain(row: Sequence[Any]) -> bool:
    if not _PLAIN.issuperset(map(type, row)):
        return False
    return not any(type(cell) is int and not -_I64 <= cell < _I64 for cell in row)


def _sent(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN and not (kind is int and not -_I64 <= value < _I64):
        return value
    if kind in (list, tuple):
        return [_sent(item) for item in value]
    if kind is dict:
        if all(type(key) is str for key in value):
            return {key: _sent(item) for key, item in value.items()}
        pairs = [(_sent(key), _sent(item)) for key, item in value.items()]
        return msgspec.msgpack.Ext(_MAP, msgspec.msgpack.encode(pairs))
    number, write, _ = _TYPES.get(kind, (_TEXT, str, str))
    return msgspec.msgpack.Ext(number, write(value).encode("utf-8", "surrogateescape"))


def _extension(number: int, data: memoryview) -> Any:
    if number == _MAP:
        return {_hashable(key): item for key, item in unpacked(bytes(data))}
    text = bytes(data).decode("utf-8", "surrogateescape")
    return _READERS.get(number, str)(text)


def _hashable(key: Any) -> Any:
    return tuple(map(_hashable, key)) if isinstance(key, list) else str(key) if isinstance(key, dict) else key
