"""The bus: hints between servers, after the commit. Hints may be lost, repeated or late; that costs time, never data.

Rules that every bus keeps (`arclog.testing.conformance.bus` proves them):
- `notify` never waits and never fails. A notice that cannot be sent is dropped and counted; a server that cannot be
  reached is tried again until `close`.
- A notice of one process eventually reaches every other process on the same bus, except `offered`: it is enough that
  one of the processes that wait for a pool receives it. Several notices about one run may arrive as one, with its
  highest head.
- A process need not receive its own notices.

Some buses also publish events (`Topic`): those are facts from the log, delivered at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from msgspec import Struct


class Notice(Struct, frozen=True, omit_defaults=True):
    """The effects of commits that other processes need to know."""

    #: executions whose logs have grown: (execution_id, head)
    moved: tuple[tuple[int, int], ...] = ()
    #: whether some of them have ended, which frees slots
    ended: bool = False
    #: pools in which commands are offered, with their number
    offered: tuple[tuple[str, int], ...] = ()
    #: the earliest timer that was set, microseconds since 1970; 0 for none
    timer: int = 0
    #: whether work ended in a pool or resource with limits, so that waiting commands may be claimed now
    room: bool = False


class Figures(Struct, frozen=True):
    """Counters of a bus since it was created."""

    connected: bool = False
    #: notices that were sent and received, and parts of notices that were dropped
    sent: int = 0
    received: int = 0
    dropped: int = 0
    #: number of lost connections
    lost: int = 0


class Message(Struct, frozen=True):
    """An event in its published form."""

    subject: str
    #: always the same for the same event
    message_id: str
    headers: Mapping[str, str]
    body: bytes


class Topic(Protocol):
    """The destination of published events."""

    async def publish(self, message: Message) -> None:
        """Publish a message. Returns when it is stored; a message that was stored before need not be stored again.

        After `BusUnavailable`, it may or may not be stored.
        """


class Bus(Protocol):
    #: the destination of published events; None if events are not published
    topic: Topic | None

    async def open(self, on_notice: Callable[[Notice], None]) -> None:
        """Connect; `on_notice` is called with the notices of other processes.

        Returns when the bus is ready or known to be unavailable; it then reconnects in the background. Raises
        `SettingsError` for a wrong configuration (invalid address, wrong credentials, a server that is too old).
        """

    def notify(self, notice: Notice) -> None:
        """Send a notice to the other processes soon."""

    def waiting(self, pools: Collection[str]) -> None:
        """Announce that workers of this process wait for commands of these pools.

        '' stands for any pool; no pools if no worker waits. Call it again whenever a worker starts to wait, even if the
        pools are the same.
        """

    def figures(self) -> Figures: ...

    async def close(self) -> None:
        """Send pending notices if possible, then close."""
