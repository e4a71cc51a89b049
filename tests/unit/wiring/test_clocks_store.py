"""The store's clock, followed: never ahead, never back by drift, and jumps are said."""

from __future__ import annotations

import logging

import pytest

from arclog.model.errors import StoreUnavailable
from arclog.model.ids import MICROS
from arclog.testing.virtual import FakeClock
from arclog.wiring.clocks import StoreClock

START = 1_800_000_000 * MICROS


class Far:
    """A store whose clock and answers a test moves."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.set_by = 0
        self.takes_s = 0.0
        self.away = False

    def true(self) -> int:
        return START + self.set_by + round(self.elapsed_s * MICROS)

    async def time(self) -> int:
        if self.away:
            raise StoreUnavailable("the store is away")
        moment = self.true()
        self.elapsed_s += self.takes_s
        return moment


@pytest.fixture
def far() -> Far:
    return Far()


@pytest.fixture
def clock(far: Far) -> StoreClock:
    own = FakeClock(START + 3600 * MICROS)
    return StoreClock(far.time, own, lambda: far.elapsed_s)


async def test_it_tells_the_stores_time_whatever_its_own_machine_says(far: Far, clock: StoreClock, caplog) -> None:
    with caplog.at_level(logging.WARNING, "arclog"):
        await clock.measure()
    assert "3600.0 s off the store's" in caplog.text
    assert clock.now() == far.true()
    far.elapsed_s += 12.5
    assert clock.now() == far.true()


async def test_it_is_never_ahead(far: Far, clock: StoreClock) -> None:
    for takes_s in (0.3, 0.0, 0.2, 0.45, 0.1):
        far.takes_s = takes_s
        await clock.measure()
        assert far.true() - 0.46 * MICROS <= clock.now() <= far.true()


async def test_it_does_not_go_back_when_an_answer_takes_longer(far: Far, clock: StoreClock, caplog) -> None:
    await clock.measure()
    before = clock.now()
    far.takes_s = 0.4
    with caplog.at_level(logging.WARNING, "arclog"):
        await clock.measure()
    assert clock.now() >= before
    assert "jumped" not in caplog.text


async def test_a_slow_answer_counts_for_nothing(far: Far, clock: StoreClock) -> None:
    await clock.measure()
    far.takes_s = 20.0
    await clock.measure()
    assert clock.now() == far.true()


@pytest.mark.parametrize("jump_s", [-3600, 3600])
async def test_a_jump_of_the_store_is_followed_and_said(far: Far, clock: StoreClock, caplog, jump_s: int) -> None:
    await clock.measure()
    clock.now()
    far.set_by = jump_s * MICROS
    with caplog.at_level(logging.WARNING, "arclog"):
        await clock.measure()
    assert clock.now() == far.true()
    assert f"jumped by {jump_s:.1f} s" in caplog.text


async def test_a_store_that_is_away_is_measured_later(far: Far) -> None:
    own = FakeClock(START)
    clock = StoreClock(far.time, own, lambda: far.elapsed_s)
    await clock.measure()
    far.away = True
    with pytest.raises(StoreUnavailable):
        await clock.measure()
    far.elapsed_s += 7
    assert clock.now() == far.true()
