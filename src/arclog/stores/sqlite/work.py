"""Claims of the SQLite store: `claims` carries one out in a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from arclog.ports.storage.store import CommandRecord, Scope
from arclog.stores.sql.work import Work as SqlWork
from arclog.stores.sqlite import claims
from arclog.stores.sqlite.part import SqlitePart


class Work(SqlWork, SqlitePart):
    async def claim(
        self,
        worker_id: str,
        *,
        limit: int,
        lease_until: int,
        kinds: Sequence[str],
        pools: Sequence[str] = ("default",),
        execution_id: int = 0,
        tenant: str = "",
        project: str = "",
        environment: str = "",
    ) -> list[CommandRecord]:
        known, within = frozenset(kinds), Scope(tenant, project, environment)
        return await self._writer.do(
            lambda tx: claims.claim(tx, worker_id, limit, lease_until, known, pools, execution_id, within)
        )
