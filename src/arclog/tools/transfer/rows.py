"""The interface of sources and targets, and the types of columns that they share.

A row is a tuple of None, bool, int, float, str, bytes, Decimal, date, time, datetime, timedelta, UUID, or (for an array
of PostgreSQL) a list of them. JSON values are texts. A source and a target are each used by one thread, except
`interrupt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from msgspec import Struct
from msgspec.json import encode

from arclog.tools.sql.failures import SqlFailure
from arclog.tools.sql.values import checked

Row = tuple[Any, ...]

INTEGER, REAL, DECIMAL, TEXT, BOOLEAN, BYTES = "integer", "real", "decimal", "text", "boolean", "bytes"
DATE, TIME, TIMESTAMP, TIMESTAMPTZ, JSON, UUID_TYPE = "date", "time", "timestamp", "timestamptz", "json", "uuid"
#: The column types that `types` and created tables may have.
TYPES = (INTEGER, REAL, DECIMAL, TEXT, BOOLEAN, BYTES, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, JSON, UUID_TYPE)

_BY_VALUE: dict[type, str] = {
    bool: BOOLEAN,
    int: INTEGER,
    float: REAL,
    str: TEXT,
    bytes: BYTES,
    Decimal: DECIMAL,
    date: DATE,
    time: TIME,
    UUID: UUID_TYPE,
    list: JSON,
}
#: Types that can be parsed from text, so that text values do not contradict them.
_FROM_TEXT = frozenset({DECIMAL, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, JSON, UUID_TYPE, TEXT})


class Column(Struct, frozen=True):
    """A column of a source."""

    name: str
    #: one of TYPES; '' if the source does not know it
    type: str = ""


class Source(Protocol):
    """A source of rows."""

    #: number of rows; None if unknown
    total: int | None

    def open(self, at_a_time: int) -> list[Column]:
        """Begin to read. Return the columns."""

    def chunks(self) -> Iterator[list[Row]]:
        """Yield the rows in chunks, in order."""

    def interrupt(self) -> None:
        """Make the current call fail soon. It is called from another thread."""

    def close(self) -> None: ...


@runtime_checkable
class Positioned(Protocol):
    """A source that is read from start to end and knows its position."""

    @property
    def position(self) -> tuple[int, int] | None:
        """The number of bytes read and the size; None while it is not open."""


class Target(Protocol):
    """A target of rows. They are not visible before `commit`."""

    def open(self, columns: Sequence[Column]) -> None:
        """Begin to write. Every column has a type."""

    def write(self, rows: list[Row]) -> None: ...

    def commit(self) -> dict[str, Any]:
        """Make all rows visible at once. Return facts that only the target knows, e.g. the size of a file."""

    def interrupt(self) -> None:
        """Make the current call fail soon. It is called from another thread."""

    def close(self) -> None:
        """Roll back uncommitted changes, and close."""


def typed(columns: Sequence[Column], rows: Sequence[Row], wanted: dict[str, str]) -> list[Column]:
    """Return the columns with types: the wanted type, else the declared one unless the values contradict it, else that
    of the values.
    """
    typed_columns = []
    for index, column in enumerate(columns):
        kind = wanted.get(column.name, "")
        if not kind:
            values = {type(row[index]) for row in rows} - {type(None)}
            kind = column.type if column.type and _fits(column.type, values) else _of_values(rows, index, values)
        typed_columns.append(Column(column.name, kind))
    return typed_columns


def _fits(kind: str, values: Iterable[type]) -> bool:
    for value in values:
        own = TIMESTAMP if issubclass(value, datetime) else _BY_VALUE.get(value, TEXT)
        if own == kind or (own == TEXT and kind in _FROM_TEXT):
            continue
        if own == INTEGER and kind in (REAL, DECIMAL, BOOLEAN):
            continue
        if (own, kind) in ((REAL, DECIMAL), (TIMESTAMP, TIMESTAMPTZ)):
            continue
        return False
    return True


def _of_values(rows: Sequence[Row], index: int, values: set[type]) -> str:
    kinds = {_BY_VALUE.get(value, TEXT) for value in values if not issubclass(value, datetime)}
    if any(issubclass(value, datetime) for value in values):
        aware = any(isinstance(row[index], datetime) and row[index].tzinfo is not None for row in rows)
        kinds.add(TIMESTAMPTZ if aware else TIMESTAMP)
    if len(kinds) == 1:
        return kinds.pop()
    if kinds and kinds <= {INTEGER, REAL}:
        return REAL
    if kinds and kinds <= {INTEGER, REAL, DECIMAL}:
        return DECIMAL
    return TEXT


def json_cell(value: Any) -> Any:
    """Convert JSON data to a cell: lists and maps become their JSON text."""
    return encode(value).decode() if isinstance(value, (list, dict)) else value


def misfit(number: int, column: str, message: str, code: str | None = None) -> SqlFailure:
    return SqlFailure("sql", f"row {number}, column {column}: {message}", code)


def bad_cell(rows: Sequence[Row], columns: Sequence[Column], done: int, *, nul: bool) -> SqlFailure | None:
    """Return the error for the first cell that the database cannot store. It is called after a chunk was refused. `nul`
    means that the database accepts NUL characters.
    """
    for number, row in enumerate(rows, start=done + 1):
        for column, value in zip(columns, row, strict=False):
            try:
                checked(value, f"row {number}, column {column.name}", nul=nul)
            except SqlFailure as problem:
                return problem
            if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
                return misfit(number, column.name, "an integer of more than 64 bits does not fit", "22003")
    return None
