"""Results, sealed secrets and credentials within a boundary: what belongs to another tenant is not there."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from typing import Any

from arclog.model.errors import NotFound
from arclog.model.ids import timestamp
from arclog.ports.boundary import Boundary
from arclog.ports.clock import Clock
from arclog.ports.results import Results, ResultWriter, StoredBlob
from arclog.ports.secrets import SealedSecret, SecretInfo, SecretSource, Vault
from arclog.ports.storage.store import Scope


class BoundResults:
    """Implements `ports.results.Results` for workers."""

    def __init__(self, results: Results, boundary: Boundary) -> None:
        self.name = results.name
        self._results = results
        #: '' is any
        self._tenant = boundary.served.tenant

    def writer(self, tenant: str, *, listed: bool = False, content_type: str = "application/json") -> ResultWriter:
        self._check(tenant)
        return self._results.writer(tenant, listed=listed, content_type=content_type)

    def chunks(self, tenant: str, sha256: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        self._check(tenant)
        return self._results.chunks(tenant, sha256, start, end)

    async def items(self, tenant: str, sha256: str, first: int, last: int) -> list[Any]:
        self._check(tenant)
        return await self._results.items(tenant, sha256, first, last)

    async def find(self, tenant: str, sha256: str) -> StoredBlob | None:
        self._check(tenant)
        return await self._results.find(tenant, sha256)

    async def remove(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        self._check(tenant)
        return await self._results.remove(tenant, sha256, stored_at)

    async def all(self) -> AsyncIterator[StoredBlob]:
        async for blob in self._results.all():
            if self._tenant in ("", blob.tenant):
                yield blob

    async def leftovers(self, older_than: int) -> int:
        return await self._results.leftovers(older_than)

    async def close(self) -> None:
        """The store is the server's."""

    def _check(self, tenant: str) -> None:
        if self._tenant not in ("", tenant):
            raise NotFound(f"there is no tenant {tenant[:128]!r} for this caller")


class BoundSecrets:
    """Implements `ports.secrets.SecretSource` for workers."""

    def __init__(self, secrets: SecretSource, boundary: Boundary) -> None:
        self.place = secrets.place
        self._secrets = secrets
        self._boundary = boundary

    async def find(self, name: str, scope: str) -> SealedSecret | None:
        if not self._boundary.serves(_scope_of(scope)):
            raise NotFound(f"there is no scope {scope[:400]!r} for this caller")
        return await self._secrets.find(name, scope)


class BoundCredentials:
    """Implements `ports.secrets.CredentialApi`: credentials go in and never come out. A scope is the caller's whole tenant, or
    a part of it.
    """

    def __init__(self, vault: Vault, clock: Clock, boundary: Boundary) -> None:
        self._vault = vault
        self._clock = clock
        self._boundary = boundary

    async def put(self, name: str, value: str, scope: str = "") -> SecretInfo:
        return await self._vault.put(name, self._own(scope), value, timestamp(self._clock.now()))

    async def list(self) -> builtins.list[SecretInfo]:
        return [info for info in await self._vault.infos() if self._boundary.uses(_scope_of(info.scope))]

    async def remove(self, name: str, scope: str = "") -> str:
        own = self._own(scope)
        await self._vault.remove(name, own)
        return own

    def _own(self, scope: str) -> str:
        """The scope that a credential is kept for."""
        wanted = _scope_of(scope)
        self._boundary.check_tenant(wanted.tenant)
        part = self._boundary.part(wanted.project, wanted.environment)
        return "/".join(name for name in (part.tenant, part.project, part.environment) if name)


def _scope_of(scope: str) -> Scope:
    """A scope as it is written: TENANT, TENANT/PROJECT or TENANT/PROJECT/ENVIRONMENT; parts that are not there are ''."""
    tenant, project, environment, *_ = *scope.split("/"), "", ""
    return Scope(tenant, project, environment)
