"""What the workers of one credential get to work with: its tenant's commands, results and secrets, under its own name."""

from __future__ import annotations

from collections.abc import Callable

from arclog.engine.scoped_control import ScopedControl
from arclog.model.principal import Principal
from arclog.ports.secrets import SecretSource
from arclog.server.scoped_results import ScopedResults
from arclog.server.scoped_secrets import ScopedSecrets
from arclog.server.services import Workplace
from arclog.wiring.embedded import Embedded


def workplace_of(here: Embedded, secrets: SecretSource) -> Callable[[Principal], Workplace]:
    engine = here.engine
    shared = bool(engine.settings["workers.shared"])
    own = engine.settings.text("scope.tenant")

    def workplace(principal: Principal) -> Workplace:
        tenant = "" if shared and principal.tenant == own else principal.tenant
        control = ScopedControl(here.control, engine.store, engine.clock, tenant=tenant, name=principal.subject)
        return Workplace(control, ScopedResults(here.results, tenant), ScopedSecrets(secrets, tenant))

    return workplace
