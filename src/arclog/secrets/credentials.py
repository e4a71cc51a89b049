"""The local store's secrets for those who look after them: `ports.secrets.CredentialApi` on this machine."""

from __future__ import annotations

import asyncio
import builtins

from arclog.model.ids import timestamp
from arclog.ports.clock import Clock
from arclog.ports.secrets import SecretInfo, Vault


class LocalCredentials:
    """Implements `ports.secrets.CredentialApi`; whoever may write the home may name any scope."""

    def __init__(self, vault: Vault, clock: Clock, scope: str) -> None:
        self._vault = vault
        self._clock = clock
        self._scope = scope

    async def put(self, name: str, value: str, scope: str = "") -> SecretInfo:
        at = timestamp(self._clock.now())
        return await asyncio.to_thread(self._vault.put, name, scope or self._scope, value, at)

    async def list(self) -> builtins.list[SecretInfo]:
        return await asyncio.to_thread(self._vault.infos)

    async def remove(self, name: str, scope: str = "") -> str:
        await asyncio.to_thread(self._vault.remove, name, scope or self._scope)
        return scope or self._scope
