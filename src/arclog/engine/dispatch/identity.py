"""The identity of a caller's workers, and the runs they serve.

Law: a command belongs to the credential that claimed it and, inside that credential, to one worker. A `worker_id` in a
body is a label: it tells the workers of one credential apart and never leads to another credential's commands.
"""

from __future__ import annotations

from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.model.principal import Principal
from arclog.ports.storage.store import Scope


class Identity(Struct, frozen=True):
    """The workers of one credential."""

    #: whose runs they serve; '' parts are any
    scope: Scope = Scope("", "", "")
    #: which credential it is; '' = the only one there is
    subject: str = ""

    def name(self, worker_id: str) -> str:
        """What a worker of this credential is called in leases and events."""
        return worker_id + self._suffix

    def is_holder(self, holder: str, worker_id: str = "") -> bool:
        """Whether the holder of a command is this credential's worker of that id; without an id, any of its workers."""
        if worker_id:
            return holder == self.name(worker_id)
        label, at, credential = holder.partition("@")  # no worker's id has an @
        return bool(label) and at + credential == self._suffix

    @property
    def _suffix(self) -> str:
        return f"@{self.scope.tenant}/{self.subject}" if self.subject else ""


def identity_of(principal: Principal, settings: Settings) -> Identity:
    """The workers of a caller. Those of the server's own tenant serve every tenant where `workers.shared` says so."""
    is_shared = bool(settings["workers.shared"]) and principal.tenant == settings.text("scope.tenant")
    tenant = "" if is_shared else principal.tenant
    return Identity(Scope(tenant, principal.project, principal.environment), principal.subject)
