"""The secrets as one caller's workers may find them: what belongs to another scope is not there."""

from __future__ import annotations

from arclog.model.errors import NotFound
from arclog.ports.secrets import SealedSecret, SecretSource
from arclog.ports.storage.store import Scope


class ScopedSecrets:
    """Implements `ports.secrets.SecretSource` for the runs of one scope, of which '' parts are any."""

    def __init__(self, secrets: SecretSource, scope: Scope) -> None:
        self.place = secrets.place
        self._secrets = secrets
        self._scope = scope

    async def find(self, name: str, scope: str) -> SealedSecret | None:
        tenant, project, environment, *_ = *scope.split("/"), "", ""
        if not self._scope.covers(Scope(tenant, project, environment)):
            raise NotFound(f"there is no scope {scope[:400]!r} for this caller")
        return await self._secrets.find(name, scope)
