"""What the routes work with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from arclog.model.config.settings import Settings
from arclog.model.errors import Finding
from arclog.model.principal import Principal
from arclog.plan import draw
from arclog.plan.build import build
from arclog.ports.boundary import Boundary
from arclog.ports.clock import Clock
from arclog.ports.control import BoundControl
from arclog.ports.ingest import Ingest
from arclog.ports.results import Results
from arclog.ports.secrets import Vault
from arclog.ports.storage.access import AccessBook
from arclog.ports.storage.pools import PoolApi
from arclog.ports.storage.schedules import ScheduleApi
from arclog.ports.views.api import Api
from arclog.ports.views.checks import Diagnosis
from arclog.ports.views.runs import Runs
from arclog.server.auth.audit import Audit
from arclog.server.auth.gate import Gate
from arclog.server.streams.readers import Readings
from arclog.server.traffic import Traffic
from arclog.server.work_answers import Answers

T = TypeVar("T")
#: Computes something in a tenant's turns.
InTurns = Callable[[str, Callable[[], Any]], Awaitable[Any]]

#: Tells who sends a request with these headers (names in lower case) from this address. Raises Unauthenticated,
#: NotAllowed or TooManyRequests.
Authenticate = Callable[[Mapping[str, str], str], Awaitable[Principal]]


async def _no_metrics() -> bytes:
    return b""


def _nothing() -> None: ...


async def at_once(_: str, compute: Callable[[], T]) -> T:
    return compute()


async def _checked(text: str, file: str, _: str) -> tuple[list[Finding], bytes]:
    built = build(text, file, {})
    return built.findings, b"" if built.plan is None else msgspec.json.encode(draw.as_json(built.plan))


@dataclass(slots=True)
class Services:
    settings: Settings
    #: the API within a boundary
    api: Callable[[Boundary], Api]
    #: commands for the workers of a boundary
    control: Callable[[Boundary], BoundControl]
    ingest: Ingest
    #: the Run Events Contract within a boundary
    runs: Callable[[Boundary], Runs]
    results: Results
    authenticate: Authenticate
    #: says '' when all is well, else what is wrong; `/ready` asks it
    ready: Callable[[], Awaitable[str]]
    clock: Clock
    #: API keys
    book: AccessBook
    #: what callers were granted and denied
    audit: Audit
    #: who signs in; None: nobody can
    gate: Gate | None = None
    #: to be called when a key was made here
    key_made: Callable[[], None] = field(default=_nothing)
    #: what `/metrics` tells, in Prometheus' text format
    metrics: Callable[[], Awaitable[bytes]] = field(default=_no_metrics)
    #: what is wrong with the server, as far as it concerns a boundary; None: nothing is looked at
    doctor: Callable[[Boundary], Awaitable[Diagnosis]] | None = None
    #: checks the text of a playbook, which came from a file of that name, for a tenant, with the kinds that are installed
    #: here: the findings, and its graph as JSON, empty when there are errors
    check: Callable[[str, str, str], Awaitable[tuple[list[Finding], bytes]]] = field(default=_checked)
    #: the JSON Schema of playbooks with these kinds
    schema: Callable[[], dict[str, Any]] = field(default=dict)
    #: the schedules within a boundary; None: there are none here
    schedules: Callable[[Boundary], ScheduleApi] | None = None
    #: the pools within a boundary; None: there are none here
    pools: Callable[[Boundary], PoolApi] | None = None
    #: where credentials are kept; None: not here
    vault: Vault | None = None
    #: the boundary of a principal
    boundary: Callable[[Principal, Settings], Boundary] = field(default=Boundary.of)
    #: set once the server drains: long polls and streams wait for it beside what they wait for, and end
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    #: what workers were answered last
    answers: Answers = field(default_factory=Answers)
    #: where readers of dialects were
    readings: Readings = field(default_factory=Readings)
    #: the requests in progress
    traffic: Traffic = field(default_factory=Traffic)
    #: computes what takes long, a tenant at a time
    turns: InTurns = field(default=at_once)

    def draining(self) -> bool:
        return self.stopping.is_set()
