"""Hints wake those who wait. Losing one costs time, never facts; still, listen first and then look, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from arclog.core.state import State
from arclog.model.commands import Revocation
from arclog.model.events import Event


class Hints:
    """What has just been committed, for those in this process who care."""

    def __init__(self) -> None:
        self._appended: dict[int, list[Listener]] = {}
        self._ended: dict[int, list[Listener]] = {}
        self._offered: dict[int, list[Listener]] = {}
        #: set when a timer is due before `timers_looked_at`
        self.timers = asyncio.Event()
        #: when somebody will look for due timers in any case, microseconds since 1970
        self.timers_looked_at = 0
        #: each is called with the state and the events of every committed transaction
        self.on_committed: list[Callable[[State, Sequence[Event]], None]] = []
        #: each is called with the ids of commands that are over, and what holders of commands have to hear
        self.on_closed: list[Callable[[Sequence[int], Sequence[Revocation]], None]] = []
        #: each is called with a state that another process had moved on
        self.on_caught_up: list[Callable[[State], None]] = []
        #: each is called with the id of a worker that shall leave
        self.on_leaving: list[Callable[[str], None]] = []
        #: each is called when a run has ended, which may free a concurrency slot
        self.on_ended: list[Callable[[], None]] = []

    @property
    def listeners(self) -> int:
        """How many wait, or are about to."""
        return sum(len(one) for table in (self._appended, self._ended, self._offered) for one in table.values())

    def appended(self, execution_id: int) -> None:
        _tell(self._appended.get(execution_id, ()))

    def ended(self, execution_id: int) -> None:
        _tell(self._ended.get(execution_id, ()))
        for told in self.on_ended:
            told()

    def offered(self) -> None:
        _tell(self._offered.get(0, ()))

    def timer_set(self, due: int) -> None:
        if due < self.timers_looked_at:
            self.timers.set()

    def committed(self, state: State, events: Sequence[Event]) -> None:
        for told in self.on_committed:
            told(state, events)

    def closed(self, command_ids: Sequence[int], revoked: Sequence[Revocation]) -> None:
        for told in self.on_closed:
            told(command_ids, revoked)

    def caught_up(self, state: State) -> None:
        """What another process appended is known now: wake whoever may wait for it."""
        self.appended(state.execution_id)
        self.offered()
        for told in self.on_caught_up:
            told(state)

    def on_append(self, execution_id: int) -> AbstractContextManager[Listener]:
        """Listen for anything that is appended to the execution."""
        return _listening(self._appended, execution_id)

    def on_end(self, execution_id: int) -> AbstractContextManager[Listener]:
        """Listen for the execution's terminal event."""
        return _listening(self._ended, execution_id)

    def on_offer(self) -> AbstractContextManager[Listener]:
        """Listen for commands that are offered."""
        return _listening(self._offered, 0)


class Listener:
    """Listens from its making on: what happens while its owner looks at the store is not missed."""

    def __init__(self) -> None:
        self._news = asyncio.Event()

    def tell(self) -> None:
        self._news.set()

    async def heard(self, timeout_s: float | None) -> bool:
        """Wait for news since the last call; False when the time was over first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True


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


def _tell(listeners: Sequence[Listener]) -> None:
    for listener in listeners:
        listener.tell()
