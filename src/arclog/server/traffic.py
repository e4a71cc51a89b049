"""The requests under way: counted, bounded, and refused while the server drains.

Plain ASGI, outside everything else: a request that cannot be taken costs nothing more than its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from arclog.model.settings import Settings
from arclog.server.problems import problem

#: Answered whatever the load: whoever looks after the server asks these.
_ALWAYS = frozenset({"/health", "/ready", "/metrics"})
#: While the server drains, what only looks is still answered.
_LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})


class Traffic:
    """How many requests are under way."""

    def __init__(self) -> None:
        self.now = 0
        #: of them, streams that follow a run
        self.streams = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    def enter(self) -> None:
        self.now += 1
        self._quiet.clear()

    def leave(self) -> None:
        self.now -= 1
        if not self.now:
            self._quiet.set()

    @contextmanager
    def streaming(self) -> Iterator[None]:
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    async def quiet(self) -> None:
        """Return once no request is under way."""
        await self._quiet.wait()


class Admission:
    """The outermost layer: lets a request in, or says when to come again."""

    def __init__(self, app: ASGIApp, settings: Settings, traffic: Traffic, stopping: asyncio.Event) -> None:
        self._app = app
        self._traffic = traffic
        self._stopping = stopping
        self._most = settings.integer("server.max_concurrent")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _ALWAYS:
            await self._app(scope, receive, send)
            return
        if self._stopping.is_set() and scope["method"] not in _LOOKING:
            refusal = problem(503, "Draining", "the server is stopping and takes no new work; try again in a moment")
            await refusal(scope, receive, send)
            return
        if self._traffic.now >= self._most:
            text = f"{self._traffic.now} requests are under way, as many as the server takes (server.max_concurrent)"
            await problem(429, "TooManyRequests", text)(scope, receive, send)
            return
        self._traffic.enter()
        try:
            await self._app(scope, receive, send)
        finally:
            self._traffic.leave()
