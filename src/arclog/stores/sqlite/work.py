"""Claims of the SQLite store, which `claims` carries out in a transaction, and its resources."""

from __future__ import annotations

from collections.abc import Sequence

from arclog.ports.storage.pools import QueueHead, Resource, ResourceRecord
from arclog.ports.storage.store import CommandRecord, Scope
from arclog.stores.records import kinds_of
from arclog.stores.sql.work import Work as SqlWork
from arclog.stores.sqlite import claims
from arclog.stores.sqlite.connection.readers import Execute
from arclog.stores.sqlite.part import SqlitePart
from arclog.stores.sqlite.queries import SQL


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

    # -- pools ------------------------------------------------------------------------------------------------------

    async def set_resource(self, resource: Resource) -> None:
        about = (resource.name, resource.interval, resource.burst, resource.concurrency)
        await self._write("set_resource", *about, self._clock.now())

    async def resources(self) -> list[ResourceRecord]:
        return await self._quickly(claims.read_resources)

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
