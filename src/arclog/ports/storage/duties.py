"""Duties: work that one server of several does at a time, and how far it is with it.

Rules that every store keeps (`arclog.testing.conformance.store` proves them):
- A duty belongs to one owner until its lease ends. A request while another owner holds it gets nothing; the owner may ask
  again to keep it; a lease that ends at once (`until` not after `now`) gives it up.
- A position is moved by the owner of the duty alone, while its lease is not over, and never back: a server that was
  stopped past its lease and woken changes nothing.
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
        """Take or keep a duty until then (microseconds since 1970); False while another has it."""

    async def position(self, duty: str) -> int:
        """The position of the duty; 0 at the beginning."""

    async def move_position(self, duty: str, owner: str, now: int, position: int) -> bool:
        """Note how far it is; False (and nothing is noted) when the owner does not have the duty, or had a further one."""

    async def duties(self) -> Sequence[DutyRecord]:
        """Every duty that was ever acquired, by name."""
