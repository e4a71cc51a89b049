"""The boundary between tenants: which data a principal sees, the scope of its new data, and which runs its workers serve.

Law: only this module decides it. Every component with data of several tenants is called with a boundary; data outside
the boundary does not exist for the caller (NotFound). The actions that a caller may perform depend on its roles, in the table of
operations.
"""

from __future__ import annotations

from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.model.errors import InvariantBroken, NotAllowed, NotFound, RequestRejected
from arclog.model.principal import Principal, binding, checked_name
from arclog.ports.storage.store import Scope

ANYWHERE = Scope("", "", "")


class Boundary(Struct, frozen=True):
    """The boundary of one principal."""

    #: the scope of everything that it creates
    home: Scope
    #: the scope that it sees; '' matches any name
    reach: Scope
    #: the scope whose runs its workers serve; '' matches any name
    served: Scope = ANYWHERE
    #: the caller; None: the owner of the store
    principal: Principal | None = None
    #: whether it manages what all tenants share: pools, limits, garbage collection
    keeps_installation: bool = True

    @classmethod
    def of(cls, principal: Principal, settings: Settings) -> Boundary:
        """The boundary of a caller."""
        if not principal.tenant:
            raise InvariantBroken(f"{principal.name} has no tenant, so its access rights are unknown")
        reach = Scope(principal.tenant, principal.project, principal.environment)
        is_own = principal.tenant == settings.text("scope.tenant")
        return cls(
            home=Scope(
                principal.tenant,
                principal.project or settings.text("scope.project"),
                principal.environment or settings.text("scope.environment"),
            ),
            reach=reach,
            # Workers of the server's own tenant serve every tenant where `workers.shared` says so.
            served=Scope("", reach.project, reach.environment) if is_own and settings["workers.shared"] else reach,
            principal=principal,
            keeps_installation=is_own,
        )

    @classmethod
    def owner(cls, settings: Settings, tenant: str = "") -> Boundary:
        """The boundary of the owner of the store; with a tenant, limited to that tenant."""
        project, environment = settings.text("scope.project"), settings.text("scope.environment")
        return cls(Scope(tenant or settings.text("scope.tenant"), project, environment), Scope(tenant, "", ""))

    # -- visibility --------------------------------------------------------------------------------------------------

    def sees(self, scope: Scope) -> bool:
        """Whether the caller sees data of this scope."""
        return self.reach.covers(scope)

    def check(self, scope: Scope | None, noun: str) -> None:
        """Raise NotFound unless the scope is known and within the boundary; `noun` names the thing in the message."""
        if scope is None or not self.sees(scope):
            raise NotFound(f"there is no {noun}")

    def check_tenant(self, tenant: str) -> None:
        """Raise NotFound for the name of a tenant that is not the caller's own; '' is."""
        if tenant and not self.reach.tenant == tenant:
            raise NotFound(f"there is no tenant {tenant[:128]!r} for this caller")

    def owns(self, tenant: str) -> bool:
        """Whether this is the tenant that it works in. The owner of a store works in the tenant of the settings."""
        return tenant == self.home.tenant

    def works_in(self, scope: Scope) -> bool:
        """Whether this scope is in the tenant that it works in, and in the project and environment that it is bound to."""
        return self.owns(scope.tenant) and (
            self.reach.project in ("", scope.project) and self.reach.environment in ("", scope.environment)
        )

    def uses(self, scope: Scope) -> bool:
        """Whether runs that it sees may use what is valid in a scope, of which '' parts are all."""
        return (
            scope.tenant == self.reach.tenant
            and (not scope.project or self.reach.project in ("", scope.project))
            and (not scope.environment or self.reach.environment in ("", scope.environment))
        )

    # -- new data -----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return "the owner of the store" if self.principal is None else self.principal.name

    @property
    def binding(self) -> str:
        """The project and environment that it is bound to, in a sentence."""
        return binding(self.reach.project, self.reach.environment)

    def place(self, project: str = "", environment: str = "") -> Scope:
        """The scope of a new run. Raises RequestRejected for an invalid name and NotAllowed for a scope that the caller cannot use."""
        scope = Scope(
            checked_name(self.home.tenant, "tenant (scope.tenant)"),
            checked_name(project or self.home.project, "project (scope.project)"),
            checked_name(environment or self.home.environment, "environment (scope.environment)"),
        )
        if not self.sees(scope):
            raise NotAllowed(f"{self.name} is bound to {self.binding} and cannot start runs in {scope.label}")
        return scope

    def part(self, project: str = "", environment: str = "") -> Scope:
        """The part of the tenant that a new credential is valid in: '' is all of it, or all that the caller is bound to.
        Raises as `place` does.
        """
        scope = Scope(self.home.tenant, project or self.reach.project, environment or self.reach.environment)
        for name, noun in ((scope.project, "project"), (scope.environment, "environment")):
            if name:
                checked_name(name, noun)
        if scope.environment and not scope.project:
            raise RequestRejected("`environment` requires `project`")
        if not self.sees(scope):
            raise NotAllowed(f"{self.name} is bound to {self.binding} and cannot manage other secrets")
        return scope

    # -- its workers ---------------------------------------------------------------------------------------------------

    def serves(self, scope: Scope) -> bool:
        """Whether its workers may have commands of runs in this scope."""
        return self.served.covers(scope)

    def worker_name(self, worker_id: str) -> str:
        """The name of a worker of this credential in leases and events. The `worker_id` of a request is only a label: it
        distinguishes the workers of one credential and never gives access to commands of another credential.
        """
        return worker_id + self._suffix

    def is_holder(self, holder: str, worker_id: str = "") -> bool:
        """Whether the holder of a command is this credential's worker of that id; without an id, any of its workers."""
        if worker_id:
            return holder == self.worker_name(worker_id)
        label, at, credential = holder.partition("@")  # no worker's id has an @
        return bool(label) and at + credential == self._suffix

    @property
    def _suffix(self) -> str:
        subject = "" if self.principal is None else self.principal.subject
        return f"@{self.served.tenant}/{subject}" if subject else ""
