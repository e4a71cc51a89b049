"""Collects rows of any shape for an outcome: inline while they are small, then in the result store."""

from __future__ import annotations

from typing import Any

from msgspec.json import encode

from arclog.model.outcome import Outcome
from arclog.ports.results import ResultWriter
from arclog.ports.tool import TaskContext


class Rows:
    """Collects rows of any shape."""

    def __init__(self, context: TaskContext, unit: str) -> None:
        self._context = context
        self._unit = unit
        self._kept: list[Any] = []
        self._bytes = 0
        self._writer: ResultWriter | None = None
        self.count = 0

    async def add(self, rows: list[Any]) -> None:
        self.count += len(rows)
        self._context.progress(self.count, None, self._unit)
        self._kept += rows
        self._bytes += len(encode(rows))
        if self._bytes > self._context.results.inline_max_bytes:
            if self._writer is None:
                self._writer = self._context.results.writer(listed=True)
            await self._writer.add(self._kept)
            self._kept = []

    async def outcome(self, result: dict[str, Any]) -> Outcome:
        result["count"] = self.count
        if self._writer is None:
            return Outcome(result={**result, "data": self._kept}, data_at="data")
        await self._writer.add(self._kept)
        return Outcome(result=result, data_at="data", stored=await self._writer.commit())

    async def close(self) -> None:
        if self._writer is not None:
            await self._writer.abandon()
