"""`ports.storage.pools` over HTTP."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from arclog.client.connection import Connection
from arclog.model.errors import ServerUnavailable
from arclog.ports.storage.pools import NewResource, PoolView, ResourceView, Scale, WorkerView

T = TypeVar("T")

_POOLS = "/api/pools"
_RESOURCES = "/api/resources"
_WORKERS = "/api/workers"


class _Lists(msgspec.Struct, frozen=True):
    """Each route has its own word for the rows."""

    pools: list[PoolView] = []
    resources: list[ResourceView] = []
    workers: list[WorkerView] = []


class RemotePools:
    """Implements `ports.pools.PoolApi` over a server's routes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def pools(self) -> list[PoolView]:
        return (await self._asked("GET", _POOLS, _Lists)).pools

    async def set_limit(self, pool: str, tenant: str, concurrency: int) -> PoolView:
        body = {"tenant": tenant, "concurrency": concurrency}
        return await self._asked("PUT", f"{_POOLS}/{_named(pool)}/limit", PoolView, body, safe=True)

    async def remove_limit(self, pool: str, tenant: str) -> PoolView:
        path = f"{_POOLS}/{_named(pool)}/limit"
        return _decoded(await self._connection.ask("DELETE", path, params={"tenant": tenant}), PoolView)

    async def scale(self, pool: str) -> Scale:
        return await self._asked("GET", f"{_POOLS}/{_named(pool)}/scale", Scale)

    async def resources(self) -> list[ResourceView]:
        return (await self._asked("GET", _RESOURCES, _Lists)).resources

    async def set_resource(self, name: str, new: NewResource) -> ResourceView:
        return await self._asked("PUT", f"{_RESOURCES}/{quote(name, safe='')}", ResourceView, new, safe=True)

    async def remove_resource(self, name: str) -> None:
        await self._connection.ask("DELETE", f"{_RESOURCES}/{quote(name, safe='')}")

    async def workers(self) -> list[WorkerView]:
        return (await self._asked("GET", _WORKERS, _Lists)).workers

    async def drain(self, worker_id: str = "", pool: str = "") -> list[WorkerView]:
        body = {"worker_id": worker_id, "pool": pool}
        return (await self._asked("POST", f"{_WORKERS}/drain", _Lists, body, safe=True)).workers

    async def _asked(self, method: str, path: str, kind: type[T], body: Any = None, safe: bool | None = None) -> T:
        encoded = None if body is None else msgspec.json.encode(body)
        return _decoded(await self._connection.ask(method, path, body=encoded, safe=safe), kind)


def _named(pool: str) -> str:
    """All pools together are `*`."""
    return quote(pool, safe="") or "*"


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ServerUnavailable(
            f"the server's answer cannot be understood ({problem}); is it an arclog server of this version?"
        ) from None
