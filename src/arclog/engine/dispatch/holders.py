"""Holders of commands known to this process, and their pending revocations.

A cache of hints; the store is authoritative. A worker may get a command from one server and ask another one for news
of it; it says what it holds then, and that server watches those runs from there on. What nobody tells a worker it learns
from its next heartbeat or report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from arclog.core.transitions.state import State
from arclog.model.commands import Revocation

#: Workers for whom news are kept, and how much for each; older news are dropped.
_MOST_WORKERS = 10_000
_MOST_NEWS = 1_000


class Holder(NamedTuple):
    worker_id: str
    execution_id: int
    fence: int


class Holders:
    """One per engine."""

    def __init__(self) -> None:
        self._by_command: dict[int, Holder] = {}
        #: what each worker has to hear, by command
        self._news: dict[str, dict[int, Revocation]] = {}
        self._told = asyncio.Event()

    def get(self, command_id: int) -> Holder | None:
        return self._by_command.get(command_id)

    def has(self, command_id: int, holder: Holder) -> None:
        self._by_command[command_id] = holder

    def over(self, command_ids: Sequence[int]) -> None:
        for command_id in command_ids:
            self._by_command.pop(command_id, None)

    @property
    def executions(self) -> set[int]:
        return {holder.execution_id for holder in self._by_command.values()}

    def compare(self, state: State) -> None:
        """A run was or may have been changed elsewhere: notify the holders of its commands."""
        kill = is_emergency(state)
        for command_id, holder in list(self._by_command.items()):
            if holder.execution_id != state.execution_id:
                continue
            command = state.commands.get(command_id)
            if command is None or command.fence != holder.fence:
                self.notify(Revocation(command_id, kill=kill))
            elif state.pause is not None:
                self.notify(Revocation(command_id, pause=True))

    def notify(self, revocation: Revocation) -> None:
        """Let a command's holder know, if there is one here."""
        holder = self._by_command.get(revocation.command_id)
        if holder is None:
            return
        if not revocation.pause:
            del self._by_command[revocation.command_id]
        self.revoke(holder.worker_id, revocation)

    def revoke(self, worker_id: str, revocation: Revocation) -> None:
        """Let a worker know of a command that it has in hand, or had."""
        news = self._news.pop(worker_id, {})
        news[revocation.command_id] = revocation
        self._news[worker_id] = news
        if len(news) > _MOST_NEWS:
            del news[next(iter(news))]
        if len(self._news) > _MOST_WORKERS:
            del self._news[next(iter(self._news))]
        self._told.set()

    async def news(self, worker_id: str, wait_s: float) -> list[Revocation]:
        """What a worker has to hear; waits that long for something to happen, to anybody."""
        if worker_id not in self._news:
            self._told.clear()
            try:
                # Not wait_for: on Python 3.11 that swallows a cancellation which meets the news, and the worker never stops.
                async with asyncio.timeout(wait_s):
                    await self._told.wait()
            except TimeoutError:
                return []
        return list(self._news.pop(worker_id, {}).values())


def is_emergency(state: State) -> bool:
    """The run was ended without grace for what is running."""
    return state.terminal is not None and (state.error or {}).get("code") == "EMERGENCY_STOP"
