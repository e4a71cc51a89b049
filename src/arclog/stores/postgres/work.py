"""Claims of the PostgreSQL store: `claims` carries them out."""

from __future__ import annotations

from collections.abc import Sequence

from arclog.ports.storage.store import CommandRecord
from arclog.stores.postgres.claims import Asked, Claims
from arclog.stores.postgres.part import PostgresPart
from arclog.stores.sql.work import Work as SqlWork
from arclog.stores.sql.work import command_records


class Work(SqlWork, PostgresPart):
    _claims: Claims

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
        if limit <= 0:
            return []
        within = (project, environment) if project or environment else ()
        asked = Asked(worker_id, limit, lease_until, tuple(kinds), tuple(pools), execution_id, tenant, within)
        return command_records(await self._claims.claim(asked))
