"""The services that handlers use."""

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
from arclog.model.data.lru import LruCache
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
# The last numbered answer to each worker, so that an answer that was lost can be sent again.
#
# The same request twice at a time is carried out once. A request that a later number has overtaken is not carried out,
# since nobody waits for its answer. This is a cache: a lost entry costs the wait for a lease, but no data.


_MOST_ANSWERS = 10_000

T = TypeVar("T")


class Answers:
    """Answers by credential, worker and call; the least recently used are dropped first."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], tuple[int, asyncio.Future[Any]]] = {}

    async def once(self, key: tuple[str, ...], n: int, ask: Callable[[], Awaitable[T]], nothing: T) -> T:
        """Return the result of `ask`, or its earlier result for the same number; `nothing` for a number that was
        overtaken.
        """
        if not n:  # a caller that does not number its requests
            return await ask()
        while (before := self._last.get(key)) is not None and before[0] >= n:
            last, answer = before
            if last > n:
                return nothing
            await asyncio.wait((answer,))
            if not answer.cancelled():
                result: T = answer.result()
                return result
            # The first request was cancelled without an answer.
            if self._last.get(key) is before:
                del self._last[key]
        return await self._carry_out(key, n, ask)

    async def _carry_out(self, key: tuple[str, ...], n: int, ask: Callable[[], Awaitable[T]]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._last.pop(key, None)
        self._last[key] = (n, answer)
        if len(self._last) > _MOST_ANSWERS:
            del self._last[next(iter(self._last))]
        try:
            answer.set_result(await ask())
        finally:
            answer.cancel()  # has no effect if the result is set
        return answer.result()


# ── readers ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Positions of dialect readers, so that the next page need not render the log from its beginning.
#
# A cache: without it a page takes longer and has the same content.


#: The number of runs (each with one dialect and filter) with positions, and the number of positions for each.
_MOST_READERS = 1000
_POSITIONS = 8
#: A reader with a larger state than this is not kept; that happens when a run has very many open tasks.
_LARGEST = 256 * 1024


class ReaderPosition(Struct, frozen=True):
    """A reader that has read the log up to `at` and has rendered no record after `rendered`."""

    at: int
    rendered: int
    state: bytes


class ReaderPositions:
    def __init__(self) -> None:
        self._positions: LruCache[tuple[str, str, tuple[str, ...]], list[ReaderPosition]] = LruCache(_MOST_READERS)

    def best(self, execution_id: str, dialect: str, names: Sequence[str], after: int) -> ReaderPosition | None:
        """The furthest position from which all records after a seq can still be rendered."""
        positions = self._positions.get((execution_id, dialect, tuple(names))) or []
        return max(
            (position for position in positions if position.rendered <= after),
            key=lambda position: position.at,
            default=None,
        )

    def keep(self, execution_id: str, dialect: str, names: Sequence[str], position: ReaderPosition) -> None:
        if len(position.state) > _LARGEST:
            return
        positions = self._positions.put((execution_id, dialect, tuple(names)), [])
        if position not in positions:
            positions.append(position)
            del positions[:-_POSITIONS]


def position_of(reader: Reader, at: int, rendered: int) -> ReaderPosition:
    return ReaderPosition(at, rendered, state_of(reader))


# ── services ──────────────────────────────────────────────────────────────────────────────────────────────────────────


#: Runs a computation in a tenant's turns.
InTurns = Callable[[str, Callable[[], Any]], Awaitable[Any]]

#: Authenticates a request with these headers (names in lower case) from this address. Raises Unauthenticated,
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
    #: returns '' if the server is ready, else the reason; used by `/ready`
    ready: Callable[[], Awaitable[str]]
    clock: Clock
    #: API keys
    book: AccessBook
    #: requests that were granted and denied
    audit: Audit
    #: authentication and sign-in; None if sign-in is not possible
    gate: Gate | None = None
    #: called when a key is created here
    key_made: Callable[[], None] = field(default=_nothing)
    #: the answer of `/metrics`, in Prometheus' text format
    metrics: Callable[[], Awaitable[bytes]] = field(default=_no_metrics)
    #: the health checks, as far as they concern a boundary; None if there are none
    doctor: Callable[[Boundary], Awaitable[Diagnosis]] | None = None
    #: checks the text of a playbook, which came from a file of that name, for a tenant, with the kinds that are installed
    #: here: the findings, and its graph as JSON, empty when there are errors
    check: Callable[[str, str, str], Awaitable[tuple[list[Finding], bytes]]] = field(default=_checked)
    #: the JSON Schema of playbooks with these kinds
    schema: Callable[[], dict[str, Any]] = field(default=dict)
    #: the schedules within a boundary; None if this server has none
    schedules: Callable[[Boundary], ScheduleApi] | None = None
    #: the pools within a boundary; None if this server has none
    pools: Callable[[Boundary], PoolApi] | None = None
    #: the vault of credentials; None if this server has none
    vault: Vault | None = None
    #: the boundary of a principal
    boundary: Callable[[Principal, Settings], Boundary] = field(default=Boundary.of)
    #: set when the server drains: long polls and streams end then
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    #: the last answers to workers
    answers: Answers = field(default_factory=Answers)
    #: positions of dialect readers
    positions: ReaderPositions = field(default_factory=ReaderPositions)
    #: the requests in progress
    traffic: Traffic = field(default_factory=Traffic)
    #: runs long computations, a tenant at a time
    turns: InTurns = field(default=at_once)

    def draining(self) -> bool:
        return self.stopping.is_set()
