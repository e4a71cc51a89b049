"""Publishes the log's events to the outside: each at least once, those of one run in the order of their seq.

Law: one server of several has the duty, and notes how far it is (now and then: each time would be a commit for a commit)
only after everything up to there is kept at the other side. Who comes after it begins there, so some events go out twice.
An event goes out only after the run's event before it is kept, so whatever is lost or repeated in between, nobody sees an
event for the first time before the one that came before it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence

import msgspec

from arclog.dialects.published import published, topic_of
from arclog.engine.engine import Engine
from arclog.engine.event_search import subject_of, widened
from arclog.model.envelope import Subject
from arclog.model.errors import ArclogError, BusUnavailable, NotFound
from arclog.model.ids import MICROS
from arclog.model.kept import Kept
from arclog.ports.bus import Message, Topic
from arclog.ports.store import LogBatch, StoredEvent

log = logging.getLogger("arclog.engine")

DUTY = "events.publish"
#: Runs whose name and scope are kept in memory.
_SUBJECTS = 10_000
_FIRST_PAUSE_S = 0.1
_NUMBER = re.compile(r"\d{10,}-\d+")


class Publisher:
    """The duty: one per engine that can publish; of several, one at a time does."""

    def __init__(self, engine: Engine, topic: Topic, owner: str) -> None:
        settings = engine.settings
        self._engine = engine
        self._topic = topic
        self._owner = owner
        self._subject = settings.text("bus.events_subject")
        self._rows = settings.integer("bus.publish_rows")
        self._lease_s = settings.number("bus.publish_lease_s")
        self._sweep_s = settings.number("engine.sweep_s")
        self._subjects: Kept[int, Subject] = Kept(_SUBJECTS)
        self._news = asyncio.Event()
        #: held while something is being published
        self._busy = asyncio.Lock()
        self._problem = ""
        #: everything up to here is kept, and everything up to there is noted
        self._at = self._noted = 0
        #: when the duty was leased last, and when the position was noted last, by the monotonic clock
        self._leased_at = self._noted_at = 0.0
        #: for metrics: events that were kept, and how often one was not
        self.published = self.failures = 0
        #: whether this server has the duty
        self.on_duty = False
        engine.hints.on_grown.append(self._news.set)

    async def run(self) -> None:
        """Publish for as long as this server has the duty, and try to get it while another has."""
        pause = _FIRST_PAUSE_S
        while True:
            self._news.clear()
            try:
                await self.publish()
                rest = self._sweep_s if self.on_duty else self._lease_s / 3
                pause = _FIRST_PAUSE_S
                self._say("")
            except Exception as problem:
                if not isinstance(problem, ArclogError):
                    log.error("events: %s", problem, exc_info=problem)
                self._say(str(problem))
                await self._engine.clock.sleep(pause)
                pause = min(pause * 2, self._lease_s / 3)
                continue
            await self._rest(rest)

    async def publish(self) -> None:
        """Publish what the log has that was not published, if this server has the duty or can get it."""
        async with self._busy:
            while await self._has_duty():
                page = await self._engine.store.tail(after=self._at, limit=self._rows)
                if page:
                    self._at = page[await self.send(page) - 1].position
                if self._engine.clock.monotonic() >= self._noted_at + self._sweep_s:
                    await self._note()
                if not page:
                    return

    async def send(self, page: Sequence[LogBatch]) -> int:
        """Publish some of the log, runs side by side; how many of its rows, from the first on, are kept whole. Raises
        BusUnavailable when it is not even one.
        """
        kept = [False] * len(page)
        runs: dict[int, list[int]] = {}
        for index, row in enumerate(page):
            runs.setdefault(row.execution_id, []).append(index)
        sending = [asyncio.ensure_future(self._send_run(page, rows, kept)) for rows in runs.values()]
        try:
            async with asyncio.timeout(self._lease_s / 2):
                found = await asyncio.gather(*sending, return_exceptions=True)
        except TimeoutError:
            found = [BusUnavailable(f"publishing takes longer than {self._lease_s / 2:g} s")]
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        whole = kept.index(False) if False in kept else len(kept)
        problems = [each for each in found if isinstance(each, BaseException)]
        self.failures += len(problems)
        for problem in problems:
            if not isinstance(problem, BusUnavailable) or not whole:
                raise problem
        return whole

    async def _send_run(self, page: Sequence[LogBatch], rows: Sequence[int], kept: list[bool]) -> None:
        try:
            subject = await self._of(page[rows[0]].execution_id)
        except NotFound as problem:
            # Removed after the page was read: nobody waits for its events.
            log.info("events: %s", problem)
            for index in rows:
                kept[index] = True
            return
        for index in rows:
            for stored in page[index].events:
                await self._topic.publish(self._message(stored, subject))
                self.published += 1
            kept[index] = True

    def _message(self, stored: StoredEvent, subject: Subject) -> Message:
        envelope = widened(stored, subject)
        number = str(stored.execution_id)
        return Message(
            subject=f"{self._subject}.{topic_of(envelope)}",
            message_id=f"{number}-{stored.seq}",
            headers={"execution_id": number, "seq": str(stored.seq)},
            body=msgspec.json.encode(published(envelope)),
        )

    async def _of(self, execution_id: int) -> Subject:
        found = self._subjects.get(execution_id)
        if found is None:
            record = await self._engine.store.execution(execution_id)
            if record is None:
                raise NotFound(f"run {execution_id} is not in the store any more")
            found = self._subjects.put(execution_id, subject_of(record))
        return found

    async def _has_duty(self) -> bool:
        """Keep the duty, or get it. A lease is kept up long before it ends: who was stopped meanwhile finds out here."""
        store, clock = self._engine.store, self._engine.clock
        if self.on_duty and clock.monotonic() < self._leased_at + self._lease_s / 3:
            return True
        began, now = clock.monotonic(), await store.time()
        self.on_duty = await store.lease_duty(DUTY, self._owner, now, now + round(self._lease_s * MICROS))
        if self.on_duty:
            self._leased_at = began
            # Another may have been further meanwhile.
            self._noted = await store.position(DUTY)
            self._at = max(self._at, self._noted)
        return self.on_duty

    async def _note(self) -> None:
        store = self._engine.store
        if self._at > self._noted:
            self.on_duty = await store.move_position(DUTY, self._owner, await store.time(), self._at)
            self._noted = self._at if self.on_duty else self._noted
        self._noted_at = self._engine.clock.monotonic()

    def _say(self, problem: str) -> None:
        """Once, however often it is tried, and with whichever event."""
        problem = _NUMBER.sub("…", problem)
        if problem and problem != self._problem:
            log.warning("events are not published: %s; trying again", problem)
        elif self._problem and not problem:
            log.info("events are published again")
        self._problem = problem

    async def _rest(self, seconds: float) -> None:
        # Whoever does not have the duty has no use for news.
        waits = [self._engine.clock.sleep(seconds)] + ([self._news.wait()] if self.on_duty else [])
        either = [asyncio.ensure_future(one) for one in waits]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in either:
                one.cancel()
            await asyncio.gather(*either, return_exceptions=True)

    async def settle(self, timeout_s: float) -> None:
        """Before the program leaves: publish what is there, and leave the duty to another server at once."""
        for work in (self.publish, self._leave):
            try:
                async with asyncio.timeout(timeout_s):
                    await work()
            except (ArclogError, TimeoutError) as problem:
                left = str(problem) or "no time is left"
                log.info("events: not all are published (%s); the next server goes on", left)

    async def _leave(self) -> None:
        if self.on_duty:
            await self._note()
            now = await self._engine.store.time()
            await self._engine.store.lease_duty(DUTY, self._owner, now, now)
            self.on_duty = False
