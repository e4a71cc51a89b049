"""What the routes work with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from arclog.model.principal import Principal
from arclog.model.settings import Settings
from arclog.ports.api import Api
from arclog.ports.control import Control
from arclog.ports.results import Results
from arclog.ports.schedules import ScheduleApi
from arclog.server.traffic import Traffic

#: Tells who sends a request with these headers (names in lower case). Raises NotAllowed, or Unauthenticated.
Authenticate = Callable[[Mapping[str, str]], Awaitable[Principal]]


@dataclass(slots=True)
class Services:
    settings: Settings
    #: the API as one principal sees it: what belongs to another tenant is not there
    api: Callable[[Principal], Api]
    control: Control
    results: Results
    authenticate: Authenticate
    #: says '' when all is well, else what is wrong; `/ready` asks it
    ready: Callable[[], Awaitable[str]]
    #: what `/metrics` tells, in Prometheus' text format
    metrics: Callable[[], Awaitable[bytes]]
    #: the schedules that one principal sees; None: there are none here
    schedules: Callable[[Principal], ScheduleApi] | None = None
    #: set once the server drains: long polls and streams wait for it beside what they wait for, and end
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    #: the requests under way
    traffic: Traffic = field(default_factory=Traffic)

    def draining(self) -> bool:
        return self.stopping.is_set()
