"""Who asks: the outside's name for a caller, its tenant, and what it may do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from arclog.model.errors import NotAllowed, RequestRejected

#: What a caller may be. Each may do what is listed for it in `operations`, nothing else; only `admin` implies others.
ROLES = ("viewer", "operator", "engineer", "admin", "worker", "producer")

#: The name of whoever asks where no authentication is configured.
EVERYBODY = "anybody on this machine"

#: Who may give a signal. An engineer may all that an operator may; an admin may everything.
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
#: Who may give a signal that has a name of a playbook's own.
OTHER_SIGNALS = frozenset({"operator", "engineer"})

#: Tenants, projects, environments: parts of a scope, which is written with slashes between them.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class Principal(Struct, frozen=True):
    """A caller that was authenticated, or everybody where no authentication is configured."""

    name: str
    tenant: str
    roles: frozenset[str]
    #: the only project and environment that it acts in; '' = all of them
    project: str = ""
    environment: str = ""
    #: which credential it is, nobody else's (names may be given twice); '' where nobody is distinguished
    subject: str = ""
    #: of a session: what a request that changes something must carry, so that only our own pages can send it; '' otherwise
    csrf: str = ""
    #: of a session: when it ends, microseconds since 1970; None otherwise
    expires_at: int | None = None

    def may(self, roles: frozenset[str]) -> bool:
        return "admin" in self.roles or not roles.isdisjoint(self.roles)

    @property
    def is_bound(self) -> bool:
        """Whether it acts in one project or one environment only."""
        return bool(self.project or self.environment)


def may_signal(caller: Principal, signal: str) -> None:
    """Raise NotAllowed unless the caller may give this signal."""
    roles = SIGNAL_ROLES.get(signal, OTHER_SIGNALS)
    if not caller.may(roles):
        raise NotAllowed(
            f"{caller.name} is not allowed to send the signal {signal[:128]}; the role {role_names(roles)} is required"
        )


def may_decide(name: str, roles: frozenset[str], approvers: Sequence[str]) -> bool:
    """Whether somebody is one of the approvers: by a role, or by its name where that is not a role's. An engineer may all that an
    operator may, an admin everything.
    """
    if "admin" in roles or ("engineer" in roles and "operator" in approvers):
        return True
    return any(approver in roles if approver in ROLES else approver == name for approver in approvers)


def may_bring_playbooks(caller: Principal) -> None:
    """Raise NotAllowed unless the caller may run what it wrote: that is code, with the tenant's credentials in reach."""
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
    """What a credential is bound to, in a sentence."""
    parts = [f"{level} {name}" for level, name in (("project", project), ("environment", environment)) if name]
    return " and ".join(parts)


def role_names(roles: frozenset[str]) -> str:
    """Roles in a sentence."""
    return " or ".join(sorted(roles | {"admin"}))


def checked_name(name: str, noun: str) -> str:
    """The name of a tenant, project or environment, or RequestRejected."""
    if not _NAME.fullmatch(name):
        raise RequestRejected(
            f"{name[:128]!r} cannot be the name of a {noun}: letters, digits and _ . - (at most 128), the first a letter "
            "or a digit"
        )
    return name
