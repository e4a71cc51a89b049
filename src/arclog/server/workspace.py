"""All that one principal can see and change: the only way from a request to anything that belongs to a tenant.

Law: handlers reach runs, events, pools, schedules, results, secrets, keys and the audit through their caller's workspace.
Each part is bound to the caller's boundary (`ports.boundary`); what lies outside of it is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arclog.model.commands import Command, WireCommand
from arclog.model.errors import ArclogError, Finding, NotFound
from arclog.model.principal import Principal
from arclog.ports.control import BoundControl
from arclog.ports.ingest import Taken
from arclog.ports.results import Results
from arclog.ports.secrets import CredentialApi, SecretSource
from arclog.ports.storage.access import AuditApi, KeyApi
from arclog.ports.storage.pools import PoolApi
from arclog.ports.storage.schedules import ScheduleApi
from arclog.ports.views.api import Api
from arclog.ports.views.checks import Diagnosis
from arclog.ports.views.runs import Runs
from arclog.server.auth.audit_page import AuditBook
from arclog.server.auth.key_book import KeyBook
from arclog.server.bound import BoundCredentials, BoundResults, BoundSecrets

if TYPE_CHECKING:
    from arclog.server.services import Services

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

    async def take_event(self, body: Any) -> Taken:
        """See `ports.ingest.Ingest.event`."""
        return await self._services.ingest.event(body, self._boundary)

    async def take_batch(self, body: Any) -> list[Taken | ArclogError]:
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
        """Whether the principal's workers get commands of every tenant."""
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
        """What is wrong with the server, as far as it concerns the principal's tenant."""
        if self._services.doctor is None:
            raise NotFound("health checks are not available on this server")
        return await self._services.doctor(self._boundary)
