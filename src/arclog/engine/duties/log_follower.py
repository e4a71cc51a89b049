"""Follows the log for a duty that sends parts of it elsewhere, each at least once.

Invariant: one of several servers has the duty. It records its position (at intervals, since each record is a commit)
only after everything up to there is stored at the receiver. The next server with the duty starts there, so some of it
is sent twice.
"""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from arclog.drivers.backoff import Backoff
from arclog.engine.commits.engine import Engine
from arclog.model.errors import ArclogError
from arclog.model.ids import MICROS
from arclog.ports.storage.store import LogBatch

log = logging.getLogger("arclog.engine")

_FIRST_PAUSE_S = 0.1
_NUMBER = re.compile(r"\d{10,}-\d+")


class Follower(ABC):
    """The duty: one per engine. Only one of several servers follows the log at a time."""

    #: name of the duty in the store
    duty: ClassVar[str]
    #: noun for messages
    noun: ClassVar[str]

    def __init__(self, engine: Engine, owner: str) -> None:
        settings = engine.settings
        self._engine = engine
        self._owner = owner
        self._rows = settings.integer("bus.publish_rows")
        self._lease_s = settings.number("bus.publish_lease_s")
        self._sweep_s = settings.number("engine.sweep_s")
        self._wake_up = asyncio.Event()
        #: held while publishing is in progress
        self._busy = asyncio.Lock()
        self._problem = ""
        #: everything up to _at is stored at the receiver; everything up to _noted is recorded
        self._at = self._noted = 0
        #: when the duty was last leased, and when the position was last recorded, by the monotonic clock
        self._leased_at = self._noted_at = 0.0
        #: whether this server has the duty
        self.on_duty = False
        #: whether the program is about to exit
        self._settling = False
        engine.hints.on_grown.append(self._wake_up.set)

    @abstractmethod
    async def send(self, page: Sequence[LogBatch]) -> int:
        """Send what follows from some rows of the log. Return how many of the rows, from the first on, are completely
        stored, at least one. Raises if not even one is.
        """

    async def run(self) -> None:
        """Publish while this server has the duty, and try to get it while another has it. Returns after `settle` was
        called.
        """
        backoff = Backoff(_FIRST_PAUSE_S, self._lease_s / 3)
        while not self._settling:
            self._wake_up.clear()
            try:
                await self.publish()
                rest = self._sweep_s if self.on_duty else self._lease_s / 3
                backoff.reset()
                self._warn("")
            except Exception as problem:
                if not isinstance(problem, ArclogError):
                    log.error("%s: %s", self.noun, problem, exc_info=problem)
                self._warn(str(problem))
                await self._engine.clock.sleep(backoff.pause_s())
                continue
            await self._rest(rest)

    async def publish(self) -> None:
        """Publish the unpublished part of the log, if this server has the duty or can get it."""
        async with self._busy:
            while await self._has_duty():
                page = await self._engine.store.tail(after=self._at, limit=self._rows)
                if page:
                    self._at = page[await self.send(page) - 1].position
                if self._engine.clock.monotonic() >= self._noted_at + self._sweep_s:
                    await self._note()
                if not page:
                    return

    async def _has_duty(self) -> bool:
        """Renew the duty, or get it. The lease is renewed long before it ends; a server that was suspended finds out
        here.
        """
        store, clock = self._engine.store, self._engine.clock
        if self.on_duty and clock.monotonic() < self._leased_at + self._lease_s / 3:
            return True
        began, now = clock.monotonic(), await store.time()
        self.on_duty = await store.lease_duty(self.duty, self._owner, now, now + round(self._lease_s * MICROS))
        if self.on_duty:
            self._leased_at = began
            # Another server may have advanced in the meantime.
            self._noted = await store.position(self.duty)
            self._at = max(self._at, self._noted)
        return self.on_duty

    async def _note(self) -> None:
        store = self._engine.store
        if self._at > self._noted:
            self.on_duty = await store.move_position(self.duty, self._owner, await store.time(), self._at)
            self._noted = self._at if self.on_duty else self._noted
        self._noted_at = self._engine.clock.monotonic()

    def _warn(self, problem: str) -> None:
        """Log a problem once, however often the attempt is repeated and with whichever event."""
        problem = _NUMBER.sub("…", problem)
        if problem and problem != self._problem:
            log.warning("%s cannot be published: %s; retrying", self.noun, problem)
        elif self._problem and not problem:
            log.info("publishing of %s resumed", self.noun)
        self._problem = problem

    async def _rest(self, seconds: float) -> None:
        # A server without the duty does not need to be woken.
        waits = [self._engine.clock.sleep(seconds)] + ([self._wake_up.wait()] if self.on_duty else [])
        either = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in either:
                task.cancel()
            await asyncio.gather(*either, return_exceptions=True)

    async def settle(self, timeout_s: float) -> None:
        """Before the program exits: publish the rest, and release the duty at once.

        Call it before `run` is cancelled, so that a page that is being sent is completed, not cut off and sent again.
        Call it again after other parts of the program have written their last events.
        """
        self._settling = True
        for work in (self.publish, self._leave):
            try:
                async with asyncio.timeout(timeout_s):
                    await work()
            except (ArclogError, TimeoutError) as problem:
                left = str(problem) or "out of time"
                log.info("%s: not all are published (%s); the next server continues", self.noun, left)

    async def _leave(self) -> None:
        if self.on_duty:
            await self._note()
            now = await self._engine.store.time()
            await self._engine.store.lease_duty(self.duty, self._owner, now, now)
            self.on_duty = False
