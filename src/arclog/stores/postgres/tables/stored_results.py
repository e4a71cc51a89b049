"""What executions stored outside the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arclog.ports.storage.stored_results import ResultRecord
from arclog.stores.postgres.connection.values import columns
from arclog.stores.postgres.part import Part
from arclog.stores.records import result_record


class Stored(Part):
    async def result(self, execution_id: int, name: str, sha256: str) -> ResultRecord | None:
        rows = await self._results("result", execution_id, name, sha256)
        return rows[0] if rows else None

    async def results(self, execution_id: int, *, after: int = 0, limit: int = 1000) -> list[ResultRecord]:
        return await self._results("results", execution_id, after, limit)

    async def kept_results(self, *, after: tuple[int, str, str] = (0, "", ""), limit: int = 1000) -> list[ResultRecord]:
        return await self._results("kept_results", *after, limit)

    async def keepers(
        self, tenant: str, sha256: str, *, after: tuple[int, str] = (0, ""), limit: int = 100
    ) -> list[ResultRecord]:
        return await self._results("keepers", tenant, sha256, *after, limit)

    async def remove_results(self, records: Sequence[ResultRecord], at: int) -> int:
        if not records:
            return 0
        named = columns("itti", [(each.execution_id, each.name, each.sha256, each.seq) for each in records])
        return len(await self._pool.write(self._sql["remove_results"], at, *named))

    async def _results(self, name: str, *values: Any) -> list[ResultRecord]:
        return [result_record(row) for row in await self._pool.read(self._sql[name], *values)]
