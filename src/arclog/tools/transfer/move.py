"""Moves all rows from a source to a target, in a thread.

Invariant: the target is committed once, after the last row was read and written. If the transfer fails or is cancelled
before that, the target stays unchanged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from msgspec import Struct

from arclog.tools.sql.failures import SqlFailure
from arclog.tools.transfer.rows import Column, Positioned, Row, Source, Target, typed

Mapping = dict[str, str]


class Moved(Struct, frozen=True):
    """The result of a transfer."""

    rows: int
    columns: list[str]
    #: facts that only the target knows
    more: dict[str, Any]


class Move:
    """One transfer."""

    def __init__(
        self,
        source: Source,
        target: Target,
        *,
        chunk_rows: int,
        columns: list[str] | Mapping | None,
        types: dict[str, str],
        progress: Callable[[int, int | None, str], None],
    ) -> None:
        self._source = source
        self._target = target
        self._chunk_rows = chunk_rows
        self._wanted = {name: name for name in columns} if isinstance(columns, list) else columns
        self._types = types
        self._progress = progress
        self._stopped = threading.Event()

    def interrupt(self) -> None:
        """Stop the transfer soon. It is called from another thread."""
        self._stopped.set()
        self._source.interrupt()
        self._target.interrupt()

    def run(self) -> Moved:
        try:
            return self._run()
        finally:
            # The target is closed first, because it may read from the source's database.
            try:
                self._target.close()
            finally:
                self._source.close()

    def _run(self) -> Moved:
        source_columns = self._source.open(self._chunk_rows)
        _each_once([column.name for column in source_columns], "the source")
        pick, columns = self._picked(source_columns)
        chunks: Iterator[list[Row]] = self._source.chunks()
        first = next(chunks, [])
        if pick is not None:
            first = list(map(pick, first))
        columns = typed(columns, first, self._types)
        self._target.open(columns)
        done = 0
        self._report(0)
        for number, chunk in enumerate(chain([first], chunks)):
            if self._stopped.is_set():
                raise SqlFailure("cancelled", "the transfer was stopped")
            self._target.write(chunk if pick is None or number == 0 else list(map(pick, chunk)))
            done += len(chunk)
            self._report(done)
        if self._stopped.is_set():
            raise SqlFailure("cancelled", "the transfer was stopped")
        more = self._target.commit()
        return Moved(done, [column.name for column in columns], more)

    def _report(self, rows: int) -> None:
        """Report the progress: in rows if the source knows their number, else in bytes of its file."""
        at = self._source.position if isinstance(self._source, Positioned) and self._source.total is None else None
        if at is None:
            self._progress(rows, self._source.total, "rows")
        else:
            self._progress(*at, "bytes")

    def _picked(self, source_columns: Sequence[Column]) -> tuple[Callable[[Row], Row] | None, list[Column]]:
        """Return a function that converts a row of the source to one of the target, and the columns of the target."""
        unknown = [
            name for name in self._types if name not in (self._wanted or [column.name for column in source_columns])
        ]
        if unknown and source_columns:
            raise SqlFailure(
                "config", f"types: there is no column '{unknown[0]}'; there are {_column_names(source_columns)}"
            )
        if self._wanted is None:
            return None, list(source_columns)
        if not source_columns:  # an empty source that does not name its columns
            return None, [Column(name) for name in self._wanted]
        at = {column.name: index for index, column in enumerate(source_columns)}
        for name in self._wanted.values():
            if name not in at:
                raise SqlFailure(
                    "config", f"columns: the source has no column '{name}'; it has {_column_names(source_columns)}"
                )
        indexes = [at[name] for name in self._wanted.values()]
        columns = [Column(name, source_columns[index].type) for name, index in zip(self._wanted, indexes, strict=True)]
        if len(indexes) == 1:
            index = indexes[0]
            return (lambda row: (row[index],)), columns
        return itemgetter(*indexes), columns


def _column_names(columns: Sequence[Column]) -> str:
    shown = ", ".join(column.name for column in columns[:20])
    return shown + (f" and {len(columns) - 20} more" if len(columns) > 20 else "") if columns else "none"


def _each_once(names: Sequence[str], owner: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SqlFailure("config", f"{owner} gives two columns called '{name}'; rename one of them with AS")
        seen.add(name)
