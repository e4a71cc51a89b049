"""The secrets of this machine, loaded when a playbook first has a keychain: most runs need none of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from arclog.model.settings import Settings
from arclog.ports.clock import Clock
from arclog.ports.secrets import Credential, Secrets


class SecretsOnDemand:
    """Implements `ports.secrets.Secrets`."""

    def __init__(self, home: Path, settings: Settings, clock: Clock) -> None:
        self._home = home
        self._settings = settings
        self._clock = clock

    @cached_property
    def _secrets(self) -> Secrets:
        from arclog.secrets.keychain import LocalSecrets

        return LocalSecrets(self._home, self._settings, self._clock)

    async def check(self, entries: Sequence[Mapping[str, Any]], scope: str) -> list[str]:
        return await self._secrets.check(entries, scope)

    async def resolve(self, entry: Mapping[str, Any], scope: str) -> Credential:
        return await self._secrets.resolve(entry, scope)

    async def refused(self, entry: Mapping[str, Any], scope: str) -> None:
        await self._secrets.refused(entry, scope)

    async def close(self) -> None:
        if "_secrets" in vars(self):
            await self._secrets.close()
