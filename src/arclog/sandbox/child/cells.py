"""Encoding of database values between a worker and its sandbox: msgpack, with extensions for types that JSON lacks.

Both sides use it. It needs msgspec, which the sandbox loads from the worker's packages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
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
#: About how many bytes of a value, and of a list or map, do not appear in their encoded form.
_CELL_BYTES, _LIST_BYTES = 8, 64
#: The head of an array in msgpack.
_HEAD, _ARRAY = struct.Struct(">BI"), 0xDD
_ENCODER = msgspec.msgpack.Encoder()
_READERS = {number: read for number, _, read in _TYPES.values()}


def packed(value: Any) -> bytes:
    """Encode a value. Values of unknown types are encoded as their text."""
    return msgspec.msgpack.encode(_sent(value))


class RowTooLarge(Exception):
    """A row of more bytes than are allowed."""


def packed_batch(rows: Iterator[Sequence[Any]], most: int, batch_bytes: int, row_bytes: int) -> bytes:
    """Encode the next rows: at most so many, and fewer if they are large. Empty at the end. Raises RowTooLarge."""
    encode, plain = _ENCODER.encode, _PLAIN
    batch: list[bytes] = []
    size = 0
    for row in islice(rows, most):
        if plain.issuperset(map(type, row)):
            weight = _CELL_BYTES * len(row)
            try:
                data = encode(row)
            except OverflowError:  # an integer of more than 64 bits
                data = encode(list(map(_sent, row)))
        else:
            weight = sum(map(_weight, row))
            if weight > row_bytes:
                raise RowTooLarge
            data = encode(list(map(_sent, row)))
        weight += len(data)
        if weight > row_bytes:
            raise RowTooLarge
        batch.append(data)
        size += weight
        if size > batch_bytes:
            break
    return b"".join((_HEAD.pack(_ARRAY, len(batch)), *batch)) if batch else b""


def unpacked_batch(data: bytes, most: int) -> list[tuple[Any, ...]]:
    """Decode rows. Raises ValueError, TypeError or ArithmeticError for invalid data, or for more rows."""
    if not data:
        return []
    kind, count = _HEAD.unpack_from(data)
    if kind != _ARRAY or count > most:
        raise ValueError("not a batch of rows")
    return _ROWS.decode(data)


def _weight(value: Any) -> int:
    """Return about how many bytes a decoded value takes besides its encoded form, which is short for empty lists."""
    if isinstance(value, (list, tuple)):
        return _LIST_BYTES + sum(map(_weight, value))
    if isinstance(value, dict):
        return _LIST_BYTES + sum(map(_weight, value)) + sum(map(_weight, value.values()))
    return _CELL_BYTES


def unpacked(data: bytes) -> Any:
    """Decode a value. Raises ValueError, TypeError or ArithmeticError for invalid data."""
    return msgspec.msgpack.decode(data, ext_hook=_extension)


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


_ROWS = msgspec.msgpack.Decoder(list[tuple[Any, ...]], ext_hook=_extension)
