"""`ports.storage.pools` over HTTP."""

from __future__ import annotations

from arclog.client.calls import Caller
from arclog.operations import pools as ops
from arclog.operations.operation import ByName
from arclog.ports.storage.pools import NewResource, PoolView, ResourceView, Scale, WorkerView


class RemotePools(Caller):
    """Implements `ports.pools.PoolApi`."""

    async def pools(self) -> list[PoolView]:
        return (await self._call(ops.POOLS)).pools

    async def set_limit(self, pool: str, tenant: str, concurrency: int) -> PoolView:
        return await self._call(ops.SET_LIMIT, ops.OfPool(pool or ops.ALL), ops.NewLimit(concurrency, tenant))

    async def remove_limit(self, pool: str, tenant: str) -> PoolView:
        return await self._call(ops.REMOVE_LIMIT, ops.RemoveLimit(pool or ops.ALL, tenant))

    async def scale(self, pool: str) -> Scale:
        return await self._call(ops.SCALE, ops.OfPool(pool or ops.ALL))

    async def resources(self) -> list[ResourceView]:
        return (await self._call(ops.RESOURCES)).resources

    async def set_resource(self, name: str, new: NewResource) -> ResourceView:
        return await self._call(ops.SET_RESOURCE, ByName(name), new)

    async def remove_resource(self, name: str) -> None:
        await self._call(ops.REMOVE_RESOURCE, ByName(name))

    async def workers(self) -> list[WorkerView]:
        return (await self._call(ops.WORKERS)).workers

    async def drain(self, worker_id: str = "", pool: str = "") -> list[WorkerView]:
        return (await self._call(ops.DRAIN, body=ops.Drain(worker_id, pool))).workers
