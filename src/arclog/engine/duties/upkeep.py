"""The background work of a process: timers, lost leases, runs that wait for a slot, abandoned runs, and expired data.

Invariants: each duty belongs to one of several servers, by a lease; work that concerns only the runs in this process
needs none. A process that serves a single run leases nothing and does everything that its run may need; if another
process does the same, a compare-and-set decides.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from arclog.engine.commits.engine import Engine
from arclog.engine.dispatch.control import EngineControl
from arclog.engine.duties.duty import Duty
from arclog.engine.duties.timers import Timers
from arclog.engine.runs.children import Children
from arclog.engine.runs.slots import Slots
from arclog.model.errors import ArclogError
from arclog.ports.results import Results

log = logging.getLogger("arclog.engine")

Look = Callable[[], Awaitable[None]]


class Upkeep:
    """One per process."""

    def __init__(
        self,
        engine: Engine,
        control: EngineControl,
        children: Children,
        owner: str,
        *,
        results: Results | None = None,
        is_served: Callable[[int], bool] = lambda _: False,
        takes_all: bool = False,
    ) -> None:
        """`results` is the store from which expired results are removed; None if this process does not remove them.
        `is_served` tells whether another process serves a single run. `takes_all` means that unclaimed work at the time
        when this process acquires the sweeper's duty was left by a dead process, however young it is.
        """
        self._engine = engine
        self._control = control
        self._children = children
        self._owner = owner
        self._results = results
        self._is_served = is_served
        self._takes_all = takes_all
        self._pause_s = engine.settings.number("engine.sweep_s")
        self._duties: list[Duty] = []

    def begin(self, only: int = 0) -> list[Coroutine[Any, Any, None]]:
        """Return the background tasks of this process; with an id, those of a process that serves only that run."""
        if only:
            timers, slots = Timers(self._engine), Slots(self._engine)
            sweeps = [self._now_and_then("sweep", self._control.sweep, self._children.check_orphans)]
        else:
            timers = Timers(self._engine, self._duty("timers").has)
            slots = Slots(self._engine, self._duty("slots").has)
            duty = self._duty("sweeper")
            # Lost leases do not wait for a long check of runs.
            sweeps = [self._end_leases(duty), self._recover(duty)]
            if self._results is not None and self._engine.settings.number("gc.every_s"):
                sweeps.append(self._collect(self._results))
        return [self._keep_up(), *sweeps, timers.run(), slots.keep(only, self._pause_s)]

    async def give_up(self) -> None:
        """Release the duties, so that other servers can have them at once."""
        for duty in self._duties:
            with suppress(ArclogError):
                await duty.give_up()

    def _duty(self, name: str, *, is_kept: bool = True) -> Duty:
        """Create a duty. `is_kept` means that its server renews the lease continuously, so that an expired one shows
        that the server is gone.
        """
        engine = self._engine
        lease_s = engine.settings.number("engine.duty_lease_s")
        alarms = (engine.take_care, engine.is_back) if is_kept else (None, None)
        duty = Duty(engine.store, engine.clock, name, self._owner, lease_s, *alarms)
        self._duties.append(duty)
        return duty

    async def _keep_up(self) -> None:
        """Renew the node number, and follow changes of others to the runs at work here."""
        engine = self._engine
        looks = (
            engine.minter.keep,
            engine.look_at_crashes,
            self._look_elsewhere,
            self._control.watch,
            self._children.sweep,
        )
        await self._now_and_then("looking after runs", *looks)

    async def _look_elsewhere(self) -> None:
        """Poll the store for commits of other processes, if no bus announces them."""
        if await self._engine.store.changed_elsewhere():
            self._engine.hints.offer_heard()

    async def _end_leases(self, duty: Duty) -> None:
        async def sweep() -> None:
            if await duty.has():
                await self._control.sweep(duty.has)

        await self._now_and_then("sweep", sweep, at_once=True)

    async def _recover(self, duty: Duty) -> None:
        """Search all runs for work that was left behind."""
        from arclog.engine.duties.recovery import Recovery  # a process that serves one run does not need it

        recovery = Recovery(self._engine, self._children, duty, self._is_served)
        takes_all = self._takes_all

        async def look() -> None:
            nonlocal takes_all
            if await duty.has():
                await recovery.look(everything=takes_all)
                takes_all = False
                await self._children.check_orphans(duty.has)

        await self._now_and_then("recovery", look, at_once=True)

    async def _collect(self, results: Results) -> None:
        from arclog.engine.duties.garbage_collection import GC, Collector  # only servers need it

        await Collector(self._engine, results, self._duty(GC, is_kept=False)).run()

    async def _now_and_then(self, name: str, *looks: Look, at_once: bool = False) -> None:
        """Call the functions every `engine.sweep_s`. If the store is unavailable, the next turn tries again."""
        while True:
            if not at_once:
                await self._engine.clock.sleep(self._pause_s)
            at_once = False
            try:
                for look in looks:
                    await look()
            except ArclogError as problem:
                log.warning("%s: %s; retrying in %g s", name, problem, self._pause_s)
