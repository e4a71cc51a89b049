"""Shared parts of the rules: a store, a clock, and short ways to append."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.events import Event
from arclog.ports.clock import Clock
from arclog.ports.storage.store import (
    Append,
    Appended,
    CommandRecord,
    ExecutionState,
    NewCommand,
    NewExecution,
    Scope,
    Store,
    StoredEvent,
)
from arclog.testing.virtual import FakeClock

MakeStore = Callable[[Clock, Settings], Store]

SCOPE = Scope("acme", "shop", "test")
RUNNING = ExecutionState("RUNNING", started_at=7)
DONE = ExecutionState("COMPLETED", ended_at=9, terminal_event="playbook.finished")
SECOND = 1_000_000


class World:
    """A store under test, and unused ids."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.store = store
        self.clock = clock
        self._last_id = 1 << 52

    def ids(self, count: int = 1) -> int:
        """The first of some new ids."""
        self._last_id += count
        return self._last_id - count + 1

    def new(self, key: str = "", scope: Scope = SCOPE, path: str = "flows/a") -> NewExecution:
        return NewExecution("run-1", "a", path, 1, "d" * 64, scope, self.clock.now(), key)

    async def create(self, *events: Event, new: NewExecution | None = None, **changes: Any) -> int:
        """A new execution with these events, at least one."""
        execution_id = self.ids()
        first = Append(
            execution_id,
            0,
            events or (event("playbook.execution.requested"),),
            self.ids(len(events) + 1),
            changes.pop("now", RUNNING),
            new or self.new(),
            **changes,
        )
        await self.store.append(first)
        return execution_id

    async def add(self, execution_id: int, expected: int, *events: Event, **changes: Any) -> Appended:
        return await self.store.append(self.change(execution_id, expected, *events, **changes))

    def change(self, execution_id: int, expected: int, *events: Event, **changes: Any) -> Append:
        now = changes.pop("now", RUNNING)
        return Append(execution_id, expected, events, self.ids(len(events) + 1), now, **changes)

    async def head(self, execution_id: int) -> int:
        record = await self.store.execution(execution_id)
        assert record is not None
        return record.head

    async def everything(self, execution_id: int) -> tuple[Any, ...]:
        """All that an append can change, to compare before and after a refusal."""
        store = self.store
        return (
            await store.execution(execution_id),
            await store.events(execution_id, limit=1_000_000),
            await store.step_runs(execution_id),
            await store.commands(execution_id),
            await store.due_timers(1 << 62, limit=1_000_000),
            await store.tail(limit=1_000_000),
            [await store.marks(name) for name in ("playbook.started", "playbook.finished", "task.failed")],
        )


def event(name: str, step: str = "", run: int = 0, **more: Any) -> Event:
    return Event(name, 1_000, step, run, **more)


def command(command_id: int, *kinds: str, **more: Any) -> NewCommand:
    return NewCommand(command_id, "s", 1, kinds or ("noop",), **more)


def seqs(events: Sequence[StoredEvent]) -> list[int]:
    return [event.seq for event in events]


def ids(commands: Sequence[CommandRecord]) -> list[int]:
    return [command.command_id for command in commands]


class Rules:
    """Base of all groups of rules: the fixtures."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        pytest.fail("a subclass of StoreContract gives make_store(clock, settings)")

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings()

    @pytest.fixture
    async def world(self, make_store: MakeStore, settings: Settings) -> AsyncIterator[World]:
        clock = FakeClock()
        store = make_store(clock, settings)
        await store.open()
        yield World(store, clock)
        await store.close()
