"""The duty of garbage collection: expired data (stored results, unused content, runs past retention) is removed every
`gc.every_s`.

Invariant: one collection per interval for all servers together. Its start is recorded as the duty's position before
anything is removed, so that servers that start, stop or fail do not begin again and again. The next interval removes
what is left.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress

from arclog.engine.commits.engine import Engine
from arclog.engine.duties.duty import Duty, Has, always
from arclog.engine.views.stored_results import Ends
from arclog.model.errors import ArclogError
from arclog.model.ids import MICROS
from arclog.ports.boundary import Boundary
from arclog.ports.results import Results, StoredBlob
from arclog.ports.views.api import Collected

log = logging.getLogger("arclog.engine")

#: The duty's name.
GC = "gc"
#: The shortest interval at which a server checks whether a collection is due; another server may have started one.
LOOK_S = 60.0
#: Pause between two pieces, so that runs take precedence.
_REST_S = 0.01
#: Number of records per piece: the event loop of an embedded store is blocked during a piece.
_PAGE = 200
#: Number of contents per piece.
_CONTENTS = 100


class Collection:
    """Removes expired data: stored results, unreferenced content, runs past retention.

    It can be killed between any two of its steps: completed steps remain, and the next collection does the rest.
    """

    def __init__(self, engine: Engine, results: Results, boundary: Boundary | None = None) -> None:
        """Unless the boundary covers the installation, only the results of its tenant are removed."""
        self._engine = engine
        self._results = results
        #: None means the results of all tenants
        self._boundary = None if boundary is None or boundary.keeps_installation else boundary
        self._keep = round(engine.settings.number("results.keep_s") * MICROS)
        self._retention = round(engine.settings.number("store.retention_s") * MICROS)
        self._grace = round(engine.settings.number("results.orphan_grace_s") * MICROS)

    async def collect(self, *, dry_run: bool = False, has: Has = always) -> Collected:
        """Release expired records, then remove unreferenced content. It works in pieces: before each, `has` is called to decide
        whether to continue; completed pieces remain.
        """
        done: Counter[str] = Counter()
        await self._collect(done, has, dry_run=dry_run)
        about = ("results", "contents", "bytes", "leftovers", "executions", "reclaimed")
        return Collected(dry_run, *(done[place] for place in about))

    async def _collect(self, done: Counter[str], has: Has, *, dry_run: bool) -> None:
        now = self._engine.clock.now()
        ends = Ends(self._engine, self._keep)
        if not await self._release_expired(done, has, ends, now, dry_run=dry_run):
            return
        looked_at = 0
        async for blob in self._results.all():
            looked_at += 1
            if looked_at % _CONTENTS == 0 and not await has():
                return
            if not self._is_ours(blob.tenant):
                continue
            if blob.stored_at > now - self._grace or await self._is_kept(ends, blob, now):
                continue
            if dry_run or await self._results.remove(blob.tenant, blob.sha256, blob.stored_at):
                done.update(contents=1, bytes=blob.stored_bytes)
        if self._boundary is None:
            if not dry_run and await has():
                done["leftovers"] = await self._results.leftovers(now - self._grace)
            await self._retire(done, has, now, dry_run=dry_run)
            while not dry_run and await has() and (size := await self._engine.store.reclaim()):
                done["reclaimed"] += size

    async def _release_expired(self, done: Counter[str], has: Has, ends: Ends, now: int, *, dry_run: bool) -> bool:
        """Release the records of expired results. Return False if the collection has to stop."""
        store = self._engine.store
        after = (0, "", "")
        while page := await store.kept_results(after=after, limit=_PAGE):
            due = [record for record in page if self._is_ours(record.tenant) and await ends.is_over(record, now)]
            done["results"] += len(due) if dry_run or not due else await store.remove_results(due, now)
            after = (page[-1].execution_id, page[-1].name, page[-1].sha256)
            if not await has():
                return False
        return True

    async def _retire(self, done: Counter[str], has: Has, now: int, *, dry_run: bool) -> None:
        """Remove runs past retention, after their results were released."""
        if not self._retention:
            return
        store, before = self._engine.store, now - self._retention
        if dry_run:
            done["executions"] = await store.retire(before, dry_run=True)
            return
        while await has() and (count := await store.retire(before)):
            done["executions"] += count

    def _is_ours(self, tenant: str) -> bool:
        return self._boundary is None or self._boundary.owns(tenant)

    async def _is_kept(self, ends: Ends, blob: StoredBlob, now: int) -> bool:
        after = (0, "")
        while page := await self._engine.store.keepers(blob.tenant, blob.sha256, after=after):
            for record in page:
                if not await ends.is_over(record, now):
                    return True
            after = (page[-1].execution_id, page[-1].name)
        return False


class Collector:
    """Runs collections on one server."""

    def __init__(self, engine: Engine, results: Results, duty: Duty) -> None:
        self._clock = engine.clock
        self._store = engine.store
        self._collection = Collection(engine, results)
        self._duty = duty
        self._every_s = engine.settings.number("gc.every_s")

    async def run(self) -> None:
        """Run until cancelled. Errors do not end it."""
        while True:
            try:
                pause_s = await self.turn()
            except ArclogError as problem:
                pause_s = min(LOOK_S, self._every_s)
                log.warning("gc: %s; the rest is removed in %g s", problem, self._every_s)
            except Exception:
                pause_s = min(LOOK_S, self._every_s)
                log.exception("gc failed because of a bug; retrying in %g s", self._every_s)
            await self._clock.sleep(pause_s)

    async def turn(self) -> float:
        """Collect if it is due. Returns the seconds until the next check."""
        look_s = min(LOOK_S, self._every_s)
        began = await self._store.position(self._duty.name)
        now = self._clock.now()
        left_s = self._every_s - (now - began) / MICROS
        if began and left_s > 0:
            return min(left_s, look_s)
        if not await self._duty.has():
            return look_s
        try:
            is_noted = await self._store.move_position(self._duty.name, self._duty.owner, self._clock.now(), now)
            if is_noted and began:  # a store without a position gets one interval in which the settings can be changed
                _log_collected(await self._collection.collect(has=self._goes_on))
        except Exception:
            with suppress(ArclogError):
                await self._duty.release()
            raise
        await self._duty.release()  # the duty is free until the next interval
        return look_s

    async def _goes_on(self) -> bool:
        await self._clock.sleep(_REST_S)
        return await self._duty.has()


def _log_collected(done: Collected) -> None:
    if done.results or done.contents or done.leftovers or done.executions or done.reclaimed:
        log.info(
            "gc: released %d results, removed %d contents (%d bytes) and %d unfinished files, removed %d runs, "
            "returned %d bytes of the store",
            done.results,
            done.contents,
            done.bytes,
            done.leftovers,
            done.executions,
            done.reclaimed,
        )
