"""`ports.views.api` over HTTP: a program or the CLI uses a server in the same way as an engine in its own process.

Every answer is a Struct of the port; every error is the exception that the engine raised.
"""

from __future__ import annotations

import asyncio
import builtins
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import msgspec
from msgspec.structs import replace

from arclog.client.calls import Caller, address_of, decoded, paged
from arclog.client.connection import Connection
from arclog.model.config.settings import Settings
from arclog.model.errors import PlaybookError, RequestTooLarge, ResultUnavailable, RunEnded, ServerUnavailable
from arclog.operations import catalog as catalog_ops
from arclog.operations import events as event_ops
from arclog.operations import executions as run_ops
from arclog.operations import history as history_ops
from arclog.operations import results as result_ops
from arclog.operations import signals as signal_ops
from arclog.operations.operation import OfExecution
from arclog.ports.storage.task_logs import ANY_LINE, LogFilter
from arclog.ports.views.api import (
    Api,
    CatalogDiff,
    CatalogEntry,
    CatalogVersion,
    Collected,
    EventSearchPage,
    ExecuteRequest,
    Forked,
    ForkRequest,
    ListedRun,
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
from arclog.ports.views.overview import Activity, ApprovalPage, FailingPlaybook, Lease, RunPage, RunQuery, StuckRun

_LET_GO_S = 0.2
#: Bytes of a stored result that are requested at a time; fewer, if the server's limit is smaller
#: (server.max_result_bytes).
_PART = 16 * 1024 * 1024
_PARTIAL_CONTENT = 206


class RemoteApi(Caller, Api):
    """Implements `ports.views.api.Api` over a server's operations."""

    def __init__(self, connection: Connection, settings: Settings) -> None:
        super().__init__(connection)
        self._poll_s = settings.number("client.poll_s")

    # ── starts and signals ───────────────────────────────────────────────────────────────────────────────────────

    async def execute(self, request: ExecuteRequest) -> Started:
        # With a key the request can be repeated: if a server died before it answered, no second run is started.
        keyed = replace(request, idempotency_key=request.idempotency_key or uuid.uuid4().hex)
        with _named_source(request):
            return await self._call(run_ops.START, body=keyed)

    async def signal(self, execution_id: str, request: SignalRequest) -> SignalAnswer:
        with_id = replace(request, signal_id=request.signal_id or str(uuid.uuid4()))
        try:
            return await self._call(signal_ops.SIGNAL, OfExecution(execution_id), with_id)
        except RunEnded as problem:
            state = (await self.status(execution_id)).state
            return SignalAnswer(
                execution_id,
                request.signal,
                with_id.signal_id,
                accepted=False,
                message=str(problem),
                state=state,
                paused=False,
            )

    async def fork(self, execution_id: str, request: ForkRequest) -> Forked:
        # With a key the request can be repeated, as with `execute`.
        keyed = replace(request, idempotency_key=request.idempotency_key or uuid.uuid4().hex)
        # A retry returns the new run if one was requested.
        operation = signal_ops.RETRY if request.at is None else history_ops.FORK
        with _named_source(request):
            return decoded(await self._raw(operation, OfExecution(execution_id), keyed), history_ops.FORK)

    async def replay(self, execution_id: str) -> ReplayCheck:
        return await self._call(history_ops.REPLAY, OfExecution(execution_id))

    async def diff(self, execution_id: str, other: str) -> RunsDiff:
        return await self._call(history_ops.DIFF, history_ops.DiffWith(execution_id, other))

    async def simulate(self, request: SimulateRequest) -> SimulationReport:
        with _named_source(request):
            return await self._call(history_ops.SIMULATE, body=request)

    async def export(self, execution_id: str) -> AsyncIterator[bytes]:
        """Yield the bytes of an export. It is one request; if it breaks off, it is repeated as a whole."""
        path, _ = address_of(history_ops.EXPORT, OfExecution(execution_id))
        async with self._connection.streamed(path) as answer:
            async for chunk in answer.aiter_raw():
                yield chunk

    async def import_run(self, file: BinaryIO) -> Imported:
        return await self._call(history_ops.IMPORT, body=await asyncio.to_thread(file.read))

    async def lineage(self, execution_id: str) -> builtins.list[dict[str, Any]]:
        return (await self._call(history_ops.LINEAGE, OfExecution(execution_id))).events

    async def trace(self, execution_id: str, path: str) -> Trace:
        return await self._call(history_ops.TRACE, history_ops.TraceValue(execution_id, path))

    async def stats(self, path: str, *, since: str = "", limit: int = 200) -> PlaybookStats:
        return await self._call(history_ops.STATS, history_ops.StatsOf(path, since, limit))

    async def cancel(self, execution_id: str, reason: str) -> Status:
        await self.signal(execution_id, SignalRequest("CANCEL", reason=reason or "cancelled"))
        return await self.status(execution_id)

    async def collect(self, *, dry_run: bool = False) -> Collected:
        return await self._call(result_ops.COLLECT, body=result_ops.CollectBody(dry_run))

    # ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def wait(self, execution_id: str, *, after: int = 0, timeout_s: float | None = None) -> int:
        return (await self._until(event_ops.WaitForHead(execution_id, after=after), timeout_s)).head

    async def ended(self, execution_id: str, *, timeout_s: float | None = None) -> bool:
        return (await self._until(event_ops.WaitForHead(execution_id, until="ended"), timeout_s)).ended

    async def _until(self, wanted: event_ops.WaitForHead, timeout_s: float | None) -> event_ops.Head:
        """Repeat the request, each time for as long as one request may wait."""
        now = asyncio.get_running_loop().time
        deadline = None if timeout_s is None else now() + timeout_s
        while True:
            asked_at = now()
            pause_s = self._poll_s if deadline is None else min(self._poll_s, max(0.0, deadline - now()))
            head = await self._call(event_ops.HEAD, replace(wanted, timeout_s=round(pause_s, 3)), extra_s=pause_s)
            there = head.ended or (wanted.after is not None and head.head > wanted.after)
            if there or (deadline is not None and now() >= deadline):
                return head
            # A server that stops answers waiting requests at once, so pause before the next one.
            await asyncio.sleep(min(_LET_GO_S, max(0.0, asked_at + pause_s - now())))

    async def pausing(self, execution_id: str) -> bool:
        return (await self._call(event_ops.HEAD, event_ops.WaitForHead(execution_id))).pausing

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def status(self, execution_id: str) -> Status:
        return await self._call(run_ops.STATUS, OfExecution(execution_id))

    async def summary(self, execution_id: str) -> Summary:
        return await self._call(run_ops.DETAIL, OfExecution(execution_id))

    async def list(
        self,
        *,
        states: Sequence[str] = (),
        path: str = "",
        before: str = "",
        limit: int = 50,
        name: str = "",
        since: str = "",
        parent: str = "",
        origin: str = "",
    ) -> builtins.list[ListedRun]:
        wanted = run_ops.ListExecutions(
            state=builtins.list(states), path=path, name=name, since=since, parent=parent, origin=origin
        )

        async def read(at: str, most: int) -> builtins.list[ListedRun]:
            return (await self._call(run_ops.LIST, replace(wanted, before=at, limit=most))).executions

        return await paged(read, before, limit, lambda run: run.execution_id)

    async def find(self, query: RunQuery) -> RunPage:
        wanted = msgspec.structs.asdict(query)
        wanted.update(state=builtins.list(wanted.pop("states")), q=wanted.pop("text"))
        page = await self._call(run_ops.LIST, run_ops.ListExecutions(**wanted))
        return RunPage(page.executions, page.next)

    async def activity(self, *, hours: int = 24) -> Activity:
        return await self._call(run_ops.ACTIVITY, run_ops.Hours(hours))

    async def failing(self, *, limit: int = 20) -> builtins.list[FailingPlaybook]:
        return (await self._call(run_ops.FAILING, run_ops.ListFew(limit))).playbooks

    async def stuck(self, *, limit: int = 20) -> builtins.list[StuckRun]:
        return (await self._call(run_ops.STUCK, run_ops.ListFew(limit))).runs

    async def leases(self, *, limit: int = 100) -> builtins.list[Lease]:
        return (await self._call(run_ops.LEASES, run_ops.ListLeases(limit))).leases

    async def approvals(self, *, after: str = "", limit: int = 50) -> ApprovalPage:
        return await self._call(run_ops.APPROVALS, run_ops.ListApprovals(after, limit))

    async def events(
        self, execution_id: str, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> builtins.list[dict[str, Any]]:
        return await self._events(event_ops.ListEvents(execution_id, types=builtins.list(types)), after, limit)

    async def entity_events(
        self, execution_id: str, entity_type: str, entity_id: str = "", *, after: int = 0, limit: int = 1000
    ) -> builtins.list[dict[str, Any]]:
        wanted = event_ops.ListEvents(execution_id, entity_type=entity_type, entity_id=entity_id)
        return await self._events(wanted, after, limit)

    async def _events(self, wanted: event_ops.ListEvents, after: int, limit: int) -> builtins.list[dict[str, Any]]:
        async def read(at: int, most: int) -> builtins.list[dict[str, Any]]:
            return (await self._call(event_ops.EVENTS, replace(wanted, after=at, limit=most))).events

        return await paged(read, after, limit, lambda event: event["seq"])

    async def search(
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
    ) -> EventSearchPage:
        wanted = event_ops.SearchEvents(
            builtins.list(types), since, until, entity, where, informative=informative, cursor=cursor, limit=limit
        )
        return await self._call(event_ops.SEARCH, wanted)

    async def logs(
        self, execution_id: str, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> builtins.list[dict[str, Any]]:
        wanted = msgspec.structs.asdict(log_lines(execution_id, where))

        async def read(at: int, most: int) -> builtins.list[dict[str, Any]]:
            return (
                await self._call(event_ops.LOGS, event_ops.ListLogs(**{**wanted, "after": at, "limit": most}))
            ).lines

        return await paged(read, after, limit, lambda line: line["position"])

    async def results(self, execution_id: str, *, after: int = 0, limit: int = 1000) -> builtins.list[StoredResult]:
        async def read(at: int, most: int) -> builtins.list[StoredResult]:
            return (await self._call(result_ops.LIST, result_ops.ListResults(execution_id, at, most))).results

        return await paged(read, after, limit, lambda stored: stored.seq)

    async def result(self, ref: str) -> StoredResult:
        return await self._call(result_ops.DESCRIBE, result_ops.ByRef(ref))

    async def content(self, ref: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Requested in parts that every server allows; a part that breaks off is continued from there."""
        size = (await self.result(ref)).bytes
        at, stop = max(start, 0), size if end is None else min(end, size)
        part = _PART
        patience = self._connection.patience()
        path, query = address_of(result_ops.RESOLVE, result_ops.ByRef(ref))
        while at < stop:
            wanted = {"Range": f"bytes={at}-{min(at + part, stop) - 1}", "Accept-Encoding": "identity"}
            try:
                async with self._connection.streamed(path, params=query, headers=wanted) as answer:
                    if answer.status_code != _PARTIAL_CONTENT:
                        raise ResultUnavailable(f"{self._connection.url} ignores the requested range of {ref}")
                    async for chunk in answer.aiter_raw():
                        at += len(chunk)
                        yield chunk
                        patience.renew()
            except RequestTooLarge:
                if part == 1:
                    raise
                part //= 2
            except ServerUnavailable:
                if not await patience.more():
                    raise

    async def why(self, execution_id: str) -> Why:
        return await self._call(run_ops.WHY, OfExecution(execution_id))

    async def state(self, execution_id: str, at: int | None = None) -> StateView:
        return await self._call(run_ops.STATE, run_ops.StateAt(execution_id, at))

    async def source(self, execution_id: str) -> str:
        return (await self._raw(run_ops.SOURCE, OfExecution(execution_id))).decode()

    async def graph(self, execution_id: str, form: str = "json") -> Any:
        body = await self._raw(run_ops.GRAPH, run_ops.Graph(execution_id, form))
        return decoded(body, run_ops.GRAPH) if form == "json" else body.decode()

    # ── the catalog ──────────────────────────────────────────────────────────────────────────────────────────────

    async def register(self, request: RegisterRequest) -> CatalogVersion:
        try:
            return await self._call(catalog_ops.REGISTER, body=request)
        except PlaybookError as error:
            error.source, error.file = request.playbook, request.file
            raise

    async def catalog(
        self, *, prefix: str = "", after: str = "", limit: int = 100, archived: bool = False
    ) -> builtins.list[CatalogEntry]:
        wanted = catalog_ops.ListPlaybooks(prefix, after, limit, archived=archived)
        return (await self._call(catalog_ops.LIST, wanted)).playbooks

    async def versions(self, path: str, *, before: int = 0, limit: int = 100) -> builtins.list[CatalogVersion]:
        return (await self._call(catalog_ops.VERSIONS, catalog_ops.ListVersions(path, before, limit))).versions

    async def registered(self, path: str, version: int = 0) -> CatalogVersion:
        return await self._call(catalog_ops.SHOW, catalog_ops.ShowVersion(path, version))

    async def difference(self, path: str, older: int, newer: int = 0, other: str = "") -> CatalogDiff:
        return await self._call(catalog_ops.DIFF, catalog_ops.DiffVersions(path, older, newer, other))

    async def archive(self, path: str, *, archived: bool = True) -> CatalogEntry:
        return await self._call(catalog_ops.ARCHIVE, body=catalog_ops.ArchiveBody(path, archived))


def log_lines(execution_id: str, where: LogFilter) -> event_ops.LogLines:
    """The parameters of a filter of log lines."""
    return event_ops.LogLines(
        execution_id,
        step=where.step,
        task=where.task,
        iteration="" if where.iteration is None else ".".join(map(str, where.iteration)),
        streams=list(where.streams),
        text=where.text,
        since=str(where.since or ""),
    )


@contextmanager
def _named_source(request: ExecuteRequest | ForkRequest | SimulateRequest) -> Iterator[None]:
    """Add the file and the text of the request to an error in a playbook."""
    try:
        yield
    except PlaybookError as error:
        if not error.source:
            error.file = error.file or request.file
            error.source = request.playbook if error.file == request.file else request.files.get(error.file, "")
        raise
