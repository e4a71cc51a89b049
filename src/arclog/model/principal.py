"""Who asks: the outside's name for a caller, its tenant, and what it may do."""

from __future__ import annotations

from msgspec import Struct

#: What a caller may be. Each may do what is listed for it in `server.access`, nothing else; only `admin` implies others.
ROLES = ("viewer", "operator", "engineer", "admin", "worker", "producer")

#: The name of whoever asks where no authentication is configured.
EVERYBODY = "anybody on this machine"


class Principal(Struct, frozen=True):
    """A caller that was authenticated, or everybody where no authentication is configured."""

    name: str
    tenant: str
    roles: frozenset[str]
    #: where its runs go when a request names no other; '' = the operator's default
    project: str = ""
    environment: str = ""

    def may(self, roles: frozenset[str]) -> bool:
        return "admin" in self.roles or not roles.isdisjoint(self.roles)
