"""Generates ids: snowflakes from the clock and a leased node number, and random run ids.

Invariant: no id is generated with a node number whose lease has ended, since another process may have it by now.
"""

from __future__ import annotations

import os

from arclog.model.ids import EPOCH_MS, MAX_ID, MAX_SEQUENCE, MICROS, SEQUENCE_BITS, compose
from arclog.ports.clock import Clock
from arclog.ports.storage.store import Store

_NODE_LEASE_US = 600 * MICROS
#: A lease is not used during this time before its end, since ids are committed a little later than they are generated.
_MARGIN_US = 60 * MICROS

#: Maximum number of consecutive ids in one millisecond. A longer sequence, such as at the end of a run with thousands
#: of open tasks, continues in the next one (`ids.moved`), never among the ids of another node.
LONGEST_RUN = 3500


def new_uuid() -> str:
    """Return a random UUID (version 4). The `uuid` module would cost 6 ms of imports at every start."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class Minter:
    """Generates increasing ids, even if the clock goes back."""

    def __init__(self, clock: Clock, node: int, until: int = MAX_ID) -> None:
        self._clock = clock
        self._node = node
        #: when the number's lease ends
        self._until = until
        self._ms = EPOCH_MS
        self._sequence = 0

    def peek(self, now: int = 0) -> int:
        """Return the first of several consecutive ids. Call `take` with the number of used ones. `now` is the time, if
        the caller has read the clock already.
        """
        ms = (now or self._clock.now()) // 1000
        if ms > self._ms:
            self._ms, self._sequence = ms, 0
        elif self._sequence + LONGEST_RUN > MAX_SEQUENCE:
            self._ms, self._sequence = self._ms + 1, 0
        return compose(self._ms, self._node, self._sequence)

    def take(self, count: int) -> None:
        self._sequence += count
        if self._sequence > MAX_SEQUENCE:
            self._ms += self._sequence >> SEQUENCE_BITS
            self._sequence &= MAX_SEQUENCE

    @property
    def is_over(self) -> bool:
        """Whether the lease of the node number has ended, so that another process may have it."""
        return self._clock.now() >= self._until

    async def renew(self) -> None:
        """Renew the lease of the node number, or get another number. Must be called before using ids if `is_over`."""

    async def keep(self) -> None:
        """Renew the lease once a third of it has passed."""

    def next_id(self) -> int:
        """Return a single id."""
        new_id = self.peek()
        self.take(1)
        return new_id


class LeasedMinter(Minter):
    """Generates ids with a node number that the store has leased to it."""

    def __init__(self, clock: Clock, store: Store, owner: str) -> None:
        super().__init__(clock, 0, 0)
        self._store = store
        self._owner = owner

    async def renew(self) -> None:
        now = self._clock.now()
        until = now + _NODE_LEASE_US
        self._node = await self._store.lease_node(self._owner, now, until)
        self._until = until - _MARGIN_US

    async def keep(self) -> None:
        if self._until - self._clock.now() < _NODE_LEASE_US * 2 // 3:
            await self.renew()

    async def give_up(self) -> None:
        now = self._clock.now()
        self._until = 0
        await self._store.lease_node(self._owner, now, now)
