"""The requests in progress: counted, limited, shared between callers, and refused while the server drains.

Plain ASGI, the outermost layer, so that a refused request is cheap. Shares are counted once the caller is known
(`Slot.take`). In the last part of `server.max_concurrent` (from `server.fair_from` on) a caller, and a tenant, may have
at most as many requests as are left for others, so that neither can shut others out. Urgent operations (heartbeats,
cancels) have reserved places (`server.reserved`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from arclog.model.config.settings import Settings
from arclog.model.errors import RequestTooLarge, TooManyRequests
from arclog.model.principal import Principal
from arclog.server.headers import respond
from arclog.server.problems import problem

K = TypeVar("K")

#: Paths for operators, which are answered under any load.
_ALWAYS = frozenset({"/health", "/ready", "/metrics"})
#: While the server drains, these methods, which change nothing, are still answered.
_LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})
#: The key of a request's slot in its scope.
SLOT = "arclog.slot"


class RequestSlots:
    """Requests in progress at a time, of one sort, by caller and tenant."""

    def __init__(self, most: int, fair_from: float) -> None:
        self.now = 0
        self.most = most
        self._fair_from = most * fair_from
        self._callers: Counter[tuple[str, str]] = Counter()
        #: by tenant, the requests that came when the fair share applied
        self._late: Counter[str] = Counter()

    @property
    def is_full(self) -> bool:
        return self.now >= self.most

    def take(self, caller: tuple[str, str]) -> bool:
        """Count a request (which is in `now` already) for a caller; returns whether the fair share applied. Raises
        TooManyRequests.
        """
        tenant = caller[0]
        late = self.now > self._fair_from
        if late:
            free = self.most - self.now + 1
            if self._callers[caller] >= free or self._late[tenant] >= free:
                raise TooManyRequests(
                    "the server is busy, and this caller or tenant already has its share of requests "
                    "(server.max_concurrent, server.fair_from)"
                )
            self._late[tenant] += 1
        self._callers[caller] += 1
        return late

    def leave(self, caller: tuple[str, str], *, late: bool) -> None:
        _less(self._callers, caller)
        if late:
            _less(self._late, caller[0])


class Traffic:
    """The number of requests in progress, and the memory of their bodies."""

    def __init__(self, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        fair_from = settings.number("server.fair_from")
        self._places = RequestSlots(settings.integer("server.max_concurrent"), fair_from)
        self._reserved = RequestSlots(settings.integer("server.reserved"), fair_from)
        self._max_held = settings.integer("server.max_held_bytes")
        self._held = 0
        self._held_by: Counter[tuple[str, str]] = Counter()
        self._held_of: Counter[str] = Counter()
        #: of them, streams that follow a run
        self.streams = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def now(self) -> int:
        return self._places.now + self._reserved.now

    def enter(self, *, urgent: bool = False) -> Slot | None:
        """A slot for a request; None when all are taken."""
        places = self._reserved if urgent and not self._reserved.is_full else self._places
        if places.is_full:
            return None
        places.now += 1
        self._quiet.clear()
        return Slot(self, places)

    def left(self) -> None:
        if not self.now:
            self._quiet.set()

    def hold(self, caller: tuple[str, str], size: int) -> None:
        """Count the memory of a request. A caller may use half of the total, a tenant three quarters. Raises
        TooManyRequests or RequestTooLarge.
        """
        if size > self._max_held // 2:
            raise RequestTooLarge(
                f"the body would take about {size} bytes of memory; a request may take {self._max_held // 2} "
                "(half of server.max_held_bytes)"
            )
        tenant = caller[0]
        is_full = self._held + size > self._max_held or self._held_by[caller] + size > self._max_held // 2
        if is_full or (tenant and self._held_of[tenant] + size > self._max_held * 3 // 4):
            raise TooManyRequests(
                "the bodies of concurrent requests use all of the available memory (server.max_held_bytes)"
            )
        self._held += size
        self._held_by[caller] += size
        self._held_of[tenant] += size

    def free(self, caller: tuple[str, str], size: int) -> None:
        self._held -= size
        _less(self._held_by, caller, size)
        _less(self._held_of, caller[0], size)

    @contextmanager
    def streaming(self) -> Iterator[None]:
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    async def quiet(self) -> None:
        """Return once no request is in progress."""
        await self._quiet.wait()


class Slot:
    """The slot of one request."""

    def __init__(self, traffic: Traffic, places: RequestSlots) -> None:
        self._traffic = traffic
        self._places = places
        self._caller = ("", "")
        self._is_shared = False
        self._late = False
        self._held = 0

    def take(self, principal: Principal) -> None:
        """Count the request for this caller. Raises TooManyRequests. Without authentication there are no shares."""
        if self._is_shared or not principal.subject:
            return
        caller = (principal.tenant, principal.subject)
        self._late = self._places.take(caller)
        self._caller, self._is_shared = caller, True

    def hold(self, size: int) -> None:
        """Count more bytes for the request's body, until it is answered. Raises TooManyRequests or RequestTooLarge."""
        self._traffic.hold(self._caller, size)
        self._held += size

    def leave(self) -> None:
        if self._held:
            self._traffic.free(self._caller, self._held)
        if self._is_shared:
            self._places.leave(self._caller, late=self._late)
        self._places.now -= 1
        self._traffic.left()


def _less(counter: Counter[K], key: K, by: int = 1) -> None:
    """Decrease a count, and remove it at zero."""
    counter[key] -= by
    if counter[key] <= 0:
        del counter[key]


class Admission:
    """The outermost layer: admits a request, or answers 429 or 503 with Retry-After."""

    def __init__(
        self, app: ASGIApp, traffic: Traffic, stopping: asyncio.Event, is_urgent: Callable[[Scope], bool]
    ) -> None:
        """`is_urgent`: whether a request may use the reserved slots (`server.reserved`)."""
        self._app = app
        self._is_urgent = is_urgent
        self._traffic = traffic
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _ALWAYS:
            await self._app(scope, receive, send)
            return
        if self._stopping.is_set() and scope["method"] not in _LOOKING:
            refusal = problem(503, "Draining", "the server is stopping and accepts no new work; try again in a moment")
            await respond(refusal, scope, receive, send)
            return
        slot = self._traffic.enter(urgent=self._is_urgent(scope))
        if slot is None:
            text = f"{self._traffic.now} requests are in progress, the maximum of this server (server.max_concurrent)"
            await respond(problem(429, "TooManyRequests", text), scope, receive, send)
            return
        scope[SLOT] = slot
        try:
            await self._app(scope, receive, send)
        finally:
            slot.leave()
