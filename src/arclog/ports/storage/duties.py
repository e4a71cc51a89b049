"""Duties: work that one of several servers does at a time, and its progress.

Rules that every store keeps (`arclog.testing.conformance.store` checks them):
- A duty belongs to one owner until its lease ends. A request while another owner holds it is refused; the owner may ask
  again to keep it; a lease that ends at once (`until` not after `now`) releases it.
- Only the owner of the duty moves its position, while its lease is valid, and never back: a server that was suspended
  past its lease changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class DutyRecord(Struct, frozen=True):
    duty: str
    #: its last owner, whose lease may have ended
    owner: str
    #: when the lease ends, microseconds since 1970
    until: int
    position: int


class DutyBook(Protocol):
    async def lease_duty(self, duty: str, owner: str, now: int, until: int) -> bool:
        """Take or keep a duty until then (microseconds since 1970). Returns False while another owner has it."""

    async def position(self, duty: str) -> int:
        """Return the position of the duty; 0 at the beginning."""

    async def move_position(self, duty: str, owner: str, now: int, position: int) -> bool:
        """Store the position.

        Returns False, and stores nothing, if the owner does not have the duty or the position is not higher.
        """

    async def duties(self) -> Sequence[DutyRecord]:
        """Return every duty that was ever acquired, by name."""
