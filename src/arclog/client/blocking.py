"""The client for programs without asyncio: each call of `AsyncClient`, made to the end.

The work is done by an event loop in a thread of its own, so a `Client` may be used from any thread, and inside a running
loop too (which it then blocks).
"""

from __future__ import annotations

import asyncio
import builtins
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Self, TypeVar

from arclog.client.asynchronous import AsyncClient
from arclog.client.blocking_groups import Audits, Credentials, Keys, Schedules
from arclog.model.config.settings import Settings
from arclog.ports.storage.task_logs import ANY_LINE, LogFilter
from arclog.ports.views.api import (
    CatalogDiff,
    CatalogEntry,
    CatalogVersion,
    Collected,
    EventsFound,
    ExecuteRequest,
    Forked,
    ForkRequest,
    Listed,
    PlaybookStats,
    RegisterRequest,
    ReplayCheck,
    RunsDiff,
    SignalAnswer,
    SignalRequest,
    Started,
    Status,
    StoredResult,
    Summary,
)
from arclog.ports.views.history import Imported, SimulateRequest, SimulationReport, Trace
from arclog.ports.views.insight import StateView, Why
from arclog.ports.views.overview import Activity, ApprovalPage, Failing, Lease, RunPage, RunQuery, Stuck

T = TypeVar("T")


class Client:
    """A server, as one caller sees it. What its methods mean stands at `AsyncClient` and `ports.api.Api`."""

    def __init__(self, server: str = "", *, token: str = "", settings: Settings | None = None) -> None:
        self._client = AsyncClient(server, token=token, settings=settings)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="arclog-client", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections; a second time does nothing."""
        if self._loop.is_closed():
            return
        self._done(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def server(self) -> str:
        return self._client.server

    @property
    def schedules(self) -> Schedules:
        return Schedules(self._client, self._done)

    @property
    def keys(self) -> Keys:
        return Keys(self._client, self._done)

    @property
    def audits(self) -> Audits:
        return Audits(self._client, self._done)

    @property
    def credentials(self) -> Credentials:
        return Credentials(self._client, self._done)

    def start(
        self,
        playbook: str = "",
        workload: Mapping[str, Any] | None = None,
        *,
        path: str = "",
        version: int = 0,
        files: Mapping[str, str] | None = None,
        idempotency_key: str = "",
        priority: int | None = None,
    ) -> Started:
        asked = self._client.start(
            playbook,
            workload,
            path=path,
            version=version,
            files=files,
            idempotency_key=idempotency_key,
            priority=priority,
        )
        return self._done(asked)

    def run(
        self,
        playbook: str = "",
        workload: Mapping[str, Any] | None = None,
        *,
        path: str = "",
        version: int = 0,
        timeout_s: float | None = None,
        check: bool = True,
    ) -> Summary:
        asked = self._client.run(playbook, workload, path=path, version=version, timeout_s=timeout_s, check=check)
        return self._done(asked)

    def follow(self, execution_id: str, *, after: int = 0, types: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
        return self._each(self._client.follow(execution_id, after=after, types=types))

    def follow_logs(
        self, execution_id: str, *, after: int = 0, where: LogFilter = ANY_LINE
    ) -> Iterator[dict[str, Any]]:
        return self._each(self._client.follow_logs(execution_id, after=after, where=where))

    def execute(self, request: ExecuteRequest) -> Started:
        return self._done(self._client.execute(request))

    def wait(self, execution_id: str, *, after: int = 0, timeout_s: float | None = None) -> int:
        return self._done(self._client.wait(execution_id, after=after, timeout_s=timeout_s))

    def ended(self, execution_id: str, *, timeout_s: float | None = None) -> bool:
        return self._done(self._client.ended(execution_id, timeout_s=timeout_s))

    def status(self, execution_id: str) -> Status:
        return self._done(self._client.status(execution_id))

    def summary(self, execution_id: str) -> Summary:
        return self._done(self._client.summary(execution_id))

    def list(
        self,
        *,
        states: Sequence[str] = (),
        path: str = "",
        before: str = "",
        limit: int = 50,
        name: str = "",
        since: str = "",
        parent: str = "",
    ) -> builtins.list[Listed]:
        asked = self._client.list(
            states=states, path=path, before=before, limit=limit, name=name, since=since, parent=parent
        )
        return self._done(asked)

    def find(self, query: RunQuery) -> RunPage:
        return self._done(self._client.find(query))

    def activity(self, *, hours: int = 24) -> Activity:
        return self._done(self._client.activity(hours=hours))

    def failing(self, *, limit: int = 20) -> builtins.list[Failing]:
        return self._done(self._client.failing(limit=limit))

    def stuck(self, *, limit: int = 20) -> builtins.list[Stuck]:
        return self._done(self._client.stuck(limit=limit))

    def leases(self, *, limit: int = 100) -> builtins.list[Lease]:
        return self._done(self._client.leases(limit=limit))

    def approvals(self, *, after: str = "", limit: int = 50) -> ApprovalPage:
        return self._done(self._client.approvals(after=after, limit=limit))

    def events(
        self, execution_id: str, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> builtins.list[dict[str, Any]]:
        return self._done(self._client.events(execution_id, after=after, limit=limit, types=types))

    def entity_events(
        self, execution_id: str, entity_type: str, entity_id: str = "", *, after: int = 0, limit: int = 1000
    ) -> builtins.list[dict[str, Any]]:
        return self._done(self._client.entity_events(execution_id, entity_type, entity_id, after=after, limit=limit))

    def search(
        self,
        *,
        types: Sequence[str] = (),
        since: str = "",
        until: str = "",
        entity: str = "",
        where: str = "",
        informative: bool = False,
        cursor: str = "",
        limit: int = 100,
    ) -> EventsFound:
        wanted: dict[str, Any] = {"types": types, "since": since, "until": until, "informative": informative}
        return self._done(self._client.search(entity=entity, where=where, cursor=cursor, limit=limit, **wanted))

    def logs(
        self, execution_id: str, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> builtins.list[dict[str, Any]]:
        return self._done(self._client.logs(execution_id, after=after, limit=limit, where=where))

    def results(self, execution_id: str, *, after: int = 0, limit: int = 1000) -> builtins.list[StoredResult]:
        return self._done(self._client.results(execution_id, after=after, limit=limit))

    def result(self, ref: str) -> StoredResult:
        return self._done(self._client.result(ref))

    def content(self, ref: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        return self._each(self._client.content(ref, start, end))

    def collect(self, *, dry_run: bool = False) -> Collected:
        return self._done(self._client.collect(dry_run=dry_run))

    def fork(self, execution_id: str, request: ForkRequest) -> Forked:
        return self._done(self._client.fork(execution_id, request))

    def replay(self, execution_id: str) -> ReplayCheck:
        return self._done(self._client.replay(execution_id))

    def diff(self, execution_id: str, other: str) -> RunsDiff:
        return self._done(self._client.diff(execution_id, other))

    def simulate(self, request: SimulateRequest) -> SimulationReport:
        return self._done(self._client.simulate(request))

    def export(self, execution_id: str) -> Iterator[bytes]:
        return self._each(self._client.export(execution_id))

    def import_run(self, file: BinaryIO) -> Imported:
        return self._done(self._client.import_run(file))

    def lineage(self, execution_id: str) -> builtins.list[dict[str, Any]]:
        return self._done(self._client.lineage(execution_id))

    def trace(self, execution_id: str, path: str) -> Trace:
        return self._done(self._client.trace(execution_id, path))

    def stats(self, path: str, *, since: str = "", limit: int = 200) -> PlaybookStats:
        return self._done(self._client.stats(path, since=since, limit=limit))

    def why(self, execution_id: str) -> Why:
        return self._done(self._client.why(execution_id))

    def state(self, execution_id: str, at: int | None = None) -> StateView:
        return self._done(self._client.state(execution_id, at))

    def signal(self, execution_id: str, request: SignalRequest) -> SignalAnswer:
        return self._done(self._client.signal(execution_id, request))

    def pausing(self, execution_id: str) -> bool:
        return self._done(self._client.pausing(execution_id))

    def cancel(self, execution_id: str, reason: str) -> Status:
        return self._done(self._client.cancel(execution_id, reason))

    def source(self, execution_id: str) -> str:
        return self._done(self._client.source(execution_id))

    def graph(self, execution_id: str, form: str = "json") -> Any:
        return self._done(self._client.graph(execution_id, form))

    def register(self, request: RegisterRequest) -> CatalogVersion:
        return self._done(self._client.register(request))

    def catalog(
        self, *, prefix: str = "", after: str = "", limit: int = 100, archived: bool = False
    ) -> builtins.list[CatalogEntry]:
        return self._done(self._client.catalog(prefix=prefix, after=after, limit=limit, archived=archived))

    def versions(self, path: str, *, before: int = 0, limit: int = 100) -> builtins.list[CatalogVersion]:
        return self._done(self._client.versions(path, before=before, limit=limit))

    def registered(self, path: str, version: int = 0) -> CatalogVersion:
        return self._done(self._client.registered(path, version))

    def difference(self, path: str, older: int, newer: int = 0) -> CatalogDiff:
        return self._done(self._client.difference(path, older, newer))

    def archive(self, path: str, *, archived: bool = True) -> CatalogEntry:
        return self._done(self._client.archive(path, archived=archived))

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("this client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C in the caller's thread stops the work as well
            raise

    def _each(self, items: AsyncIterator[T]) -> Iterator[T]:
        """What an asynchronous iterator gives; whoever stops early releases its connection."""
        end = object()

        async def step() -> Any:
            return await anext(items, end)

        async def stop() -> None:
            await items.aclose()  # type: ignore[attr-defined]  # both are generators

        try:
            while (item := self._done(step())) is not end:
                yield item
        finally:
            if not self._loop.is_closed():
                self._done(stop())
