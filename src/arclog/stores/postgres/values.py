"""Parameters in PostgreSQL's binary form. A number is always an int8, so a statement's types never change with its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any

_INT8 = Struct("!q")
_HEAD = Struct("!iiIii")
_SIZE = Struct("!i")
_SIZED_INT8 = Struct("!iq")
_NULL = _SIZE.pack(-1)
_TRUE, _FALSE = b"\x01", b"\x00"
_OID_BOOL, _OID_BYTEA, _OID_INT8, _OID_TEXT = 16, 17, 20, 25


class Packed(bytes):
    """A parameter that is in its binary form already."""

    __slots__ = ()


def packed(value: Any) -> bytes | None:
    """One parameter."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    return _INT8.pack(value)


def ints(values: Iterable[int | None]) -> Packed:
    return _array(_OID_INT8, [_NULL if value is None else _SIZED_INT8.pack(8, value) for value in values])


def bools(values: Iterable[bool]) -> Packed:
    return _array(_OID_BOOL, [b"\x00\x00\x00\x01\x01" if value else b"\x00\x00\x00\x01\x00" for value in values])


def texts(values: Iterable[str | None]) -> Packed:
    return blobs((None if value is None else value.encode() for value in values), _OID_TEXT)


def blobs(values: Iterable[bytes | None], oid: int = _OID_BYTEA) -> Packed:
    return _array(oid, [_NULL if value is None else _SIZE.pack(len(value)) + value for value in values])


def _array(oid: int, items: list[bytes]) -> Packed:
    if not items:
        return Packed(_HEAD.pack(0, 0, oid, 0, 0)[:12])
    return Packed(b"".join((_HEAD.pack(1, 1, oid, len(items), 1), *items)))


def columns(kinds: str, rows: Iterable[tuple[Any, ...]]) -> list[Packed]:
    """Rows as one array a column. `kinds` has a letter a column: i(nteger) t(ext) b(ytes) y(es or no)."""
    return [_PACKERS[kind](values) for kind, values in zip(kinds, zip(*rows, strict=True), strict=True)]


_PACKERS: dict[str, Callable[[Iterable[Any]], Packed]] = {"i": ints, "t": texts, "b": blobs, "y": bools}
