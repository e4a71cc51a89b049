"""What the workers of one credential get to work with: the commands, results and secrets of its scope, under its own name."""

from __future__ import annotations

from collections.abc import Callable

from arclog.engine.dispatch.identity import identity_of
from arclog.engine.dispatch.scoped_control import ScopedControl
from arclog.model.principal import Principal
from arclog.ports.secrets import SecretSource
from arclog.server.scoped_results import ScopedResults
from arclog.server.scoped_secrets import ScopedSecrets
from arclog.server.services import Workplace
from arclog.wiring.embedded import Embedded


def workplace_of(here: Embedded, secrets: SecretSource) -> Callable[[Principal], Workplace]:
    engine = here.engine

    def workplace(principal: Principal) -> Workplace:
        identity = identity_of(principal, engine.settings)
        control = ScopedControl(here.control, engine.store, engine.clock, identity)
        scope = identity.scope
        results = ScopedResults(here.results, scope.tenant)
        return Workplace(control, results, ScopedSecrets(secrets, scope), control.check_holder)

    return workplace
