"""`ports.views.api` over HTTP: what a program or the CLI asks of a server is what it would ask of an engine in its own process.

Every answer is a Struct of the port; every refusal is the exception that the engine raised.
"""

from __future__ import annotations

import asyncio
import builtins
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote

import httpx2
import msgspec

from arclog.client.connection import Connection
from arclog.client.overview import RemoteOverview
from arclog.model.config.settings import Settings
from arclog.model.errors import PlaybookError, RequestTooLarge, ResultUnavailable, RunEnded, ServerUnavailable
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
from arclog.ports.views.history import Imported, Lineage, SimulateRequest, SimulationReport, Trace
from arclog.ports.views.insight import StateView, Why

T = TypeVar("T")
C = TypeVar("C")

_RESOLVE = "/api/result/resolve"
_LET_GO_S = 0.2
#: A server that reads whole logs for an answer may take so much longer.
_LONG_S = 120.0
#: Most rows that a server gives at a time.
_PAGE = 1000
#: Bytes of a stored result that are asked for at a time; less, if the server gives less (server.max_result_bytes).
_PART = 16 * 1024 * 1024
_EXECUTIONS = "/api/executions"
_CATALOG = "/api/catalog"


class Head(msgspec.Struct, frozen=True):
    """How far a run is."""

    #: seq of its last event
    head: int
    ended: bool
    pausing: bool


class _Page(msgspec.Struct, frozen=True):
    """A page of a list; each route has its own word for the rows."""

    executions: builtins.list[Listed] = []
    events: builtins.list[dict[str, Any]] = []
    lines: builtins.list[dict[str, Any]] = []
    results: builtins.list[StoredResult] = []
    playbooks: builtins.list[CatalogEntry] = []
    versions: builtins.list[CatalogVersion] = []


class RemoteApi(RemoteOverview):
    """Implements `ports.api.Api` over a server's routes."""

    def __init__(self, connection: Connection, settings: Settings) -> None:
        self._connection = connection
        self._poll_s = settings.number("client.poll_s")

    # ── starting and telling ─────────────────────────────────────────────────────────────────────────────────────

    async def execute(self, request: ExecuteRequest) -> Started:
        # With a key the request can be repeated: a server that died with its answer unsent starts no second run.
        keyed = msgspec.structs.replace(request, idempotency_key=request.idempotency_key or uuid.uuid4().hex)
        try:
            return await self._post(_EXECUTIONS, keyed, Started)
        except PlaybookError as error:
            if not error.source:
                error.file = error.file or request.file
                error.source = request.playbook if error.file == request.file else request.files.get(error.file, "")
            raise

    async def signal(self, execution_id: str, request: SignalRequest) -> SignalAnswer:
        named = msgspec.structs.replace(request, signal_id=request.signal_id or str(uuid.uuid4()))
        try:
            return await self._post(_of(execution_id, "signal"), named, SignalAnswer)
        except RunEnded as problem:
            state = (await self.status(execution_id)).state
            return SignalAnswer(
                execution_id,
                request.signal,
                named.signal_id,
                accepted=False,
                message=str(problem),
                state=state,
                paused=False,
            )

    async def fork(self, execution_id: str, request: ForkRequest) -> Forked:
        # With a key the request can be repeated, as with `execute`.
        keyed = msgspec.structs.replace(request, idempotency_key=request.idempotency_key or uuid.uuid4().hex)
        try:
            return await self._post(_of(execution_id, "retry" if request.at is None else "fork"), keyed, Forked)
        except PlaybookError as error:
            if not error.source:
                error.file = error.file or request.file
                error.source = request.playbook if error.file == request.file else request.files.get(error.file, "")
            raise

    async def replay(self, execution_id: str) -> ReplayCheck:
        body = await self._connection.ask("GET", _of(execution_id, "replay"), extra_s=_LONG_S)
        return _decoded(body, ReplayCheck)

    async def diff(self, execution_id: str, other: str) -> RunsDiff:
        body = await self._connection.ask("GET", _of(execution_id, "diff"), params={"with": other}, extra_s=_LONG_S)
        return _decoded(body, RunsDiff)

    async def simulate(self, request: SimulateRequest) -> SimulationReport:
        try:
            body = msgspec.json.encode(request)
            answer = await self._connection.ask("POST", "/api/simulate", body=body, safe=True, extra_s=_LONG_S)
            return _decoded(answer, SimulationReport)
        except PlaybookError as error:
            if not error.source:
                error.file = error.file or request.file
                error.source = request.playbook if error.file == request.file else request.files.get(error.file, "")
            raise

    async def export(self, execution_id: str) -> AsyncIterator[bytes]:
        """The answer of one request: one that breaks off is asked for again as a whole."""
        async with self._connection.streamed(_of(execution_id, "export")) as answer:
            async for chunk in answer.aiter_raw():
                yield chunk

    async def import_run(self, file: BinaryIO) -> Imported:
        body = await asyncio.to_thread(file.read)
        answer = await self._connection.ask("POST", "/api/import", body=body, safe=True, extra_s=_LONG_S)
        return _decoded(answer, Imported)

    async def lineage(self, execution_id: str) -> builtins.list[dict[str, Any]]:
        body = await self._connection.ask("GET", _of(execution_id, "lineage"), extra_s=_LONG_S)
        return _decoded(body, Lineage).events

    async def trace(self, execution_id: str, path: str) -> Trace:
        body = await self._connection.ask("GET", _of(execution_id, "trace"), params={"value": path}, extra_s=_LONG_S)
        return _decoded(body, Trace)

    async def stats(self, path: str, *, since: str = "", limit: int = 200) -> PlaybookStats:
        params = {"path": path, "limit": limit} | ({"since": since} if since else {})
        body = await self._connection.ask("GET", "/api/stats", params=params, extra_s=_LONG_S)
        return _decoded(body, PlaybookStats)

    async def cancel(self, execution_id: str, reason: str) -> Status:
        await self.signal(execution_id, SignalRequest("CANCEL", reason=reason or "cancelled"))
        return await self.status(execution_id)

    async def collect(self, *, dry_run: bool = False) -> Collected:
        return await self._post("/api/gc", {"dry_run": dry_run}, Collected)

    # ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def wait(self, execution_id: str, *, after: int = 0, timeout_s: float | None = None) -> int:
        return (await self._until(execution_id, {"after": after}, timeout_s)).head

    async def ended(self, execution_id: str, *, timeout_s: float | None = None) -> bool:
        return (await self._until(execution_id, {"until": "ended"}, timeout_s)).ended

    async def _until(self, execution_id: str, params: Mapping[str, Any], timeout_s: float | None) -> Head:
        """Ask again and again, each time for as long as one request may wait."""
        now = asyncio.get_running_loop().time
        deadline = None if timeout_s is None else now() + timeout_s
        while True:
            asked_at = now()
            left = self._poll_s if deadline is None else min(self._poll_s, max(0.0, deadline - now()))
            asked = {**params, "timeout_s": f"{left:.3f}"}
            body = await self._connection.ask("GET", _of(execution_id, "head"), params=asked, extra_s=left)
            found = _decoded(body, Head)
            there = found.ended or ("after" in params and found.head > params["after"])
            if there or (deadline is not None and now() >= deadline):
                return found
            # A server that stops releases waiting requests: it must not be asked as fast as it answers.
            await asyncio.sleep(min(_LET_GO_S, max(0.0, asked_at + left - now())))

    async def pausing(self, execution_id: str) -> bool:
        return (await self._got(_of(execution_id, "head"), Head)).pausing

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def status(self, execution_id: str) -> Status:
        return await self._got(_of(execution_id, "status"), Status)

    async def summary(self, execution_id: str) -> Summary:
        return await self._got(_of(execution_id), Summary)

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
    ) -> builtins.list[Listed]:
        wanted = {"state": builtins.list(states), "path": path, "name": name, "since": since, "parent": parent}

        async def read(at: str, most: int) -> builtins.list[Listed]:
            return (await self._got(_EXECUTIONS, _Page, {**wanted, "before": at, "limit": most})).executions

        return await _paged(read, before, limit, lambda run: run.execution_id)

    async def events(
        self, execution_id: str, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> builtins.list[dict[str, Any]]:
        return await self._events(execution_id, after, limit, {"type": builtins.list(types)})

    async def entity_events(
        self, execution_id: str, entity_type: str, entity_id: str = "", *, after: int = 0, limit: int = 1000
    ) -> builtins.list[dict[str, Any]]:
        about = {"entity_type": entity_type, "entity_id": entity_id}
        return await self._events(execution_id, after, limit, about)

    async def _events(
        self, execution_id: str, after: int, limit: int, wanted: Mapping[str, Any]
    ) -> builtins.list[dict[str, Any]]:
        async def read(at: int, most: int) -> builtins.list[dict[str, Any]]:
            params = {"after": at, "limit": most, **wanted}
            return (await self._got(_of(execution_id, "events"), _Page, params)).events

        return await _paged(read, after, limit, lambda event: event["seq"])

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
    ) -> EventsFound:
        params: dict[str, Any] = {"type": builtins.list(types), "since": since, "until": until, "cursor": cursor}
        params |= {"limit": limit, "informative": "true" if informative else "", "entity": entity, "where": where}
        return await self._got("/api/events", EventsFound, params)

    async def logs(
        self, execution_id: str, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> builtins.list[dict[str, Any]]:
        wanted = log_params(where)

        async def read(at: int, most: int) -> builtins.list[dict[str, Any]]:
            return (await self._got(_of(execution_id, "logs"), _Page, {**wanted, "after": at, "limit": most})).lines

        return await _paged(read, after, limit, lambda line: line["position"])

    async def results(self, execution_id: str, *, after: int = 0, limit: int = 1000) -> builtins.list[StoredResult]:
        async def read(at: int, most: int) -> builtins.list[StoredResult]:
            return (await self._got(_of(execution_id, "results"), _Page, {"after": at, "limit": most})).results

        return await _paged(read, after, limit, lambda stored: stored.seq)

    async def result(self, ref: str) -> StoredResult:
        return await self._got("/api/result", StoredResult, {"ref": ref})

    async def content(self, ref: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Asked for in parts that any server gives; one that breaks off is asked for from where it broke off."""
        size = (await self.result(ref)).bytes
        at, stop = max(start, 0), size if end is None else min(end, size)
        part = _PART
        patience = self._connection.patience()
        while at < stop:
            wanted = {"Range": f"bytes={at}-{min(at + part, stop) - 1}", "Accept-Encoding": "identity"}
            try:
                async with self._connection.streamed(_RESOLVE, params={"ref": ref}, headers=wanted) as answer:
                    if answer.status_code != httpx2.codes.PARTIAL_CONTENT:
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
                if await patience.over():
                    raise

    async def why(self, execution_id: str) -> Why:
        return await self._got(_of(execution_id, "why"), Why)

    async def state(self, execution_id: str, at: int | None = None) -> StateView:
        return await self._got(_of(execution_id, "state"), StateView, {"at": at})

    async def source(self, execution_id: str) -> str:
        return (await self._connection.ask("GET", _of(execution_id, "source"))).decode()

    async def graph(self, execution_id: str, form: str = "json") -> Any:
        body = await self._connection.ask("GET", _of(execution_id, "graph"), params={"format": form})
        return _decoded(body, dict[str, Any]) if form == "json" else body.decode()

    # ── the catalog ──────────────────────────────────────────────────────────────────────────────────────────────

    async def register(self, request: RegisterRequest) -> CatalogVersion:
        # The same content is the same version: it may be sent twice.
        try:
            return await self._post(_CATALOG, request, CatalogVersion)
        except PlaybookError as error:
            error.source, error.file = request.playbook, request.file
            raise

    async def catalog(
        self, *, prefix: str = "", after: str = "", limit: int = 100, archived: bool = False
    ) -> builtins.list[CatalogEntry]:
        params = {"prefix": prefix, "after": after, "limit": limit, "archived": "true" if archived else ""}
        return (await self._got(_CATALOG, _Page, params)).playbooks

    async def versions(self, path: str, *, before: int = 0, limit: int = 100) -> builtins.list[CatalogVersion]:
        params = {"path": path, "before": before, "limit": limit}
        return (await self._got(f"{_CATALOG}/versions", _Page, params)).versions

    async def registered(self, path: str, version: int = 0) -> CatalogVersion:
        return await self._got(f"{_CATALOG}/show", CatalogVersion, {"path": path, "version": version})

    async def difference(self, path: str, older: int, newer: int = 0) -> CatalogDiff:
        return await self._got(f"{_CATALOG}/diff", CatalogDiff, {"path": path, "from": older, "to": newer})

    async def archive(self, path: str, *, archived: bool = True) -> CatalogEntry:
        return await self._post(f"{_CATALOG}/archive", {"path": path, "archived": archived}, CatalogEntry)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _got(self, path: str, kind: type[T], params: Mapping[str, Any] | None = None) -> T:
        """What is empty or None is not said."""
        said = {name: value for name, value in (params or {}).items() if value not in (None, "", [])}
        return _decoded(await self._connection.ask("GET", path, params=said), kind)

    async def _post(self, path: str, body: Any, kind: type[T]) -> T:
        """A request whose body makes it safe to repeat."""
        return _decoded(await self._connection.ask("POST", path, body=msgspec.json.encode(body), safe=True), kind)


def log_params(where: LogFilter) -> dict[str, Any]:
    """How a filter of log lines is asked for; what it leaves open is not said."""
    said = {
        "step": where.step,
        "task": where.task,
        "iteration": None if where.iteration is None else ".".join(map(str, where.iteration)),
        "stream": list(where.streams),
        "text": where.text,
        "since": where.since,
    }
    return {name: value for name, value in said.items() if value not in (None, "", [], 0)}


async def _paged(
    read: Callable[[C, int], Awaitable[builtins.list[T]]], at: C, limit: int, cursor: Callable[[T], C]
) -> builtins.list[T]:
    """As many rows as were asked for, however few a server gives at a time."""
    rows: builtins.list[T] = []
    while True:
        most = min(limit - len(rows), _PAGE)
        page = await read(at, most)
        rows += page
        if len(page) < most or len(rows) >= limit:
            return rows
        at = cursor(page[-1])


def _of(execution_id: str, what: str = "") -> str:
    """The path of a run; whatever an id may hold, it stays one part of it."""
    return f"{_EXECUTIONS}/{quote(execution_id, safe='')}" + (f"/{what}" if what else "")


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ServerUnavailable(
            f"the server's answer cannot be understood ({problem}); is it an arclog server of this version?"
        ) from None
