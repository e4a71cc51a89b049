"""Resources and the heads of queues in the PostgreSQL store."""

from __future__ import annotations

from arclog.ports.storage.pools import QueueHead, Resource, ResourceRecord
from arclog.stores.postgres.part import PostgresPart
from arclog.stores.sql.pools import Pools as SqlPools


class Pools(SqlPools, PostgresPart):
    async def set_resource(self, resource: Resource) -> None:
        await self._write("set_resource", resource.name, resource.interval, resource.burst, resource.concurrency)

    async def resources(self) -> list[ResourceRecord]:
        return [ResourceRecord(Resource(*row[:4]), *row[4:]) for row in await self._read("resources")]

    async def queue_heads(self, tenant: str, limit: int = 100) -> list[QueueHead]:
        rows = await self._read("queue_heads", tenant, limit)
        return [QueueHead(pool, tuple(kind.decode() for kind in kinds), *rest) for pool, kinds, *rest in rows]
