"""Claims of the SQLite store, which `claims` carries out in a transaction, and its resources."""

from __future__ import annotations

from arclog.ports.storage.pools import QueueHead, ResourceRecord
from arclog.stores.claim_choice import Asked
from arclog.stores.records import kinds_of
from arclog.stores.sql.part import Rows
from arclog.stores.sql.work import Work as SqlWork
from arclog.stores.sqlite import claims
from arclog.stores.sqlite.connection.readers import Execute
from arclog.stores.sqlite.part import SqlitePart
from arclog.stores.sqlite.queries import SQL


class Work(SqlWork, SqlitePart):
    async def _claim(self, asked: Asked) -> Rows:
        return await self._writer.do(lambda tx: claims.claim(tx, asked))

    # -- pools ------------------------------------------------------------------------------------------------------

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
