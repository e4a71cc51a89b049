"""The API that CLI, HTTP server and embedding use; ids are decimal strings here, times RFC 3339."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, runtime_checkable

from msgspec import UNSET, Struct, UnsetType, convert

from arclog.ports.storage.task_logs import ANY_LINE, LogFilter
from arclog.ports.views.insight import Cause, Problem, StateView, StepSummary, Why
from arclog.ports.views.overview import Activity, ApprovalPage, FailingPlaybook, Lease, RunPage, RunQuery, StuckRun
from arclog.ports.views.overview import ListedRun as ListedRun  # noqa: PLC0414 - it is found here with the rest of the API

if TYPE_CHECKING:
    from arclog.ports.views.history import Imported, SimulateRequest, SimulationReport, Trace


class ExecuteRequest(Struct, frozen=True, omit_defaults=True):
    """A request for a run, of a playbook's text or of a registered path."""

    #: YAML or JSON text of the playbook; '' with `path`
    playbook: str = ""
    #: the source of the text, for messages
    file: str = ""
    workload: Mapping[str, Any] = {}
    #: texts of the playbooks that are called by file, by path: the folder of `file` joined with the name
    files: Mapping[str, str] = {}
    #: the same key returns the same run; with another request it raises Conflict
    idempotency_key: str = ""
    #: path in the catalog; '' with `playbook`
    path: str = ""
    #: 0 for the newest
    version: int = 0
    #: project and environment of the run, if they differ from the caller's
    scope: Mapping[str, str] = {}
    #: -100 to 100; None for the playbook's
    priority: int | None = None


class Started(Struct, frozen=True):
    execution_id: str
    run_id: str
    #: False if the idempotency key had started it before
    created: bool = True
    #: keys of the request's workload that the playbook does not use; absent if there are none
    warnings: list[str] | UnsetType = UNSET


class Origin(Struct, frozen=True, omit_defaults=True):
    """The origin of a retry or a fork."""

    execution_id: str
    #: the last event of that run that was considered
    seq: int
    #: retry | fork
    how: str
    #: number of events that it started with; 0 for a run that was repeated from its start
    events: int
    #: the step that a retry continued from
    step: str = ""

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> Origin:
        """Return the origin in the first event of the run."""
        return convert(recorded, cls)


class ForkRequest(Struct, frozen=True, omit_defaults=True, rename={"step": "from"}):
    """A new run that continues from the recorded events of another one."""

    #: fork: after this event; None for a retry
    at: int | None = None
    #: retry: the step whose latest run, and everything after it, runs again
    step: str = ""
    #: retry: only the failed parts
    failed: bool = False
    #: text of the playbook to continue with; '' for the run's own
    playbook: str = ""
    file: str = ""
    files: Mapping[str, str] = {}
    #: merged over the run's workload
    workload: Mapping[str, Any] = {}
    #: steps that have another name in the new playbook: old → new
    map: Mapping[str, str] = {}
    #: the same key returns the same run
    idempotency_key: str = ""


class Forked(Struct, frozen=True):
    """A run that started with the events of another."""

    execution_id: str
    run_id: str
    origin: Origin
    #: False if the idempotency key had started it before
    created: bool = True


class ReplayDifference(Struct, frozen=True):
    """The first place in a log where the current code decides differently."""

    #: sequence number of the recorded event
    seq: int
    #: the fields that differ; 'type' if the events are different, 'problem' if there is no event now
    fields: list[str]
    recorded: dict[str, Any] | None
    decided: dict[str, Any] | None
    #: why no event was decided
    problem: str = ""


class ReplayCheck(Struct, frozen=True):
    """The result of replaying a log with the current code."""

    execution_id: str
    ok: bool
    #: number of events
    events: int
    #: number of repeated decisions
    decisions: int
    #: number of events that were only folded: they came over the wire or from another run
    folded: int
    difference: ReplayDifference | None = None


class RunsDiff(Struct, frozen=True):
    """A comparison of two runs; `history.diff` describes the parts."""

    a: str
    b: str
    #: the first difference and its cause: step, run, what, cause, a_seq, b_seq, a, b; None if there is none
    divergence: dict[str, Any] | None
    #: steps that ran differently: step, a_runs, b_runs, a_status, b_status, a_arcs, b_arcs
    steps: list[dict[str, Any]]
    #: path, a, b
    values: list[dict[str, Any]]
    #: whether more values differ than are listed
    more_values: bool
    #: step, a_ms, b_ms
    durations: list[dict[str, Any]]
    #: for two plans: steps_added, steps_removed, steps_changed, arcs_added, arcs_removed; None for the same net
    net: dict[str, Any] | None


class PlaybookStats(Struct, frozen=True):
    """Statistics of the latest runs of a playbook; `history.stats` describes the parts."""

    path: str
    runs: int
    #: runs by state
    states: dict[str, int]
    #: share of completed runs among those that completed or failed
    success_rate: float | None
    #: of completed runs
    p50_ms: int | None
    p95_ms: int | None
    #: slowest first: step, runs, failed, p50_ms, p95_ms, slowest_ms, slowest_in
    steps: list[dict[str, Any]]
    #: latest first: day, runs, failed, p50_ms
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
    #: for a run that failed or was cancelled: kind, message, code, retryable, step, task, item, traceback, cause
    error: dict[str, Any] | None
    #: the result's ref, if it is stored outside the log
    result_ref: dict[str, Any] | None = None
    #: the playbook's name
    name: str = ""
    #: problems, whatever the state of the run
    problems: list[Problem] = []
    #: the root cause of a failed run
    cause: Cause | None = None
    #: commands worth running now
    next: list[str] = []
    #: for a retry or a fork
    origin: Origin | None = None
    #: whether it was recorded elsewhere and is read-only
    imported: bool = False


class SignalRequest(Struct, frozen=True):
    """A signal to a run."""

    #: PAUSE RESUME CANCEL APPROVE REJECT RETRY_STEP SKIP_STEP RETRY_RUN UPDATE_PARAMS EMERGENCY_STOP, or a custom name
    signal: str
    #: a repeated id gets the first answer again; '' to generate one
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
    #: state of the run afterwards
    state: str
    paused: bool
    #: with RETRY_RUN: the new run
    started: str | None = None
    #: whether a task, or the start of the run, was waiting for it; otherwise a custom signal is stored
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
    #: size of the content
    bytes: int
    #: number of items of a list
    rows: int | None
    sha256: str
    #: step | execution | workflow | permanent
    scope: str
    stored_at: str
    #: when its time to live ends, if it has one
    expires_at: str | None
    #: when gc released it
    removed_at: str | None
    #: sequence number of the event that recorded it
    seq: int
    #: only for a single result: its beginning, its size in the store (None if it does not exist), and when gc may
    #: release it (None if unknown, or never)
    preview: str | None = None
    stored_bytes: int | None = None
    kept_until: str | None = None


class Collected(Struct, frozen=True):
    """The removals of a garbage collection, real or simulated."""

    dry_run: bool
    #: number of expired results
    results: int
    #: removed files that were no longer referenced, and their size
    contents: int
    bytes: int
    #: number of files of writers that died
    leftovers: int
    #: number of runs that ended longer ago than `store.retention_s`; a dry run skips those whose results it would
    #: release
    executions: int = 0
    #: bytes that the store gave back to the file system
    reclaimed: int = 0


class EventSearchPage(Struct, frozen=True):
    """A page of events across runs, oldest first."""

    #: full envelopes
    events: list[dict[str, Any]]
    #: `cursor` of the next page
    next: str
    #: whether there may be more events now; a page with fewer events than requested is not always the last
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
    #: hash of the compiled plan: the same content is the same version
    digest: str
    registered_at: str
    #: False if this content was registered before
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
    #: an archived path is listed only on request and starts no run; registering it again restores it
    archived_at: str | None = None


class CatalogDiff(Struct, frozen=True):
    path: str
    older: int
    newer: int
    #: unified diff of the two texts; '' if they are equal
    diff: str
    #: the two nets, with the files that the versions were registered with: steps_added, steps_removed, steps_changed,
    #: arcs_added, arcs_removed; None for the same net
    net: dict[str, Any] | None = None
    #: other parts that differ: workload, result, ctx …; None if the nets were not compared, because a newer release made one
    settings: list[str] | None = None


class Api(Protocol):
    async def execute(self, request: ExecuteRequest) -> Started:
        """Start a run; it is durable when this returns. Raises PlaybookError or RequestRejected."""

    async def wait(self, execution_id: str, *, after: int = 0, timeout_s: float | None = None) -> int:
        """Return the head once it is past `after` (or the run has ended), or after the timeout."""

    async def ended(self, execution_id: str, *, timeout_s: float | None = None) -> bool:
        """Return True once the run has its terminal event, False after the timeout."""

    async def status(self, execution_id: str) -> Status:
        """Return the seven fields of the status contract."""

    async def summary(self, execution_id: str) -> Summary:
        """Return the run with its steps, ctx, result and error."""

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
    ) -> builtins.list[ListedRun]:
        """Return runs, newest first, filtered by state, catalog path, name, time, parent and origin.

        `name` is a part of the playbook's name, `since` (RFC 3339) the earliest time of the request, `origin` the run
        that they are retries or forks of.
        """

    async def find(self, query: RunQuery) -> RunPage:
        """Search for runs, newest first. Raises RequestRejected."""

    async def activity(self, *, hours: int = 24) -> Activity:
        """Return counts of ended runs by outcome, for each of the last `hours` hours (at most 8,784)."""

    async def failing(self, *, limit: int = 20) -> builtins.list[FailingPlaybook]:
        """Return playbooks whose newest run that ended within `overview.failing_s` has failed, latest failure first."""

    async def stuck(self, *, limit: int = 20) -> builtins.list[StuckRun]:
        """Return runs with work that no worker has claimed for `overview.stuck_s`, the longest waiting first.

        There is one for each pool and set of kinds.
        """

    async def leases(self, *, limit: int = 100) -> builtins.list[Lease]:
        """Return work that workers have claimed and not finished, the lease that ends first at the top.

        Covers the 1,000 leases of all tenants that end first.
        """

    async def approvals(self, *, after: str = "", limit: int = 50) -> ApprovalPage:
        """Return pending approvals; `after` is a run's id, `limit` counts runs."""

    async def events(
        self, execution_id: str, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> builtins.list[dict[str, Any]]:
        """Return full envelopes in seq order."""

    async def entity_events(
        self, execution_id: str, entity_type: str, entity_id: str = "", *, after: int = 0, limit: int = 1000
    ) -> builtins.list[dict[str, Any]]:
        """Return full envelopes of one kind of entity (step, task, loop …), or of one entity, in seq order."""

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
    ) -> EventSearchPage:
        """Return events of all runs that the caller sees, by canonical type and time of storage.

        They are stored at or after `since` and before `until` (RFC 3339), without informational ones unless requested.
        `entity` selects a kind of entity or a single one (`step`, `step:load`), `where` is an expression over the
        fields of the envelope; it is false for an event that lacks a field.
        """

    async def logs(
        self, execution_id: str, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> builtins.list[dict[str, Any]]:
        """Return task log lines: position, timestamp, step, task, attempt, iteration, stream, text.

        Raises RequestRejected for a step or a task that the run cannot have.
        """

    async def results(self, execution_id: str, *, after: int = 0, limit: int = 1000) -> builtins.list[StoredResult]:
        """Return the results that the run stored outside the log, in order of their events, after a seq."""

    async def result(self, ref: str) -> StoredResult:
        """Describe one stored result. Raises NotFound."""

    def content(self, ref: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Return bytes [start, end) of a stored result, checked. Raises NotFound or ResultUnavailable."""

    async def collect(self, *, dry_run: bool = False) -> Collected:
        """Remove stored results that are no longer needed, of the caller's tenant.

        For the owner of the store and callers of the server's own tenant (`scope.tenant`): those of all tenants,
        leftovers of dead writers, and runs that ended long ago.
        """

    async def why(self, execution_id: str) -> Why:
        """Explain what the run is waiting for."""

    async def state(self, execution_id: str, at: int | None = None) -> StateView:
        """Return the run as it was after event `at`: 0 is before the first, beyond the head (or None) the newest."""

    async def signal(self, execution_id: str, request: SignalRequest) -> SignalAnswer:
        """Send a signal to the run.

        It is recorded when this returns, even if the run cannot apply it (`accepted` is False).
        """

    async def fork(self, execution_id: str, request: ForkRequest) -> Forked:
        """Start a new run that continues this one: after an event (`at`), from a step, or with the failed parts.

        Raises RequestRejected, PlaybookError, Conflict, or DoesNotFit if the recorded state does not fit the playbook.
        """

    async def replay(self, execution_id: str) -> ReplayCheck:
        """Repeat every decision of the run's log and compare. Raises NewerLog."""

    async def diff(self, execution_id: str, other: str) -> RunsDiff:
        """Compare two runs: the first difference, different steps and values, and durations."""

    async def simulate(self, request: SimulateRequest) -> SimulationReport:
        """Run a playbook against the recorded outcomes of runs: no task is run and nothing is written.

        Raises RequestRejected, PlaybookError, or NotFound.
        """

    def export(self, execution_id: str) -> AsyncIterator[bytes]:
        """Export a run as a file: log, plan, playbook and stored results, each with its checksum."""

    async def import_run(self, file: BinaryIO) -> Imported:
        """Import a run from an exported file, read-only.

        Raises RequestRejected, which names the damaged part, or Conflict if another state of the run exists.
        """

    async def lineage(self, execution_id: str) -> builtins.list[dict[str, Any]]:
        """Return OpenLineage events of a run up to the end of its log: of the playbook, and of tasks that move data."""

    async def trace(self, execution_id: str, path: str) -> Trace:
        """Trace a value (`result.total`, `ctx.total`, `fetch.data.rows[0].id`) back to its origin.

        Raises RequestRejected if the run has no such value.
        """

    async def stats(self, path: str, *, since: str = "", limit: int = 200) -> PlaybookStats:
        """Return statistics of the latest runs of a playbook, at most `limit`. Raises NotFound.

        Only runs that were requested at or after `since` (RFC 3339) count.
        """

    async def pausing(self, execution_id: str) -> bool:
        """Return whether the run is paused or pausing."""

    async def cancel(self, execution_id: str, reason: str) -> Status:
        """Cancel the run at once."""

    async def source(self, execution_id: str) -> str:
        """Return the text of the playbook."""

    async def graph(self, execution_id: str, form: str = "json") -> Any:
        """Return the run's plan as `json` (a map), `mermaid` or `text`."""

    # -- the catalog --------------------------------------------------------------------------------------------------

    async def register(self, request: RegisterRequest) -> CatalogVersion:
        """Register a playbook under its path (metadata.path, else its name). Raises PlaybookError."""

    async def catalog(
        self, *, prefix: str = "", after: str = "", limit: int = 100, archived: bool = False
    ) -> builtins.list[CatalogEntry]:
        """Return the registered playbooks, ordered by path, after a path; with archived ones on request."""

    async def versions(self, path: str, *, before: int = 0, limit: int = 100) -> builtins.list[CatalogVersion]:
        """Return the versions of a path, newest first. Raises NotFound."""

    async def registered(self, path: str, version: int = 0) -> CatalogVersion:
        """Return one version (0 for the newest) with its text. Raises NotFound."""

    async def difference(self, path: str, older: int, newer: int = 0, other: str = "") -> CatalogDiff:
        """Return the differences between two versions (0 for the newest) of a path, or of a path and another one. Raises
        NotFound.
        """

    async def archive(self, path: str, *, archived: bool = True) -> CatalogEntry:
        """Archive a path, or restore it. Its versions and their runs stay. Raises NotFound."""


@runtime_checkable
class Following(Protocol):
    """Additional methods of a remote `Api`: events are streamed, so that callers need not poll.

    Each record is delivered once and in order, even across restarts of the server. Raises NotFound, Unauthenticated, or
    ServerUnavailable when the time for reconnecting is over.
    """

    def follow(
        self, execution_id: str, *, after: int = 0, types: Sequence[str] = ()
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Return full envelopes after a seq, as they happen, to the end of the log."""

    def follow_logs(
        self, execution_id: str, *, after: int = 0, where: LogFilter = ANY_LINE
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Return task log lines after a position, as they are written, to the end of the run."""
