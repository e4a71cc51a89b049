"""Parameters in PostgreSQL's binary form. A number is always an int8, so a statement's types never change with its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any

_INT8 = Struct("!q").pack
_HEAD = Struct("!iiIii").pack
_SIZE = Struct("!i").pack
_SIZED_INT8 = Struct("!iq").pack
_NULL = _SIZE(-1)
_TRUE, _FALSE = b"\x01", b"\x00"
_OID_BOOL, _OID_BYTEA, _OID_INT8, _OID_TEXT = 16, 17, 20, 25
_HEADS_OF_ONE = {oid: _HEAD(1, 1, oid, 1, 1) for oid in (_OID_BOOL, _OID_BYTEA, _OID_INT8, _OID_TEXT)}


def packed(values: Iterable[Any]) -> list[bytes | None]:
    """The parameters of a statement."""
    return [_PACKED[type(value)](value) for value in values]


class _Packed(dict[type, Callable[[Any], bytes | None]]):
    def __missing__(self, kind: type) -> Callable[[Any], bytes | None]:
        """Of a class that stands above it."""
        for known in kind.__mro__:
            if known in self:
                return self.setdefault(kind, self[known])
        raise TypeError(f"a {kind.__name__} cannot be a parameter")


_PACKED = _Packed(
    {
        int: _INT8,
        str: str.encode,
        bytes: lambda value: value,
        bool: lambda value: _TRUE if value else _FALSE,
        type(None): lambda _: None,
    }
)


def ints(values: Iterable[int | None]) -> bytes:
    return _array(_OID_INT8, [_NULL if value is None else _SIZED_INT8(8, value) for value in values])


def bools(values: Iterable[bool]) -> bytes:
    return _array(_OID_BOOL, [b"\x00\x00\x00\x01\x01" if value else b"\x00\x00\x00\x01\x00" for value in values])


def texts(values: Iterable[str | None]) -> bytes:
    return blobs([None if value is None else value.encode() for value in values], _OID_TEXT)


def blobs(values: Iterable[bytes | None], oid: int = _OID_BYTEA) -> bytes:
    return _array(oid, [_NULL if value is None else _SIZE(len(value)) + value for value in values])


def _array(oid: int, items: list[bytes]) -> bytes:
    if len(items) == 1:  # an append by itself
        return _HEADS_OF_ONE[oid] + items[0]
    if not items:
        return _HEAD(0, 0, oid, 0, 0)[:12]
    return b"".join((_HEAD(1, 1, oid, len(items), 1), *items))


def columns(kinds: str, rows: Iterable[tuple[Any, ...]]) -> list[bytes]:
    """Rows as one array a column. `kinds` has a letter a column: i(nteger) t(ext) b(ytes) y(es or no)."""
    return [_PACKERS[kind](values) for kind, values in zip(kinds, zip(*rows, strict=True), strict=True)]


_PACKERS: dict[str, Callable[[Iterable[Any]], bytes]] = {"i": ints, "t": texts, "b": blobs, "y": bools}
