"""A vault for those who look after it: `ports.secrets.CredentialApi` for whoever needs no server's leave."""

from __future__ import annotations

import builtins

from arclog.model.ids import timestamp
from arclog.ports.clock import Clock
from arclog.ports.secrets import SecretInfo, Vault


class LocalCredentials:
    """Implements `ports.secrets.CredentialApi`; whoever may write the home, or the store, may name any scope."""

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
