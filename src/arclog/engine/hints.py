"""Hints wake those who wait. Losing one costs time, never facts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from arclog.core.state import State
from arclog.model.commands import Revocation
from arclog.model.events import Event


class Hints:
    """What has just been committed, for those in this process who care."""

    def __init__(self) -> None:
        self._appended: dict[int, list[asyncio.Future[None]]] = {}
        self._ended: dict[int, list[asyncio.Future[None]]] = {}
        self._offered: list[asyncio.Future[None]] = []
        #: set when a timer is due before `timers_looked_at`
        self.timers = asyncio.Event()
        #: when somebody will look for due timers in any case, microseconds since 1970
        self.timers_looked_at = 0
        #: called with the state and the events of each committed transaction
        self.on_committed: Callable[[State, Sequence[Event]], None] = _ignore_commit
        #: called with the ids of commands that are over, and what holders of commands have to hear
        self.on_closed: Callable[[Sequence[int], Sequence[Revocation]], None] = _ignore
        #: called with a state that another process had moved on
        self.on_caught_up: Callable[[State], None] = _ignore_state
        #: called when a run has ended, which may free a concurrency slot
        self.on_ended: Callable[[], None] = _ignore_end

    def appended(self, execution_id: int) -> None:
        _wake(self._appended.pop(execution_id, ()))

    def ended(self, execution_id: int) -> None:
        _wake(self._ended.pop(execution_id, ()))
        self.on_ended()

    def offered(self) -> None:
        waiting, self._offered = self._offered, []
        _wake(waiting)

    def timer_set(self, due: int) -> None:
        if due < self.timers_looked_at:
            self.timers.set()

    def closed(self, command_ids: Sequence[int], revoked: Sequence[Revocation]) -> None:
        self.on_closed(command_ids, revoked)

    def caught_up(self, state: State) -> None:
        """What another process appended is known now: wake whoever may wait for it."""
        self.appended(state.execution_id)
        self.offered()
        self.on_caught_up(state)

    async def wait_appended(self, execution_id: int, timeout_s: float | None) -> None:
        """Until something is appended to the execution, or the time is over."""
        await _wait(self._appended.setdefault(execution_id, []), timeout_s)

    async def wait_ended(self, execution_id: int, timeout_s: float | None) -> None:
        """Until the execution has its terminal event, or the time is over."""
        await _wait(self._ended.setdefault(execution_id, []), timeout_s)

    async def wait_offered(self, timeout_s: float | None) -> None:
        """Until commands are offered, or the time is over."""
        await _wait(self._offered, timeout_s)


async def _wait(waiting: list[asyncio.Future[None]], timeout_s: float | None) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting.append(future)
    try:
        await asyncio.wait((future,), timeout=timeout_s)
    finally:
        if not future.done() and future in waiting:
            waiting.remove(future)


def _wake(waiting: Sequence[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)


def _ignore_commit(_state: State, _events: Sequence[Event]) -> None:
    return None


def _ignore(_closed: Sequence[int], _revoked: Sequence[Revocation]) -> None:
    return None


def _ignore_state(_: State) -> None:
    return None


def _ignore_end() -> None:
    return None
