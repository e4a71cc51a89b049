"""Keys, the audit and credentials at a server: `ports.storage.access` and `ports.secrets` over HTTP."""

from __future__ import annotations

import builtins

from arclog.client.calls import Caller, paged
from arclog.model.errors import RequestRejected
from arclog.operations import access as ops
from arclog.operations.operation import ByName
from arclog.ports.secrets import SecretInfo, checked_secret
from arclog.ports.storage.access import Audited, KeyMade, KeyShown, NewKey


class RemoteKeys(Caller):
    """Implements `ports.access.KeyApi`: the keys of the caller's tenant."""

    async def create(self, new: NewKey) -> KeyMade:
        return await self._call(ops.CREATE_KEY, body=new)

    async def list(self) -> builtins.list[KeyShown]:
        return (await self._call(ops.LIST_KEYS)).keys

    async def revoke(self, key_id: str) -> KeyShown:
        return await self._call(ops.REVOKE_KEY, ops.ByKeyId(key_id))


class RemoteAudit(Caller):
    """Implements `ports.access.AuditApi`: what callers of the caller's tenant were granted and denied."""

    async def page(self, *, decision: str = "", before: int = 0, limit: int = 100) -> list[Audited]:
        async def read(at: int, most: int) -> list[Audited]:
            asked = ops.ListAudit(decision, at, most)  # type: ignore[arg-type]  # the server refuses other words
            return (await self._call(ops.AUDIT, asked)).entries

        return await paged(read, before, limit, lambda entry: entry.position)


class RemoteCredentials(Caller):
    """Implements `ports.secrets.CredentialApi`: the secrets of the caller's tenant. A scope of '' is the whole tenant."""

    async def put(self, name: str, value: str, scope: str = "") -> SecretInfo:
        body = ops.NewCredential(value, **_parts(scope))
        return await self._call(ops.PUT_CREDENTIAL, ByName(checked_secret(name)), body)

    async def list(self) -> builtins.list[SecretInfo]:
        return (await self._call(ops.LIST_CREDENTIALS)).credentials

    async def remove(self, name: str, scope: str = "") -> str:
        asked = ops.RemoveCredential(checked_secret(name), **_parts(scope))
        return (await self._call(ops.REMOVE_CREDENTIAL, asked)).scope


def _parts(scope: str) -> dict[str, str]:
    parts = scope.split("/") if scope else []
    if len(parts) > 3 or not all(parts):
        raise RequestRejected(f"{scope[:400]!r} is not a scope: TENANT, TENANT/PROJECT or TENANT/PROJECT/ENVIRONMENT")
    return dict(zip(("tenant", "project", "environment"), parts, strict=False))
