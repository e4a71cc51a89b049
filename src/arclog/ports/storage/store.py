"""The store: the append-only log and everything that must change together with it.

Rules that every store keeps (`arclog.testing.conformance.store` checks them):
- `append` is a compare-and-set on the execution's head and one atomic transaction: events, commands, timers and the
  execution's record change together or not at all. It returns only after a durable commit.
- `seq` is gapless from 1 and in commit order per execution. Event ids of one append are `ids.moved(base_id, i)`, which
  is `base_id + i` as long as they are of one millisecond.
- An execution has exactly one terminal event; an append with a second one raises `TerminalExists`.
- An event with an id from outside (`Append.digests` names its id) is in an execution once; an append that repeats its
  id raises `EventIdTaken`.
- A claim is a compare-and-set that increments the command's fence; a holder of an older fence can change nothing. A
  held command cannot be claimed. An append that holds a command which was claimed meanwhile raises `Conflict`.
- An append that needs a slot is refused (`NoSlot`) while that many other executions of its path and tenant are RUNNING.
- `tail` positions are commit-safe: a reader that always continues after its last position misses nothing.
- Content that events record as stored outside the log (`result.stored`; not informational ones) is known by execution,
  name and hash as soon as the append is committed; the same content stored again under its name is one record, with the
  longer lifetime. A ref of another execution in such an event is refused.
- Failures are `StoreUnavailable` (nothing was written) or `Conflict` (reload and decide again); driver errors never
  leak. If a store on another machine becomes unreachable during a commit, and stays so, the failure is
  `OutcomeUnknown`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from arclog.model.errors import Conflict, StoreUnavailable
from arclog.model.events import Event
from arclog.model.ids import MAX_ID
from arclog.ports.storage.access import AccessBook
from arclog.ports.storage.catalog import CatalogStore
from arclog.ports.storage.duties import DutyBook
from arclog.ports.storage.marks import Marks
from arclog.ports.storage.outbox import NewDelivery, OutboxStore
from arclog.ports.storage.pools import PoolBook
from arclog.ports.storage.schedules import ScheduleStore
from arclog.ports.storage.statistics import StatisticsBook
from arclog.ports.storage.stored_results import StoredResultBook
from arclog.ports.storage.task_logs import ANY_LINE, LogFilter, LogLine


class StoredEvent(Struct, frozen=True, gc=False):
    """An event with its position in the store."""

    event: Event
    execution_id: int
    seq: int
    event_id: int
    persisted_at: int


class EventQuery(Struct, frozen=True):
    """A filter of events; an empty field matches all."""

    #: canonical names
    types: tuple[str, ...] = ()
    #: persisted at or after `since`, and before `until` (microseconds since 1970)
    since: int = 0
    until: int = MAX_ID
    tenant: str = ""
    project: str = ""
    environment: str = ""
    #: whether to include informational events
    informative: bool = False


class EventMatches(Struct, frozen=True):
    """A page of search results."""

    events: Sequence[StoredEvent]
    #: cursor of the next page
    cursor: str
    #: whether there may be more events now
    more: bool


class EventSearch(Protocol):
    """Finds events across executions, by type, time and scope.

    Rules that every store keeps (`arclog.testing.conformance.store` checks them):
    - Events are in the order in which they were persisted, oldest first. A page that continues from another page's
      cursor has neither gaps nor repetitions.
    - Informational events are included only on request.
    - The cost of a page is bounded, whatever is in the store: it may have fewer events than requested, even none, while
      there are more.
    - A reader that pages while others write may miss events that were persisted at the same moment as the last event of
      a page; to follow one execution without loss, read its events by seq.
    """

    async def search(self, query: EventQuery, *, cursor: str = "", limit: int = 100) -> EventMatches:
        """Return at most `limit` events that match a query, after a cursor.

        Raises RequestRejected for a cursor of another query.
        """


class TerminalExists(Conflict):
    """The execution already has a terminal event."""


class EventIdTaken(Conflict):
    """The execution already has an event with this id from outside; compare the content."""


class OutcomeUnknown(StoreUnavailable):
    """The store became unreachable during a commit, which may or may not have succeeded."""


class NoSlot(Conflict):
    """The maximum number of executions of the same playbook are running."""

    def __init__(self, holders: Sequence[int]) -> None:
        self.holders = tuple(holders)
        super().__init__(f"all slots are held, by executions {', '.join(map(str, self.holders))}")


class Scope(Struct, frozen=True):
    """The tenant, project and environment of a run. Never changes."""

    tenant: str
    project: str
    environment: str

    @property
    def label(self) -> str:
        """The scope in the form of events."""
        return f"{self.tenant}/{self.project}/{self.environment}"

    @property
    def parts(self) -> dict[str, str]:
        """The scope as keyword arguments."""
        return {"tenant": self.tenant, "project": self.project, "environment": self.environment}

    def covers(self, other: Scope) -> bool:
        """Return whether the other scope lies within this one; '' parts match any."""
        return (
            self.tenant in ("", other.tenant)
            and self.project in ("", other.project)
            and self.environment in ("", other.environment)
        )


class RunOrigin(Struct, frozen=True):
    """The run that a retry or a fork continues or repeats."""

    execution_id: int
    #: the last event of that run that was looked at
    seq: int
    #: retry | fork
    how: str


class NewExecution(Struct, frozen=True):
    """The immutable part of an execution's record, created with its first append."""

    run_id: str
    name: str
    path: str
    version: int
    plan: str
    scope: Scope
    created_at: int
    #: '' or the caller's key: a second execution with the same key in the same scope is refused
    idempotency_key: str = ""
    parent_execution_id: int = 0
    #: of a retry or a fork
    origin: RunOrigin | None = None


class ExecutionState(Struct, frozen=True):
    """The changing part of an execution's record: a projection of lifecycle events, replaced by each append."""

    #: PENDING RUNNING COMPLETED FAILED CANCELLED
    state: str
    current_step: str | None = None
    started_at: int | None = None
    ended_at: int | None = None
    #: canonical name of the terminal event
    terminal_event: str | None = None
    paused: bool = False
    #: the problem in one line: the root cause of a failed run, otherwise failed loop items
    error: str | None = None
    #: number of pending approvals
    approvals: int = 0


class ExecutionRecord(Struct, frozen=True):
    execution_id: int
    #: seq of the last event
    head: int
    new: NewExecution
    now: ExecutionState


class Grant(Struct, frozen=True):
    """A claim in the commit that issues the command."""

    worker_id: str
    lease_until: int
    #: the report that asked: (command_id, fence, n); identifies the commands for a repeated report
    by: tuple[int, int, int]


class NewCommand(Struct, frozen=True):
    """Work for workers. Its body is built from the execution's state when it is claimed."""

    command_id: int
    step: str
    run: int
    #: tool kinds that the worker must support
    kinds: tuple[str, ...]
    pool: str = "default"
    #: loop items [first, last) for a chunk; (0, 0) for the whole step run
    items: tuple[int, int] = (0, 0)
    grant: Grant | None = None
    #: whether it cannot be claimed until it is released
    held: bool = False
    #: among the commands of one tenant the smallest comes first, then the smallest id
    order: int = 0
    #: names of resources that it uses while a worker holds it, sorted
    resources: tuple[str, ...] = ()


class CommandRecord(Struct, frozen=True):
    command_id: int
    execution_id: int
    step: str
    run: int
    kinds: tuple[str, ...]
    pool: str
    items: tuple[int, int]
    #: issued | claimed | held
    state: str
    #: number of claims
    fence: int
    worker_id: str
    #: 0 while issued or held
    lease_until: int
    order: int = 0
    resources: tuple[str, ...] = ()


class Backlog(Struct, frozen=True):
    """Open commands of one pool."""

    pool: str
    #: number of commands offered to workers, and the smallest (oldest) of their ids; 0 if there is none
    issued: int = 0
    oldest: int = 0
    #: number of commands that workers hold, and when the first of their leases ends
    claimed: int = 0
    first_lease_end: int = 0


class Timer(Struct, frozen=True):
    """A durable timer: fires once, never before `due`."""

    execution_id: int
    timer_id: str
    due: int
    payload: dict[str, Any] = {}


class Append(Struct, frozen=True):
    """One transaction of one execution."""

    execution_id: int
    #: the head on which the transaction was decided; 0 creates the execution
    expected: int
    events: Sequence[Event]
    #: id of the first event; the others follow
    base_id: int
    #: the projection after these events
    now: ExecutionState
    #: only with expected == 0
    new: NewExecution | None = None
    issue: Sequence[NewCommand] = ()
    #: commands that are over: completed, failed or cancelled
    close: Sequence[int] = ()
    #: commands whose lease is lost: issued again, the fence stays
    release: Sequence[int] = ()
    #: (command_id, fence): commands that nobody may claim; Conflict if the fence has changed
    hold: Sequence[tuple[int, int]] = ()
    #: held commands that may be claimed again; applied after `hold`
    unhold: Sequence[int] = ()
    #: maximum number of running executions of the path and tenant, if this append starts one; 0 for any number
    slots: int = 0
    #: (command_id, fence, lease_until): a report is also a heartbeat
    extend: Sequence[tuple[int, int, int]] = ()
    set_timers: Sequence[Timer] = ()
    clear_timers: Sequence[str] = ()
    #: hex sha256 of the content of events that were sent with an id (`Event.own_id`), by id
    digests: Mapping[int, str] = {}
    #: whether `now.approvals` may have changed since the previous append
    asks: bool = False
    #: webhook deliveries of the run's end; only with a terminal event
    deliveries: Sequence[NewDelivery] = ()
    #: a larger event is refused (EventTooLarge), and with it the append; 0 for any size
    max_event_bytes: int = 0
    #: for a log from another store: the id of each event
    ids: Sequence[int] = ()
    #: the run and the work of each input, marked while the events are encoded and, by SQLite, written (`keep_marks`)
    marks: Sequence[tuple[int, int]] = ()


class Appended(Struct, frozen=True):
    """Proof of a durable append."""

    first_seq: int
    last_seq: int
    persisted_at: int
    #: upper estimate of the memory that its events take
    decoded_bytes: int = 0


class Ingested(Struct, frozen=True):
    """The record of an event that was sent with its own id."""

    event_id: int
    #: hex sha256 of its content; '' if the id was generated here
    digest: str
    seq: int


class LogBatch(Struct, frozen=True):
    """One committed row of the log, from `tail`."""

    position: int
    execution_id: int
    events: Sequence[StoredEvent]


class StepRunRecord(Struct, frozen=True):
    step: str
    run: int
    first_seq: int
    #: None while the step run is open
    last_seq: int | None
    #: open | done | failed | skipped | cancelled (by the end of the run)
    status: str


class Mark(Struct, frozen=True):
    """The position of an event of a marked type; `persisted_at` orders marks across executions."""

    event_type: str
    persisted_at: int
    execution_id: int
    seq: int


class IdlePage(Struct, frozen=True):
    """The idle ones among some executions that have not ended."""

    records: Sequence[ExecutionRecord]
    #: the last execution that was checked; 0 if there are no more
    last: int


class ExecutionFilter(Struct, frozen=True):
    """A filter of executions; empty fields match all."""

    states: tuple[str, ...] = ()
    path: str = ""
    tenant: str = ""
    project: str = ""
    environment: str = ""
    #: only children of this run
    parent: int = 0
    #: only retries and forks of this run
    origin: int = 0
    #: only children that have not ended
    children: bool = False
    #: top: only runs without a parent; called: only children
    level: str = ""
    #: only runs whose playbook's name contains this
    name: str = ""
    #: only runs with an id from here on: ids increase with the time of the request
    since: int = 0


class Store(
    CatalogStore,
    StoredResultBook,
    AccessBook,
    ScheduleStore,
    OutboxStore,
    DutyBook,
    PoolBook,
    EventSearch,
    StatisticsBook,
    Protocol,
):
    """All durable data."""

    async def open(self) -> None:
        """Open the store: create or check the schema. Refuses a store that cannot keep the rules."""

    async def close(self) -> None:
        """Finish pending writes, then close the store."""

    # -- the log ------------------------------------------------------------------------------------------------------

    async def keep_marks(self, marks: Marks) -> None:
        """Write the marks of an append (`Append.marks`) while the store's code works on it, which may kill the process."""

    async def append(self, append: Append) -> Appended:
        """Commit one transaction.

        Raises Conflict (the head moved, a command to hold was claimed, or the execution exists), TerminalExists,
        EventIdTaken, NoSlot, StoreUnavailable.
        """

    async def append_all(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        """Commit transactions of different executions, together if the store can; each succeeds or fails separately.

        Returns the results in the same order: the return value or the exception of each `append`.
        """

    async def ingested(self, execution_id: int, event_ids: Sequence[int]) -> list[Ingested]:
        """Return records of the events of the execution with these ids.

        Ids that were generated here, on a leased node, have no digest (''): external events never match them.
        """

    async def events(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> list[StoredEvent]:
        """Return events with seq > after, in seq order, at most `limit` after filtering by type."""

    async def step_events(
        self, execution_id: int, step: str, run: int, *, after: int = 0, limit: int = 1000
    ) -> list[StoredEvent]:
        """Return events of one step run, in seq order."""

    async def tail(self, *, after: int = 0, limit: int = 100) -> list[LogBatch]:
        """Return committed rows of all executions after a position, in position order."""

    async def marks(self, event_type: str, *, since: int = 0, limit: int = 1000) -> list[Mark]:
        """Return positions of events of a marked type, oldest first, persisted at or after `since` (microseconds)."""

    # -- executions ---------------------------------------------------------------------------------------------------

    async def execution(self, execution_id: int) -> ExecutionRecord | None:
        """Return the record of one execution, or None."""

    async def executions(
        self, which: ExecutionFilter = ExecutionFilter(), *, before: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        """Return executions, newest first (by execution_id), older than `before` if given."""

    async def pending_paths(self, *, after: tuple[str, str] = ("", ""), limit: int = 100) -> list[tuple[str, str]]:
        """Return each (tenant, path) with PENDING executions, in this order, above `after`.

        The cost depends on the number of pairs, not of executions.
        """

    async def live_in_path(
        self, tenant: str, path: str, state: str, *, after: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        """Return executions of one tenant's path that are PENDING or RUNNING, oldest first, newer than `after`."""

    async def awaiting_approval(self, tenant: str, *, after: int = 0, limit: int = 50) -> list[ExecutionRecord]:
        """Return executions of a tenant with pending approvals, oldest first, newer than `after`.

        See `ExecutionState.approvals`.
        """

    async def idle(self, before: int, *, after: int = 0, limit: int = 1000) -> IdlePage:
        """Check the next `limit` executions that have not ended, by execution_id, above `after`.

        Returns those that are not paused, to which nothing was appended since `before` (microseconds), and that have
        neither an open command nor a timer: they may have been abandoned.
        """

    async def retire(self, before: int, *, dry_run: bool = False) -> int:
        """Remove executions that ended before then (microseconds), and all their data except permanent results.

        Executions stay if they have a result that gc will release, a delivery that is not settled, or a parent that has
        not ended; a store may keep others together with them. Returns the number removed, or with `dry_run` the number
        that would be removed now; if there are more, the next call finds them. A call takes a few milliseconds of the
        writer's time: a caller that repeats it must leave pauses for others.
        """

    async def reclaim(self) -> int:
        """Return free space inside the store to the file system, in a piece as short as those of `retire`.

        Returns the bytes of this piece; 0 if there is no more.
        """

    async def step_runs(self, execution_id: int) -> list[StepRunRecord]:
        """Return all step runs in the order in which they were scheduled."""

    async def by_run_id(self, run_id: str) -> ExecutionRecord | None:
        """Return the execution of a run id, or None."""

    async def by_idempotency_key(self, scope: Scope, key: str) -> ExecutionRecord | None:
        """Return the execution that was started with this key, or None."""

    # -- commands -----------------------------------------------------------------------------------------------------

    async def claim(
        self,
        worker_id: str,
        *,
        limit: int,
        lease_until: int,
        kinds: Sequence[str],
        pools: Sequence[str] = ("default",),
        execution_id: int = 0,
        tenant: str = "",
        project: str = "",
        environment: str = "",
    ) -> list[CommandRecord]:
        """Claim up to `limit` issued commands and increment their fences.

        The smallest order comes first, then the oldest; between tenants, and within limits, by the rules of
        `ports.storage.pools`. `kinds` are those that the worker supports; no `pools` for all of them; `execution_id`
        limits the claim to one execution and its descendants, `tenant`, `project` and `environment` to their
        executions.
        """

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]], lease_until: int) -> list[int]:
        """Extend the leases of (command_id, fence). Returns the ids that this worker no longer holds."""

    async def expired(self, now: int, limit: int = 100) -> list[CommandRecord]:
        """Return claimed commands whose lease ended before `now`."""

    async def commands(self, execution_id: int) -> list[CommandRecord]:
        """Return all open commands of an execution."""

    async def backlog(self) -> list[Backlog]:
        """Return the amount of open work by pool."""

    async def granted(self, by: tuple[int, int, int]) -> list[CommandRecord]:
        """Return open commands that a report was granted."""

    # -- timers -------------------------------------------------------------------------------------------------------

    async def due_timers(self, now: int, limit: int = 100, *, latest: bool = False) -> list[Timer]:
        """Return timers with due <= now, earliest first; with `latest`, latest first."""

    async def coming_timers(self, after: int, until: int, limit: int = 100) -> list[int]:
        """Return executions of timers with after < due <= until, earliest first.

        An execution with several timers may be repeated.
        """

    async def next_due(self) -> int | None:
        """Return when the earliest timer is due, or None."""

    # -- snapshots, logs and other data --------------------------------------------------------------------------------

    async def put_snapshot(
        self, execution_id: int, seq: int, code: str, body: bytes, drop: Sequence[int] | None = None
    ) -> None:
        """Store a folded state.

        The newest per execution is kept; with `drop`, earlier ones of the same code version are removed except at these
        seqs. The log alone suffices without any.
        """

    async def past_snapshots(self, execution_id: int, code: str) -> list[int]:
        """Return the seqs of the snapshots before the newest, in order."""

    async def snapshot(self, execution_id: int, code: str, last: int = MAX_ID) -> tuple[int, bytes] | None:
        """Return the newest snapshot written by this code version, at or before seq `last`; None if there is none."""

    async def append_logs(self, lines: Sequence[LogLine], max_bytes: int | None = None) -> None:
        """Store task log lines.

        With `max_bytes`, an execution keeps that many bytes of text: the first line that does not fit is replaced by
        one of the stream `log` with `LOG_CUT`, and later lines are dropped. A line of the stream `progress` replaces
        the last one of its attempt, at a new position. Such lines do not count; an execution keeps its newest
        `PROGRESS_KEPT`.
        """

    async def logs(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> list[tuple[int, LogLine]]:
        """Return log lines with their positions, after a position."""

    async def changed_elsewhere(self) -> bool:
        """Return whether another process may have written since the last call.

        Called every `engine.sweep_s` if no bus reports it, so it must be nearly free while nothing happens. A store
        that always has a bus returns False.
        """

    async def time(self) -> int:
        """Return the store's clock, microseconds since 1970: leases of several servers are measured by it."""

    async def lease_node(self, owner: str, now: int, until: int) -> int:
        """Reserve a node number (0 to 1023) for generating ids until then. Raises StoreUnavailable if all are taken."""


# Imported runs are recognized by the idempotency key that the import gave them.


#: Requests cannot use keys with this prefix.
IMPORT_PREFIX = "arclog.import/"


def is_imported(new: NewExecution) -> bool:
    """Return whether a run was recorded elsewhere: it is read-only here."""
    return new.idempotency_key.startswith(IMPORT_PREFIX)
