"""The engine: one transaction per input (or per few that arrived together), one writer per execution.

Invariants: inputs of one execution are decided one after another on its live state, and committed before the next
inputs are read. Effects (answers, hints) happen only after the commit. If an append fails, the live state is discarded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from arclog.core.boundary.inputs import (
    Abort,
    Continue,
    Input,
    Observed,
    Refused,
    Request,
    Signal,
    TakeSlot,
    WorkReported,
)
from arclog.core.transitions.state import State
from arclog.drivers.backoff import Backoff
from arclog.engine.commits import eager
from arclog.engine.commits.batch import Answer, Batch, Claimant, end_notices, revocations
from arclog.engine.commits.decisions import Beginning, Deciding, Given
from arclog.engine.commits.groups import Groups, Start, captured
from arclog.engine.commits.hints import Hints
from arclog.engine.commits.ids import Minter
from arclog.engine.commits.live_states import Live, LiveStates
from arclog.engine.commits.marked_work import READING, was_claimed_before, work_of
from arclog.engine.commits.quarantine import BegunElsewhere, Quarantine
from arclog.engine.commits.snapshots import Snapshots
from arclog.engine.commits.starts import Starts
from arclog.engine.dispatch.queues import Queues
from arclog.expr import OutOfTurn
from arclog.model.config.settings import Settings
from arclog.model.errors import Conflict, EventTooLarge, InvariantBroken, StoreError
from arclog.model.outcome import error
from arclog.plan.program import Program
from arclog.ports.clock import Clock
from arclog.ports.secrets import Secrets
from arclog.ports.storage.marks import MARKS_PER_SLOT, CrashBook, Marks
from arclog.ports.storage.store import (
    Append,
    Appended,
    EventIdTaken,
    ExecutionRecord,
    NewExecution,
    NoSlot,
    Store,
    is_imported,
)

if TYPE_CHECKING:
    from arclog.engine.runs.inputs import RunSecrets

log = logging.getLogger("arclog.engine")

#: Maximum number of inputs of one execution that share a commit.
INPUTS_PER_COMMIT = MARKS_PER_SLOT
#: Pauses between attempts to continue a run while the store cannot be written.
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 30.0
#: Number of times that an append is decided again after it lost the race for the head.
MAX_CONFLICTS = 20
#: Inputs that depend on the store's own state or on other processes. Each has its own commit.
_ALONE = (Signal, TakeSlot, Continue)
#: Signals that need to know which commands no worker holds.
_NEEDS_IDLE = frozenset({"PAUSE", "RETRY_STEP"})


class _Asked(Struct):
    """An input and the future of its caller."""

    given: Input
    claimant: Claimant | None
    #: (command_id, fence, lease_until) to extend
    extend: tuple[int, int, int] | None
    done: asyncio.Future[Answer]
    #: it has a commit of its own, so that its record names what kills the process there
    is_recorded: bool = False

    def answer(self, answer: Answer) -> None:
        if not self.done.done():
            self.done.set_result(answer)

    def fail(self, problem: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(problem)


class _Queue(Struct):
    """Inputs of one execution, in order of arrival."""

    waiting: list[_Asked] = field(default_factory=list)
    #: a group is deciding on the execution; waiting inputs are processed after it
    reserved: bool = False
    #: commits waiting inputs; a separate task, so that a cancelled caller does not cancel the inputs of others
    serving: asyncio.Task[None] | None = None


class Engine:
    """Puts inputs to executions."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        minter: Minter,
        secrets: Secrets | None = None,
        wall: Clock | None = None,
    ) -> None:
        """`wall` is the clock of schedules, if it is a different one: it may be set, while `clock` measures elapsed
        time.
        """
        self.store = store
        self.clock = clock
        self.wall = wall or clock
        self.settings = settings
        self.minter = minter
        #: checks the keychain of a request; None if missing secrets are found when tasks run
        self._secrets = secrets
        #: stores the secret inputs of runs; None if secret inputs are not supported
        self.run_secrets: RunSecrets | None = None
        #: pools whose steps use these secrets; None means all. The secrets of other pools are checked where their steps
        #: run
        self.pools: Collection[str] | None = None
        self.snapshots = Snapshots(store, settings)
        self.live = LiveStates(store, settings, self.snapshots)
        self.hints = Hints()
        self.queues = Queues(store, settings)
        self.deciding = Deciding(clock, settings, minter, self.queues)
        #: by tenant: how many schedules may be added before they are counted again
        self.schedule_room: dict[str, int] = {}
        self._measured: Callable[[str, float], None] | None = None
        self._quarantine: Quarantine | None = None
        self._queues: dict[int, _Queue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._groups = Groups(self)
        self.starts = Starts(self)

    async def keep_marks(self, marks: Marks, book: CrashBook | None = None, owner: str = "") -> None:
        """Mark runs while they are processed, and quarantine runs that killed this process before or, with `book`, other
        servers. `owner` is the name of this process there.
        """
        quarantine = Quarantine(self, marks, book, owner)
        self._quarantine = self.deciding.quarantine = self.live.quarantine = self.starts.quarantine = quarantine
        await self.store.keep_marks(marks)
        await quarantine.open()

    async def look_at_crashes(self) -> None:
        """Read which runs killed other servers."""
        if self._quarantine is not None:
            await self._quarantine.look()

    async def take_care(self) -> None:
        """React to the loss of another server, possibly because of the run that it was processing."""
        if self._quarantine is not None:
            await self._quarantine.take_care()

    async def is_back(self) -> None:
        """React to the fact that another server considered this one gone."""
        if self._quarantine is not None:
            await self._quarantine.is_back()

    def is_held(self, execution_id: int) -> bool:
        """Return whether a run is in quarantine."""
        return self._quarantine is not None and self._quarantine.is_held(execution_id)

    def is_watched(self, execution_id: int) -> bool:
        """Return whether a run is in quarantine, or a server died while it processed it."""
        return self._quarantine is not None and self._quarantine.knows(execution_id)

    @property
    def measured(self) -> Callable[[str, float], None] | None:
        """Takes ('append' or 'decision', seconds); None if nothing is measured."""
        return self._measured

    @measured.setter
    def measured(self, measure: Callable[[str, float], None] | None) -> None:
        self._measured = self.deciding.measured = measure

    async def start(
        self,
        program: Program,
        new: NewExecution,
        request: Request,
        content: Mapping[str, Any] | None = None,
        *,
        execution_id: int = 0,
    ) -> int:
        """Create an execution and return its id once it is durable. Raises Conflict if the given id is in use.

        An execution whose first decision killed processes twice is created as failed, with kind `poison`. `content` is
        what repeated attempts have in common if their workloads differ, as those of a schedule do.
        """
        return await self.starts.start(program, new, request, content, execution_id)

    async def start_all(self, starts: Sequence[Start]) -> list[int | Exception]:
        """Create executions that are committed together. Returns, for each, what `start` would return or raise."""
        if self._quarantine is not None and self._quarantine.is_careful:
            return list(await asyncio.gather(*(captured(self.start(*each)) for each in starts)))
        return await self._groups.start(starts)

    def begun(self, program: Program, state: State, batch: Batch, append: Append, appended: Appended) -> None:
        """Apply the effects of a committed first append."""
        if append.new is None:
            raise InvariantBroken(f"append to execution {append.execution_id} is not its first")
        record = ExecutionRecord(append.execution_id, state.head, append.new, append.now)
        live = Live(program, state, record, self.snapshots.pace(0))
        self.live.put(live)
        self.live.grew(live, appended.decoded_bytes)
        self.committed(live, batch)

    async def new_id(self) -> int:
        """Return an id for a new execution."""
        if self.minter.is_over:
            await self.minter.renew()
        return self.minter.next_id()

    async def fork(self, program: Program, new: NewExecution, begin: Beginning, most: int) -> int:
        """Create an execution that begins with at most `most` events of another one. Return its id after the commit."""
        return await self.starts.fork(program, new, begin, most)

    async def problems_of(self, program: Program, request: Request) -> str:
        """Return a problem of the request that the pure core cannot detect, or '' if there is none."""
        problem = (await self.evaluated(program, request)).problem
        return "" if problem is None else problem.message

    def asks_for_secrets(self, program: Program) -> bool:
        """Return whether secrets are checked before a run of this program begins."""
        return self._secrets is not None and bool(program.plan.keychain)

    async def evaluated(self, program: Program, request: Request) -> Request:
        """Return the request, with a problem that the pure core cannot detect."""
        if not self.asks_for_secrets(program) or request.problem is not None or self._secrets is None:
            return request
        from arclog.plan.reads import entries_for

        # Secret inputs come with the request.
        entries = [entry for entry in entries_for(program, self.pools) if entry["kind"] != "input"]
        problems = await self._secrets.check(entries, request.scope)
        if not problems:
            return request
        return replace(request, problem=error("auth", "; ".join(problems), code="KEYCHAIN"))

    async def put(
        self,
        execution_id: int,
        given: Input,
        *,
        claimant: Claimant | None = None,
        extend: tuple[int, int, int] | None = None,
        at_once: bool = False,
    ) -> Answer:
        """Put an input to an execution. Returns after the commit. With `at_once` it does not wait for the inputs of other
        runs that arrive in the same iteration of the event loop, and whose commit it could share.
        """
        if self._quarantine is None or (self._quarantine.is_idle and not was_claimed_before(given)):
            return await self._queued(execution_id, given, claimant, extend, at_once=at_once)
        while True:
            try:
                return await self._put_carefully(self._quarantine, execution_id, given, claimant, extend)
            except BegunElsewhere:
                continue

    async def _put_carefully(
        self,
        quarantine: Quarantine,
        execution_id: int,
        given: Input,
        claimant: Claimant | None,
        extend: tuple[int, int, int] | None,
    ) -> Answer:
        """Put an input while a crash is known, or may have happened. Raises BegunElsewhere if another server begins it."""
        is_kept = self.live.kept(execution_id) is not None
        records = await quarantine.must_record(execution_id, given, is_kept=is_kept)
        if quarantine.is_held(execution_id):
            refused = await quarantine.refusal(execution_id, given)
            if refused is not None:
                return Answer(refused)
        if not records:
            return await self._queued(execution_id, given, claimant, extend)
        if self.live.kept(execution_id) is None:
            async with quarantine.attempt(execution_id, READING):
                await quarantine.stepwise([(execution_id, READING)], self.load(execution_id))
        async with quarantine.attempt(execution_id, work_of(given)):
            return await self._queued(execution_id, given, claimant, extend, is_recorded=True)

    def _queued(
        self,
        execution_id: int,
        given: Input,
        claimant: Claimant | None,
        extend: tuple[int, int, int] | None,
        *,
        at_once: bool = False,
        is_recorded: bool = False,
    ) -> asyncio.Future[Answer]:
        """Queue an input after the waiting ones. Return the future of its answer."""
        loop = asyncio.get_running_loop()
        asked = _Asked(given, claimant, extend, loop.create_future(), is_recorded)
        queue = self._queues.get(execution_id)
        if queue is None:
            queue = self._queues[execution_id] = _Queue()
        queue.waiting.append(asked)
        if queue.serving is None and not queue.reserved:
            if at_once and self._is_alone(execution_id):
                queue.reserved = True  # until its first part has run
                queue.serving = eager.start(loop, self._serve(execution_id, queue))
                queue.reserved = False
            else:
                queue.serving = loop.create_task(self._serve(execution_id, queue))
        return asked.done

    def _is_alone(self, execution_id: int) -> bool:
        """Return whether no other run has inputs, and this run has no other command whose report could come now."""
        if len(self._queues) > 1:
            return False
        live = self.live.kept(execution_id)
        return live is not None and len(live.state.commands) <= 1

    async def put_all(self, inputs: Sequence[tuple[int, Input]]) -> list[Answer | Exception]:
        """Put one input to each of many executions. They are decided one after another and committed together. Return
        what `put` would return or raise for each, in order. Other inputs wait while they are decided.
        """
        if self._quarantine is not None and self._quarantine.is_careful:
            return list(await asyncio.gather(*(captured(self.put(*each)) for each in inputs)))
        return await self._groups.put(inputs)

    def reserve(self, execution_id: int) -> bool:
        """Make other inputs wait until `release`. Returns False if the execution has inputs in progress."""
        if execution_id in self._queues:
            return False
        self._queues[execution_id] = _Queue(reserved=True)
        return True

    def release(self, execution_id: int) -> None:
        """Process the inputs that came since `reserve`."""
        queue = self._queues[execution_id]
        if queue.waiting:
            queue.serving = asyncio.get_running_loop().create_task(self._serve(execution_id, queue))
        else:
            del self._queues[execution_id]

    async def _serve(self, execution_id: int, queue: _Queue) -> None:
        """Commit queued inputs until the queue is empty."""
        alone, turns = 0, self.deciding.turns
        while queue.waiting:
            if turns is not None and (live := self.live.kept(execution_id)) and turns.is_ahead(live.state.tenant):
                await turns.let_others_go_first()
            if len(queue.waiting) == 1:
                count, batched, queue.waiting = 1, queue.waiting, []
            else:
                count = 1 if alone else _together(queue.waiting)
                batched, queue.waiting = queue.waiting[:count], queue.waiting[count:]
            alone = max(0, alone - 1)
            try:
                committing = self._commit(execution_id, batched)
                if self._quarantine is None or not self._quarantine.is_shared:
                    taken = await committing
                else:
                    marks = [(execution_id, work_of(asked.given)) for asked in batched]
                    taken = await self._quarantine.stepwise(marks, committing)
                if taken < count:
                    queue.waiting[:0] = batched[taken:]
            except EventIdTaken as problem:
                # An event with this id is in the log. That concerns only the input that brought it.
                if count == 1:
                    batched[0].fail(problem)
                else:
                    alone = count
                    queue.waiting[:0] = batched
            except Exception as problem:  # noqa: BLE001 - it belongs to those who wait
                for asked in batched:
                    asked.fail(problem)
        self._queues.pop(execution_id, None)

    async def _commit(self, execution_id: int, batched: list[_Asked]) -> int:
        """Decide and commit inputs. Returns how many of them were processed."""
        holders: tuple[int, ...] = ()
        news = False
        if self.minter.is_over:
            await self.minter.renew()
        for _ in range(MAX_CONFLICTS):
            current = isinstance(batched[0].given, _ALONE) or self.live.look_first(execution_id)
            if current:
                news = await self.live.catch_up(execution_id) or news
            live = await self.live.get(execution_id)
            if is_imported(live.record.new):
                refused = Refused("imported", "the run was imported and is read-only; fork it to continue")
                for asked in batched:
                    asked.answer(Answer(refused))
                return len(batched)
            head = live.state.head
            given = [(asked.given, asked.claimant) for asked in batched]
            if isinstance(batched[0].given, _ALONE):
                given = [(await self._prepared(execution_id, batched[0].given, holders), batched[0].claimant)]
            try:
                batch = self._decided_at_once(live, given)
                if batch is None:
                    live, batch = await self._decided_aside(execution_id, live, given)
            except Exception as problem:  # noqa: BLE001 - whatever a decision does, only its own execution may suffer
                self.live.drop(execution_id)
                await self._give_up(execution_id, batched, problem)
                return len(batched)
            if batch.events:
                extend = [
                    asked.extend
                    for asked, txn in zip(batched, batch.txns, strict=False)
                    if asked.extend and txn.refused is None and asked.extend[0] not in batch.close
                ]
                deliveries = end_notices(live.program.plan, live.state, batch.events, live.record.new)
                append = batch.append(live.state, expected=head, extend=extend, deliveries=deliveries)
                try:
                    appended = await self.append(append)
                except EventIdTaken:
                    # Deciding again would have the same result: the sender of the id must compare with the recorded
                    # event.
                    self.live.drop(execution_id)
                    raise
                except Conflict as lost:
                    self.live.drop(execution_id)
                    if isinstance(lost, NoSlot):
                        holders = lost.holders
                    else:
                        news = True
                        self.live.contended(execution_id)
                    continue
                except (StoreError, asyncio.CancelledError):
                    self.live.drop(execution_id)
                    raise
                except Exception as problem:
                    # The store will never accept this. A signal can be sent in another form; a report would be sent
                    # again forever.
                    self.live.drop(execution_id)
                    given_first = batched[0].given
                    # The size of a signal's own event is limited before it is written, so one of its consequences is
                    # too large.
                    led_to = isinstance(given_first, Signal) and isinstance(problem, EventTooLarge)
                    if isinstance(given_first, Signal | Observed) and not led_to:
                        raise
                    await self._give_up(execution_id, batched, problem)
                    return len(batched)
                self.live.grew(live, appended.decoded_bytes)
            elif not current and await self.live.catch_up(execution_id):
                # Nothing is appended, so no conflict would reveal that the state is outdated: decide on the current
                # state.
                news = True
                continue
            self.committed(live, batch)
            if news:
                self.hints.caught_up(live.state)
            for asked, answer in zip(batched, batch.answers, strict=False):
                if self._quarantine is not None:
                    self._quarantine.ended(execution_id, asked.given, live.state)
                asked.answer(answer)
            return len(batch.answers)
        raise Conflict(
            f"execution {execution_id}: {MAX_CONFLICTS} attempts to write failed because of concurrent writers"
        )

    def _decided_at_once(self, live: Live, given: Given) -> Batch | None:
        """Decide inputs on the event loop. Return None if their templates are too heavy for it."""
        if self.deciding.is_heavy(live.program):
            return None
        try:
            return self.deciding.at_once(live.program, live.state, given)
        except OutOfTurn:
            self.deciding.mark_heavy(live.program)
            self.live.drop(live.state.execution_id)
            return None

    async def _decided_aside(self, execution_id: int, live: Live, given: Given) -> tuple[Live, Batch]:
        """Decide inputs with heavy templates in a thread. Return the state that they were decided on."""
        if self.live.kept(execution_id) is None:
            live = await self.live.get(execution_id)
        # No other code may read a state that a thread is changing.
        self.live.drop(execution_id)
        batch = await self.deciding.aside(live.program, live.state, given)
        if batch is None:
            live = await self.live.get(execution_id)
            batch = self.deciding.at_once(live.program, live.state, given, bounded=False)
        self.live.put(live)
        return live, batch

    async def _prepared(self, execution_id: int, given: Input, holders: tuple[int, ...]) -> Input:
        """Return the input, completed with facts that only the store has."""
        if isinstance(given, TakeSlot):
            return TakeSlot(holders)
        if isinstance(given, Signal) and given.signal in _NEEDS_IDLE:
            commands = await self.store.commands(execution_id)
            return replace(given, idle=tuple(command.command_id for command in commands if command.state == "issued"))
        return given

    async def load(self, execution_id: int) -> None:
        """Load a state that will be needed soon, unless it is loaded or in use."""
        if execution_id in self._queues or self.live.kept(execution_id) is not None:
            return
        live = await self.live.folded(execution_id)
        if execution_id not in self._queues and self.live.kept(execution_id) is None:
            self.live.put(live)

    async def seen(self, execution_id: int) -> Live:
        """Return an execution as it is in the store now. The live state is not changed, since a decision may be in
        progress.
        """
        kept = self.live.kept(execution_id)
        if kept is not None and execution_id not in self._queues:
            head = kept.state.head
            record = await self.store.execution(execution_id)
            if record is not None and record.head == head == kept.state.head and execution_id not in self._queues:
                return kept
        return await self.live.folded(execution_id)

    async def look(self, execution_id: int) -> None:
        """Apply events that other processes appended to an execution."""
        before = self.live.head(execution_id)
        record = await self.store.execution(execution_id)
        head = self.live.head(execution_id)
        if before and not head:
            return  # the run has ended here meanwhile, or its state was discarded and the next call reads it
        if record is not None and record.head > head:
            await self.put(execution_id, Continue())

    async def _give_up(self, execution_id: int, batched: list[_Asked], problem: Exception) -> None:
        """End an execution whose decision broke an invariant or cannot be stored. Others are not affected."""
        if isinstance(problem, EventTooLarge):
            message, why = str(problem), error("limit", str(problem), code="MAX_PAYLOAD_BYTES")
            log.warning("execution %s: %s; it is failed with kind limit", execution_id, problem)
        else:
            log.error("execution %s: %s; it is failed with kind internal", execution_id, problem, exc_info=problem)
            message = f"arclog cannot continue this run: {type(problem).__name__}: {problem}"
            message = message.encode("utf-8", "replace").decode()
            why = error("internal", message)
        abort = Abort(why)
        live = await self.live.get(execution_id)
        head = live.state.head
        try:
            batch = self.deciding.at_once(live.program, live.state, [(abort, None)], bounded=False)
        except Exception:
            # A broken state must not prevent the run from ending.
            log.exception("execution %s: open step runs cannot be closed; only the run is ended", execution_id)
            self.live.drop(execution_id)
            live = await self.live.get(execution_id)
            bare = replace(abort, bare=True)
            batch = self.deciding.at_once(live.program, live.state, [(bare, None)], bounded=False)
        if batch.events:
            try:
                deliveries = end_notices(live.program.plan, live.state, batch.events, live.record.new)
                await self.append(batch.append(live.state, expected=head, deliveries=deliveries))
            finally:
                self.live.drop(execution_id)
            self.committed(live, batch)
        for asked in batched:
            asked.answer(Answer(Refused("closed", message)))

    async def append(self, append: Append) -> Appended:
        """Commit one transaction."""
        if self._measured is None:
            return await self.store.append(append)
        began = self.clock.monotonic()
        appended = await self.store.append(append)
        self._measured("append", self.clock.monotonic() - began)
        return appended

    async def append_all(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        """Commit transactions of different executions."""
        began = self.clock.monotonic()
        outcomes = await self.store.append_all(appends)
        if self._measured is not None:
            self._measured("append", self.clock.monotonic() - began)
        return outcomes

    def committed(self, live: Live, batch: Batch) -> None:
        """Apply the effects of a committed transaction."""
        state = live.state
        execution_id = state.execution_id
        if batch.events:
            self.hints.appended(execution_id, state.head)
            if batch.events[0].informative and all(event.informative for event in batch.events):
                # Listeners must not act on informative events.
                self._keep_if_due(live)
                return
        if batch.offers:
            for command in batch.issue:
                if command.grant is None and not command.held:
                    self.queues.offered(command.pool, state.tenant)
            self.hints.offered(batch.offers)
        if batch.close and self.queues.bounded:
            self.hints.room_made()
        if self.queues.is_due:
            self._later(self.queues.look())
        revoked = revocations(batch.events, state)
        if batch.close or revoked:
            self.hints.closed(batch.close, revoked)
        if batch.more:
            self._later(self._go_on(execution_id))
        for due in batch.timers.values():
            if due:
                self.hints.timer_set(due)
        events = batch.events
        if state.informative:
            events = [event for event in events if not event.informative]
        self.hints.committed(state, events)
        if state.terminal is not None:
            self.hints.ended(execution_id)
            if live.program.plan.concurrency is not None:
                self.hints.slot_freed((state.tenant, live.record.new.path))
            # The state of a child is kept until its parent has been notified.
            if state.processed or state.parent is None:
                self.live.drop(execution_id)
        self._keep_if_due(live)

    def _keep_if_due(self, live: Live) -> None:
        if self.snapshots.is_due(live.pace, live.state):
            self.keep_snapshot(live)

    def keep_snapshot(self, live: Live) -> None:
        """Write a snapshot of a state that is exactly what was committed. Nothing waits for it."""
        if self._quarantine is None:
            body = self.snapshots.taken(live.pace, live.state)
        else:
            encode = partial(self.snapshots.taken, live.pace, live.state)
            body = self._quarantine.snapshot(live.state.execution_id, encode)
        if body is not None:
            self._later(self.snapshots.write(live.state.execution_id, live.state.head, live.program.digest, body))

    async def _go_on(self, execution_id: int) -> None:
        """Put the Continue that a long decision left. It is retried while the store is unavailable."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            try:
                await self.put(execution_id, Continue())
            except StoreError as problem:
                pause = backoff.pause_s()
                log.warning("execution %s: cannot continue: %s; retrying in %g s", execution_id, problem, pause)
                await self.clock.sleep(pause)
            else:
                return

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work failed: %s", task.exception())

    async def close(self) -> None:
        tasks = [*self._tasks, *(queue.serving for queue in self._queues.values() if queue.serving is not None)]
        for task in tasks:
            task.cancel()
        if self.deciding.turns is not None:
            self.deciding.turns.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._quarantine is not None:
            await self._quarantine.close()


def _together(waiting: Sequence[_Asked]) -> int:
    """Return the number of leading inputs that share a commit. External events share one only with each other, so that
    other inputs do not fail if the id of an event is already used.
    """
    outside = _brings_ids(waiting[0].given)
    for index, asked in enumerate(waiting[:INPUTS_PER_COMMIT]):
        if asked.is_recorded or isinstance(asked.given, _ALONE) or _brings_ids(asked.given) != outside:
            return max(index, 1)
    return min(len(waiting), INPUTS_PER_COMMIT)


def _brings_ids(given: Input) -> bool:
    return isinstance(given, Observed) or (isinstance(given, WorkReported) and bool(given.digests))
