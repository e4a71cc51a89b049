"""Handlers of `operations.pools`."""

from __future__ import annotations

from arclog.operations import pools as ops
from arclog.operations.operation import ByName
from arclog.ports.storage.pools import NewResource, PoolView, ResourceView, Scale
from arclog.server.call import Call
from arclog.server.dispatch import handles


def _name(pool: str) -> str:
    return "" if pool == ops.ALL else pool


@handles(ops.POOLS)
async def pools(call: Call) -> ops.Pools:
    return ops.Pools(await call.workspace.pools.pools())


@handles(ops.SET_LIMIT)
async def set_limit(call: Call, request: ops.OfPool, body: ops.NewLimit) -> PoolView:
    return await call.workspace.pools.set_limit(_name(request.pool), body.tenant, body.concurrency)


@handles(ops.REMOVE_LIMIT)
async def remove_limit(call: Call, request: ops.RemoveLimit) -> PoolView:
    return await call.workspace.pools.remove_limit(_name(request.pool), request.tenant)


@handles(ops.SCALE)
async def scale(call: Call, request: ops.OfPool) -> Scale:
    return await call.workspace.pools.scale(request.pool)


@handles(ops.RESOURCES)
async def resources(call: Call) -> ops.Resources:
    return ops.Resources(await call.workspace.pools.resources())


@handles(ops.SET_RESOURCE)
async def set_resource(call: Call, request: ByName, body: NewResource) -> ResourceView:
    return await call.workspace.pools.set_resource(request.name, body)


@handles(ops.REMOVE_RESOURCE)
async def remove_resource(call: Call, request: ByName) -> None:
    await call.workspace.pools.remove_resource(request.name)


@handles(ops.WORKERS)
async def workers(call: Call) -> ops.Workers:
    return ops.Workers(await call.workspace.pools.workers())


@handles(ops.DRAIN)
async def drain(call: Call, body: ops.Drain) -> ops.Workers:
    return ops.Workers(await call.workspace.pools.drain(body.worker_id, body.pool))
