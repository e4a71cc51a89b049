"""Mints ids: snowflakes from the clock and a leased node number, run ids from chance."""

from __future__ import annotations

import os

from arclog.model.ids import EPOCH_MS, MAX_SEQUENCE, compose
from arclog.ports.clock import Clock

#: Ids that one transaction may use at most; a run of ids never crosses into another node's.
LONGEST_RUN = 3500


def new_run_id() -> str:
    """A random UUID (version 4). The `uuid` module would cost 6 ms of imports at every start."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class Minter:
    """Gives out ids that rise, also when the clock goes back."""

    def __init__(self, clock: Clock, node: int) -> None:
        self._clock = clock
        self._node = node
        self._ms = EPOCH_MS
        self._sequence = 0

    def peek(self) -> int:
        """The first id of a run of at most LONGEST_RUN; call `take` with how many were used."""
        ms = self._clock.now() // 1000
        if ms > self._ms:
            self._ms, self._sequence = ms, 0
        elif self._sequence + LONGEST_RUN > MAX_SEQUENCE:
            self._ms, self._sequence = self._ms + 1, 0
        return compose(self._ms, self._node, self._sequence)

    def take(self, count: int) -> None:
        self._sequence += count

    def one(self) -> int:
        """A single id."""
        found = self.peek()
        self.take(1)
        return found
