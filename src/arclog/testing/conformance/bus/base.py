"""What the rules share: a network, buses on it, and ears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import pytest

from arclog.model.config.settings import Settings
from arclog.ports.bus import Bus, Notice

#: Longest that anything here may take.
PATIENCE_S = 30.0


class Network(Protocol):
    """Where buses meet."""

    #: whether `lose` and `restore` work
    can_be_lost: bool

    def bus(self, settings: Settings) -> Bus:
        """A new bus, not open yet."""

    def lose(self) -> None:
        """Nobody can be reached, and what the network kept is gone."""

    def restore(self) -> None: ...


class Ear:
    """Everything that one process has heard."""

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
    """For what a real network does: it can only be asked again and again."""
    async with asyncio.timeout(PATIENCE_S):
        while not reached():  # noqa: ASYNC110 - as it says
            await asyncio.sleep(0.005)


async def either(*ears: Ear, reached: Callable[[Ear], Any]) -> None:
    """Until one of them has come that far."""
    waits = [asyncio.ensure_future(ear.until(reached)) for ear in ears]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        for one in waits:
            one.cancel()
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
