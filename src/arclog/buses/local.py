"""A bus for several engines in one process: for tests, and for simulations that lose, repeat and delay notices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from arclog.ports.bus import Figures, Notice, Topic

#: Gets a function that delivers a notice to another bus, and may call it now, later, twice or never.
Carry = Callable[[Callable[[], None]], None]


def _soon(deliver: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(deliver)


class Exchange:
    """Connects its buses."""

    def __init__(self, carry: Carry = _soon) -> None:
        self.carry = carry
        self.buses: list[LocalBus] = []

    def bus(self) -> LocalBus:
        return LocalBus(self)


class LocalBus:
    """A bus that receives the notices of all other open buses of its exchange."""

    topic: Topic | None = None

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._on_notice: Callable[[Notice], None] | None = None
        self._sent = self._received_count = 0

    async def open(self, on_notice: Callable[[Notice], None]) -> None:
        self._on_notice = on_notice
        self._exchange.buses.append(self)

    def notify(self, notice: Notice) -> None:
        self._sent += 1
        for other in self._exchange.buses:
            if other is not self:
                self._exchange.carry(lambda other=other: other._deliver(notice))  # type: ignore[misc]  # noqa: SLF001 - one of its own kind; mypy cannot type a lambda's default

    def _deliver(self, notice: Notice) -> None:
        if self._on_notice is not None:
            self._received_count += 1
            self._on_notice(notice)

    def waiting(self, pools: Collection[str]) -> None:
        """Nothing to do; all buses receive all notices."""

    def figures(self) -> Figures:
        return Figures(connected=self._on_notice is not None, sent=self._sent, received=self._received_count)

    async def close(self) -> None:
        self._on_notice = None
        if self in self._exchange.buses:
            self._exchange.buses.remove(self)
