"""Rules of a bus whose network goes away."""

from __future__ import annotations

import pytest

from arclog.ports.bus import Notice
from arclog.testing.conformance.bus.base import Join, Network, Rules, until


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
        heard = len(b.pools)
        a.bus.notify(Notice(offered=(("default", 1),)))
        await b.until(lambda ear: len(ear.pools) > heard)
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
        assert ear.bus.figures().told == 0
        await ear.bus.close()
