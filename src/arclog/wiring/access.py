"""Keys, the audit and secrets for operators: of a home on this machine, or of a server."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from arclog.model.config.settings import Settings
from arclog.model.errors import NotFound
from arclog.model.ids import timestamp
from arclog.ports.clock import Clock
from arclog.ports.secrets import CredentialApi, SecretInfo, Vault
from arclog.ports.storage.access import AuditApi, KeyApi


class Access(NamedTuple):
    keys: KeyApi
    audit: AuditApi


@asynccontextmanager
async def access_of(settings: Settings, *, tenant: str = "", may_create: bool = False) -> AsyncIterator[Access]:
    """Yield keys and audit of the server in the settings, else of the home's store. A user who may write to that store
    needs no key, and sees all tenants unless one is named. A home is created only with `may_create`.
    """
    if settings.text("client.server"):
        from arclog.client.asynchronous import AsyncClient

        async with AsyncClient(settings=settings) as client:
            yield Access(client.keys, client.audits)
        return
    from arclog.ports.boundary import Boundary
    from arclog.server.auth.audit import AuditBook
    from arclog.server.auth.keys import KeyBook
    from arclog.wiring.backends import DATABASE, keeps_files
    from arclog.wiring.clocks import SystemClock
    from arclog.wiring.embedded import opened_store

    home = settings.text("home")
    if keeps_files(settings) and not may_create and not (Path(home) / DATABASE).exists():
        raise NotFound(f"there is nothing in {home} yet; `arclog key create` makes a key, and a home")
    async with opened_store(settings) as store:
        boundary = Boundary.owner(settings, tenant)
        yield Access(KeyBook(store, SystemClock(), boundary), AuditBook(store, boundary))


class LocalCredentials:
    """Implements `ports.secrets.CredentialApi`; a user who may write to the home, or the store, may name any scope."""

    def __init__(self, vault: Vault, clock: Clock, scope: str) -> None:
        self._vault = vault
        self._clock = clock
        self._scope = scope

    async def put(self, name: str, value: str, scope: str = "") -> SecretInfo:
        return await self._vault.put(name, scope or self._scope, value, timestamp(self._clock.now()))

    async def list(self) -> builtins.list[SecretInfo]:
        return await self._vault.infos()

    async def remove(self, name: str, scope: str = "") -> str:
        await self._vault.remove(name, scope or self._scope)
        return scope or self._scope


@asynccontextmanager
async def credentials_of(settings: Settings) -> AsyncIterator[CredentialApi]:
    """Yield the secrets of the server in the settings, else those of the store that servers share, or of the home."""
    if settings.text("client.server"):
        from arclog.client.asynchronous import AsyncClient

        async with AsyncClient(settings=settings) as client:
            yield client.credentials
        return
    from arclog.wiring.backends import keeps_files
    from arclog.wiring.clocks import SystemClock
    from arclog.wiring.secrets import choose_vault

    scope = "/".join(settings.text(f"scope.{part}") for part in ("tenant", "project", "environment"))
    if keeps_files(settings):  # a home needs no log to have secrets
        yield LocalCredentials(choose_vault(settings), SystemClock(), scope)
        return
    from arclog.wiring.embedded import opened_store

    async with opened_store(settings) as store:
        yield LocalCredentials(choose_vault(settings, store), SystemClock(), scope)
