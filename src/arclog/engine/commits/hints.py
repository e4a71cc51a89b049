"""Hints wake waiting tasks. A lost hint costs time, never data. No hint is lost if one listens first and reads then.

A commit of this process wakes waiting tasks here and is sent `outward` to other processes. Hints from other processes
(`moved`, `offer_heard`, …) wake the same listeners and are not forwarded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from arclog.core.transitions.state import State
from arclog.engine.dispatch.waiting_claims import Claim, Listener, Offers
from arclog.model.commands import Revocation
from arclog.model.events import Event
from arclog.model.ids import MAX_ID
from arclog.ports.control import Until

log = logging.getLogger("arclog.engine")

#: Stands for every pool, in place of a pool's name.
ANY_POOL = ""


class Outward(Protocol):
    """Notifies other processes of commits and of waiting workers."""

    def moved(self, execution_id: int, head: int) -> None: ...

    def slot_freed(self) -> None: ...

    def offered(self, pools: Mapping[str, int]) -> None: ...

    def timer_set(self, due: int) -> None: ...

    def room(self) -> None:
        """Work under a limit ended; commands that wait elsewhere may be claimed now."""

    def is_away(self) -> bool:
        """Return whether notifications are known not to arrive."""

    def waiting(self, pools: Collection[str]) -> None:
        """Announce that claims wait for commands of these pools. Called whenever a claim begins to wait, even if
        nothing changed.
        """


class Hints:
    """Callbacks in this process about commits."""

    def __init__(self) -> None:
        self._appended: dict[int, list[Listener]] = {}
        self._ended: dict[int, list[Listener]] = {}
        self._offers = Offers()
        #: set when a timer is due before `timers_looked_at`
        self.timers = asyncio.Event()
        #: when due timers are queried next at the latest, in microseconds since 1970
        self.timers_looked_at = 0
        #: the earliest timer that was set since the last query of due timers began
        self.next_timer = MAX_ID
        #: each is called with the state and the events of every committed transaction, without informative ones
        self.on_committed: list[Callable[[State, Sequence[Event]], None]] = []
        #: each is called with the ids of commands that have ended, and the notifications for their holders
        self.on_closed: list[Callable[[Sequence[int], Sequence[Revocation]], None]] = []
        #: each is called with a state that another process has changed
        self.on_caught_up: list[Callable[[State], None]] = []
        #: each is called with the id of a worker that is asked to leave
        self.on_leaving: list[Callable[[str], None]] = []
        #: each is called with the tenant and path of a run that held a concurrency slot and has ended; None if another
        #: process ended it
        self.on_slot_freed: list[Callable[[tuple[str, str] | None], None]] = []
        #: each is called when a log has grown, here or elsewhere
        self.on_grown: list[Callable[[], None]] = []
        #: None if there are no other processes
        self.outward: Outward | None = None
        #: number of waiting claims, by pool
        self._waiting: Counter[str] = Counter()

    @property
    def offers(self) -> int:
        """The number of times that commands were, or may have been, offered here."""
        return self._offers.count

    @property
    def is_away(self) -> bool:
        """Whether there are other processes whose notifications do not arrive at the moment."""
        return self.outward is not None and self.outward.is_away()

    @property
    def listeners(self) -> int:
        """The number of tasks that wait or are about to wait."""
        return len(self._offers) + sum(
            len(listeners) for table in (self._appended, self._ended) for listeners in table.values()
        )

    # -- commits of this process ---------------------------------------------------------------------------------------

    def appended(self, execution_id: int, head: int) -> None:
        _wake(self._appended.get(execution_id, ()))
        for listener in self.on_grown:
            _call(listener)
        if self.outward is not None:
            self.outward.moved(execution_id, head)

    def ended(self, execution_id: int) -> None:
        _wake(self._ended.get(execution_id, ()))

    def slot_freed(self, queue: tuple[str, str]) -> None:
        """Announce that a run of this tenant and path that held a slot has ended."""
        for listener in self.on_slot_freed:
            _call(listener, queue)
        if self.outward is not None:
            self.outward.slot_freed()

    def offered(self, pools: Mapping[str, int]) -> None:
        """Wake as many claims as commands were offered, by pool."""
        self._offers.made(pools)
        if self.outward is not None:
            self.outward.offered(pools)

    def room_made(self) -> None:
        """Wake waiting claims, here and elsewhere, after work under a limit ended."""
        self._offers.wake_all()
        if self.outward is not None:
            self.outward.room()

    def timer_set(self, due: int) -> None:
        self.timer_heard(due)
        if self.outward is not None:
            self.outward.timer_set(due)

    def committed(self, state: State, events: Sequence[Event]) -> None:
        for listener in self.on_committed:
            _call(listener, state, events)

    def closed(self, command_ids: Sequence[int], revoked: Sequence[Revocation]) -> None:
        for listener in self.on_closed:
            _call(listener, command_ids, revoked)

    # -- other processes -----------------------------------------------------------------------------------------------

    def moved(self, execution_id: int) -> None:
        """Handle an append of another process: wake the followers of the execution and tasks that wait for its end."""
        _wake(self._appended.get(execution_id, ()))
        _wake(self._ended.get(execution_id, ()))
        for listener in self.on_grown:
            _call(listener)

    def offer_heard(self, pools: Mapping[str, int] | None = None) -> None:
        """Handle an offer of another process, counted by pool; None means that any pool may have commands."""
        if pools is None:
            self._offers.wake_all()
        else:
            self._offers.made(pools)

    def timer_heard(self, due: int) -> None:
        self.next_timer = min(self.next_timer, due)
        if due < self.timers_looked_at:
            self.timers.set()

    def slot_heard(self) -> None:
        for listener in self.on_slot_freed:
            _call(listener, None)

    def caught_up(self, state: State) -> None:
        """Wake tasks that may wait for events of another process, which were just loaded."""
        self.moved(state.execution_id)
        self.offer_heard()
        for listener in self.on_caught_up:
            _call(listener, state)

    # -- listening -----------------------------------------------------------------------------------------------------

    def on_append(self, execution_id: int) -> AbstractContextManager[Listener]:
        """Listen for anything that is appended to the execution."""
        return _listening(self._appended, execution_id)

    def on_end(self, execution_id: int) -> AbstractContextManager[Listener]:
        """Listen for the execution's terminal event."""
        return _listening(self._ended, execution_id)

    @contextmanager
    def on_offer(self, pools: Sequence[str] = (), until: Until | None = None) -> Iterator[Claim]:
        """Listen for commands offered to these pools; empty means any pool. The wait ends when `until` returns."""
        with self._offers.listening(pools, until) as listener:
            listener.around = lambda: self._wait(pools or (ANY_POOL,))
            yield listener

    @contextmanager
    def _wait(self, pools: Sequence[str]) -> Iterator[None]:
        """Announce to other processes that a claim waits, as long as it does."""
        outward = self.outward
        if outward is None:
            yield
            return
        self._waiting.update(pools)
        outward.waiting(self._waiting.keys())
        try:
            yield
        finally:
            self._waiting.subtract(pools)
            for pool in pools:
                if self._waiting[pool] <= 0:
                    del self._waiting[pool]
            outward.waiting(self._waiting.keys())


@contextmanager
def _listening(table: dict[int, list[Listener]], key: int) -> Iterator[Listener]:
    listener = Listener()
    listeners = table.setdefault(key, [])
    listeners.append(listener)
    try:
        yield listener
    finally:
        listeners.remove(listener)
        if not listeners:
            del table[key]


def _call(listener: Callable[..., None], *args: Any) -> None:
    """Call a listener. An exception does not affect the commit or other listeners."""
    try:
        listener(*args)
    except Exception:
        log.exception("a commit listener failed (%r); this is a bug in the listener, the run continues", listener)


def _wake(listeners: Sequence[Listener]) -> None:
    for listener in listeners:
        listener.wake()


async def either(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when one of them returns; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
