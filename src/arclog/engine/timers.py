"""Fires durable timers: never before the engine's clock says so, once, also when the process was away at the time."""

from __future__ import annotations

import asyncio
import logging

from arclog.core.inputs import TimerFired
from arclog.engine.duties import Has, always
from arclog.engine.engine import Engine
from arclog.model.errors import ArclogError, NewerLog
from arclog.model.ids import MAX_ID, MICROS
from arclog.ports.store import Timer

log = logging.getLogger("arclog.engine")

_PAGE = 100


class Timers:
    """Sleeps until the next timer is due. Timers are looked for anew every `engine.sweep_s`, since the clock may jump
    and another process may set some. `has`: whether they are this process's to fire.
    """

    def __init__(self, engine: Engine, has: Has = always) -> None:
        self._engine = engine
        self._has = has
        self._longest_s = engine.settings.number("engine.sweep_s")
        #: timers that their execution does not know: told once, then passed over
        self._strange: set[tuple[int, str]] = set()
        #: timers of runs in quarantine
        self._held: set[tuple[int, str]] = set()

    async def run(self) -> None:
        hints, clock = self._engine.hints, self._engine.clock
        while True:
            hints.timers.clear()
            hints.timers_looked_at = MAX_ID
            try:
                pause = await self._fire()
            except ArclogError as problem:
                log.warning("timers: %s; looking again", problem)
                pause = self._longest_s
            hints.timers_looked_at = clock.now() + round(pause * MICROS)
            await self._rest(pause)

    async def _fire(self) -> float:
        """Fire what is due; how many seconds to rest then."""
        engine = self._engine
        if not await self._has():
            return self._longest_s
        self._held = {one for one in self._held if engine.is_held(one[0])}
        limit = _PAGE + len(self._strange) + len(self._held)
        for timer in await engine.store.due_timers(engine.clock.now(), limit):
            if (timer.execution_id, timer.timer_id) in self._strange | self._held:
                continue
            if not await self._has():
                return self._longest_s
            try:
                await self._fire_one(timer)
            except NewerLog as problem:
                self._pass_over(timer, str(problem))
        due = await engine.store.next_due()
        left = self._longest_s if due is None else (due - engine.clock.now()) / MICROS
        if left <= 0:
            # More was due than one page, or what stays is not ours to fire.
            left = 0.0 if not (self._strange or self._held) else self._longest_s
        return min(left, self._longest_s)

    async def _fire_one(self, timer: Timer) -> None:
        refused = (await self._engine.put(timer.execution_id, TimerFired(timer.timer_id))).refused
        if refused is not None and refused.reason == "closed":
            # Another process may have written to the execution since it was folded here.
            self._engine.live.drop(timer.execution_id)
            refused = (await self._engine.put(timer.execution_id, TimerFired(timer.timer_id))).refused
        if refused is None or refused.reason == "early":
            return
        if refused.reason == "poison":
            self._held.add((timer.execution_id, timer.timer_id))
            return
        still = await self._engine.store.due_timers(self._engine.clock.now(), _PAGE + len(self._strange))
        if any(one.timer_id == timer.timer_id and one.execution_id == timer.execution_id for one in still):
            self._pass_over(timer, refused.message)

    def _pass_over(self, timer: Timer, why: str) -> None:
        log.error("timer %s of execution %s: %s", timer.timer_id, timer.execution_id, why)
        self._strange.add((timer.execution_id, timer.timer_id))

    async def _rest(self, seconds: float) -> None:
        """Until the time is over, or a timer was set that is due before."""
        either = [
            asyncio.ensure_future(self._engine.clock.sleep(seconds)),
            asyncio.ensure_future(self._engine.hints.timers.wait()),
        ]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in either:
                one.cancel()
            await asyncio.gather(*either, return_exceptions=True)
