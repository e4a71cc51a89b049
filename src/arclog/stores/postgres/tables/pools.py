"""Limits, resources and workers: what bounds the claims, and who makes them."""

from __future__ import annotations

from msgspec.structs import replace

from arclog.ports.storage.pools import (
    MOST_AHEAD,
    Contest,
    Limit,
    QueueHead,
    Resource,
    ResourceRecord,
    Share,
    WorkerRecord,
)
from arclog.stores.postgres.part import Part, shown
from arclog.stores.records import worker_columns, worker_record


class Pools(Part):
    async def set_limit(self, limit: Limit) -> None:
        await self._pool.write(self._sql["set_limit"], limit.pool, limit.tenant, limit.concurrency)

    async def remove_limit(self, pool: str, tenant: str) -> bool:
        return bool(await self._pool.write(self._sql["remove_limit"], pool, tenant))

    async def limits(self) -> list[Limit]:
        return [Limit(*row) for row in await self._pool.read(self._sql["limits"])]

    async def set_resource(self, resource: Resource) -> None:
        about = (resource.name, resource.interval, resource.burst, resource.concurrency)
        await self._pool.write(self._sql["set_resource"], *about)

    async def remove_resource(self, name: str) -> bool:
        return bool(await self._pool.write(self._sql["remove_resource"], name))

    async def resources(self) -> list[ResourceRecord]:
        rows = await self._pool.read(self._sql["resources"])
        return [ResourceRecord(Resource(*row[:4]), *row[4:]) for row in rows]

    async def shares(self) -> list[Share]:
        return [Share(*row) for row in await self._pool.read(self._sql["shares"])]

    async def queue_heads(self, tenant: str, limit: int = 100) -> list[QueueHead]:
        rows = await self._pool.read(self._sql["queue_heads"], tenant, limit)
        return [QueueHead(pool, tuple(kind.decode() for kind in kinds), *rest) for pool, kinds, *rest in rows]

    async def contest(self, pool: str) -> Contest:
        [(first, last, limited)] = await self._pool.read(self._sql["contest"], pool)
        return Contest(() if first is None else tuple(sorted({first, last})), limited)

    async def ahead(self, execution_id: int, command_id: int) -> int:
        [(count,)] = await self._pool.read(self._sql["ahead"], execution_id, command_id, MOST_AHEAD)
        return int(count)

    async def see_worker(self, worker: WorkerRecord, forget: int) -> bool:
        told = replace(worker, host=shown(worker.host), version=shown(worker.version))
        calls = [(self._sql["forget_workers"], (forget,)), (self._sql["see_worker"], worker_columns(told))]
        _, [(draining,)] = await self._pool.run(calls, again=True)
        return bool(draining)

    async def workers(self) -> list[WorkerRecord]:
        return [worker_record(row) for row in await self._pool.read(self._sql["workers"])]

    async def drain_worker(self, worker_id: str) -> bool:
        return bool(await self._pool.write(self._sql["drain_worker"], worker_id))
