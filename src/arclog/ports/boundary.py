"""The boundary between tenants: the data that a principal sees, and the runs that its workers serve.

It also determines the scope of new data. Invariant: only this module decides this. Every component with data of several
tenants is called with a boundary; data outside the boundary does not exist for the caller (NotFound). The actions that
a caller may perform depend on its roles, in the table of operations.
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
    #: the caller; None for the owner of the store
    principal: Principal | None = None
    #: whether it manages the resources that all tenants share: pools, limits, garbage collection
    keeps_installation: bool = True

    @classmethod
    def of(cls, principal: Principal, settings: Settings) -> Boundary:
        """Return the boundary of a caller."""
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
            # With `workers.shared`, workers of the server's own tenant serve every tenant.
            served=Scope("", reach.project, reach.environment) if is_own and settings["workers.shared"] else reach,
            principal=principal,
            keeps_installation=is_own,
        )

    @classmethod
    def owner(cls, settings: Settings, tenant: str = "") -> Boundary:
        """Return the boundary of the owner of the store; with a tenant, limited to that tenant."""
        project, environment = settings.text("scope.project"), settings.text("scope.environment")
        return cls(Scope(tenant or settings.text("scope.tenant"), project, environment), Scope(tenant, "", ""))

    # -- visibility --------------------------------------------------------------------------------------------------

    def sees(self, scope: Scope) -> bool:
        """Return whether the caller sees data of this scope."""
        return self.reach.covers(scope)

    def check(self, scope: Scope | None, noun: str) -> None:
        """Raise NotFound unless the scope is known and within the boundary; `noun` is used in the message."""
        if scope is None or not self.sees(scope):
            raise NotFound(f"there is no {noun}")

    def check_tenant(self, tenant: str) -> None:
        """Raise NotFound for the name of a tenant that is not the caller's own; '' is its own."""
        if tenant and not self.reach.tenant == tenant:
            raise NotFound(f"there is no tenant {tenant[:128]!r} for this caller")

    def owns(self, tenant: str) -> bool:
        """Return whether this is the tenant in which it creates data.

        For the owner of a store, that is the tenant of the settings.
        """
        return tenant == self.home.tenant

    def works_in(self, scope: Scope) -> bool:
        """Return whether this scope is in its own tenant, and in the project and environment that it is bound to."""
        return self.owns(scope.tenant) and (
            self.reach.project in ("", scope.project) and self.reach.environment in ("", scope.environment)
        )

    def uses(self, scope: Scope) -> bool:
        """Return whether runs that it sees may use an object that is valid in a scope; '' parts match all."""
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
        """The project and environment that it is bound to, for messages."""
        return binding(self.reach.project, self.reach.environment)

    def place(self, project: str = "", environment: str = "") -> Scope:
        """Return the scope of a new run.

        Raises RequestRejected for an invalid name and NotAllowed for a scope that the caller cannot use.
        """
        scope = Scope(
            checked_name(self.home.tenant, "tenant (scope.tenant)"),
            checked_name(project or self.home.project, "project (scope.project)"),
            checked_name(environment or self.home.environment, "environment (scope.environment)"),
        )
        if not self.sees(scope):
            raise NotAllowed(f"{self.name} is bound to {self.binding} and cannot start runs in {scope.label}")
        return scope

    def part(self, project: str = "", environment: str = "") -> Scope:
        """Return the scope of a new credential: '' parts stand for all, or for everything that the caller is bound to.

        Raises the same errors as `place`.
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
        """Return whether its workers may claim commands of runs in this scope."""
        return self.served.covers(scope)

    def worker_name(self, worker_id: str) -> str:
        """Return the name of a worker of this credential in leases and events.

        The `worker_id` of a request is only a label: it distinguishes the workers of one credential and never gives
        access to commands of another credential.
        """
        return worker_id + self._suffix

    def is_holder(self, holder: str, worker_id: str = "") -> bool:
        """Return whether this credential's worker with that id holds a command; without an id, any of its workers."""
        if worker_id:
            return holder == self.worker_name(worker_id)
        label, at, credential = holder.partition("@")  # worker ids contain no @
        return bool(label) and at + credential == self._suffix

    @property
    def _suffix(self) -> str:
        subject = "" if self.principal is None else self.principal.subject
        return f"@{self.served.tenant}/{subject}" if subject else ""
