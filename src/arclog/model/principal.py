"""Authenticated callers: name, tenant and permissions."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from arclog.model.data.lazy import pattern
from arclog.model.errors import NotAllowed, RequestRejected

#: The roles of callers. The table `operations` lists the permissions of each; only `admin` includes the others.
ROLES = ("viewer", "operator", "engineer", "admin", "worker", "producer")

#: The name of the caller if no authentication is configured.
EVERYBODY = "anybody on this machine"

#: The roles that may send a signal. Engineers can send every operator signal; admins can send all signals.
SIGNAL_ROLES: dict[str, frozenset[str]] = {
    "PAUSE": frozenset({"operator", "engineer"}),
    "RESUME": frozenset({"operator", "engineer"}),
    "CANCEL": frozenset({"operator", "engineer"}),
    "APPROVE": frozenset({"operator", "engineer"}),
    "REJECT": frozenset({"operator", "engineer"}),
    "RETRY_STEP": frozenset({"operator", "engineer"}),
    "RETRY_RUN": frozenset({"operator", "engineer"}),
    "SKIP_STEP": frozenset({"engineer"}),
    "UPDATE_PARAMS": frozenset({"engineer"}),
    "EMERGENCY_STOP": frozenset({"admin"}),
}
#: The roles that may send custom signals.
OTHER_SIGNALS = frozenset({"operator", "engineer"})

#: Names of tenants, projects and environments, which a scope joins with slashes.
_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class Principal(Struct, frozen=True):
    """An authenticated caller, or everybody if no authentication is configured."""

    name: str
    tenant: str
    roles: frozenset[str]
    #: the only project and environment that it can access; '' for all
    project: str = ""
    environment: str = ""
    #: unique id of its credential (names are not unique); '' without authentication
    subject: str = ""
    #: for a session: the token that a changing request must carry, so that only arclog's own pages can send it;
    #: otherwise ''
    csrf: str = ""
    #: for a session: when it expires, microseconds since 1970; otherwise None
    expires_at: int | None = None

    def may(self, roles: frozenset[str]) -> bool:
        return "admin" in self.roles or not roles.isdisjoint(self.roles)

    @property
    def is_bound(self) -> bool:
        """Return whether it is restricted to one project or environment."""
        return bool(self.project or self.environment)


def may_signal(caller: Principal, signal: str) -> None:
    """Raise NotAllowed unless the caller may send this signal."""
    roles = SIGNAL_ROLES.get(signal, OTHER_SIGNALS)
    if not caller.may(roles):
        raise NotAllowed(
            f"{caller.name} is not allowed to send the signal {signal[:128]}; the role {role_names(roles)} is required"
        )


def may_decide(name: str, roles: frozenset[str], approvers: Sequence[str]) -> bool:
    """Return whether a caller is one of the approvers, by a role, or by name if that is not a role.

    Engineers count as operators, admins as every role.
    """
    if "admin" in roles or ("engineer" in roles and "operator" in approvers):
        return True
    return any(approver in roles if approver in ROLES else approver == name for approver in approvers)


def may_bring_playbooks(caller: Principal) -> None:
    """Raise NotAllowed unless the caller may submit playbooks, which can use the tenant's credentials."""
    if not caller.may(frozenset({"engineer"})):
        raise NotAllowed(
            f"{caller.name} can start registered playbooks (`path`) but not submit a playbook; the role admin or "
            "engineer is required"
        )


def may_act_for_the_tenant(caller: Principal) -> None:
    """Raise NotAllowed for a caller that is bound to a project or an environment."""
    if caller.is_bound:
        raise NotAllowed(
            f"{caller.name} is bound to {binding(caller.project, caller.environment)}, and this concerns the whole tenant; "
            "use a credential without a project and an environment"
        )


def binding(project: str, environment: str) -> str:
    """Describe the binding of a credential."""
    parts = [f"{level} {name}" for level, name in (("project", project), ("environment", environment)) if name]
    return " and ".join(parts)


def role_names(roles: frozenset[str]) -> str:
    """Join role names for a message."""
    return " or ".join(sorted(roles | {"admin"}))


def checked_name(name: str, noun: str) -> str:
    """Return the name of a tenant, project or environment. Raises RequestRejected if it is invalid."""
    if not _NAME.fullmatch(name):
        raise RequestRejected(
            f"{name[:128]!r} cannot be the name of a {noun}: letters, digits and _ . - (at most 128), the first a letter "
            "or a digit"
        )
    return name
