"""Live states: folded once, from the newest snapshot and the log after it, then kept in memory.

This is a cache: any state can be discarded at any time. Their number and their total memory are limited. The memory of
a state is measured when it is folded; a share of the bytes of new events is added, and when they have doubled it, the
state is measured again. The share is the one that the last measurement showed. If memory is short, large states are
discarded before small ones, so that a few large states do not evict many small ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from arclog.core.transitions.items import apply_all
from arclog.core.transitions.state import State
from arclog.engine.commits.marked_work import READING
from arclog.engine.commits.quarantine import BegunElsewhere, Quarantine
from arclog.engine.commits.snapshots import Pace, Snapshots, encode_state
from arclog.engine.commits.turns import Turns
from arclog.engine.runs.compile_cache import Compiled
from arclog.model.config.settings import Settings
from arclog.model.data.json_data import decoded_size
from arclog.model.data.lru import LruCache
from arclog.model.errors import NewerLog, NotFound, Poisoned
from arclog.plan import net
from arclog.plan.program import LARGE, Program, Programs
from arclog.ports.storage.store import ExecutionRecord, Store, StoredEvent

log = logging.getLogger("arclog.engine")

_PAGE = 5000
#: Number of events that are folded before the event loop is yielded: about a millisecond.
_SLICE = 128
#: Maximum number of executions remembered because other processes write to them as well.
_CONTENDED = 1000
#: Number of decisions after a lost race that read the store first.
_LOOKS = 100
#: Size of a large state in bytes.
_LARGE_STATE = 262_144
#: Minimum size of new events in bytes before a state is measured again.
_WEIGH_BYTES = 65_536
#: Minimum share of the bytes of new events that is counted as growth of a state, whatever was measured before.
_LEAST_GROWTH = 0.25


class Live:
    """One execution in memory."""

    __slots__ = ("bytes", "growth", "pace", "program", "record", "state", "weigh_at", "weighed")

    def __init__(self, program: Program, state: State, record: ExecutionRecord, pace: Pace) -> None:
        self.program = program
        self.state = state
        self.record = record
        self.pace = pace
        #: approximate size of the state in memory
        self.bytes = 0
        #: its size when it was measured last, and when it is measured again
        self.weighed = 0
        self.weigh_at = _WEIGH_BYTES
        #: share of the bytes of new events that the state keeps
        self.growth = 1.0

    def weigh(self) -> None:
        """Measure the memory that the state takes."""
        expected, before = self.bytes - self.weighed, self.weighed
        try:
            self.bytes = decoded_size(encode_state(self.state))
        except (ValueError, RecursionError, TypeError, OverflowError):
            pass  # not JSON: the size of its events is used
        self.weighed = self.bytes
        if expected > 0:
            share = self.growth * (self.bytes - before) / expected
            self.growth = min(max(share, _LEAST_GROWTH), 1.0)
        self.weigh_at = 2 * self.bytes + _WEIGH_BYTES


class LiveStates:
    """Live executions by id. The least recently used ones are discarded first."""

    def __init__(self, store: Store, settings: Settings, snapshots: Snapshots) -> None:
        self._store = store
        self._snapshots = snapshots
        #: maximum number of states
        self.capacity = settings.integer("engine.cache_executions")
        self._max_bytes = settings.integer("engine.cache_executions_bytes")
        self._live: dict[int, Live] = {}
        #: the large ones among them, and the total size in bytes
        self._large: dict[int, None] = {}
        self._bytes = 0
        self._programs = Programs(settings)
        #: large programs that are being built
        self._coming: dict[str, asyncio.Future[Program]] = {}
        #: builds large programs on a server; None if all are built inline
        self.turns: Turns | None = None
        #: marks runs whose log is being read; None if marks are not used
        self.quarantine: Quarantine | None = None
        #: executions to which other processes write as well, with the number of decisions that read the store first
        self._contended: dict[int, int] = {}
        #: executions that only a newer release understands, and that were logged as such
        self._left_alone: LruCache[int, bool] = LruCache(_CONTENDED)

    async def get(self, execution_id: int) -> Live:
        """Return the live state. It is folded from the log if it is not in memory."""
        live = self._live.pop(execution_id, None)
        if live is None:
            live = await self.folded(execution_id)
            self.put(live)
            return live
        self._live[execution_id] = live
        if self._large and execution_id in self._large:
            self._large[execution_id] = self._large.pop(execution_id)
        return live

    def kept(self, execution_id: int) -> Live | None:
        """Return the live state if it is in memory. A decision that is being committed may have changed it already."""
        return self._live.get(execution_id)

    @property
    def room(self) -> int:
        """The number of states that can be added before one is discarded."""
        return max(self.capacity - len(self._live), 0) if self._bytes < self._max_bytes else 0

    @property
    def total_bytes(self) -> int:
        """The approximate memory of all kept states."""
        return self._bytes

    def head(self, execution_id: int) -> int:
        """Return the head of the state in memory; 0 if there is none."""
        live = self._live.get(execution_id)
        return 0 if live is None else live.state.head

    async def catch_up(self, execution_id: int) -> bool:
        """Fold events that other processes appended into the state in memory. Only the writer of this execution may
        call it, and not while a decision is in progress. Return False if there was nothing new.
        """
        live = self._live.get(execution_id)
        if live is None:
            return True
        record = await self._store.execution(execution_id)
        if record is None or record.head <= live.state.head:
            return False
        try:
            while live.state.head < record.head:
                page = await self._store.events(execution_id, after=live.state.head, limit=_PAGE)
                self._apply(live.program, live.state, page)
        except NewerLog as problem:
            self._log_once(execution_id, problem)
            raise
        if self.quarantine is not None:
            self.quarantine.was_read(execution_id)
        live.record = record
        # The size of events from other processes is unknown, so the state is measured.
        before = live.bytes
        live.weigh()
        self._resized(live, before)
        return True

    def contended(self, execution_id: int) -> None:
        """Record that another process was faster. The next decisions read the store first, because folding the whole
        log costs far more.
        """
        self._contended.pop(execution_id, None)
        self._contended[execution_id] = _LOOKS
        if len(self._contended) > _CONTENDED:
            del self._contended[next(iter(self._contended))]

    def look_first(self, execution_id: int) -> bool:
        """Return whether the next decision should read the store first; counts that decision."""
        left = self._contended.get(execution_id, 0)
        if left > 1:
            self._contended[execution_id] = left - 1
        elif left:
            del self._contended[execution_id]
        return left > 0

    def is_contended(self, execution_id: int) -> bool:
        """Return whether another process was faster lately."""
        return execution_id in self._contended

    def put(self, live: Live) -> None:
        """Keep a state. Others are discarded if there are too many, or if they take too much memory."""
        execution_id = live.state.execution_id
        self.drop(execution_id)
        self._live[execution_id] = live
        self._bytes += live.bytes
        if live.bytes >= _LARGE_STATE:
            self._large[execution_id] = None
        self._shrink()

    def grew(self, live: Live, added: int) -> None:
        """Record that events of this many bytes were folded into a state."""
        before = live.bytes
        live.bytes += int(added * live.growth)
        if live.bytes > live.weigh_at:
            live.weigh()
        self._resized(live, before)

    def _resized(self, live: Live, before: int) -> None:
        execution_id = live.state.execution_id
        if self._live.get(execution_id) is live:
            self._bytes += live.bytes - before
            if live.bytes >= _LARGE_STATE:
                self._large[execution_id] = None
            elif before >= _LARGE_STATE:
                self._large.pop(execution_id, None)
            if self._bytes > self._max_bytes:
                self._shrink()

    def drop(self, execution_id: int) -> None:
        """Discard a state that may contain more than was committed."""
        live = self._live.pop(execution_id, None)
        if live is not None:
            self._bytes -= live.bytes
            self._large.pop(execution_id, None)

    def _shrink(self) -> None:
        """Discard the least recently used states. The newest one is always kept."""
        while len(self._live) > self.capacity:
            self.drop(next(iter(self._live)))
        while self._bytes > self._max_bytes and len(self._live) > 1:
            newest = next(reversed(self._live))
            large = next(iter(self._large), newest)
            self.drop(large if large != newest else next(iter(self._live)))

    async def folded(self, execution_id: int, at: int | None = None) -> Live:
        """Return the state after event `at` (default: the newest), read from the store. Raises Poisoned for a run whose
        log killed the process before.
        """
        quarantine = self.quarantine
        if quarantine is None:
            return await self._fold(execution_id, at)
        records = await quarantine.must_record(execution_id, None)
        if why := quarantine.unread(execution_id):
            raise Poisoned(f"execution {execution_id}: {why}")
        if not records:
            return await quarantine.stepwise([(execution_id, READING)], self._fold(execution_id, at))
        try:
            async with quarantine.attempt(execution_id, READING):
                return await quarantine.stepwise([(execution_id, READING)], self._fold(execution_id, at))
        except BegunElsewhere:
            return await self.folded(execution_id, at)

    async def _fold(self, execution_id: int, at: int | None) -> Live:
        quarantine = self.quarantine
        record = await self._store.execution(execution_id)
        if record is None:
            raise NotFound(f"there is no execution {execution_id}; `arclog list` shows all runs")
        program = await self.program(record.new.plan, record.new.scope.tenant)
        last = record.head if at is None else min(at, record.head)
        state = await self._snapshots.newest(execution_id, record.new.plan, last)
        snapshot_head = 0 if state is None else state.head
        if state is None:
            state = State(execution_id=execution_id)
        try:
            while state.head < last:
                with self._marked():  # while a page is received and decoded, too
                    page = await self._store.events(execution_id, after=state.head, limit=min(_PAGE, last - state.head))
                for first in range(0, len(page), _SLICE):
                    if first:
                        await asyncio.sleep(0)  # a long log must not delay other runs
                    self._apply(program, state, page[first : first + _SLICE])
        except NewerLog as problem:
            self._log_once(execution_id, problem)
            raise
        if quarantine is not None:
            quarantine.was_read(execution_id)
        live = Live(program, state, record, self._snapshots.pace(snapshot_head))
        live.weigh()
        return live

    def _apply(self, program: Program, state: State, page: Sequence[StoredEvent]) -> None:
        """Fold events into a state. A mark names the run while this is in progress."""
        if self.quarantine is not None:
            self.quarantine.began_reading(state.execution_id)
        try:
            apply_all(program, state, [stored.event for stored in page])
        finally:
            if self.quarantine is not None:
                self.quarantine.read_on()

    def _log_once(self, execution_id: int, problem: NewerLog) -> None:
        """Log once, for an operator, that the run needs a newer release."""
        if self._left_alone.get(execution_id) is None:
            self._left_alone.put(execution_id, True)
            log.error("%s", problem)

    async def program(self, digest: str, tenant: str = "") -> Program:
        """Return the program of a plan. A large one is built in the tenant's turns."""
        program = self._programs.get(digest)
        if program is None:
            record = await self._store.plan(digest)
            if record is None:
                raise NotFound(f"there is no plan {digest[:12]} in the store")
            program = await self._made(record.body, digest, tenant)
        return program

    async def program_of(self, compiled: Compiled, digest: str, tenant: str) -> Program:
        """Return the program of a plan that the caller already has."""
        return self._programs.get(digest) or await self._made(compiled.body, digest, tenant, compiled.plan)

    async def _made(self, body: bytes, digest: str, tenant: str, plan: net.Plan | None = None) -> Program:
        """Compile a plan. A large one is compiled in a thread, in slices, since its joins and templates take long."""
        turns = self.turns
        if turns is None or len(body) < LARGE:
            return self.keep(Program(plan or net.decode(body), digest, len(body)))
        coming = self._coming.get(digest)
        if coming is None:

            def compute() -> Program:
                program = Program(plan or net.decode_in_parts(body, turns.pause), digest, len(body), turns.pause)
                program.prepare(turns.pause)
                return program

            coming = self._coming[digest] = asyncio.ensure_future(turns.run(tenant, compute))
            coming.add_done_callback(lambda _: self._coming.pop(digest, None))
        with self._marked():
            return self.keep(await asyncio.shield(coming))

    def _marked(self) -> AbstractContextManager[None]:
        """Keep the mark of a run while its code waits for something that may kill the process."""
        return nullcontext() if self.quarantine is None else self.quarantine.throughout()

    def keep(self, program: Program) -> Program:
        kept = self._programs.keep(program)
        if program.size >= LARGE:
            # A state references its program, which would keep a discarded program in memory.
            for execution_id in [key for key, live in self._live.items() if self._programs.has_given_up(live.program)]:
                self.drop(execution_id)
        return kept
