"""The API that CLI, HTTP server and embedding use; ids are decimal strings here, times RFC 3339."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, runtime_checkable

from msgspec import UNSET, Struct, UnsetType, convert

from arclog.ports.storage.task_logs import ANY_LINE, LogFilter
from arclog.ports.views.insight import Cause, Problem, StateView, StepSummary, Why
from arclog.ports.views.overview import Activity, ApprovalPage, Failing, Lease, RunPage, RunQuery, Stuck
from arclog.ports.views.overview import Listed as Listed  # noqa: PLC0414 - it is found here with the rest of the API

if TYPE_CHECKING:
    from arclog.ports.views.history import Imported, SimulateRequest, SimulationReport, Trace


class ExecuteRequest(Struct, frozen=True, omit_defaults=True):
    """A run asked for: of a playbook's text, or of what is registered under a path."""

    #: YAML or JSON text of the playbook; '' with `path`
    playbook: str = ""
    #: the source of the text, for messages
    file: str = ""
    workload: Mapping[str, Any] = {}
    #: texts of the playbooks that are called by file, by path: the folder of `file` joined with the name
    files: Mapping[str, str] = {}
    #: the same key again is the same run; with another request it is a Conflict
    idempotency_key: str = ""
    #: in the catalog; '' with `playbook`
    path: str = ""
    #: 0 = the newest
    version: int = 0
    #: project and environment of the run, where they are not the caller's own
    scope: Mapping[str, str] = {}
    #: -100 to 100; None: the playbook's own
    priority: int | None = None


class Started(Struct, frozen=True):
    execution_id: str
    run_id: str
    #: False when the idempotency key had started it before
    created: bool = True
    #: keys of the request's workload that nothing in the playbook knows; left out when there are none
    warnings: list[str] | UnsetType = UNSET


class Origin(Struct, frozen=True, omit_defaults=True):
    """The origin of a run that started with the events of another run."""

    execution_id: str
    #: the last event of that run that was looked at
    seq: int
    #: retry | fork
    how: str
    #: number of events that it started with
    events: int
    #: the step that a retry continued from
    step: str = ""

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> Origin:
        """As the first event of the run has it."""
        return convert(recorded, cls)


class ForkRequest(Struct, frozen=True, omit_defaults=True, rename={"step": "from"}):
    """A new run that continues from the recorded events of another one."""

    #: fork: after this event; None: of a retry
    at: int | None = None
    #: retry: the step whose latest run, with all that it led to, runs again
    step: str = ""
    #: retry: only what failed
    failed: bool = False
    #: text of the playbook to continue with; '': the run's own
    playbook: str = ""
    file: str = ""
    files: Mapping[str, str] = {}
    #: laid over the run's workload
    workload: Mapping[str, Any] = {}
    #: steps that have another name in the new playbook: old → new
    map: Mapping[str, str] = {}
    #: the same key again is the same run
    idempotency_key: str = ""


class Forked(Struct, frozen=True):
    """A run that began with the events of another."""

    execution_id: str
    run_id: str
    origin: Origin
    #: False when the idempotency key had started it before
    created: bool = True


class ReplayDifference(Struct, frozen=True):
    """The first place in a log where the code of today decides otherwise."""

    #: of the recorded event
    seq: int
    #: the fields that differ, 'type' when they are different events, 'problem' when there is no event today
    fields: list[str]
    recorded: dict[str, Any] | None
    decided: dict[str, Any] | None
    #: why nothing is decided
    problem: str = ""


class ReplayCheck(Struct, frozen=True):
    """The result of replaying a log with the current code."""

    execution_id: str
    ok: bool
    #: events that were looked at
    events: int
    #: decisions that were made again
    decisions: int
    #: events that were folded only: they came over the wire or were taken over from another run
    folded: int
    difference: ReplayDifference | None = None


class RunsDiff(Struct, frozen=True):
    """Two runs side by side; `history.diff` says what the parts hold."""

    a: str
    b: str
    #: where they part first, and why: step, run, what, cause, a_seq, b_seq, a, b; None: they went alike
    divergence: dict[str, Any] | None
    #: steps that did not run alike: step, a_runs, b_runs, a_status, b_status, a_arcs, b_arcs
    steps: list[dict[str, Any]]
    #: path, a, b
    values: list[dict[str, Any]]
    #: more values differ than are listed
    more_values: bool
    #: step, a_ms, b_ms
    durations: list[dict[str, Any]]
    #: of two plans: steps_added, steps_removed, steps_changed, arcs_added, arcs_removed; None: the same net
    net: dict[str, Any] | None


class PlaybookStats(Struct, frozen=True):
    """Statistics of the latest runs of a playbook; `history.stats` describes the parts."""

    path: str
    runs: int
    #: runs by state
    states: dict[str, int]
    #: of the runs that completed or failed, the part that completed
    success_rate: float | None
    #: of the runs that completed
    p50_ms: int | None
    p95_ms: int | None
    #: the slowest first: step, runs, failed, p50_ms, p95_ms, slowest_ms, slowest_in
    steps: list[dict[str, Any]]
    #: the latest first: day, runs, failed, p50_ms
    days: list[dict[str, Any]]


class Status(Struct, frozen=True):
    """Exactly the seven fields of the status contract."""

    execution_id: str
    state: str
    current_step: str | None
    started_at: str | None
    ended_at: str | None
    #: in lifecycle names: playbook.completed, playbook.failed, execution.cancelled
    terminal_event: str | None
    completion_inferred: bool = False


class Summary(Struct, frozen=True):
    """A run as `arclog run --json` prints it."""

    execution_id: str
    run_id: str
    state: str
    terminal_event: str | None
    started_at: str | None
    ended_at: str | None
    steps: dict[str, StepSummary]
    ctx: dict[str, Any]
    result: Any
    #: of a run that ended otherwise than well: kind, message, code, retryable, step, task, item, traceback, cause
    error: dict[str, Any] | None
    #: the result's ref, when it is stored outside the log
    result_ref: dict[str, Any] | None = None
    #: the playbook's name
    name: str = ""
    #: problems, whatever the state of the run
    problems: list[Problem] = []
    #: the root cause of a failed run
    cause: Cause | None = None
    #: commands worth running now
    next: list[str] = []
    #: of a retry or a fork
    origin: Origin | None = None
    #: it was recorded elsewhere, and is read-only
    imported: bool = False


class SignalRequest(Struct, frozen=True):
    """A signal to a run."""

    #: PAUSE RESUME CANCEL APPROVE REJECT RETRY_STEP SKIP_STEP RETRY_RUN UPDATE_PARAMS EMERGENCY_STOP, or a name of one's own
    signal: str
    #: the same id again is answered as before; '' = one is made up
    signal_id: str = ""
    #: required with CANCEL, REJECT, SKIP_STEP and EMERGENCY_STOP
    reason: str = ""
    step: str = ""
    data: Any = None
    #: the caller
    by: str = ""


class SignalAnswer(Struct, frozen=True):
    """The result of a signal."""

    execution_id: str
    signal: str
    signal_id: str
    accepted: bool
    #: why it was refused
    message: str
    #: of the run, afterwards
    state: str
    paused: bool
    #: with RETRY_RUN: the new run
    started: str | None = None
    #: a task, or the start of the run, was waiting for it; a signal of the playbook's own is kept otherwise
    waiting: bool = False


class StoredResult(Struct, frozen=True):
    """A result that a run stored outside the log."""

    ref: str
    execution_id: str
    name: str
    step: str
    run: int
    task: str
    #: list | data
    kind: str
    content_type: str
    #: of the content itself
    bytes: int
    #: items of a list
    rows: int | None
    sha256: str
    #: step | execution | workflow | permanent
    scope: str
    stored_at: str
    #: when its time to live ends, if it was given one
    expires_at: str | None
    #: when gc release it
    removed_at: str | None
    #: the event that says that it was stored
    seq: int
    #: known when one result is described: its beginning, the room that it takes (None when it is not there), and when gc
    #: may release it (None: not known yet, or never)
    preview: str | None = None
    stored_bytes: int | None = None
    kept_until: str | None = None


class Collected(Struct, frozen=True):
    """The removals of a garbage collection, real or simulated."""

    dry_run: bool
    #: results whose time was over
    results: int
    #: removed files that were no longer referenced, and their size
    contents: int
    bytes: int
    #: files of writers that died
    leftovers: int
    #: runs that ended longer ago than `store.retention_s`; a dry run passes over those whose results it would release
    executions: int = 0
    #: bytes that the store gave back to the file system
    reclaimed: int = 0


class EventsFound(Struct, frozen=True):
    """A page of events across runs, the oldest first."""

    #: full envelopes
    events: list[dict[str, Any]]
    #: the same search continues from here (`cursor`)
    next: str
    #: whether there may be more events now; a page with fewer events than were asked for is not always the last
    more: bool


class RegisterRequest(Struct, frozen=True, omit_defaults=True):
    """A playbook for the catalog."""

    #: YAML or JSON text
    playbook: str
    #: the source of the text, for messages
    file: str = ""
    #: texts of the files that its tasks include (`file`, `module`), by path: the folder of `file` joined with the
    #: name
    files: Mapping[str, str] = {}


class CatalogVersion(Struct, frozen=True):
    """One immutable version of a playbook."""

    path: str
    version: int
    #: of the plan that it compiles to: the same content is the same version
    digest: str
    registered_at: str
    #: False when this content was registered before
    created: bool = False
    #: the playbook as written; '' in lists
    source: str = ""


class CatalogEntry(Struct, frozen=True):
    """A path of the catalog."""

    path: str
    #: the newest version
    version: int
    digest: str
    registered_at: str
    #: an archived path is not listed unless asked for, and starts no run; registering it again brings it back
    archived_at: str | None = None


class CatalogDiff(Struct, frozen=True):
    path: str
    older: int
    newer: int
    #: unified diff of the two texts; '' when they are the same
    diff: str


class Api(Protocol):
    async def execute(self, request: ExecuteRequest) -> Started:
        """Start a run; durable when it answers. Raises PlaybookError or RequestRejected."""

    async def wait(self, execution_id: str, *, after: int = 0, timeout_s: float | None = None) -> int:
        """Return the head once it is past `after` (or the run has ended), or after the time-out."""

    async def ended(self, execution_id: str, *, timeout_s: float | None = None) -> bool:
        """Return True once the run has its terminal event, False after the time-out."""

    async def status(self, execution_id: str) -> Status:
        """The seven fields."""

    async def summary(self, execution_id: str) -> Summary:
        """The run with its steps, ctx, result and error."""

    async def list(
        self,
        *,
        states: Sequence[str] = (),
        path: str = "",
        before: str = "",
        limit: int = 50,
        name: str = "",
        since: str = "",
        parent: str = "",
        origin: str = "",
    ) -> builtins.list[Listed]:
        """Newest first: of these states, of a catalog path, whose playbook's name has `name` in it, asked for at or after
        `since` (RFC 3339), called by run `parent`, retried or
        forked from run `origin`.
        """

    async def find(self, query: RunQuery) -> RunPage:
        """Search for runs, newest first. Raises RequestRejected."""

    async def activity(self, *, hours: int = 24) -> Activity:
        """Counts of ended runs by outcome, for each of the last `hours` hours (at most 8,784)."""

    async def failing(self, *, limit: int = 20) -> builtins.list[Failing]:
        """Playbooks whose newest run that ended within `overview.failing_s` has failed, the last to fail first."""

    async def stuck(self, *, limit: int = 20) -> builtins.list[Stuck]:
        """Runs with work that no worker has taken for `overview.stuck_s`, the longest waiting first; one for each pool and set
        of kinds.
        """

    async def leases(self, *, limit: int = 100) -> builtins.list[Lease]:
        """Work that workers have claimed and not finished, the lease that ends first at the top. Looks at the 1,000 leases of
        all tenants that end first.
        """

    async def approvals(self, *, after: str = "", limit: int = 50) -> ApprovalPage:
        """List pending approvals; `after` is a run's id, `limit` counts runs."""

    async def events(
        self, execution_id: str, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> builtins.list[dict[str, Any]]:
        """Full envelopes in seq order."""

    async def entity_events(
        self, execution_id: str, entity_type: str, entity_id: str = "", *, after: int = 0, limit: int = 1000
    ) -> builtins.list[dict[str, Any]]:
        """Full envelopes of one kind of entity (step, task, loop …), or of one entity of that kind, in seq order."""

    async def search(
        self,
        *,
        types: Sequence[str] = (),
        since: str = "",
        until: str = "",
        entity: str = "",
        where: str = "",
        informative: bool = False,
        cursor: str = "",
        limit: int = 100,
    ) -> EventsFound:
        """Events of all runs that the caller sees, by canonical type and by when they were stored: from `since` on and before
        `until` (RFC 3339). Those that are for readers only if asked for. `entity` keeps those about a kind of thing or about one
        of them (`step`, `step:load`), `where` those for which an expression over the fields of the envelope holds; it does not
        hold for an event that lacks what the expression reads.
        """

    async def logs(
        self, execution_id: str, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> builtins.list[dict[str, Any]]:
        """Task log lines: position, timestamp, step, task, attempt, iteration, stream, text. A step or a task that the
        run cannot have is refused.
        """

    async def results(self, execution_id: str, *, after: int = 0, limit: int = 1000) -> builtins.list[StoredResult]:
        """The results that the run stored outside the log, in order of their events, after a seq."""

    async def result(self, ref: str) -> StoredResult:
        """All that is known of one stored result. Raises NotFound."""

    def content(self, ref: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Bytes [start, end) of a stored result, checked. Raises NotFound or ResultUnavailable."""

    async def collect(self, *, dry_run: bool = False) -> Collected:
        """Remove stored results that are no longer needed: those of the caller's tenant. For the owner of the store and callers
        of the server's own tenant (`scope.tenant`): those of all tenants, leftovers of dead writers, and runs that ended long ago.
        """

    async def why(self, execution_id: str) -> Why:
        """Explain what the run is waiting for."""

    async def state(self, execution_id: str, at: int | None = None) -> StateView:
        """The run as it was after event `at`: 0 is before anything, beyond the head (or None) the newest."""

    async def signal(self, execution_id: str, request: SignalRequest) -> SignalAnswer:
        """Send a signal to the run. It is recorded when this returns, even if the run cannot apply it (`accepted` is False)."""

    async def fork(self, execution_id: str, request: ForkRequest) -> Forked:
        """Start a new run that continues this one: after an event (`at`), from a step, or with what failed.
        Raises RequestRejected, PlaybookError, Conflict, or DoesNotFit with what has no place in the playbook.
        """

    async def replay(self, execution_id: str) -> ReplayCheck:
        """Repeat every decision of the run's log and compare. Raises NewerLog."""

    async def diff(self, execution_id: str, other: str) -> RunsDiff:
        """Compare two runs: where they part, which steps and values differ, how long each took."""

    async def simulate(self, request: SimulateRequest) -> SimulationReport:
        """Run a playbook against the recorded outcomes of runs: no task is run and nothing is written. Raises
        RequestRejected, PlaybookError, or NotFound.
        """

    def export(self, execution_id: str) -> AsyncIterator[bytes]:
        """A run as a file: log, plan, playbook and stored results, each with its checksum."""

    async def import_run(self, file: BinaryIO) -> Imported:
        """Import a run from an exported file, read-only. Raises RequestRejected, which names the damaged part, or Conflict
        if another state of the run exists.
        """

    async def lineage(self, execution_id: str) -> builtins.list[dict[str, Any]]:
        """OpenLineage events of a run as far as its log goes: of the playbook, and of tasks that move data."""

    async def trace(self, execution_id: str, path: str) -> Trace:
        """Follow a value (`result.total`, `ctx.total`, `fetch.data.rows[0].id`) back to where it came into the run. Raises
        RequestRejected when the run has no such value.
        """

    async def stats(self, path: str, *, since: str = "", limit: int = 200) -> PlaybookStats:
        """Statistics of the latest runs of a playbook, at most `limit`, requested at or after `since` (RFC 3339). Raises NotFound."""

    async def pausing(self, execution_id: str) -> bool:
        """Whether the run is paused, or draining to be."""

    async def cancel(self, execution_id: str, reason: str) -> Status:
        """End the run at once."""

    async def source(self, execution_id: str) -> str:
        """The playbook as it was written."""

    async def graph(self, execution_id: str, form: str = "json") -> Any:
        """The run's plan as `json` (a map), `mermaid` or `text`."""

    # -- the catalog --------------------------------------------------------------------------------------------------

    async def register(self, request: RegisterRequest) -> CatalogVersion:
        """Keep a playbook under its path (metadata.path, else its name). Raises PlaybookError."""

    async def catalog(
        self, *, prefix: str = "", after: str = "", limit: int = 100, archived: bool = False
    ) -> builtins.list[CatalogEntry]:
        """The registered playbooks, ordered by path, after a path; with archived ones on request."""

    async def versions(self, path: str, *, before: int = 0, limit: int = 100) -> builtins.list[CatalogVersion]:
        """The versions of a path, newest first. Raises NotFound."""

    async def registered(self, path: str, version: int = 0) -> CatalogVersion:
        """One version (0 = the newest) with its text. Raises NotFound."""

    async def difference(self, path: str, older: int, newer: int = 0) -> CatalogDiff:
        """The differences between two versions (0 = the newest). Raises NotFound."""

    async def archive(self, path: str, *, archived: bool = True) -> CatalogEntry:
        """Put a path away, or bring it back. Its versions stay, and so do runs of them. Raises NotFound."""


@runtime_checkable
class Following(Protocol):
    """Additional methods of a remote `Api`: events are streamed, so that callers need not poll.

    Each record comes once and in order, also across restarts of the other side. Raises NotFound, Unauthenticated, or
    ServerUnavailable once patience is over.
    """

    def follow(
        self, execution_id: str, *, after: int = 0, types: Sequence[str] = ()
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Full envelopes behind a seq, as they happen, to the end of the log."""

    def follow_logs(
        self, execution_id: str, *, after: int = 0, where: LogFilter = ANY_LINE
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Task log lines behind a position, as they are written, to the run's end."""
