"""Conversion of values between JSON and databases. No value is rounded silently, and every row is valid JSON.

From databases: a decimal becomes a number if a JSON number represents it exactly (up to 15 to 17 digits), else text.
Dates and times are ISO 8601, with times in UTC; bytes are base64; NaN and infinities are text. Other values become
their text.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from msgspec.json import encode

from arclog.tools.sql.failures import SqlFailure

_I64 = 1 << 63
_INFINITE = (float("inf"), float("-inf"))
#: the SQLSTATE of text that cannot be stored
_BAD_TEXT = "22021"


def to_json(value: Any) -> Any:
    """Convert a cell of a row to JSON data."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return value
    if kind is int:
        return value if -_I64 <= value < _I64 else str(value)
    if kind is float:
        return value if value == value and value not in _INFINITE else _spelled(value)  # noqa: PLR0124 - NaN is not itself
    convert = _CONVERTERS.get(kind)
    return convert(value) if convert is not None else str(value)


def _spelled(value: float) -> str:
    return "NaN" if value not in _INFINITE else "Infinity" if value > 0 else "-Infinity"


def _decimal(value: Decimal) -> Any:
    if not value.is_finite():
        return _spelled(float(value))
    if value == value.to_integral_value():
        return to_json(int(value))
    number = float(value)
    return number if number not in _INFINITE and Decimal(repr(number)) == value else str(value)


def _moment(value: datetime) -> str:
    return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()


def _duration(value: timedelta) -> str:
    """Return a duration in ISO 8601, as PostgreSQL writes it: P3DT4H5M6.5S."""
    sign = "-" if value < timedelta(0) else ""
    value = abs(value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{value.microseconds:06d}".rstrip("0") if value.microseconds else ""
    parts = [f"{value.days}D" if value.days else ""]
    clock = "".join((f"{hours}H" if hours else "", f"{minutes}M" if minutes else ""))
    clock += f"{seconds}{fraction}S" if seconds or fraction else ""
    parts.append(f"T{clock}" if clock else "")
    return f"{sign}P{''.join(parts)}" if any(parts) else "PT0S"


def _sequence(value: Any) -> list[Any]:
    return [to_json(item) for item in value]


def _mapping(value: dict[Any, Any]) -> dict[str, Any]:
    return {key if type(key) is str else str(to_json(key)): to_json(item) for key, item in value.items()}


_CONVERTERS: dict[type, Callable[[Any], Any]] = {
    Decimal: _decimal,
    datetime: _moment,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: _duration,
    bytes: lambda value: b64encode(value).decode(),
    bytearray: lambda value: b64encode(value).decode(),
    memoryview: lambda value: b64encode(value).decode(),
    list: _sequence,
    tuple: _sequence,
    set: _sequence,
    dict: _mapping,
}


def checked(value: Any, place: str, *, nul: bool) -> None:
    """Refuse text that the database cannot store. `nul` means that it accepts NUL characters. Raises SqlFailure."""
    if isinstance(value, str):
        if not nul and "\0" in value:
            raise SqlFailure("sql", f"{place} contains the character NUL, which the database cannot store", _BAD_TEXT)
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as problem:
                message = f"{place} contains a lone surrogate at position {problem.start}"
                raise SqlFailure("sql", message, _BAD_TEXT) from None
    elif isinstance(value, list):
        for item in value:
            checked(item, place, nul=nul)
    elif isinstance(value, dict):
        for key, item in value.items():
            checked(key, place, nul=nul)
            checked(item, place, nul=nul)


def json_text(value: Any) -> str:
    return encode(value).decode()


def is_flat(values: list[Any]) -> bool:
    """Return whether a database can treat a list as an array: it is empty or has scalars of one type."""
    kinds = {type(value) for value in values if value is not None}
    return kinds <= {int, float} or (len(kinds) == 1 and kinds <= {str, bool})
