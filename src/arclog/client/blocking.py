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

    def done(self, work: Coroutine[Any, Any, T]) -> T:
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
            while (item := self.done(step())) is not end:
                yield item
        finally:
            if not self.is_closed:
                self.done(stop())


class Blocking(Generic[S_co]):
    """Wraps an asynchronous object, whose methods become blocking."""

    def __init__(self, twin: S_co, loop: Loop) -> None:
        self._twin = twin
        self._loop = loop


def _done(
    method: Callable[Concatenate[S_co, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[S_co], P], T]:
    """The blocking form of an asynchronous method."""

    @functools.wraps(method)
    def call(self: Blocking[S_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.done(method(self._twin, *args, **kwargs))

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

    add = _done(RemoteSchedules.add)
    list = _done(RemoteSchedules.list)
    upcoming = _done(RemoteSchedules.upcoming)
    show = _done(RemoteSchedules.show)
    pause = _done(RemoteSchedules.pause)
    resume = _done(RemoteSchedules.resume)
    remove = _done(RemoteSchedules.remove)
    backfill = _done(RemoteSchedules.backfill)


class Pools(Blocking[RemotePools]):
    """See `ports.storage.pools.PoolApi`."""

    pools = _done(RemotePools.pools)
    set_limit = _done(RemotePools.set_limit)
    remove_limit = _done(RemotePools.remove_limit)
    scale = _done(RemotePools.scale)
    resources = _done(RemotePools.resources)
    set_resource = _done(RemotePools.set_resource)
    remove_resource = _done(RemotePools.remove_resource)
    workers = _done(RemotePools.workers)
    drain = _done(RemotePools.drain)


class Keys(Blocking[RemoteKeys]):
    """See `ports.storage.access.KeyApi`."""

    create = _done(RemoteKeys.create)
    list = _done(RemoteKeys.list)
    revoke = _done(RemoteKeys.revoke)


class Audits(Blocking[RemoteAudit]):
    """See `ports.storage.access.AuditApi`."""

    page = _done(RemoteAudit.page)


class Credentials(Blocking[RemoteCredentials]):
    """See `ports.secrets.CredentialApi`."""

    put = _done(RemoteCredentials.put)
    list = _done(RemoteCredentials.list)
    remove = _done(RemoteCredentials.remove)


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
            self._loop.done(self._twin.close())
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

    start = _done(AsyncClient.start)
    run = _done(AsyncClient.run)
    follow = _iterating(AsyncClient.follow)
    follow_logs = _iterating(AsyncClient.follow_logs)

    execute = _done(AsyncClient.execute)
    wait = _done(AsyncClient.wait)
    ended = _done(AsyncClient.ended)
    signal = _done(AsyncClient.signal)
    cancel = _done(AsyncClient.cancel)
    pausing = _done(AsyncClient.pausing)

    status = _done(AsyncClient.status)
    summary = _done(AsyncClient.summary)
    list = _done(AsyncClient.list)
    find = _done(AsyncClient.find)
    activity = _done(AsyncClient.activity)
    failing = _done(AsyncClient.failing)
    stuck = _done(AsyncClient.stuck)
    leases = _done(AsyncClient.leases)
    approvals = _done(AsyncClient.approvals)
    events = _done(AsyncClient.events)
    entity_events = _done(AsyncClient.entity_events)
    search = _done(AsyncClient.search)
    logs = _done(AsyncClient.logs)
    why = _done(AsyncClient.why)
    state = _done(AsyncClient.state)
    source = _done(AsyncClient.source)
    graph = _done(AsyncClient.graph)

    results = _done(AsyncClient.results)
    result = _done(AsyncClient.result)
    content = _iterating(AsyncClient.content)
    collect = _done(AsyncClient.collect)

    fork = _done(AsyncClient.fork)
    replay = _done(AsyncClient.replay)
    diff = _done(AsyncClient.diff)
    simulate = _done(AsyncClient.simulate)
    export = _iterating(AsyncClient.export)
    import_run = _done(AsyncClient.import_run)
    lineage = _done(AsyncClient.lineage)
    trace = _done(AsyncClient.trace)
    stats = _done(AsyncClient.stats)

    register = _done(AsyncClient.register)
    catalog = _done(AsyncClient.catalog)
    versions = _done(AsyncClient.versions)
    registered = _done(AsyncClient.registered)
    difference = _done(AsyncClient.difference)
    archive = _done(AsyncClient.archive)
