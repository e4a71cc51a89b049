"""Turns: decisions with heavy templates are made in threads, one slice at a time, so that the event loop and other
tenants continue.

Invariants: one thread computes at a time, and after a slice of templates no thread computes for four times its duration
(for MAX_REST_S at most), so that the event loop has at least four fifths of the time. Threads get slices in order of
request. A tenant has one such decision in progress; tenants that wait for a thread take turns. While several tenants
have decisions, one that computes for more than _LIGHT_S in a second rests longer, so that it takes a thirtieth of the
time.

Light decisions are made on the event loop. A tenant that makes one after the other beside other tenants lets the event
loop go round a few times in between, so that others do not wait for a decision and a commit of this tenant between any
two of their callbacks.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from time import monotonic, sleep
from typing import TypeVar

from arclog.model.data.lru import LruCache

T = TypeVar("T")

#: Duration of a slice.
SLICE_S = 0.001
#: Ratio of the pause after a slice to the slice.
_REST = 4
#: The same for a tenant that has used up _LIGHT_S in the current _WINDOW_S, while other tenants have decisions, too. Only
#: this tenant waits for it.
_LONG_REST = 29
_LIGHT_S, _WINDOW_S = 0.02, 1.0
#: Maximum duration of that pause. A computation that cannot be interrupted must not delay the next one for long.
MAX_REST_S = 0.25
#: Duration of the pause between slices of the engine's own work: long enough for a waiting thread to wake up.
_BRIEF_S = 0.000_05
#: Number of operations after which a thread checks whether its slice is over.
SLICE_WORK = 1_000
#: Maximum number of tenants with a heavy decision in progress.
MAX_THREADS = 4
#: How often the event loop goes round before the next light decision of a tenant that also made the latest one, beside
#: other tenants. A round costs a few microseconds if nobody has anything to do.
_ROUNDS = 8
#: Maximum number of plans remembered as heavy.
_REMEMBERED = 10_000


class Stopped(BaseException):
    """The engine is closing; the decision is no longer needed."""


class Turns:
    """Computes heavy decisions."""

    def __init__(self) -> None:
        #: digests of plans that had a heavy decision; the next ones are made in a thread from the start
        self.heavy: LruCache[str, bool] = LruCache(_REMEMBERED)
        self._threads: ThreadPoolExecutor | None = None
        self._lanes = Lanes(MAX_THREADS)
        self._line: deque[object] = deque()
        self._moved = threading.Condition()
        self._began = 0.0
        self._free_at = 0.0
        #: the tenant of each thread
        self._of = threading.local()
        #: the tenant and time of the latest light decision, and of the latest one of another tenant
        self._latest: tuple[str, float] = ("", -math.inf)
        self._latest_other: tuple[str, float] = ("", -math.inf)
        #: how long tenants have computed in this window, and until when those rest that have computed for long
        self._window_end = 0.0
        self._spent: dict[str, float] = {}
        self._resting: dict[str, float] = {}
        self._closed = False

    def notice(self, tenant: str) -> None:
        """Record that a tenant has a light decision."""
        if tenant != self._latest[0]:
            self._latest_other = self._latest
        self._latest = (tenant, monotonic())

    def is_ahead(self, tenant: str) -> bool:
        """Return whether a tenant made the latest light decision, and others have some, too."""
        return self._latest[0] == tenant and self._is_beside_others(tenant, monotonic())

    def _is_beside_others(self, tenant: str, now: float) -> bool:
        """Return whether another tenant had a light decision recently."""
        latest, at = self._latest if self._latest[0] != tenant else self._latest_other
        return latest != tenant and now < at + _WINDOW_S

    @staticmethod
    async def let_others_go_first() -> None:
        """Let callbacks run that are ready, and those that they lead to."""
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)

    async def run(self, tenant: str, compute: Callable[[], T]) -> T:
        """Compute something for a tenant. `compute` must call `pause` regularly."""
        async with self._lanes.lane(tenant):
            if self._threads is None:
                self._threads = ThreadPoolExecutor(MAX_THREADS, "arclog-decision")
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._sliced, tenant, compute)

    def pause(self) -> None:
        """Yield to other work if the slice is over. Call it only inside `run`."""
        if self._closed:
            raise Stopped
        if monotonic() - self._began >= SLICE_S:
            self._give(_REST)
            self._rest_alone()
            self._take()

    def give_way(self) -> None:
        """Yield to other work if the slice is over, for no longer than it needs. For work of the engine itself, such as
        repeating recorded decisions; call it only inside `run`.
        """
        if self._closed:
            raise Stopped
        if monotonic() - self._began >= SLICE_S:
            self._give(0)
            sleep(_BRIEF_S)
            self._take()

    def close(self) -> None:
        """Stop the decisions in progress at their next pause."""
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _sliced(self, tenant: str, compute: Callable[[], T]) -> T:
        self._of.tenant = tenant
        self._rest_alone()
        self._take()
        try:
            return compute()
        finally:
            self._give(_REST)

    def _take(self) -> None:
        own = object()
        with self._moved:
            self._line.append(own)
            self._moved.wait_for(lambda: self._line[0] is own)
        rest = self._free_at - monotonic()
        if rest > 0:
            sleep(rest)
        self._began = monotonic()

    def _give(self, rest: int) -> None:
        now = monotonic()
        took = now - self._began
        self._free_at = max(self._free_at, now + min(rest * took, MAX_REST_S))
        if rest:
            self._count(self._of.tenant, now, took)
        with self._moved:
            self._line.popleft()
            self._moved.notify_all()

    def _count(self, tenant: str, now: float, took: float) -> None:
        """Record what a tenant has computed, and whether it rests longer. Called by the thread whose slice it is."""
        if now >= self._window_end:
            self._window_end = now + _WINDOW_S
            self._spent.clear()
            self._resting = {name: until for name, until in self._resting.items() if until > now}
        spent = self._spent[tenant] = self._spent.get(tenant, 0.0) + took
        if spent > _LIGHT_S and self._is_beside_others(tenant, now):
            self._resting[tenant] = now + min(_LONG_REST * took, MAX_REST_S)

    def _rest_alone(self) -> None:
        """Wait for as long as this thread's tenant rests. Others may compute meanwhile."""
        rest = self._resting.get(self._of.tenant, 0.0) - monotonic()
        if rest > 0:
            sleep(rest)


# Lanes: a limited number of tenants have work in progress at the same time, each one piece; waiting tenants take turns.


class Lanes:
    """Admits a bounded number of tenants at once. Used on one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._busy: set[str] = set()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def lane(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a lane, and hold it inside the context."""
        await self._enter(tenant)
        try:
            yield
        finally:
            self._leave(tenant)

    async def _enter(self, tenant: str) -> None:
        if tenant not in self._busy and len(self._busy) < self._most:
            self._busy.add(tenant)
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(admitted)
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self._leave(tenant)
            raise

    def _leave(self, tenant: str) -> None:
        self._busy.discard(tenant)
        for name in list(self._waiting):
            if len(self._busy) >= self._most:
                return
            if name in self._busy:
                continue
            queue = self._waiting.pop(name)
            while queue:
                admitted = queue.popleft()
                if not admitted.done():
                    self._busy.add(name)
                    admitted.set_result(None)
                    break
            if queue:
                self._waiting[name] = queue  # after the others
