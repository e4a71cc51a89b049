"""The connections of one worker, kept for the next task.

Law: tasks with the same servers, login and scope share one connection; one that nobody uses is closed after a while.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from arclog.drivers.http.guard import Guard
from arclog.model.config.settings import Settings
from arclog.tools.nats.connect import connected
from arclog.tools.nats.failure import refused
from arclog.tools.nats.link import Link
from arclog.tools.nats.where import Target

SETTING = "nats.allow_networks"
#: Unused connections that are kept at most, whatever their age.
_KEPT = 64
#: A cancellation that was lost is repeated this often.
_AGAIN_S = 0.05


class _Place:
    """Where the connection to one target is."""

    def __init__(self) -> None:
        self.link: Link | None = None
        #: whoever comes while a connection is made shares it, and its failure
        self.opening: asyncio.Task[Link] | None = None
        self.users = 0
        self.expiry: asyncio.TimerHandle | None = None


class Links:
    def __init__(self, settings: Settings) -> None:
        self._guard = Guard(settings.text(SETTING), setting=SETTING, who="nats tasks")
        self._ca_file = settings.text("nats.ca_file")
        self._connect_s = settings.number("nats.connect_timeout_s")
        self._answer_s = settings.number("nats.request_timeout_s")
        self._idle_s = settings.number("nats.idle_s")
        self._trust: ssl.SSLContext | None = None
        #: the one used last stands last
        self._places: dict[Target, _Place] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def to(self, target: Target) -> AsyncIterator[Link]:
        """The connection to a target, for the time of one task."""
        place = self._places.pop(target, None) or _Place()
        self._places[target] = place
        place.users += 1
        if place.expiry is not None:
            place.expiry.cancel()
            place.expiry = None
        try:
            yield await self._link(target, place)
        finally:
            place.users -= 1
            if not place.users:
                self._leave(target, place)

    async def close(self) -> None:
        places, self._places = list(self._places.values()), {}
        for place in places:
            self._shut(place)
        while self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)

    async def _link(self, target: Target, place: _Place) -> Link:
        link = place.link
        if link is not None and link.usable and not link.doubted:
            return link
        if place.opening is None:
            place.opening = asyncio.ensure_future(self._open(target, place))
            place.opening.add_done_callback(lambda opening: _opened(place, opening))
        return await asyncio.shield(place.opening)

    async def _open(self, target: Target, place: _Place) -> Link:
        link = place.link
        if link is not None and link.usable and await link.proved(self._connect_s):
            return link
        self._close(place)
        place.link = await connected(target, self._guard, self._trusted, self._connect_s, self._answer_s)
        return place.link

    def _leave(self, target: Target, place: _Place) -> None:
        if self._places.get(target) is not place or place.link is None or not self._idle_s:
            self._forget(target, place)
            return
        place.expiry = asyncio.get_running_loop().call_later(self._idle_s, self._forget, target, place)
        unused = [(one, at) for one, at in self._places.items() if not at.users]
        for one, at in unused[: max(0, len(unused) - _KEPT)]:
            self._forget(one, at)

    def _forget(self, target: Target, place: _Place) -> None:
        if self._places.get(target) is place:
            del self._places[target]
        self._shut(place)

    def _shut(self, place: _Place) -> None:
        if place.expiry is not None:
            place.expiry.cancel()
            place.expiry = None
        if place.opening is not None:
            self._later(self._abandon(place, place.opening))
        self._close(place)

    async def _abandon(self, place: _Place, opening: asyncio.Task[Link]) -> None:
        """End the making of a connection; one cancellation may be lost in the client."""
        while not opening.done():
            opening.cancel()
            await asyncio.wait({opening}, timeout=_AGAIN_S)
        self._close(place)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        closing = asyncio.ensure_future(work)
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _close(self, place: _Place) -> None:
        link, place.link = place.link, None
        if link is not None:
            self._later(link.close())

    def _trusted(self) -> ssl.SSLContext:
        if self._trust is None:
            trust = ssl.create_default_context()
            if self._ca_file:
                try:
                    trust.load_verify_locations(cafile=self._ca_file)
                except (OSError, ssl.SSLError) as problem:
                    raise refused(f"nats.ca_file: {self._ca_file} cannot be used: {problem}") from None
            self._trust = trust
        return self._trust


def _opened(place: _Place, opening: asyncio.Task[Link]) -> None:
    place.opening = None
    if not opening.cancelled():
        opening.exception()  # those who wait for it have it
