"""Resources and the heads of queues in the SQLite store."""

from __future__ import annotations

from arclog.ports.storage.pools import QueueHead, Resource, ResourceRecord
from arclog.stores.records import kinds_of
from arclog.stores.sql.pools import Pools as SqlPools
from arclog.stores.sqlite.connection.readers import Execute
from arclog.stores.sqlite.part import SqlitePart
from arclog.stores.sqlite.queries import SQL


class Pools(SqlPools, SqlitePart):
    async def set_resource(self, resource: Resource) -> None:
        about = (resource.name, resource.interval, resource.burst, resource.concurrency)
        await self._write("set_resource", *about, self._clock.now())

    async def resources(self) -> list[ResourceRecord]:
        return await self._quickly(read_resources)

    async def queue_heads(self, tenant: str, limit: int = 100) -> list[QueueHead]:
        def work(execute: Execute) -> list[QueueHead]:
            heads: list[QueueHead] = []
            pool = execute(SQL["next_pool"], ("",)).get
            while pool is not None and len(heads) < limit:
                lane = ("", "")
                while len(heads) < limit and (row := execute(SQL["next_head"], (pool, tenant, *lane)).fetchone()):
                    lane = (row[0], row[1])
                    heads.append(QueueHead(pool, kinds_of(row[0]), *row[2:]))
                pool = execute(SQL["next_pool"], (pool,)).get
            return heads

        return await self._reader.do(work)


def read_resources(execute: Execute) -> list[ResourceRecord]:
    rows = execute(SQL["resources"]).fetchall()
    if not rows:
        return []
    held = dict(execute(SQL["held_resources"]).fetchall())
    return [ResourceRecord(Resource(*row[:4]), row[4], held.get(row[0], 0)) for row in rows]
