"""All that one principal can see and change. What belongs to another tenant, project or environment is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arclog.model.errors import NotFound
from arclog.model.principal import Principal
from arclog.ports.storage.pools import PoolApi
from arclog.ports.storage.schedules import ScheduleApi
from arclog.ports.views.api import Api
from arclog.ports.views.runs import Runs
from arclog.server.auth.key_book import KeyBook

if TYPE_CHECKING:
    from arclog.server.services import Services, Workplace


class Workspace:
    def __init__(self, services: Services, principal: Principal) -> None:
        self._services = services
        self.principal = principal

    @property
    def api(self) -> Api:
        """Runs and the catalog."""
        return self._services.api(self.principal)

    @property
    def runs(self) -> Runs:
        """The Run Events Contract."""
        return self._services.runs(self.principal)

    @property
    def workplace(self) -> Workplace:
        """What the principal's workers use."""
        return self._services.workplace(self.principal)

    @property
    def pools(self) -> PoolApi:
        if self._services.pools is None:
            raise NotFound("this server has no pools")
        return self._services.pools(self.principal)

    @property
    def schedules(self) -> ScheduleApi:
        if self._services.schedules is None:
            raise NotFound("this server has no schedules")
        return self._services.schedules(self.principal)

    @property
    def keys(self) -> KeyBook:
        caller, services = self.principal, self._services
        return KeyBook(
            services.book, services.clock, caller.tenant, project=caller.project, environment=caller.environment
        )
