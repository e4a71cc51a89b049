"""Keys, the audit, credentials, pools and schedules at a server: ports of `ports.storage` and `ports.secrets` over HTTP."""

from __future__ import annotations

import builtins

from arclog.client.calls import Caller, paged
from arclog.model.errors import RequestRejected
from arclog.operations import access, pools, schedules
from arclog.operations.operation import ByName
from arclog.ports.secrets import SecretInfo, checked_secret
from arclog.ports.storage.access import AuditedRequest, CreatedKey, KeyInfo, NewKey
from arclog.ports.storage.pools import NewResource, PoolView, ResourceView, Scale, WorkerView
from arclog.ports.storage.schedules import NewSchedule, ScheduleView

# ── access ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Keys, the audit and credentials at a server: `ports.storage.access` and `ports.secrets` over HTTP.


class RemoteKeys(Caller):
    """Implements `ports.storage.access.KeyApi`: the keys of the caller's tenant."""

    async def create(self, new: NewKey) -> CreatedKey:
        return await self._call(access.CREATE_KEY, body=new)

    async def list(self) -> builtins.list[KeyInfo]:
        return (await self._call(access.LIST_KEYS)).keys

    async def revoke(self, key_id: str) -> KeyInfo:
        return await self._call(access.REVOKE_KEY, access.ByKeyId(key_id))


class RemoteAudit(Caller):
    """Implements `ports.storage.access.AuditApi`: what callers of the caller's tenant were granted and denied."""

    async def page(self, *, decision: str = "", before: int = 0, limit: int = 100) -> list[AuditedRequest]:
        async def read(at: int, most: int) -> list[AuditedRequest]:
            asked = access.ListAudit(decision, at, most)  # type: ignore[arg-type]  # the server refuses other words
            return (await self._call(access.AUDIT, asked)).entries

        return await paged(read, before, limit, lambda entry: entry.position)


class RemoteCredentials(Caller):
    """Implements `ports.secrets.CredentialApi`: the secrets of the caller's tenant. A scope of '' is the whole tenant."""

    async def put(self, name: str, value: str, scope: str = "") -> SecretInfo:
        body = access.NewCredential(value, **_parts(scope))
        return await self._call(access.PUT_CREDENTIAL, ByName(checked_secret(name)), body)

    async def list(self) -> builtins.list[SecretInfo]:
        return (await self._call(access.LIST_CREDENTIALS)).credentials

    async def remove(self, name: str, scope: str = "") -> str:
        asked = access.RemoveCredential(checked_secret(name), **_parts(scope))
        return (await self._call(access.REMOVE_CREDENTIAL, asked)).scope


def _parts(scope: str) -> dict[str, str]:
    parts = scope.split("/") if scope else []
    if len(parts) > 3 or not all(parts):
        raise RequestRejected(f"{scope[:400]!r} is not a scope: TENANT, TENANT/PROJECT or TENANT/PROJECT/ENVIRONMENT")
    return dict(zip(("tenant", "project", "environment"), parts, strict=False))


# ── pools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# `ports.storage.pools` over HTTP.


class RemotePools(Caller):
    """Implements `ports.storage.pools.PoolApi`."""

    async def pools(self) -> list[PoolView]:
        return (await self._call(pools.POOLS)).pools

    async def set_limit(self, pool: str, tenant: str, concurrency: int) -> PoolView:
        return await self._call(pools.SET_LIMIT, pools.OfPool(pool or pools.ALL), pools.NewLimit(concurrency, tenant))

    async def remove_limit(self, pool: str, tenant: str) -> PoolView:
        return await self._call(pools.REMOVE_LIMIT, pools.RemoveLimit(pool or pools.ALL, tenant))

    async def scale(self, pool: str) -> Scale:
        return await self._call(pools.SCALE, pools.OfPool(pool or pools.ALL))

    async def resources(self) -> list[ResourceView]:
        return (await self._call(pools.RESOURCES)).resources

    async def set_resource(self, name: str, new: NewResource) -> ResourceView:
        return await self._call(pools.SET_RESOURCE, ByName(name), new)

    async def remove_resource(self, name: str) -> None:
        await self._call(pools.REMOVE_RESOURCE, ByName(name))

    async def workers(self) -> list[WorkerView]:
        return (await self._call(pools.WORKERS)).workers

    async def drain(self, worker_id: str = "", pool: str = "") -> list[WorkerView]:
        return (await self._call(pools.DRAIN, body=pools.Drain(worker_id, pool))).workers


# ── schedules ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# `ports.storage.schedules` over HTTP.


class RemoteSchedules(Caller):
    """Implements `ports.storage.schedules.ScheduleApi`."""

    async def add(self, new: NewSchedule) -> ScheduleView:
        return await self._call(schedules.ADD, body=new)

    async def list(self, *, after: str = "", limit: int = 1000) -> builtins.list[ScheduleView]:
        return (await self._call(schedules.LIST, schedules.ListSchedules(after=after, limit=limit))).schedules

    async def upcoming(self, *, limit: int = 20) -> builtins.list[ScheduleView]:
        return (await self._call(schedules.LIST, schedules.ListSchedules(order="next", limit=limit))).schedules

    async def show(self, name: str) -> ScheduleView:
        return await self._call(schedules.SHOW, ByName(name))

    async def pause(self, name: str) -> ScheduleView:
        return await self._call(schedules.PAUSE, ByName(name))

    async def resume(self, name: str) -> ScheduleView:
        return await self._call(schedules.RESUME, ByName(name))

    async def remove(self, name: str) -> None:
        await self._call(schedules.REMOVE, ByName(name))

    async def backfill(self, name: str, first: str, last: str) -> builtins.list[str]:
        return (await self._call(schedules.BACKFILL, ByName(name), schedules.Backfill(first, last))).queued
