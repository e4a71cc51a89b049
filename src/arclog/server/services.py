"""What the routes work with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from arclog.model.errors import NotFound
from arclog.model.principal import Principal
from arclog.model.settings import Settings
from arclog.ports.access import AccessBook
from arclog.ports.api import Api
from arclog.ports.checks import Diagnosis
from arclog.ports.clock import Clock
from arclog.ports.control import Control
from arclog.ports.ingest import Ingest
from arclog.ports.pools import PoolApi
from arclog.ports.results import Results
from arclog.ports.runs import Runs
from arclog.ports.schedules import ScheduleApi
from arclog.ports.secrets import SecretSource, Vault
from arclog.server.audit import Audit
from arclog.server.readings import Readings
from arclog.server.traffic import Traffic
from arclog.server.work_answers import Answers

#: Tells who sends a request with these headers (names in lower case) from this address. Raises Unauthenticated,
#: NotAllowed or TooManyRequests.
Authenticate = Callable[[Mapping[str, str], str], Awaitable[Principal]]


class Workplace(NamedTuple):
    """Control, results and sealed secrets as one principal's workers may use them."""

    control: Control
    results: Results
    #: None: they are not kept here
    secrets: SecretSource | None = None
    #: refuses (by raising) a report of a command that the worker does not hold: worker, execution, command
    check_holder: Callable[[str, int, int], Awaitable[None]] | None = None


async def _no_metrics() -> bytes:
    return b""


def _nothing() -> None: ...


def _no_workers(_: Principal) -> Workplace:
    raise NotFound("this server takes no workers")


@dataclass(slots=True)
class Services:
    settings: Settings
    #: the API as one principal sees it: what belongs to another tenant is not there
    api: Callable[[Principal], Api]
    control: Control
    ingest: Ingest
    #: the Run Events Contract as one principal sees it
    runs: Callable[[Principal], Runs]
    results: Results
    authenticate: Authenticate
    #: says '' when all is well, else what is wrong; `/ready` asks it
    ready: Callable[[], Awaitable[str]]
    clock: Clock
    #: API keys
    book: AccessBook
    #: what callers were granted and denied
    audit: Audit
    #: to be called when a key was made here
    key_made: Callable[[], None] = field(default=_nothing)
    #: what `/metrics` tells, in Prometheus' text format
    metrics: Callable[[], Awaitable[bytes]] = field(default=_no_metrics)
    #: what `/api/doctor` tells one principal; None: nothing
    doctor: Callable[[Principal], Awaitable[Diagnosis]] | None = None
    #: the schedules that one principal sees; None: there are none here
    schedules: Callable[[Principal], ScheduleApi] | None = None
    #: the pools that one principal sees; None: there are none here
    pools: Callable[[Principal], PoolApi] | None = None
    #: where credentials are kept; None: not here
    vault: Vault | None = None
    #: set once the server drains: long polls and streams wait for it beside what they wait for, and end
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    #: what a worker on another machine works with
    workplace: Callable[[Principal], Workplace] = field(default=_no_workers)
    #: what workers were answered last
    answers: Answers = field(default_factory=Answers)
    #: where readers of dialects were
    readings: Readings = field(default_factory=Readings)
    #: the requests under way
    traffic: Traffic = field(default_factory=Traffic)

    def draining(self) -> bool:
        return self.stopping.is_set()
