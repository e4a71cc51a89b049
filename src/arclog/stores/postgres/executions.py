"""Executions in the PostgreSQL store. A list that something narrows is one statement, which walks along indexes."""

from __future__ import annotations

from collections.abc import Sequence

from arclog.model.ids import MAX_ID
from arclog.model.status import EXECUTION_STATES
from arclog.ports.storage.store import ExecutionFilter, ExecutionRecord
from arclog.stores.postgres.batching import Lookups
from arclog.stores.postgres.part import PostgresPart
from arclog.stores.sql.executions import Executions as SqlExecutions
from arclog.stores.sql.executions import execution_records


class Executions(SqlExecutions, PostgresPart):
    _lookups: Lookups[ExecutionRecord]

    async def execution(self, execution_id: int) -> ExecutionRecord | None:
        return await self._lookups.one(execution_id)

    async def _read_executions(self, execution_ids: Sequence[int]) -> dict[int, ExecutionRecord]:
        records = execution_records(await self._read("executions_by_id", self._ints(execution_ids)))
        return {record.execution_id: record for record in records}

    async def _narrowed(self, which: ExecutionFilter, first: int, limit: int) -> list[ExecutionRecord]:
        states = tuple(dict.fromkeys(which.states or EXECUTION_STATES))
        walks = (first, which.since, limit, self._texts(states))
        rest = (which.project, which.environment, which.level)
        tenants = [which.tenant]
        if not which.tenant:
            tenants = [tenant for (tenant,) in await self._read("tenants")]
        owners = self._texts(tenants)
        if which.path:
            rows = await self._read("in_path", *walks, owners, which.path, which.name, *rest)
        elif which.name:
            names = await self._read("names", owners, which.name)
            pairs = [self._texts([row[column] for row in names]) for column in (0, 1)]
            rows = await self._read("with_name", *walks, *pairs, *rest)
        else:
            rows = await self._read("in_state", *walks, owners, *rest)
        return execution_records(rows)

    async def pending_paths(self, *, after: tuple[str, str] = ("", ""), limit: int = 100) -> list[tuple[str, str]]:
        rows = await self._read("pending_paths", *after, MAX_ID, limit)
        return [(tenant, path) for tenant, path in rows]

    async def _put_next_snapshot(
        self, execution_id: int, seq: int, code: str, body: bytes, drop: Sequence[int]
    ) -> None:
        await self._write("put_next_snapshot", execution_id, seq, code, body, self._ints(drop))
