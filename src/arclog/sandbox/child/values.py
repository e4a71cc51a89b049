"""Encodes the values of a python task as JSON. Plain values stay as they are, well-known types are converted without
loss, tables of other libraries become rows, and other values are refused.

The common case is checked at C speed by the set of types in each container; only other values are examined item by
item. Types are recognized by the names of their classes, so that no library is imported for it.
"""

# Stand-alone and light: the package has another name where it runs.

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Tables of other libraries as rows: DataFrames of pandas and polars, tables of Arrow.
#
# Rows are converted in chunks, so that a table as large as memory allows can be sent. The libraries are recognized by
# the names of their classes and never imported here.

#: Number of rows that are converted at a time.
_CHUNK = 1000

Rows = Iterator[dict[str, Any]]
#: A function of column names and the path of their table.
Names = Callable[[Iterable[Any], str], list[str]]
Keys = Callable[[Iterable[Any]], list[str]]


def rows_of(value: Any, path: str, checked: Names) -> Rows | None:
    """Return an iterator over the rows of a table, as maps; None if the value is not a table. `checked` turns column
    names into keys, or refuses them; `path` is the table's name in messages.
    """
    reader = _by_class(value, _TABLES)
    return None if reader is None else reader(value, lambda names: checked(names, path))


def reader_of(value: Any) -> Callable[[Any], Any] | None:
    """Return a function that converts an array or an Arrow scalar to Python values; None for other types."""
    return _by_class(value, _COLUMNS)


def _by_class(value: Any, handlers: dict[str, Callable[..., Any]]) -> Callable[..., Any] | None:
    for kind in type(value).__mro__:
        handler = handlers.get(f"{str(kind.__module__).partition('.')[0]}.{kind.__qualname__}")
        if handler is not None:
            return handler
    return None


def _pandas(frame: Any, keys: Keys) -> Rows:
    """Yield rows with the named levels of the index, then the columns. A missing value is null, as in pandas'
    own JSON.
    """
    levels = [number for number, name in enumerate(frame.index.names) if name is not None]
    names = keys([*(frame.index.names[number] for number in levels), *frame.columns])
    for start in range(0, len(frame), _CHUNK):
        part = frame.iloc[start : start + _CHUNK]
        columns = [_present(part.index.get_level_values(number)) for number in levels]
        columns += [_present(part.iloc[:, number]) for number in range(part.shape[1])]
        if columns:
            yield from (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        else:
            yield from ({} for _ in range(len(part)))


def _present(column: Any) -> list[Any]:
    """Return the values of a column or an index, with None for missing ones."""
    values: list[Any] = column.tolist()
    missing = column.isna()
    if missing.any():
        return [None if gone else value for value, gone in zip(values, missing, strict=True)]
    return values


def _polars(frame: Any, keys: Keys) -> Rows:
    keys(frame.columns)
    for part in frame.iter_slices(_CHUNK):
        yield from part.to_dicts()


def _arrow(table: Any, keys: Keys) -> Rows:
    keys(table.schema.names)
    for batch in table.to_batches(max_chunksize=_CHUNK):
        yield from batch.to_pylist()


def _arrow_batch(batch: Any, keys: Keys) -> Rows:
    keys(batch.schema.names)
    for start in range(0, batch.num_rows, _CHUNK):
        yield from batch.slice(start, _CHUNK).to_pylist()


def _arrow_reader(reader: Any, keys: Keys) -> Rows:
    for batch in reader:
        yield from _arrow_batch(batch, keys)


def _numpy(array: Any) -> Any:
    # Dates and durations would become bare integers, and records would lose the names of their fields.
    if array.dtype.kind not in "mMV":
        return array.tolist()
    return list(array) if array.ndim else array[()]


_TABLES: dict[str, Callable[[Any, Keys], Rows]] = {
    "pandas.DataFrame": _pandas,
    "polars.DataFrame": _polars,
    "pyarrow.Table": _arrow,
    "pyarrow.RecordBatch": _arrow_batch,
    "pyarrow.RecordBatchReader": _arrow_reader,
}
_COLUMNS: dict[str, Callable[[Any], Any]] = {
    "numpy.ndarray": _numpy,
    "pandas.Series": _present,
    "pandas.Index": _present,
    "polars.Series": lambda series: series.to_list(),
    "pyarrow.Array": lambda array: array.to_pylist(),
    "pyarrow.ChunkedArray": lambda array: array.to_pylist(),
    "pyarrow.Scalar": lambda scalar: scalar.as_py(),
}


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────────

#: Maximum nesting. Deeper values could exceed the recursion limit of a reader.
MAX_DEPTH = 200
_KEY_MAX = 60
#: Integers of a Decimal beyond 64 bits become text, like those of databases.
_I64 = 1 << 63

_LEAVES = frozenset({str, int, float, bool, type(None)})
#: Remedies for refused values, by the name of their type or of a base class.
_REMEDIES = {
    "bytes": "convert it, e.g. with .decode() or base64",
    "bytearray": "convert it, e.g. with .decode() or base64",
    "memoryview": "convert it, e.g. with base64",
    "generator": "convert it, e.g. with list()",
    "map": "convert it, e.g. with list()",
    "filter": "convert it, e.g. with list()",
    "zip": "convert it, e.g. with list()",
    "range": "convert it, e.g. with list()",
    "deque": "convert it, e.g. with list()",
    "dict_keys": "convert it, e.g. with list()",
    "dict_values": "convert it, e.g. with list()",
    "mappingproxy": "convert it, e.g. with dict()",
    "UserDict": "convert it, e.g. with dict()",
    "complex": "convert it, e.g. with str()",
    "complexfloating": "convert it, e.g. with str()",
    "coroutine": "await it",
    "Enum": "return its .value",
    "BaseModel": "convert it, e.g. with .model_dump(mode='json')",
    "Struct": "convert it, e.g. with msgspec.to_builtins()",
    "LazyFrame": "return its .collect()",
    "DuckDBPyRelation": "return its .fetchall() or .pl()",
    "Tensor": "convert it, e.g. with .tolist()",
    "datetime64": "return None instead of NaT",
    "timedelta64": "convert it, e.g. with str()",
    "NAType": "return None instead",
    "NaTType": "return None instead",
}

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode


class NotJSON(Exception):
    """The value, or a part of it, cannot be represented in JSON. The message has its path and the remedy."""


def encoded(value: Any, path: str = "result") -> bytes:
    """Return the value as JSON text. Raises NotJSON; `path` is the value's name in messages."""
    plain = value if _is_plain(value, 0) else _converted(value, path, ())
    try:
        return _encode(plain).encode()
    except (ValueError, UnicodeEncodeError) as problem:
        _refuse_leaf(plain, path)
        raise NotJSON(f"{path}: {problem}") from None


def column_names(names: Iterable[Any], path: str) -> list[str]:
    """Return the names of a table's columns as keys for its rows. Raises NotJSON."""
    names_seen: dict[str, Any] = {}
    for name in names:
        text = _key(name, path)
        if text in names_seen:
            raise NotJSON(f"{path}: two columns are called {_short(text)}; rename one of them")
        names_seen[text] = name
    return list(names_seen)


def _is_plain(value: Any, depth: int) -> bool:
    """Return whether a value contains only plain JSON types. The encoder checks floats and text."""
    kind = type(value)
    if kind in _LEAVES:
        return True
    if depth > MAX_DEPTH:
        return False
    if kind is dict:
        if not {str}.issuperset(map(type, value)):
            return False
        items = value.values()
    elif kind is list or kind is tuple:
        items = value
    else:
        return False
    if _LEAVES.issuperset(map(type, items)):
        return True
    return all(_is_plain(item, depth + 1) for item in items)


def _converted(value: Any, path: str, above: tuple[int, ...]) -> Any:
    """Convert a value to plain JSON types. The encoder checks floats and text."""
    if type(value) in _LEAVES or isinstance(value, (str, int, float)):
        return value
    if id(value) in above:
        raise NotJSON(f"{path}: the {type(value).__name__} contains itself, which JSON cannot represent")
    if len(above) >= MAX_DEPTH:
        raise NotJSON(f"{path[:200]}…: nested deeper than {MAX_DEPTH} levels; return a flatter value")
    within = (*above, id(value))
    if isinstance(value, dict):
        return _map(value.items(), path, within)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _map(zip(value._fields, value, strict=False), path, within)
    if isinstance(value, (list, tuple)):
        return _list(value, path, within)
    if isinstance(value, (set, frozenset)):
        return _sorted(_list(value, path, within))
    if hasattr(type(value), "__dataclass_fields__"):
        import dataclasses

        fields = dataclasses.fields(value)
        return _map(((field.name, getattr(value, field.name)) for field in fields), path, within)
    rows = rows_of(value, path, column_names)
    if rows is not None:
        return _list(rows, path, within)
    column = reader_of(value)
    if column is not None:
        return _converted(column(value), path, within)
    return _leaf(value, path)


def _map(items: Iterable[tuple[Any, Any]], path: str, within: tuple[int, ...]) -> dict[str, Any]:
    converted: dict[str, Any] = {}
    for key, item in items:
        text = _key(key, path)
        if text in converted:
            raise NotJSON(f"{path}: two keys become {_short(text)} as text; give them different names")
        converted[text] = _converted(item, _member(path, text), within)
    return converted


def _list(items: Iterable[Any], path: str, within: tuple[int, ...]) -> list[Any]:
    return [_converted(item, f"{path}[{index}]", within) for index, item in enumerate(items)]


def _sorted(items: list[Any]) -> list[Any]:
    """Return the items of a set in an order that is the same in every run."""
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=lambda item: (type(item).__name__, json.dumps(item, sort_keys=True)))


def _key(key: Any, path: str) -> str:
    """Return a key as text, in the form in which JSON writes the value."""
    if isinstance(key, str):
        return str.__str__(key)
    where = f"{path}: the key {_short(key)}"
    leaf = key if key is None or isinstance(key, (int, float)) else _leaf(key, where)
    return leaf if isinstance(leaf, str) else encoded(leaf, where).decode()


def _leaf(value: Any, path: str) -> Any:
    """Convert a value that contains no others, by its class or a base class."""
    for kind in type(value).__mro__:
        convert = _CONVERTERS.get(f"{str(kind.__module__).partition('.')[0]}.{kind.__qualname__}")
        if convert is not None:
            converted = convert(value)
            if converted is NotImplemented:
                break
            return converted
    raise NotJSON(f"{path}: {_refusal(value)}")


def _decimal(value: Any) -> Any:
    if not value.is_finite():  # refused later, like such a float
        return math.nan if value.is_nan() else float(value)
    if value == value.to_integral_value():
        whole = int(value) if value.adjusted() < len(str(_I64)) else _I64
        return whole if -_I64 <= whole < _I64 else str(value)
    number = float(value)
    return number if math.isfinite(number) and type(value)(repr(number)) == value else str(value)


def _moment(value: Any) -> Any:
    # NaT of pandas does not equal itself.
    return value.isoformat() if value == value else NotImplemented  # noqa: PLR0124 - as above


def _duration(value: Any) -> Any:
    if value != value:  # noqa: PLR0124 - NaT
        return NotImplemented
    micros = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    return _iso_duration(micros * 1000 + getattr(value, "nanoseconds", 0))  # a timedelta of pandas has nanoseconds


def _iso_duration(nanos: int) -> str:
    """Return a duration in ISO 8601, P3DT4H5M6.5S, like the durations of databases."""
    seconds, rest = divmod(abs(nanos), 1_000_000_000)
    fraction = f".{rest:09d}".rstrip("0").rstrip(".")
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    clock = f"{hours}H" * bool(hours) + f"{minutes}M" * bool(minutes)
    clock += f"{seconds}{fraction}S" * bool(seconds or fraction)
    text = f"{days}D" * bool(days) + f"T{clock}" * bool(clock)
    return f"{'-' * (nanos < 0)}P{text or 'T0S'}"


def _numpy_float(value: Any) -> Any:
    number = float(value)
    return number if not math.isfinite(number) or number == value else str(value)


def _numpy_moment(value: Any) -> Any:
    return str(value) if value == value else NotImplemented  # noqa: PLR0124 - NaT


def _numpy_duration(value: Any) -> Any:
    span = value.item()
    if hasattr(span, "days"):
        return _duration(span)
    # A plain integer has lost its unit; months and years have no fixed length.
    return _iso_duration(span) if isinstance(span, int) and value.dtype.str.endswith("[ns]") else NotImplemented


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "decimal.Decimal": _decimal,
    "datetime.date": _moment,
    "datetime.time": _moment,
    "datetime.timedelta": _duration,
    "uuid.UUID": str,
    "pathlib.PurePath": str,
    "numpy.integer": int,
    "numpy.bool": bool,
    "numpy.bool_": bool,
    "numpy.floating": _numpy_float,
    "numpy.datetime64": _numpy_moment,
    "numpy.timedelta64": _numpy_duration,
}


def _refuse_leaf(value: Any, path: str) -> None:
    """Raise NotJSON for the first number or text in a plain value that JSON cannot represent."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_text(key, f"{path}: the key {_short(key)}")
            _refuse_leaf(item, _member(path, key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_leaf(item, f"{path}[{index}]")
    elif isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, float) and not math.isfinite(value):
        raise NotJSON(f"{path}: {float(value)!r} is not JSON; return None or a string instead")


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        code = ord(text[problem.start])
        raise NotJSON(
            f"{path}: the text holds a lone surrogate (\\u{code:04x} at {problem.start}), which no JSON text can; "
            "decode its source with errors='replace'"
        ) from None


def _refusal(value: object) -> str:
    name = type(value).__name__
    remedy = next((_REMEDIES[kind.__name__] for kind in type(value).__mro__ if kind.__name__ in _REMEDIES), None)
    if remedy is None and callable(value):
        remedy = "return the value of its call"
    return f"{name} is not JSON; {remedy or 'convert it, e.g. to a dict, a list or a string'}"


def _member(path: str, key: str) -> str:
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{_short(key)}]"


def _short(key: object) -> str:
    text = ascii(key)
    return text if len(text) <= _KEY_MAX else text[: _KEY_MAX - 3] + "..."
