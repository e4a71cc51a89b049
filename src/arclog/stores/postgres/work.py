"""Claims of the PostgreSQL store, which `claims` carries out, and its resources."""

from __future__ import annotations

from arclog.ports.storage.pools import QueueHead, Resource, ResourceRecord
from arclog.stores.claim_choice import Asked
from arclog.stores.postgres.claims import Claims
from arclog.stores.postgres.part import PostgresPart
from arclog.stores.sql.part import Rows
from arclog.stores.sql.work import Work as SqlWork


class Work(SqlWork, PostgresPart):
    _claims: Claims

    async def _claim(self, asked: Asked) -> Rows:
        return await self._claims.claim(asked)

    # -- pools ------------------------------------------------------------------------------------------------------

    async def resources(self) -> list[ResourceRecord]:
        return [ResourceRecord(Resource(*row[:4]), *row[4:]) for row in await self._read("resources")]

    async def queue_heads(self, tenant: str, limit: int = 100) -> list[QueueHead]:
        rows = await self._read("queue_heads", tenant, limit)
        return [QueueHead(pool, tuple(kind.decode() for kind in kinds), *rest) for pool, kinds, *rest in rows]
