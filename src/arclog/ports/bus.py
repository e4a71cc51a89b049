"""The bus: hints between servers, after the commit. Hints may be lost, repeated or late; that costs time, never data.

Rules that every bus keeps (`arclog.testing.conformance.bus` proves them):
- `notify` never waits and never fails. A notice that cannot be sent is dropped and counted; a server that cannot be reached is
  tried again until `close`.
- A notice of one process eventually reaches every other process on the same bus, except `offered`: it is enough that one of
  the processes that wait for a pool receives it. Several notices about one run may arrive as one, with its highest head.
- A process need not receive its own notices.

Some buses also publish events (`Topic`): those are facts from the log, delivered at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from msgspec import Struct


class Notice(Struct, frozen=True, omit_defaults=True):
    """What some commits led to."""

    #: executions whose logs have grown: (execution_id, head)
    moved: tuple[tuple[int, int], ...] = ()
    #: some of them have ended, which frees slots
    ended: bool = False
    #: pools for which commands are offered, and how many
    offered: tuple[tuple[str, int], ...] = ()
    #: the earliest timer that was set, microseconds since 1970; 0: none
    timer: int = 0
    #: something ended where limits hold: what waits may be claimed now
    room: bool = False


class Figures(Struct, frozen=True):
    """How a bus has done since it was made."""

    connected: bool = False
    #: notices that were sent, that others sent, and pieces of notices that were given up
    sent: int = 0
    heard: int = 0
    dropped: int = 0
    #: how often the connection was lost
    lost: int = 0


class Message(Struct, frozen=True):
    """An event in its published form."""

    subject: str
    #: the same for the same event, always
    message_id: str
    headers: Mapping[str, str]
    body: bytes


class Topic(Protocol):
    """Where events are published."""

    async def publish(self, message: Message) -> None:
        """Returns once the message is kept there; one that was kept before need not be kept again. Raises
        `BusUnavailable`: it may be there, or not.
        """


class Bus(Protocol):
    #: where events can be published; None: nowhere
    topic: Topic | None

    async def open(self, heard: Callable[[Notice], None]) -> None:
        """Connect; `heard` is called with what others tell. Returns once it is ready, or known to be away: then it goes on
        trying in the background. A bus that is configured wrongly (an address that is none, wrong credentials, a version
        that is too old) raises `SettingsError`.
        """

    def notify(self, notice: Notice) -> None:
        """Let the others know, soon."""

    def waiting(self, pools: Collection[str]) -> None:
        """Workers of this process wait for commands of these pools; no pools: nobody waits. '' is any pool. To be said
        again when one begins to wait again, also if the pools are the same.
        """

    def figures(self) -> Figures: ...

    async def close(self) -> None:
        """Send what can be sent immediately, then close."""
