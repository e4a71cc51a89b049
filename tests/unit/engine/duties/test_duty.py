"""A duty belongs to one server at a time, is renewed, given up, taken over; who was away asks before it acts."""

from __future__ import annotations

import pytest

from arclog.engine.duties.duty import Duty, always
from arclog.model.errors import StoreUnavailable
from arclog.stores.memory import MemoryStore
from arclog.testing.virtual import FakeClock

LEASE_S = 6.0


class CountingStore(MemoryStore):
    """Counts the questions; may be away."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.owners: list[str] = []
        self.away = False

    async def lease_duty(self, duty: str, owner: str, now: int, until: int) -> bool:
        self.owners.append(owner)
        if self.away:
            raise StoreUnavailable("the store is away")
        return await super().lease_duty(duty, owner, now, until)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(clock: FakeClock) -> CountingStore:
    store = CountingStore(clock)
    await store.open()
    return store


def duty(store: CountingStore, clock: FakeClock, owner: str) -> Duty:
    return Duty(store, clock, "timers", owner, LEASE_S)


async def test_one_of_two_has_it_and_keeps_it(store: CountingStore, clock: FakeClock) -> None:
    a, b = duty(store, clock, "a"), duty(store, clock, "b")
    for _ in range(100):
        assert await a.has()
        assert not await b.has()
        clock.advance(0.5)
    # Each asks once in a third of the lease, not each time.
    assert 20 <= store.owners.count("a") <= 26
    assert 20 <= store.owners.count("b") <= 26


async def test_it_is_taken_over_when_its_owner_is_silent(store: CountingStore, clock: FakeClock) -> None:
    a, b = duty(store, clock, "a"), duty(store, clock, "b")
    assert await a.has()
    clock.advance(LEASE_S - 0.1)
    assert not await b.has()
    clock.advance(LEASE_S / 3)
    assert await b.has()


async def test_who_was_stopped_past_its_lease_finds_out_before_it_acts(store: CountingStore, clock: FakeClock) -> None:
    a, b = duty(store, clock, "a"), duty(store, clock, "b")
    assert await a.has()
    clock.advance(LEASE_S + 1)
    assert await b.has()
    assert not await a.has()
    # It comes back once the other one is gone.
    clock.advance(LEASE_S + 1)
    assert await a.has()


async def test_a_released_duty_is_free_at_once_and_may_be_asked_for_again(
    store: CountingStore, clock: FakeClock
) -> None:
    a, b = duty(store, clock, "a"), duty(store, clock, "b")
    assert await a.has()
    await a.release()
    assert await b.has()
    assert not await a.has()
    await b.release()
    clock.advance(LEASE_S / 3)
    assert await a.has()


async def test_given_up_it_is_free_at_once_and_never_asked_for_again(store: CountingStore, clock: FakeClock) -> None:
    a, b = duty(store, clock, "a"), duty(store, clock, "b")
    assert await a.has()
    await a.give_up()
    assert await b.has()
    clock.advance(10 * LEASE_S)
    assert not await a.has()


async def test_a_store_that_is_away_leaves_it_to_nobody(store: CountingStore, clock: FakeClock) -> None:
    a = duty(store, clock, "a")
    assert await a.has()
    store.away = True
    clock.advance(LEASE_S / 2)
    with pytest.raises(StoreUnavailable):
        await a.has()
    assert not await a.has()
    store.away = False
    clock.advance(LEASE_S / 3)
    assert await a.has()


async def test_a_clock_that_is_set_back_makes_no_lease_longer(store: CountingStore, clock: FakeClock) -> None:
    a = duty(store, clock, "a")
    assert await a.has()
    clock.jump(-3600)
    store.owners.clear()
    assert await a.has()
    assert store.owners == ["a"]


async def test_who_is_there_for_one_run_asks_nobody() -> None:
    assert await always()


@pytest.mark.parametrize(("leaves", "took_over"), [("dies", 1), ("gives up", 0)])
async def test_who_takes_over_from_a_server_that_is_gone_is_told(
    store: CountingStore, clock: FakeClock, leaves: str, took_over: int
) -> None:
    notices: list[str] = []

    async def note() -> None:
        notices.append("b")

    a, b = duty(store, clock, "a"), Duty(store, clock, "timers", "b", LEASE_S, note)
    assert await a.has()
    assert not await b.has()
    if leaves == "gives up":
        await a.give_up()
    clock.advance(2 * LEASE_S)
    assert await b.has()
    for _ in range(10):
        clock.advance(LEASE_S / 2)
        assert await b.has()
    assert len(notices) == took_over


async def test_a_server_that_was_only_slow_learns_that_it_was_taken_for_gone(
    store: CountingStore, clock: FakeClock
) -> None:
    calls: list[str] = []

    def alarmed(owner: str) -> Duty:
        async def took_over() -> None:
            calls.append(f"{owner} took over")

        async def lost() -> None:
            calls.append(f"{owner} is back")

        return Duty(store, clock, "timers", owner, LEASE_S, took_over, lost)

    a, b = alarmed("a"), alarmed("b")
    assert await a.has()
    clock.advance(LEASE_S + 1)
    assert await b.has()
    assert calls == ["b took over"]
    assert not await a.has()
    assert calls == ["b took over", "a is back"]
    await b.give_up()
    clock.advance(LEASE_S)
    assert await a.has()
    assert calls == ["b took over", "a is back"], "a duty that was given up is no sign of a death"


async def test_a_server_whose_store_goes_away_while_it_takes_over_is_told_when_it_is_back(
    store: CountingStore, clock: FakeClock
) -> None:
    assert await duty(store, clock, "gone").has()
    clock.advance(LEASE_S + 1)
    calls: list[bool] = []

    async def took_over() -> None:
        calls.append(store.away)
        if store.away:
            raise StoreUnavailable("the store is away")

    next_one = Duty(store, clock, "timers", "next", LEASE_S, took_over)
    lease = store.lease_duty

    async def leased_and_lost(duty: str, owner: str, now: int, until: int) -> bool:
        leased = await lease(duty, owner, now, until)
        store.away = True
        return leased

    store.lease_duty = leased_and_lost  # type: ignore[method-assign]  # the store goes away just after it
    with pytest.raises(StoreUnavailable):
        await next_one.has()
    store.away, store.lease_duty = False, lease  # type: ignore[method-assign]  # as before
    clock.advance(LEASE_S / 2)
    assert await next_one.has()
    assert calls == [True, False]
    clock.advance(LEASE_S / 2)
    assert await next_one.has()
    assert calls == [True, False]
    assert store.owners.count("next") == 3
