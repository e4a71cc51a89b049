"""Fires durable timers: once, never before they are due by the engine's clock, and also if the process was down at the
time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

from arclog.core.boundary.inputs import Refused, TimerFired
from arclog.engine.commits.batch import Answer
from arclog.engine.commits.engine import Engine
from arclog.engine.commits.groups import GROUPS, batched, in_groups
from arclog.engine.duties.duty import Has, always
from arclog.model.errors import ArclogError, NewerLog
from arclog.model.ids import MAX_ID, MICROS
from arclog.ports.storage.store import Timer

log = logging.getLogger("arclog.engine")

#: Number of timers that are read at a time. Between two pages nothing is decided while the last group is committed.
_PAGE = 2000
#: The same for a server that helps another one. It takes late timers from the other end, a few at a time.
_HELPED = 500
#: Number of states that are loaded before the event loop is yielded.
_LOADED = 16
#: Minimum number of upcoming timers for which states are loaded in advance; fewer are quick.
_MANY = 32


class Timers:
    """Sleeps until the next timer is due. Timers are read again every `engine.sweep_s`, since the clock may jump and
    another process may set some. `has` tells whether this process fires them. Many that are due at once are fired in
    pages, by other servers, too.
    """

    def __init__(self, engine: Engine, has: Has = always) -> None:
        self._engine = engine
        self._has = has
        self._longest_s = engine.settings.number("engine.sweep_s")
        self._at_once = engine.settings.integer("engine.fired_at_once")
        self._ahead = round(engine.settings.number("engine.load_ahead_s") * MICROS)
        #: when the next timer is due that was in the store at the last look
        self._next_due = MAX_ID
        #: timers due until then were read; the states of their runs were loaded, if there was room
        self._looked_ahead = 0
        #: timers that their execution does not know; logged once, then skipped
        self._skipped: set[tuple[int, str]] = set()
        #: timers of runs in quarantine
        self._held: set[tuple[int, str]] = set()

    async def run(self) -> None:
        hints, clock = self._engine.hints, self._engine.clock
        while True:
            hints.timers.clear()
            # Timers that are set from now on may be missing in what is read. Those that are not due yet can wait.
            hints.timers_looked_at, hints.next_timer = clock.now(), MAX_ID
            try:
                pause = await self._fire()
            except ArclogError as problem:
                log.warning("timers: %s; retrying", problem)
                pause = self._longest_s
            now = clock.now()
            pause = min(pause, max(hints.next_timer - now, 0) / MICROS)
            hints.timers_looked_at = now + round(pause * MICROS)
            if pause > 0 and self._ahead and self._next_due <= now + self._ahead:
                pause = await self._look_ahead(hints.timers_looked_at)
            await self._rest(pause)

    async def _fire(self) -> float:
        """Fire due timers. Returns the seconds to wait afterwards."""
        engine = self._engine
        if not await self._has():
            self._next_due = MAX_ID
            await self._help()
            return self._longest_s
        self._held = {timer_key for timer_key in self._held if engine.is_held(timer_key[0])}
        passed = self._skipped | self._held
        timers = await engine.store.due_timers(engine.clock.now(), _PAGE + len(passed))
        ours = [timer for timer in timers if (timer.execution_id, timer.timer_id) not in passed]
        await in_groups(batched(ours, self._at_once), self._fire_if_ours, GROUPS)
        due = await engine.store.next_due()
        self._next_due = MAX_ID if due is None else due
        left = (self._next_due - engine.clock.now()) / MICROS
        if left <= 0:
            # More timers were due than one page has, or the remaining ones cannot be fired.
            left = 0.0 if not (self._skipped or self._held) else self._longest_s
        return min(left, self._longest_s)

    async def _look_ahead(self, until: int) -> float:
        """Load the states of runs with timers that are due soon, until one is due. Return the remaining seconds."""
        engine, now = self._engine, self._engine.clock.now()
        try:
            if await self._has():
                last = now + self._ahead
                first = self._looked_ahead if now < self._looked_ahead <= last else now
                # Runs that were loaded earlier come first and take no additional room.
                coming = await engine.store.coming_timers(first, last, engine.live.capacity) if engine.live.room else []
                if len(coming) >= _MANY:
                    self._looked_ahead = last
                    missing = [execution_id for execution_id in coming if engine.live.kept(execution_id) is None]
                    await self._load(missing[: engine.live.room], until)
        except ArclogError as problem:
            log.debug("timers: %s; runs are loaded when their timers are due", problem)
        return max((until - engine.clock.now()) / MICROS, 0.0)

    async def _load(self, runs: Sequence[int], until: int) -> None:
        """Load a few states at a time, yielding to the event loop."""
        engine = self._engine
        for first in range(0, len(runs), _LOADED):
            part = runs[first : first + _LOADED]
            await asyncio.gather(*map(engine.load, part), return_exceptions=True)  # firing it reports the problem
            await asyncio.sleep(0)
            if engine.clock.now() >= until or engine.hints.timers.is_set():
                self._looked_ahead = 0
                return

    async def _help(self) -> None:
        """Start at the other end, if more timers are late than one server can fire quickly."""
        engine, late = self._engine, round(self._longest_s * MICROS)
        last: list[Timer] = []
        while True:
            due = await engine.store.due_timers(engine.clock.now() - late, _HELPED, latest=True)
            if len(due) < _HELPED or due == last or await self._has():
                return
            last = due
            await in_groups(batched(due, self._at_once), self._fire_for_another, GROUPS)

    async def _fire_for_another(self, timers: Sequence[Timer]) -> None:
        for timer, answer in await self._fired(timers):
            if isinstance(answer, NewerLog):
                log.debug("timer %s of execution %s: %s", timer.timer_id, timer.execution_id, answer)
            elif isinstance(answer, Exception):
                raise answer

    async def _fire_if_ours(self, timers: Sequence[Timer]) -> None:
        if not await self._has():
            return
        problem: Exception | None = None
        refused: list[tuple[Timer, Refused]] = []
        for timer, answer in await self._fired(timers):
            if isinstance(answer, NewerLog):
                self._pass_over(timer, str(answer))
            elif isinstance(answer, Exception):
                problem = problem or answer
            elif answer.refused is not None and (final := await self._finally_refused(timer, answer.refused)):
                refused.append((timer, final))
        if refused:
            await self._pass_over_if_due(refused)
        if problem is not None:
            raise problem

    async def _fired(self, timers: Sequence[Timer]) -> Iterator[tuple[Timer, Answer | Exception]]:
        """Put timers to their executions. Return the result of each."""
        answers = await self._engine.put_all([(timer.execution_id, TimerFired(timer.timer_id)) for timer in timers])
        return zip(timers, answers, strict=True)

    async def _finally_refused(self, timer: Timer, refused: Refused | None) -> Refused | None:
        """Return why a due timer was not fired; None if it was fired or will be."""
        if refused is not None and refused.reason == "closed":
            # Another process may have written to the execution since its state was folded here.
            self._engine.live.drop(timer.execution_id)
            refused = (await self._engine.put(timer.execution_id, TimerFired(timer.timer_id))).refused
        if refused is None or refused.reason == "early":
            return None
        if refused.reason == "poison":
            self._held.add((timer.execution_id, timer.timer_id))
            return None
        return refused

    async def _pass_over_if_due(self, refused: Sequence[tuple[Timer, Refused]]) -> None:
        """Pass over timers that their executions refuse, unless another server has fired them."""
        due = await self._engine.store.due_timers(self._engine.clock.now(), _PAGE + len(self._skipped))
        still = {(timer.execution_id, timer.timer_id) for timer in due}
        for timer, why in refused:
            if (timer.execution_id, timer.timer_id) in still:
                self._pass_over(timer, why.message)

    def _pass_over(self, timer: Timer, why: str) -> None:
        log.error("timer %s of execution %s: %s", timer.timer_id, timer.execution_id, why)
        self._skipped.add((timer.execution_id, timer.timer_id))

    async def _rest(self, seconds: float) -> None:
        """Sleep until the time is over, or until an earlier timer was set."""
        either = [
            asyncio.ensure_future(self._engine.clock.sleep(seconds)),
            asyncio.ensure_future(self._engine.hints.timers.wait()),
        ]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in either:
                task.cancel()
            await asyncio.gather(*either, return_exceptions=True)
