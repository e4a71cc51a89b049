"""What the routes work with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from arclog.dialects.names import state_of
from arclog.dialects.rendering import Reader
from arclog.model.config.settings import Settings
from arclog.model.data.kept import Kept
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
from arclog.server.traffic import Traffic

# ── work answers ──────────────────────────────────────────────────────────────────────────────────────────────────────
# The last numbered answer that each worker was given, so that one that was lost on the way can be given again.
#
# The same question twice at once is one question, and one that a later number has overtaken is not asked at all: nobody waits
# for its answer. A cache: what is forgotten costs a lease, never a fact.


_MOST_ANSWERS = 10_000

T = TypeVar("T")


class Answers:
    """By credential, worker and call; whoever asked the longest ago is forgotten first."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], tuple[int, asyncio.Future[Any]]] = {}

    async def once(self, key: tuple[str, ...], n: int, ask: Callable[[], Awaitable[T]], nothing: T) -> T:
        """What `ask` gives, or gave when it was asked as this number before; `nothing` to one that comes too late."""
        if not n:  # a caller that does not count
            return await ask()
        while (before := self._last.get(key)) is not None and before[0] >= n:
            last, answer = before
            if last > n:
                return nothing
            await asyncio.wait((answer,))
            if not answer.cancelled():
                found: T = answer.result()
                return found
            # Whoever asked first got no answer.
            if self._last.get(key) is before:
                del self._last[key]
        return await self._asked(key, n, ask)

    async def _asked(self, key: tuple[str, ...], n: int, ask: Callable[[], Awaitable[T]]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._last.pop(key, None)
        self._last[key] = (n, answer)
        if len(self._last) > _MOST_ANSWERS:
            del self._last[next(iter(self._last))]
        try:
            answer.set_result(await ask())
        finally:
            answer.cancel()  # of no effect on one that is there
        return answer.result()


# ── readers ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Where readers of a dialect were, so that the next page is not told from the log's beginning again.
#
# What is kept can be made again: without it a page costs more, and says the same.


#: Runs, each in one dialect and by one filter, of which places are kept; and so many places of each.
_MOST_READERS = 1000
_PLACES = 8
#: A reader that remembers more bytes than this (very much work is open at once) is not kept.
_LARGEST = 256 * 1024


class Place(Struct, frozen=True):
    """A reader that was given the log up to `at`, and of what it was to show had told nothing behind `told`."""

    at: int
    told: int
    state: bytes


class Readings:
    def __init__(self) -> None:
        self._places: Kept[tuple[str, str, tuple[str, ...]], list[Place]] = Kept(_MOST_READERS)

    def best(self, execution_id: str, dialect: str, names: Sequence[str], after: int) -> Place | None:
        """The furthest place from which all behind a seq can still be told."""
        places = self._places.get((execution_id, dialect, tuple(names))) or []
        return max((place for place in places if place.told <= after), key=lambda place: place.at, default=None)

    def keep(self, execution_id: str, dialect: str, names: Sequence[str], place: Place) -> None:
        if len(place.state) > _LARGEST:
            return
        places = self._places.put((execution_id, dialect, tuple(names)), [])
        if place not in places:
            places.append(place)
            del places[:-_PLACES]


def place_of(reader: Reader, at: int, told: int) -> Place:
    return Place(at, told, state_of(reader))


# ── services ──────────────────────────────────────────────────────────────────────────────────────────────────────────


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
