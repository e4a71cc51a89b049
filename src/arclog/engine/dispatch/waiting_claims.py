"""Claims that wait for commands. An offer wakes as many of them as there are commands, not all.

Invariant: an offer is pending until a query of the store that started after it found a command, or until every waiting
claim has queried without success. A claim that finds nothing passes the wake-up on, and so does a claim that leaves
without a query. A claim that is querying while an offer is made queries once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from msgspec import Struct

from arclog.model.data.lru import LruCache
from arclog.ports.control import Until, WorkerInfo

if TYPE_CHECKING:
    from arclog.engine.commits.engine import Engine


class Listener:
    """Listens from its creation, so that nothing is missed while its owner queries the store."""

    def __init__(self) -> None:
        self._wake_up = asyncio.Event()
        #: context manager that is entered while waiting
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext

    def wake(self) -> None:
        self._wake_up.set()

    async def heard(self, timeout_s: float | None) -> bool:
        """Wait for a wake-up since the last call. Returns False on timeout."""
        try:
            with self.around():
                async with asyncio.timeout(timeout_s):
                    await self._wake_up.wait()
        except TimeoutError:
            return False
        self._wake_up.clear()
        return True


class _Offer:
    """A command that was offered to a pool."""

    __slots__ = ("is_spare", "pool", "tried")

    def __init__(self, pool: str) -> None:
        self.pool = pool
        #: the claims that it has woken
        self.tried: set[Claim] = set()
        #: a claim took as many commands as it could; there may be more, until a claim finds none
        self.is_spare = False


class Claim(Listener):
    """A claim that waits for commands."""

    def __init__(self, pools: Sequence[str], hand_on: Callable[[_Offer], None], until: Until | None = None) -> None:
        """Empty `pools` means all. The claim is abandoned when `until` returns."""
        super().__init__()
        self._until = until
        self._ending: asyncio.Task[object] | None = None
        #: whether `until` has returned
        self.is_over = False
        self._pools = frozenset(pools)
        self._hand_on = hand_on
        self._offer: _Offer | None = None
        #: whether nothing has woken it yet
        self.waits = False

    def serves(self, pool: str) -> bool:
        return not self._pools or pool in self._pools

    def wake(self) -> None:
        self.waits = False
        super().wake()

    def take(self, offer: _Offer) -> None:
        self._offer = offer
        offer.tried.add(self)
        self.wake()

    async def heard(self, timeout_s: float | None) -> bool:
        if self._until is not None and self._ending is None:
            self._ending = asyncio.ensure_future(self._until())
            self._ending.add_done_callback(self._end)
        self.waits = not self._wake_up.is_set()
        try:
            return await super().heard(timeout_s)
        finally:
            self.waits = False

    def looked(self, commands: int, limit: int) -> None:
        """Record a query of the store, which found `commands` of the `limit` that the claim could take."""
        offer, self._offer = self._offer, None
        if offer is None or (commands and commands < limit) or (offer.is_spare and not commands):
            return
        offer.is_spare = commands > 0
        self._hand_on(offer)

    def _end(self, ending: asyncio.Task[object]) -> None:
        if not ending.cancelled():
            ending.exception()  # any exception ends the wait, too
            self.is_over = True
            self.wake()

    def leave(self) -> None:
        """Record that the claim queries no more."""
        if self._ending is not None:
            self._ending.cancel()
        offer, self._offer = self._offer, None
        if offer is not None:
            self._hand_on(offer)


class Offers:
    """The claims that wait in this process."""

    def __init__(self) -> None:
        #: the longest-waiting claim is woken first
        self._claims: dict[Claim, None] = {}
        #: number of times that commands were, or may have been, offered
        self.count = 0

    def __len__(self) -> int:
        return len(self._claims)

    def made(self, pools: Mapping[str, int]) -> None:
        """Wake claims for offered commands, counted by pool."""
        self.count += 1
        for pool, count in pools.items():
            waiting = 0
            for claim in self._claims:
                if claim.serves(pool):
                    waiting += claim.waits
                    if not claim.waits:
                        claim.wake()
            for _ in range(min(count, waiting)):
                self._hand(_Offer(pool))

    def wake_all(self) -> None:
        """Wake all claims, since there may be commands in any pool."""
        self.count += 1
        for claim in self._claims:
            claim.wake()

    @contextmanager
    def listening(self, pools: Sequence[str], until: Until | None = None) -> Iterator[Claim]:
        claim = Claim(pools, self._hand, until)
        self._claims[claim] = None
        try:
            yield claim
        finally:
            del self._claims[claim]
            claim.leave()

    def _hand(self, offer: _Offer) -> None:
        """Pass an offer to a waiting claim. If there is none, the next claim queries the store first."""
        for claim in self._claims:
            if claim.waits and claim.serves(offer.pool) and claim not in offer.tried:
                claim.take(offer)
                return


# The times at which a waiting worker queries the store without an offer.
#
# An offered command wakes a waiting claim, so a query without an offer only compensates for a lost notification. One
# query in `engine.idle_look_s` is enough for each worker, however many requests its wait consists of.


_WORKERS_KNOWN = 10_000
#: Factor by which it queries more often while notices of other servers do not arrive.
_WITHOUT_BUS = 3
#: Interval until the next query after one that found commands, none of which could be granted.
_SOON_S = 1.0


class _Looked(Struct, frozen=True):
    """A query that found nothing, or has not ended yet."""

    worker: WorkerInfo
    #: by the monotonic clock
    at: float
    #: number of offers before it
    offers: int


class IdleLooks:
    """The last query of each worker that found nothing."""

    def __init__(self, engine: Engine) -> None:
        self._clock = engine.clock
        self._hints = engine.hints
        self._every_s = engine.settings.number("engine.idle_look_s")
        self._looked: LruCache[str, _Looked] = LruCache(_WORKERS_KNOWN)

    def looks(self, worker: WorkerInfo) -> None:
        """Record that a worker is about to query the store."""
        self._looked.replace(worker.worker_id, _Looked(worker, self._clock.monotonic(), self._hints.offers))

    def claimed(self, worker: WorkerInfo, *, given: bool) -> None:
        """Record that a query found commands. If none of them was granted, others may wait behind them."""
        if given:
            self.forget(worker.worker_id)
        else:
            soon = self._clock.monotonic() - self._every_s + min(_SOON_S, self._every_s)
            self._looked.replace(worker.worker_id, _Looked(worker, soon, self._hints.offers))

    def forget(self, worker_id: str) -> None:
        """Record that the worker got commands: its next claim queries the store first."""
        self._looked.pop(worker_id)

    def is_outdated(self, worker: WorkerInfo) -> bool:
        """Return whether something was offered since the worker's last query, or the worker has changed."""
        last = self._looked.get(worker.worker_id)
        return last is None or last.worker != worker or last.offers != self._hints.offers

    def due_in(self, worker: WorkerInfo) -> float:
        """Return the seconds until the worker has to query again if no hint arrives."""
        last = self._looked.get(worker.worker_id)
        if last is None:
            return 0.0
        every_s = self._every_s / _WITHOUT_BUS if self._hints.is_away else self._every_s
        return max(last.at + every_s - self._clock.monotonic(), 0.0)
