"""Claims of the PostgreSQL store, which `claims` carries out, and its resources."""

from __future__ import annotations

from collections.abc import Sequence

from arclog.ports.storage.pools import QueueHead, Resource, ResourceRecord
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

    # -- pools ------------------------------------------------------------------------------------------------------

    async def set_resource(self, resource: Resource) -> None:
        await self._write("set_resource", resource.name, resource.interval, resource.burst, resource.concurrency)

    async def resources(self) -> list[ResourceRecord]:
        return [ResourceRecord(Resource(*row[:4]), *row[4:]) for row in await self._read("resources")]

    async def queue_heads(self, tenant: str, limit: int = 100) -> list[QueueHead]:
        rows = await self._read("queue_heads", tenant, limit)
        return [QueueHead(pool, tuple(kind.decode() for kind in kinds), *rest) for pool, kinds, *rest in rows]
