"""Limits, resources and workers: what bounds the claims, and who makes them."""

from __future__ import annotations

from msgspec.structs import replace

from arclog.ports.storage.pools import MOST_AHEAD, Contest, Limit, Share, WorkerRecord
from arclog.stores.records import worker_columns, worker_record
from arclog.stores.sql.part import SqlPart


class Pools(SqlPart):
    async def set_limit(self, limit: Limit) -> None:
        await self._write("set_limit", limit.pool, limit.tenant, limit.concurrency)

    async def remove_limit(self, pool: str, tenant: str) -> bool:
        return bool(await self._write("remove_limit", pool, tenant))

    async def limits(self) -> list[Limit]:
        return [Limit(*row) for row in await self._look_up("limits")]

    async def remove_resource(self, name: str) -> bool:
        return bool(await self._write("remove_resource", name))

    async def shares(self) -> list[Share]:
        return [Share(*row) for row in await self._list("shares")]

    async def contest(self, pool: str) -> Contest:
        [(first, last, limited)] = await self._look_up("contest", pool)
        return Contest(() if first is None else tuple(sorted({first, last})), bool(limited))

    async def ahead(self, execution_id: int, command_id: int) -> int:
        [(count,)] = await self._list("ahead", execution_id, command_id, MOST_AHEAD)
        return int(count)

    async def see_worker(self, worker: WorkerRecord, forget: int) -> bool:
        seen = replace(worker, host=self._shown(worker.host), version=self._shown(worker.version))
        calls = [("forget_workers", (forget,)), ("see_worker", worker_columns(seen))]
        _, [(draining,)] = await self._run(calls, again=True)
        return bool(draining)

    async def workers(self) -> list[WorkerRecord]:
        return [worker_record(row) for row in await self._list("workers")]

    async def drain_worker(self, worker_id: str) -> bool:
        return bool(await self._write("drain_worker", worker_id))
