"""The outbox: deliveries about the end of a run. The append that ends the run writes them, so none is lost.

Rules that every store keeps (`arclog.testing.conformance.store` checks them):
- Deliveries exist as soon as their append is committed, and not at all if it was refused.
- A leased delivery is not given to others until its lease ends or its attempt is recorded.
- A delivered or dead delivery stays so.
- `executions_to_settle` returns an execution once none of its deliveries is pending, until they are settled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

PENDING = "pending"
DELIVERED = "delivered"
DEAD = "dead"


class NewDelivery(Struct, frozen=True):
    #: http://, https:// or mailto:
    url: str
    #: name of the keychain entry that signs it; '' if it is not signed
    secret: str
    #: completed | failed | cancelled
    event: str
    body: bytes


class Delivery(Struct, frozen=True):
    execution_id: int
    #: from 1 per execution
    n: int
    url: str
    secret: str
    event: str
    body: bytes
    created_at: int
    #: pending | delivered | dead
    state: str
    #: time of the next attempt, microseconds since 1970
    due: int
    attempts: int
    #: problem of the last attempt; '' if there was none
    problem: str


def receiver_of(url: str) -> str:
    """Return the receiver of an address: its scheme and authority in lower case.

    A store matches addresses that start with it, ignoring case, and then end or continue with one of / ? #.
    """
    scheme, parted, rest = url.partition("://")
    return f"{scheme}{parted}{re.split('[/?#]', rest, maxsplit=1)[0]}".lower()


class OutboxStore(Protocol):
    async def deliveries(self, execution_id: int) -> Sequence[Delivery]:
        """Return all deliveries of one execution, in order."""

    async def lease_deliveries(
        self, now: int, until: int, limit: int = 100, *, but: Sequence[str] = ()
    ) -> Sequence[Delivery]:
        """Lease pending deliveries that are due and not leased, longest due first, except those to these receivers."""

    async def attempted(self, delivery: Delivery) -> None:
        """Record the result of an attempt: state, due, attempts and problem. Ends the lease."""

    async def executions_to_settle(self, limit: int = 100) -> Sequence[int]:
        """Return executions whose deliveries are all delivered or dead, and not settled."""

    async def given_up(self, since: int, limit: int = 100) -> Sequence[Delivery]:
        """Return dead deliveries of executions whose ids are not below `since`, the newest execution first."""

    async def settle_deliveries(self, execution_id: int) -> None:
        """Settle the deliveries of an execution: its log records that they are done."""
