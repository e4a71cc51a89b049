"""Sealed credentials in the memory store."""

from __future__ import annotations

from collections.abc import Sequence

from arclog.model.errors import Conflict
from arclog.ports.secrets import SealedSecret, SecretInfo
from arclog.stores.memory.tables import Tables


class Secrets(Tables):
    """Implements `ports.secrets.SecretBook`."""

    async def put_secret(self, secret: SealedSecret) -> None:
        self._check_open()
        if any(each.key != secret.key for each in self._sealed.values()):
            raise Conflict(f"the secrets of the store are sealed with another key than {secret.key}")
        self._sealed[secret.info.name, secret.info.scope] = secret

    async def secret(self, name: str, scopes: Sequence[str]) -> SealedSecret | None:
        self._check_open()
        found = (self._sealed.get((name, scope)) for scope in sorted(scopes, key=len, reverse=True))
        return next((each for each in found if each is not None), None)

    async def secrets(self) -> list[SecretInfo]:
        self._check_open()
        return [each.info for _, each in sorted(self._sealed.items(), key=lambda item: item[0])]

    async def secrets_key(self) -> str:
        self._check_open()
        return next((each.key for each in self._sealed.values()), "")

    async def remove_secret(self, name: str, scope: str) -> bool:
        self._check_open()
        return self._sealed.pop((name, scope), None) is not None
