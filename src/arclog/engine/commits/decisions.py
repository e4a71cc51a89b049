"""Makes decisions: on the event loop if their templates are light, else in threads that take turns.

A decision that used up its turn on the event loop leaves a state that must be discarded; the decision is made again in
a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from arclog.core.boundary.inputs import Forked, Input, Txn, WorkReported
from arclog.core.transitions.decide import decide
from arclog.core.transitions.state import State
from arclog.engine.commits.batch import Batch, Claimant, Place
from arclog.engine.commits.ids import Minter
from arclog.engine.commits.marked_work import work_of
from arclog.engine.commits.quarantine import Quarantine
from arclog.engine.commits.turns import SLICE_WORK, Turns
from arclog.engine.dispatch.queues import Queues
from arclog.expr import Meter
from arclog.model.config.settings import Settings
from arclog.model.events import Event
from arclog.model.ids import moved
from arclog.plan.program import Program
from arclog.ports.clock import Clock
from arclog.ports.storage.marks import SLOTS

#: A commit with this many events takes no further input.
EVENTS_PER_COMMIT = 2000
#: Number of ids reserved for a decision in a thread, because other ids are generated at the same time.
_IDS_ASIDE = 50_000

T = TypeVar("T")

Given = Sequence[tuple[Input, Claimant | None]]
#: (execution id, id of the first event, now) → the initial state of a new execution, its events and its timers
Beginning = Callable[[int, int, int], tuple[State, list[Event], dict[str, int]]]


class Deciding:
    """Decisions of one engine."""

    def __init__(self, clock: Clock, settings: Settings, minter: Minter, queues: Queues) -> None:
        self._clock = clock
        self._minter = minter
        self._queues = queues
        self._max_work = settings.integer("decision.max_work")
        self._max_bytes = settings.integer("decision.max_bytes")
        self._turn = settings.integer("decision.turn_work")
        self._free_slots = list(range(1, SLOTS))
        #: computes heavy decisions; None if all are computed inline (a simulated world has no threads)
        self.turns: Turns | None = None
        #: marks the run of a decision in progress, in case it kills the process; None if marks are not used
        self.quarantine: Quarantine | None = None
        #: takes ('decision', seconds); None if nothing is measured
        self.measured: Callable[[str, float], None] | None = None

    def is_heavy(self, program: Program) -> bool:
        """Return whether decisions of this program are made in a thread."""
        turns = self.turns
        return turns is not None and len(turns.heavy) > 0 and turns.heavy.get(program.digest) is not None

    def mark_heavy(self, program: Program) -> None:
        """Record that a decision of this program used up its turn, so that the next ones are made in a thread."""
        if self.turns is not None:
            self.turns.heavy.put(program.digest, True)

    def at_once(
        self, program: Program, state: State, given: Given, *, bounded: bool = True, marked_as: int = 0
    ) -> Batch:
        """Decide inputs one after another, as many as fit. The ids of their events are consecutive. Raises OutOfTurn if
        `bounded` and the templates do more work than a turn allows. A run that does not exist yet has its mark by
        another id, `marked_as`.
        """
        began = 0.0 if self.measured is None else self._clock.monotonic()
        now = self._clock.now()
        base = first_id = self._minter.peek(now)
        batch = Batch(base, self._queues)
        sliced = bounded and self.turns is not None
        if self.turns is not None:
            self.turns.notice(state.tenant)
        quarantine = self.quarantine
        turn = self._turn if sliced else self._max_work
        for item, claimant in given:
            meter = Meter("decision.max", self._max_work, self._max_bytes, turn)
            pool = _pool_of(program, state, item) if claimant is not None else ""
            marks = None
            if quarantine is not None:
                mark = (marked_as or state.execution_id, work_of(item))
                batch.marks.append(mark)
                if mark not in quarantine.step_marks:  # else the commit that this decision belongs to is marked already
                    marks = quarantine
                    marks.begin(0, mark)
            try:
                txn = decide(program, state, item, now, first_id, meter)
            finally:
                if marks is not None:
                    marks.end(0)
            batch.take(txn, claimant, state.head, Place(pool, state.tenant))
            if sliced:
                turn = meter.turn
            if len(batch.answers) == len(given):
                break
            if len(batch.events) >= EVENTS_PER_COMMIT or turn < self._turn // 2 or meter.is_half_spent:
                break
            now, first_id = self._clock.now(), moved(base, len(batch.events))
        batch.settle(program, state)
        self._minter.take(len(batch.events))
        if self.measured is not None:
            self._took(began)
        return batch

    async def behind(
        self, program: Program, begin: Beginning, execution_id: int, most: int, marked_as: int
    ) -> tuple[State, Batch]:
        """Decide how a run continues that begins with at most `most` events of another run. Those events and the
        following ones are one batch. Many events are processed in a thread.
        """
        mark = (marked_as, work_of(Forked()))

        def begun() -> tuple[State, list[Event], dict[str, int]]:
            return begin(execution_id, base, now)

        began = self._clock.monotonic()
        base, now = self._minter.peek(), self._clock.now()
        self._minter.take(most + _IDS_ASIDE)
        if self.turns is None or most <= EVENTS_PER_COMMIT:
            state, events, timers = self._marked(mark, begun)()
        else:
            state, events, timers = await asyncio.to_thread(self._marked(mark, begun))
        batch = Batch(base, self._queues)
        batch.marks.append(mark)
        place = Place("", state.tenant)
        batch.take(Txn(events=events, timers=timers), None, state.head, place)
        batch.take(await self._forked(program, state, now, moved(base, len(events)), mark), None, state.head, place)
        batch.settle(program, state)
        self._took(began)
        return state, batch

    async def _forked(self, program: Program, state: State, now: int, base: int, mark: tuple[int, int]) -> Txn:
        """Decide how a run continues after its copied events. Its templates can be as expensive as any others."""
        turns = self.turns
        if turns is None:
            return decide(program, state, Forked(), now, base, self.meter())

        def compute() -> Txn:
            return decide(program, state, Forked(), now, base, self.sliced_meter(turns)())

        return await turns.run(state.tenant, self._marked(mark, compute))

    def meter(self) -> Meter:
        """Return a meter for a decision that is completed however heavy its templates are."""
        return Meter("decision.max", self._max_work, self._max_bytes, self._max_work)

    def sliced_meter(self, turns: Turns) -> Callable[[], Meter]:
        """Return a function that creates such meters for work in slices; other work runs between them."""
        return lambda: Meter("decision.max", self._max_work, self._max_bytes, SLICE_WORK, turns.pause)

    async def aside(self, program: Program, state: State, given: Given, marked_as: int = 0) -> Batch | None:
        """Decide the first input in a thread. Return None if it needs more ids than were reserved; the state must be
        discarded then.
        """
        if self.turns is None:
            return self.at_once(program, state, given, marked_as=marked_as)
        turns, (item, claimant) = self.turns, given[0]
        began, now = self._clock.monotonic(), self._clock.now()
        base = self._minter.peek()
        self._minter.take(_IDS_ASIDE)
        pool = _pool_of(program, state, item) if claimant is not None else ""

        def compute() -> Txn:
            return decide(program, state, item, now, base, self.sliced_meter(turns)())

        mark = (marked_as or state.execution_id, work_of(item))
        txn = await turns.run(state.tenant, self._marked(mark, compute))
        if len(txn.events) > _IDS_ASIDE:
            return None
        batch = Batch(base, self._queues)
        batch.marks.append(mark)
        batch.take(txn, claimant, state.head, Place(pool, state.tenant))
        batch.settle(program, state)
        self._took(began)
        return batch

    def _marked(self, mark: tuple[int, int], compute: Callable[[], T]) -> Callable[[], T]:
        """Run `compute` with a mark around it; each thread has its own slot, as long as there are free ones."""
        quarantine = self.quarantine
        if quarantine is None:
            return compute

        def marked() -> T:
            try:
                slot = self._free_slots.pop()
            except IndexError:
                return compute()
            quarantine.begin(slot, mark)
            try:
                return compute()
            finally:
                quarantine.end(slot)
                self._free_slots.append(slot)

        return marked

    def _took(self, began: float) -> None:
        if self.measured is not None:
            self.measured("decision", self._clock.monotonic() - began)


def _pool_of(program: Program, state: State, given: Input) -> str:
    """Return the pool of the command that a report is about."""
    command = state.commands.get(given.command_id) if isinstance(given, WorkReported) else None
    return "" if command is None else program.steps[command.step].plan.pool
