"""Records of results stored outside the log."""

from __future__ import annotations

from collections.abc import Sequence

from arclog.ports.storage.stored_results import ResultRecord
from arclog.stores.records import result_record
from arclog.stores.sql.part import Rows, SqlPart


class Results(SqlPart):
    async def result(self, execution_id: int, name: str, sha256: str) -> ResultRecord | None:
        rows = await self._look_up("result", execution_id, name, sha256)
        return result_record(rows[0]) if rows else None

    async def results(self, execution_id: int, *, after: int = 0, limit: int = 1000) -> list[ResultRecord]:
        return _records(await self._read("results", execution_id, after, limit))

    async def kept_results(self, *, after: tuple[int, str, str] = (0, "", ""), limit: int = 1000) -> list[ResultRecord]:
        return _records(await self._list("kept_results", *after, limit))

    async def keepers(
        self, tenant: str, sha256: str, *, after: tuple[int, str] = (0, ""), limit: int = 100
    ) -> list[ResultRecord]:
        return _records(await self._list("keepers", tenant, sha256, *after, limit))

    async def remove_results(self, records: Sequence[ResultRecord], at: int) -> int:
        if not records:
            return 0
        rows = [(each.execution_id, each.name, each.sha256, each.seq) for each in records]
        return sum(map(len, await self._run(self._each("remove_results", "itti", rows, at))))


def _records(rows: Rows) -> list[ResultRecord]:
    return [result_record(row) for row in rows]
