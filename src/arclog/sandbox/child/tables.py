"""Tables of other libraries as rows: DataFrames of pandas and polars, tables of Arrow.

Rows are made some at a time, so that a table as large as memory allows can be sent. The libraries are known by the names
of their classes and never imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

#: Rows that are made at a time.
_CHUNK = 1000

Rows = Iterator[dict[str, Any]]
#: Takes the names of columns and the path of their table.
Names = Callable[[Iterable[Any], str], list[str]]
Keys = Callable[[Iterable[Any]], list[str]]


def rows_of(value: Any, path: str, checked: Names) -> Rows | None:
    """The rows of a table as maps; None for anything else. `checked` makes keys of the names of its columns, or refuses
    them; `path` is how a refusal calls the table.
    """
    reader = _by_class(value, _TABLES)
    return None if reader is None else reader(value, lambda names: checked(names, path))


def reader_of(value: Any) -> Callable[[Any], Any] | None:
    """What gives the values of an array, or a single value of Arrow, as Python's own; None for anything else."""
    return _by_class(value, _COLUMNS)


def _by_class(value: Any, known: dict[str, Callable[..., Any]]) -> Callable[..., Any] | None:
    for kind in type(value).__mro__:
        found = known.get(f"{str(kind.__module__).partition('.')[0]}.{kind.__qualname__}")
        if found is not None:
            return found
    return None


def _pandas(frame: Any, keys: Keys) -> Rows:
    """Columns, after the levels of the index that have a name. A missing value is null, as in pandas' own JSON."""
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
    """The values of a column or an index; None for those that are missing."""
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
    # Dates and durations would become bare integers, records would lose the names of their fields.
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
