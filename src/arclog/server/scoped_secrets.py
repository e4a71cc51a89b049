"""The secrets as one caller's workers may find them: what belongs to another tenant is not there."""

from __future__ import annotations

from arclog.model.errors import NotFound
from arclog.ports.secrets import SealedSecret, SecretSource


class ScopedSecrets:
    """Implements `ports.secrets.SecretSource` for one tenant; '' is any."""

    def __init__(self, secrets: SecretSource, tenant: str = "") -> None:
        self.place = secrets.place
        self._secrets = secrets
        self._tenant = tenant

    async def find(self, name: str, scope: str) -> SealedSecret | None:
        tenant = scope.partition("/")[0]
        if self._tenant and tenant != self._tenant:
            raise NotFound(f"there is no tenant {tenant[:128]!r} for this caller")
        return await self._secrets.find(name, scope)
