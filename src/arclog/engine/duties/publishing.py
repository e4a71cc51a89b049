"""Publishes the events of the log: each at least once, those of one run in order of their seq.

Invariant: an event is published only after the run's previous event was stored. Whatever is lost or repeated, no
consumer sees an event for the first time before the previous one. `engine.duties.log_follower` does the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from arclog.dialects.published import published, topic_of
from arclog.engine.commits.engine import Engine
from arclog.engine.duties.log_follower import Follower
from arclog.engine.views.event_search import subject_of, widened
from arclog.model.data.lru import LruCache
from arclog.model.envelope import Subject
from arclog.model.errors import BusUnavailable, NotFound
from arclog.ports.bus import Message, Topic
from arclog.ports.storage.store import LogBatch, StoredEvent, is_imported

log = logging.getLogger("arclog.engine")

DUTY = "events.publish"
#: Number of runs whose name and scope are cached.
_SUBJECTS = 10_000


class Publisher(Follower):
    """Publishes events."""

    duty = DUTY
    noun = "events"

    def __init__(self, engine: Engine, topic: Topic, owner: str) -> None:
        super().__init__(engine, owner)
        self._topic = topic
        self._subject = engine.settings.text("bus.events_subject")
        self._subjects: LruCache[int, Subject] = LruCache(_SUBJECTS)
        #: for metrics: the number of stored events, and of failures
        self.published = self.failures = 0

    async def send(self, page: Sequence[LogBatch]) -> int:
        """Publish a part of the log, runs concurrently. Return how many of its rows, from the first on, are completely
        stored. Raises BusUnavailable if not even one is.
        """
        kept = [False] * len(page)
        runs: dict[int, list[int]] = {}
        for index, row in enumerate(page):
            runs.setdefault(row.execution_id, []).append(index)
        sending = [asyncio.ensure_future(self._send_run(page, rows, kept)) for rows in runs.values()]
        try:
            async with asyncio.timeout(self._lease_s / 2):
                results = await asyncio.gather(*sending, return_exceptions=True)
        except TimeoutError:
            results = [BusUnavailable(f"publishing takes longer than {self._lease_s / 2:g} s")]
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        whole = kept.index(False) if False in kept else len(kept)
        problems = [result for result in results if isinstance(result, BaseException)]
        self.failures += len(problems)
        for problem in problems:
            if not isinstance(problem, BusUnavailable) or not whole:
                raise problem
        return whole

    async def _send_run(self, page: Sequence[LogBatch], rows: Sequence[int], kept: list[bool]) -> None:
        try:
            subject = await self._of(page[rows[0]].execution_id)
        except NotFound as problem:
            # The run was removed after the page was read, so its events are not published.
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
        subject = self._subjects.get(execution_id)
        if subject is None:
            record = await self._engine.store.execution(execution_id)
            if record is None:
                raise NotFound(f"run {execution_id} is no longer in the store")
            if is_imported(record.new):
                raise NotFound(
                    f"run {execution_id} was imported: it ran elsewhere, and its events were published there"
                )
            subject = self._subjects.put(execution_id, subject_of(record))
        return subject
