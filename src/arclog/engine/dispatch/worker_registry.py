"""The workers known to this process: presence, load, speed, and whether they are draining.

It is written to the store at most once in `workers.seen_every_s` for each worker, so that every server knows all workers.
A worker that serves a single run is not registered.
"""

from __future__ import annotations

from collections.abc import Iterable

from arclog.model.config.settings import Settings
from arclog.model.data.lru import LruCache
from arclog.model.ids import MICROS
from arclog.ports.clock import Clock
from arclog.ports.control import WorkerInfo
from arclog.ports.storage.pools import WorkerRecord
from arclog.ports.storage.store import Store

_WORKERS_KNOWN = 10_000
_COMMANDS_KNOWN = 100_000
#: Maximum length of a text that a worker reports about itself.
_LONGEST = 128
_MOST_SLOTS = 100_000
#: Number of missed signs of life after which a worker is silent.
_MISSED = 3
#: Weight of the last command in a worker's average.
_WEIGHT = 1 / 16


class _Seen:
    """The record of one worker."""

    __slots__ = ("info", "leaving", "pace", "written_at")

    def __init__(self, info: WorkerInfo) -> None:
        self.info = info
        #: average duration of its commands in microseconds
        self.pace = 0.0
        #: by the monotonic clock; None if not yet
        self.written_at: float | None = None
        self.leaving = False


class WorkerRegistry:
    """The workers that this server knows."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._every_s = settings.number("workers.seen_every_s")
        self._keep_us = round(settings.number("workers.keep_s") * MICROS)
        self._workers: LruCache[str, _Seen] = LruCache(_WORKERS_KNOWN)
        #: command → worker, and the start time
        self._begun: LruCache[int, tuple[str, float]] = LruCache(_COMMANDS_KNOWN)

    async def claims(self, info: WorkerInfo, free: int) -> bool:
        """Record a claim of a worker with this many free slots. Return whether the worker should leave."""
        if info.execution_id:
            return False
        seen = self._workers.get(info.worker_id)
        if seen is None:
            seen = self._workers.put(info.worker_id, _Seen(info))
        seen.info = info
        await self._write(seen, max(info.slots - free, 0))
        return seen.leaving

    async def beats(self, worker_id: str, busy: int) -> bool:
        """Record that a worker holds this many commands. Return whether the worker should leave."""
        seen = self._workers.get(worker_id)
        if seen is None:
            return False  # it becomes known when it claims
        await self._write(seen, busy)
        return seen.leaving

    def began(self, worker_id: str, command_ids: Iterable[int]) -> None:
        if worker_id not in self._workers:
            return  # it serves a single run, or becomes known when it claims
        now = self._clock.monotonic()
        for command_id in command_ids:
            self._begun.replace(command_id, (worker_id, now))

    def ended(self, command_ids: Iterable[int]) -> None:
        for command_id in command_ids:
            begun = self._begun.pop(command_id)
            seen = None if begun is None else self._workers.get(begun[0])
            if begun is not None and seen is not None:
                took = (self._clock.monotonic() - begun[1]) * MICROS
                seen.pace = took if not seen.pace else seen.pace + (took - seen.pace) * _WEIGHT

    async def _write(self, seen: _Seen, busy: int) -> None:
        now = self._clock.monotonic()
        if seen.written_at is not None and now - seen.written_at < self._every_s:
            return
        seen.written_at = now
        info, at = seen.info, self._clock.now()
        record = WorkerRecord(
            worker_id=info.worker_id,
            pools=info.pools,
            kinds=info.kinds,
            tenant=info.tenant,
            host=info.host[:_LONGEST],
            version=info.version[:_LONGEST],
            slots=min(max(info.slots, 0), _MOST_SLOTS),
            busy=busy,
            pace=round(seen.pace),
            seen_at=at,
            leaves=info.leaves,
        )
        if await self._store.see_worker(record, at - self._keep_us):
            seen.leaving = True


def silent_before(clock: Clock, settings: Settings) -> int:
    """Return the time before which a worker must have been seen last to be silent."""
    return clock.now() - round(_MISSED * settings.number("workers.seen_every_s") * MICROS)
