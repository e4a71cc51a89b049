"""Everything that one principal can see and change: the only way from a request to the data of a tenant.

Invariant: handlers access runs, events, pools, schedules, results, secrets, keys and the audit through their caller's
workspace. Each part is bound to the caller's boundary (`ports.boundary`); data outside of it does not exist for the
caller.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from arclog.model.commands import Command, WireCommand
from arclog.model.errors import ArclogError, Finding, NotFound
from arclog.model.ids import timestamp
from arclog.model.principal import Principal
from arclog.ports.boundary import Boundary
from arclog.ports.clock import Clock
from arclog.ports.control import BoundControl
from arclog.ports.ingest import RecordedEvent
from arclog.ports.results import Results, ResultWriter, StoredBlob
from arclog.ports.secrets import CredentialApi, SealedSecret, SecretInfo, SecretSource, Vault
from arclog.ports.storage.access import AuditApi, KeyApi
from arclog.ports.storage.pools import PoolApi
from arclog.ports.storage.schedules import ScheduleApi
from arclog.ports.storage.store import Scope
from arclog.ports.views.api import Api
from arclog.ports.views.checks import Diagnosis
from arclog.ports.views.runs import Runs
from arclog.server.auth.audit import AuditBook
from arclog.server.auth.keys import KeyBook

if TYPE_CHECKING:
    from arclog.server.services import Services

# ── bound ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Results, sealed secrets and credentials within a boundary; those of other tenants are invisible.


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
        """The server closes the store."""

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
    """Implements `ports.secrets.CredentialApi`: credentials can be written and never read. A scope is the caller's
    whole tenant, or a part of it.
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
        """Return the scope of a credential."""
        requested = _scope_of(scope)
        self._boundary.check_tenant(requested.tenant)
        part = self._boundary.part(requested.project, requested.environment)
        return "/".join(name for name in (part.tenant, part.project, part.environment) if name)


def _scope_of(scope: str) -> Scope:
    """A scope as text: TENANT, TENANT/PROJECT or TENANT/PROJECT/ENVIRONMENT; missing parts are ''."""
    tenant, project, environment, *_ = *scope.split("/"), "", ""
    return Scope(tenant, project, environment)


# ── workspace ─────────────────────────────────────────────────────────────────────────────────────────────────────────


_NO_VAULT = "this server does not store credentials; workers have their own"


class Workspace:
    """The workspace of one principal."""

    def __init__(self, services: Services, principal: Principal) -> None:
        self._services = services
        self._boundary = services.boundary(principal, services.settings)

    # -- runs ----------------------------------------------------------------------------------------------------------

    @property
    def api(self) -> Api:
        """Runs, stored results and the catalog."""
        return self._services.api(self._boundary)

    @property
    def runs(self) -> Runs:
        """The Run Events Contract."""
        return self._services.runs(self._boundary)

    @property
    def schedules(self) -> ScheduleApi:
        if self._services.schedules is None:
            raise NotFound("schedules are not available on this server")
        return self._services.schedules(self._boundary)

    def take_event(self, body: Any) -> Awaitable[RecordedEvent]:
        """See `ports.ingest.Ingest.event`."""
        return self._services.ingest.event(body, self._boundary)

    async def take_batch(self, body: Any) -> list[RecordedEvent | ArclogError]:
        """See `ports.ingest.Ingest.batch`."""
        return await self._services.ingest.batch(body, self._boundary)

    async def check_playbook(self, text: str, file: str) -> tuple[list[Finding], bytes]:
        """The findings of a playbook's text, and its graph as JSON, empty when there are errors."""
        return await self._services.check(text, file, self._boundary.home.tenant)

    # -- workers -------------------------------------------------------------------------------------------------------

    @property
    def control(self) -> BoundControl:
        """Commands for the principal's workers."""
        return self._services.control(self._boundary)

    @property
    def results(self) -> Results:
        """The result store, as the principal's workers use it."""
        return BoundResults(self._services.results, self._boundary)

    @property
    def secrets(self) -> SecretSource:
        """Sealed secrets for the principal's workers."""
        if self._services.vault is None:
            raise NotFound(_NO_VAULT)
        return BoundSecrets(self._services.vault, self._boundary)

    @property
    def serves_all_tenants(self) -> bool:
        """Return whether the principal's workers get commands of every tenant."""
        return not self._boundary.served.tenant

    async def wire_commands(self, claimed: Sequence[Command]) -> list[WireCommand]:
        """Commands that the principal's worker has claimed, for one that reports by events."""
        return await self._services.ingest.commands(claimed)

    @property
    def pools(self) -> PoolApi:
        if self._services.pools is None:
            raise NotFound("pools are not available on this server")
        return self._services.pools(self._boundary)

    # -- access --------------------------------------------------------------------------------------------------------

    @property
    def keys(self) -> KeyApi:
        return KeyBook(self._services.book, self._services.clock, self._boundary)

    @property
    def audit(self) -> AuditApi:
        return AuditBook(self._services.book, self._boundary)

    @property
    def credentials(self) -> CredentialApi:
        if self._services.vault is None:
            raise NotFound(_NO_VAULT)
        return BoundCredentials(self._services.vault, self._services.clock, self._boundary)

    async def diagnosis(self) -> Diagnosis:
        """The health checks of the server that concern the principal's tenant."""
        if self._services.doctor is None:
            raise NotFound("health checks are not available on this server")
        return await self._services.doctor(self._boundary)
