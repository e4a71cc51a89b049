"""When due timers are read: at the time of the next one, and not more often while others are set."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from msgspec.structs import replace

from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import Minter
from arclog.engine.duties.timers import Timers
from arclog.model.config.settings import Settings
from arclog.model.ids import MICROS
from arclog.ports.storage.store import Timer
from arclog.stores.memory import MemoryStore
from arclog.testing.virtual import FakeClock
from tests.unit.stores.support import creation

SWEEP_S = 5.0


class SettingStore(MemoryStore):
    """Notes when due timers are read. Each time, a timer that is due later is set by somebody else."""

    engine: Engine

    def __init__(self, clock: FakeClock, later_s: float) -> None:
        super().__init__(clock=clock)
        self.clock = clock
        self.later_s = later_s
        self.read_at: list[float] = []

    async def due_timers(self, now: int, limit: int = 100, *, latest: bool = False) -> list[Timer]:
        self.read_at.append(self.clock.monotonic())
        self.engine.hints.timer_set(self.clock.now() + round(self.later_s * MICROS))
        return []


class Searched(MemoryStore):
    """Counts searches for timers that come due soon."""

    searches = 0

    async def coming_timers(self, after: int, until: int, limit: int = 100) -> list[int]:
        self.searches += 1
        return []


@pytest.mark.parametrize(("due_s", "is_searched"), [(None, False), (60.0, False), (3.0, True)])
async def test_states_are_looked_for_only_if_a_timer_is_due_soon(due_s: float | None, is_searched: bool) -> None:
    clock = FakeClock()
    store = Searched(clock=clock)
    await store.open()
    if due_s is not None:
        timer = Timer(1, "t", clock.now() + round(due_s * MICROS), {})
        await store.append(replace(creation(1), set_timers=[timer]))
    running = asyncio.ensure_future(Timers(Engine(store, clock, Settings(), Minter(clock, 1))).run())
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert bool(store.searches) is is_searched


@pytest.mark.parametrize(("later_s", "between_s"), [(60.0, SWEEP_S), (2.0, 2.0)])
async def test_a_timer_that_is_set_meanwhile_does_not_repeat_the_query(later_s: float, between_s: float) -> None:
    clock = FakeClock()
    store = SettingStore(clock, later_s)
    await store.open()
    store.engine = Engine(store, clock, Settings({"engine.sweep_s": SWEEP_S}), Minter(clock, 1))
    running = asyncio.ensure_future(Timers(store.engine).run())
    began = clock.monotonic()
    while clock.monotonic() < began + 20:
        for _ in range(20):
            await asyncio.sleep(0)
        clock.advance(0.5)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    expected = [began + between_s * number for number in range(len(store.read_at))]
    assert store.read_at == expected
    assert len(expected) >= 20 / between_s
