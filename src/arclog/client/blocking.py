"""The client for programs without asyncio: blocking calls of `AsyncClient`.

An event loop in a separate thread does the work, so a `Client` may be used from any thread, and also inside a running
loop (which it then blocks).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from arclog.client.administration import RemoteAudit, RemoteCredentials, RemoteKeys, RemotePools, RemoteSchedules
from arclog.client.asynchronous import AsyncClient
from arclog.model.config.settings import Settings

P = ParamSpec("P")
S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="arclog-client", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        if self.is_closed:
            work.close()
            raise RuntimeError("this client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C in the caller's thread stops the work as well
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over an asynchronous iterator; stopping early releases its connection."""
        end = object()

        async def step() -> Any:
            return await anext(items, end)

        async def stop() -> None:
            await items.aclose()  # type: ignore[attr-defined]  # all are generators

        try:
            while (item := self.run(step())) is not end:
                yield item
        finally:
            if not self.is_closed:
                self.run(stop())


class Blocking(Generic[S_co]):
    """Wraps an asynchronous object, whose methods become blocking."""

    def __init__(self, twin: S_co, loop: Loop) -> None:
        self._twin = twin
        self._loop = loop


def _blocking(
    method: Callable[Concatenate[S_co, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[S_co], P], T]:
    """The blocking form of an asynchronous method."""

    @functools.wraps(method)
    def call(self: Blocking[S_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._twin, *args, **kwargs))

    call.__doc__ = inspect.getdoc(method)  # the port's, unless the method has its own
    return call


def _iterating(
    method: Callable[Concatenate[S_co, P], AsyncIterator[T]],
) -> Callable[Concatenate[Blocking[S_co], P], Iterator[T]]:
    """The blocking form of an asynchronous generator."""

    @functools.wraps(method)
    def call(self: Blocking[S_co], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._loop.iterate(method(self._twin, *args, **kwargs))

    call.__doc__ = inspect.getdoc(method)
    return call


class Schedules(Blocking[RemoteSchedules]):
    """See `ports.storage.schedules.ScheduleApi`."""

    add = _blocking(RemoteSchedules.add)
    list = _blocking(RemoteSchedules.list)
    upcoming = _blocking(RemoteSchedules.upcoming)
    show = _blocking(RemoteSchedules.show)
    pause = _blocking(RemoteSchedules.pause)
    resume = _blocking(RemoteSchedules.resume)
    remove = _blocking(RemoteSchedules.remove)
    backfill = _blocking(RemoteSchedules.backfill)


class Pools(Blocking[RemotePools]):
    """See `ports.storage.pools.PoolApi`."""

    pools = _blocking(RemotePools.pools)
    set_limit = _blocking(RemotePools.set_limit)
    remove_limit = _blocking(RemotePools.remove_limit)
    scale = _blocking(RemotePools.scale)
    resources = _blocking(RemotePools.resources)
    set_resource = _blocking(RemotePools.set_resource)
    remove_resource = _blocking(RemotePools.remove_resource)
    workers = _blocking(RemotePools.workers)
    drain = _blocking(RemotePools.drain)


class Keys(Blocking[RemoteKeys]):
    """See `ports.storage.access.KeyApi`."""

    create = _blocking(RemoteKeys.create)
    list = _blocking(RemoteKeys.list)
    revoke = _blocking(RemoteKeys.revoke)


class Audits(Blocking[RemoteAudit]):
    """See `ports.storage.access.AuditApi`."""

    page = _blocking(RemoteAudit.page)


class Credentials(Blocking[RemoteCredentials]):
    """See `ports.secrets.CredentialApi`."""

    put = _blocking(RemoteCredentials.put)
    list = _blocking(RemoteCredentials.list)
    remove = _blocking(RemoteCredentials.remove)


class Client(Blocking[AsyncClient]):
    """A blocking client of a server, with the methods of `AsyncClient`."""

    def __init__(
        self, server: str = "", *, token: str = "", settings: Settings | Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(AsyncClient(server, token=token, settings=settings), Loop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a second call does nothing."""
        if not self._loop.is_closed:
            self._loop.run(self._twin.close())
            self._loop.close()

    @property
    def server(self) -> str:
        """The address of the server."""
        return self._twin.server

    @property
    def schedules(self) -> Schedules:
        """Schedules."""
        return Schedules(self._twin.schedules, self._loop)

    @property
    def pools(self) -> Pools:
        """Pools, resources and workers."""
        return Pools(self._twin.pools, self._loop)

    @property
    def keys(self) -> Keys:
        """API keys of the caller's tenant."""
        return Keys(self._twin.keys, self._loop)

    @property
    def audits(self) -> Audits:
        """The audit: requests that were granted and denied."""
        return Audits(self._twin.audits, self._loop)

    @property
    def credentials(self) -> Credentials:
        """Secrets for keychain entries."""
        return Credentials(self._twin.credentials, self._loop)

    start = _blocking(AsyncClient.start)
    run = _blocking(AsyncClient.run)
    follow = _iterating(AsyncClient.follow)
    follow_logs = _iterating(AsyncClient.follow_logs)

    execute = _blocking(AsyncClient.execute)
    wait = _blocking(AsyncClient.wait)
    ended = _blocking(AsyncClient.ended)
    signal = _blocking(AsyncClient.signal)
    cancel = _blocking(AsyncClient.cancel)
    pausing = _blocking(AsyncClient.pausing)

    status = _blocking(AsyncClient.status)
    summary = _blocking(AsyncClient.summary)
    list = _blocking(AsyncClient.list)
    find = _blocking(AsyncClient.find)
    activity = _blocking(AsyncClient.activity)
    failing = _blocking(AsyncClient.failing)
    stuck = _blocking(AsyncClient.stuck)
    leases = _blocking(AsyncClient.leases)
    approvals = _blocking(AsyncClient.approvals)
    events = _blocking(AsyncClient.events)
    entity_events = _blocking(AsyncClient.entity_events)
    search = _blocking(AsyncClient.search)
    logs = _blocking(AsyncClient.logs)
    why = _blocking(AsyncClient.why)
    state = _blocking(AsyncClient.state)
    source = _blocking(AsyncClient.source)
    graph = _blocking(AsyncClient.graph)

    results = _blocking(AsyncClient.results)
    result = _blocking(AsyncClient.result)
    content = _iterating(AsyncClient.content)
    collect = _blocking(AsyncClient.collect)

    fork = _blocking(AsyncClient.fork)
    replay = _blocking(AsyncClient.replay)
    diff = _blocking(AsyncClient.diff)
    simulate = _blocking(AsyncClient.simulate)
    export = _iterating(AsyncClient.export)
    import_run = _blocking(AsyncClient.import_run)
    lineage = _blocking(AsyncClient.lineage)
    trace = _blocking(AsyncClient.trace)
    stats = _blocking(AsyncClient.stats)

    register = _blocking(AsyncClient.register)
    catalog = _blocking(AsyncClient.catalog)
    versions = _blocking(AsyncClient.versions)
    registered = _blocking(AsyncClient.registered)
    difference = _blocking(AsyncClient.difference)
    archive = _blocking(AsyncClient.archive)
