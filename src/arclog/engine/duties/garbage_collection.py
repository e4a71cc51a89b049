"""The duty of garbage collection: expired data (stored results, unused content, runs past retention) is removed
every `gc.every_s`, without anybody asking for it.

Law: once an interval for all servers together. Its beginning is noted as the duty's position before anything goes, so that
servers which come and go, or fail at it, do not begin again and again; what one left, the next interval does.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from arclog.engine.commits.engine import Engine
from arclog.engine.duties.duty import Duty
from arclog.engine.views.stored_results import Stored
from arclog.model.errors import ArclogError
from arclog.model.ids import MICROS
from arclog.ports.results import Results
from arclog.ports.views.api import Collected

log = logging.getLogger("arclog.engine")

#: The duty's name.
GC = "gc"
#: The shortest interval at which a server checks whether a collection is due; another server may have begun.
LOOK_S = 60.0
#: Between two pieces: what runs comes first.
_REST_S = 0.01


class Collector:
    """One server's part in it."""

    def __init__(self, engine: Engine, results: Results, duty: Duty) -> None:
        self._clock = engine.clock
        self._store = engine.store
        self._stored = Stored(engine, results)
        self._duty = duty
        self._every_s = engine.settings.number("gc.every_s")

    async def run(self) -> None:
        """Until cancelled; no trouble ends it."""
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
            if is_noted and began:  # a store that never knew of it has an interval to be told otherwise
                _log_collected(await self._stored.collect(has=self._goes_on))
        except Exception:
            with suppress(ArclogError):
                await self._duty.let_go()
            raise
        await self._duty.let_go()  # nobody has it until it is time again
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
