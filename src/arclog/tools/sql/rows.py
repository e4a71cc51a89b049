"""The rows of a statement on their way into an outcome: inline while they are few, streamed to the result store past that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.json import encode

from arclog.model.outcome import Outcome
from arclog.ports.results import ResultWriter
from arclog.ports.tool import TaskContext
from arclog.tools.sql.failures import SqlFailure
from arclog.tools.sql.values import to_json

#: Rows that are taken from a database at a time.
BATCH = 1000


class Rows:
    """Takes rows as tuples. Memory holds one batch, or what fits inline."""

    def __init__(self, columns: Sequence[str], context: TaskContext, max_rows: int | None) -> None:
        self.columns = distinct(columns)
        self.count = 0
        self._context = context
        self._max_rows = max_rows
        self._kept: list[dict[str, Any]] = []
        self._bytes = 0
        self._writer: ResultWriter | None = None

    async def add(self, batch: Sequence[Sequence[Any]]) -> None:
        self.count += len(batch)
        if self._max_rows is not None and self.count > self._max_rows:
            message = (
                f"the statement gives more than {self._max_rows} rows (max_rows of the task); ask for fewer with LIMIT"
            )
            raise SqlFailure("limit", message, "max_rows")
        columns = self.columns
        rows = [dict(zip(columns, map(to_json, row), strict=True)) for row in batch]
        if self._writer is not None:
            await self._writer.add(rows)
        else:
            self._kept += rows
            self._bytes += len(encode(rows))
            if self._bytes > self._context.results.inline_max_bytes:
                self._writer = self._context.results.writer(listed=True)
                kept, self._kept = self._kept, []
                await self._writer.add(kept)
        self._context.progress(self.count, None, "rows")

    async def outcome(self) -> Outcome:
        """Everything is taken: make it durable."""
        about: dict[str, Any] = {"columns": list(self.columns), "row_count": self.count}
        if self._writer is None:
            return Outcome(
                result={"columns": about["columns"], "rows": self._kept, "row_count": self.count}, data_at="rows"
            )
        return Outcome(result=about, data_at="rows", stored=await self._writer.commit())

    async def abandon(self) -> None:
        if self._writer is not None:
            await self._writer.abandon()


def distinct(columns: Sequence[str]) -> tuple[str, ...]:
    """Column names, each once: a name that comes again gets a number, `id`, `id_2`, `id_3`."""
    taken = set(columns)
    seen: set[str] = set()
    names: list[str] = []
    for column in columns:
        name, number = column, 1
        while name in seen or (number > 1 and name in taken):
            number += 1
            name = f"{column}_{number}"
        seen.add(name)
        names.append(name)
    return tuple(names)
