"""The rules of `ports.bus`, for every bus.

    class TestMyBus(BusContract):
        @pytest.fixture
        def network(self) -> Network: ...

A network is what buses meet on; one that tests can take away and bring back says so (`can_be_lost`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import pytest

from arclog.model.config.settings import Settings
from arclog.ports.bus import Bus, Notice

# ── base ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Shared parts of the rules: a network, its buses, and listeners.

#: Time limit for anything here.
PATIENCE_S = 30.0


class Network(Protocol):
    """A network that connects buses."""

    #: whether `lose` and `restore` work
    can_be_lost: bool

    def bus(self, settings: Settings) -> Bus:
        """A new bus, not open yet."""

    def lose(self) -> None:
        """Make the network unavailable and lose its stored data."""

    def restore(self) -> None: ...


class Ear:
    """All notices that one process has received."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.notices: list[Notice] = []
        self._news = asyncio.Event()

    def hear(self, notice: Notice) -> None:
        self.notices.append(notice)
        self._news.set()

    @property
    def heads(self) -> dict[int, int]:
        heads: dict[int, int] = {}
        for notice in self.notices:
            for execution_id, head in notice.moved:
                heads[execution_id] = max(heads.get(execution_id, 0), head)
        return heads

    @property
    def pools(self) -> list[str]:
        return [pool for notice in self.notices for pool, _ in notice.offered]

    async def until(self, reached: Callable[[Ear], Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not reached(self):
                self._news.clear()
                await self._news.wait()


async def until(reached: Callable[[], bool]) -> None:
    """Poll for an effect of a real network."""
    async with asyncio.timeout(PATIENCE_S):
        while not reached():  # noqa: ASYNC110 - as it says
            await asyncio.sleep(0.005)


async def either(*ears: Ear, reached: Callable[[Ear], Any]) -> None:
    """Wait until the condition holds for one of them."""
    waits = [asyncio.ensure_future(ear.until(reached)) for ear in ears]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


#: Opens a further bus; options are settings.
Join = Callable[..., Awaitable[Ear]]


class Rules:
    """Base of all groups of rules: the fixtures."""

    @pytest.fixture
    def network(self) -> Network:
        pytest.fail("a subclass of BusContract gives a network")

    @pytest.fixture
    async def join(self, network: Network) -> AsyncIterator[Join]:
        ears: list[Ear] = []

        async def join(**settings: Any) -> Ear:
            values = {name.replace("__", "."): value for name, value in settings.items()}
            ear = Ear(network.bus(Settings({"bus.max_retry_s": 0.2, **values})))
            ears.append(ear)
            await ear.bus.open(ear.hear)
            return ear

        yield join
        for ear in ears:
            await ear.bus.close()


# ── telling ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of notices.

MANY = 5_000


class NoticeRules(Rules):
    async def test_a_notice_reaches_every_other_process(self, join: Join) -> None:
        a, b, c = await join(), await join(), await join()
        a.bus.notify(Notice(moved=((7, 3), (8, 1)), ended=True, timer=99))
        for ear in (b, c):
            await ear.until(lambda ear: ear.heads == {7: 3, 8: 1})
            await ear.until(lambda ear: any(notice.ended for notice in ear.notices))
            await ear.until(lambda ear: any(notice.timer == 99 for notice in ear.notices))
        c.bus.notify(Notice(moved=((9, 4),)))
        for ear in (a, b):
            await ear.until(lambda ear: ear.heads.get(9) == 4)

    async def test_frequent_notices_end_with_the_last_head(self, join: Join) -> None:
        a, b = await join(), await join()
        for head in range(1, 200):
            a.bus.notify(Notice(moved=((7, head),)))
            if head % 50 == 0:
                await asyncio.sleep(0)
        await b.until(lambda ear: ear.heads.get(7) == 199)

    async def test_the_earliest_timer_is_announced(self, join: Join) -> None:
        a, b = await join(), await join()
        for due in (500, 300, 400):
            a.bus.notify(Notice(timer=due))
        await b.until(lambda ear: any(notice.timer == 300 for notice in ear.notices))

    async def test_an_end_and_room_under_a_limit_are_heard(self, join: Join) -> None:
        a, b = await join(), await join()
        a.bus.notify(Notice(ended=True))
        await b.until(lambda ear: any(notice.ended for notice in ear.notices))
        a.bus.notify(Notice(room=True))
        await b.until(lambda ear: any(notice.room for notice in ear.notices))

    async def test_notices_of_very_many_runs_all_arrive(self, join: Join) -> None:
        a, b = await join(), await join()
        first = 9_000_000_000_000_000_000
        a.bus.notify(Notice(moved=tuple((first + n, 1_000_000 + n) for n in range(MANY))))
        await b.until(lambda ear: len(ear.heads) == MANY)
        assert b.heads == {first + n: 1_000_000 + n for n in range(MANY)}

    async def test_an_offer_reaches_one_process_that_waits_for_its_pool(self, join: Join) -> None:
        a, b, c = await join(), await join(), await join()
        for ear in (b, c):
            ear.bus.waiting({"default"})
        a.bus.notify(Notice(offered=(("default", 1),)))
        await either(b, c, reached=lambda ear: "default" in ear.pools)

    async def test_each_offer_finds_somebody_again(self, join: Join) -> None:
        a, b = await join(), await join()
        for count in range(1, 6):
            b.bus.waiting({"default"})
            a.bus.notify(Notice(offered=(("default", 1),)))
            await b.until(lambda ear, count=count: len(ear.pools) >= count)  # type: ignore[misc]  # a lambda's default cannot be typed

    async def test_offers_to_several_pools_reach_the_processes_that_wait_for_them(self, join: Join) -> None:
        a, gpu, other = await join(), await join(), await join()
        gpu.bus.waiting({"gpu.large-2", "x_1"})
        other.bus.waiting({"default"})
        a.bus.notify(Notice(offered=(("default", 2), ("gpu.large-2", 1))))
        await gpu.until(lambda ear: "gpu.large-2" in ear.pools)
        await other.until(lambda ear: "default" in ear.pools)
        assert (
            "gpu.large-2" not in other.pools or "default" in gpu.pools
        )  # receives only its own offers, or all of them

    async def test_a_process_that_waits_for_any_pool_receives_all_offers(self, join: Join) -> None:
        a, any_pool = await join(), await join()
        any_pool.bus.waiting({""})
        # The subscription takes effect at an unknown time, so the notice is repeated until it is received.
        async with asyncio.timeout(30):
            while not {"default", "gpu"} <= set(any_pool.pools):
                a.bus.notify(Notice(offered=(("default", 1), ("gpu", 1))))
                await asyncio.sleep(0.01)

    async def test_clusters_that_share_a_network_do_not_hear_each_other(self, join: Join) -> None:
        a, b = await join(bus__prefix="one"), await join(bus__prefix="one")
        c, d = await join(bus__prefix="two"), await join(bus__prefix="two")
        for ear in (b, d):
            ear.bus.waiting({"default"})
        a.bus.notify(Notice(moved=((1, 1),), offered=(("default", 1),)))
        c.bus.notify(Notice(moved=((2, 2),), offered=(("default", 1),)))
        for ear in (b, d):
            await ear.until(lambda ear: ear.heads and ear.pools)
        assert (b.heads, d.heads) == ({1: 1}, {2: 2})

    async def test_the_bus_reports_its_health(self, join: Join) -> None:
        a, b = await join(), await join()
        a.bus.notify(Notice(moved=((1, 1),)))
        await b.until(lambda ear: ear.heads)
        assert a.bus.figures().connected
        await until(lambda: a.bus.figures().sent >= 1)  # b may receive it before a counts it as sent
        assert b.bus.figures().received >= 1
        assert a.bus.figures().dropped == b.bus.figures().dropped == 0

    async def test_a_closed_bus_receives_nothing_and_does_not_fail(self, join: Join) -> None:
        a, b, c = await join(), await join(), await join()
        await b.bus.close()
        a.bus.notify(Notice(moved=((1, 1),)))
        await c.until(lambda ear: ear.heads)
        assert not b.notices
        b.bus.notify(Notice(moved=((2, 2),)))
        b.bus.waiting({"default"})
        await b.bus.close()

    async def test_the_last_notice_of_a_process_arrives(self, join: Join) -> None:
        a, b = await join(), await join()
        a.bus.notify(Notice(moved=((1, 1),)))
        await b.until(lambda ear: ear.heads)
        a.bus.notify(Notice(moved=((2, 5),)))
        await a.bus.close()
        await b.until(lambda ear: ear.heads.get(2) == 5)


# ── losing ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of a bus that loses its network.


class LossRules(Rules):
    @pytest.fixture(autouse=True)
    def _stated(self, network: Network, request: pytest.FixtureRequest) -> None:
        if request.function.__name__.startswith("test_lost") and not network.can_be_lost:
            pytest.skip("this network cannot be lost")

    async def test_lost_and_restored_it_carries_again(self, network: Network, join: Join) -> None:
        a, b = await join(), await join()
        b.bus.waiting({"default"})
        a.bus.notify(Notice(moved=((1, 1),), offered=(("default", 1),)))
        await b.until(lambda ear: ear.heads and ear.pools)
        network.lose()
        a.bus.notify(Notice(moved=((2, 2),)))
        await until(lambda: not a.bus.figures().connected)
        await until(lambda: not b.bus.figures().connected)
        a.bus.notify(Notice(moved=((3, 3),)))
        network.restore()
        await until(lambda: a.bus.figures().connected)
        await until(lambda: b.bus.figures().connected)
        a.bus.notify(Notice(moved=((4, 4),)))
        await b.until(lambda ear: 4 in ear.heads)
        b.bus.waiting({"default"})
        received = len(b.pools)
        a.bus.notify(Notice(offered=(("default", 1),)))
        await b.until(lambda ear: len(ear.pools) > received)
        assert a.bus.figures().lost == 1

    async def test_lost_from_the_beginning_it_is_there_once_the_network_is(self, network: Network, join: Join) -> None:
        network.lose()
        a, b = await join(), await join()
        a.bus.notify(Notice(moved=((1, 1),)))
        b.bus.waiting({"default"})
        assert not a.bus.figures().connected
        network.restore()
        await until(lambda: a.bus.figures().connected)
        await until(lambda: b.bus.figures().connected)
        a.bus.notify(Notice(moved=((2, 2),), offered=(("default", 1),)))
        await b.until(lambda ear: 2 in ear.heads)
        await b.until(lambda ear: ear.pools)

    async def test_lost_it_keeps_a_little_and_counts_what_it_gives_up(self, network: Network, join: Join) -> None:
        network.lose()
        ear = await join(bus__max_pending=10)
        for number in range(1, 101):
            ear.bus.notify(Notice(moved=((number, 1),)))
        assert ear.bus.figures().dropped == 90
        assert ear.bus.figures().sent == 0
        await ear.bus.close()


# ── bus ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


class BusContract(NoticeRules, LossRules):
    """All rules."""


__all__ = ["BusContract", "Network"]
