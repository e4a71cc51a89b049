"""The state of one execution: plain records that only `core.transitions.apply` changes.

Values in the state (args, ctx, results) are never changed in place: a change replaces them, so they can be shared.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from arclog.model.commands import Captured, Pipeline
from arclog.model.status import PENDING

#: Raised when snapshots of an older state can no longer be used.
STATE_VERSION = "5"


class Token(Struct, omit_defaults=True):
    """A token, with its identity and the place that it is at."""

    id: int
    place: str
    #: the step that it moves to
    step: str
    args: dict[str, Any]
    #: the event that created it, as `event` of the next admission
    event: dict[str, Any]


class Loop(Struct, omit_defaults=True):
    """One level of a loop: the step run's own, or the inner loop of one outer iteration."""

    #: indexes of the outer iterations; () for the step run's own loop
    path: tuple[int, ...]
    total: int
    #: the items, {"range": [start, stop, step]}, or {"ref": the ref of a stored list}
    items: Any
    #: `iter` of the outer iteration
    parent: dict[str, Any] | None = None
    #: index of the first item that has not been issued
    handed: int = 0
    ok: int = 0
    failed: int = 0
    #: number of items that were in progress when the step run ended
    cancelled: int = 0
    #: time of its start; 0 if it has not started
    started_at: int = 0
    #: the first errors, with their index
    errors: list[dict[str, Any]] = field(default_factory=list)
    #: data of innermost iterations by path, on the step run's own loop; None if no template reads it
    results: dict[str, Any] | None = None
    results_bytes: int = 0
    #: the results are too large for the state and are in the log
    results_in_log: bool = False
    #: a failure that stops the loop
    broken: dict[str, Any] | None = None
    #: moving average of the time per item, in microseconds; determines the size of the next chunk
    item_us: float = 0.0


class Chunk(Struct, omit_defaults=True):
    """Items [first, last) of one loop that one command runs, one after the other or several at a time."""

    id: int
    path: tuple[int, ...]
    first: int
    last: int
    #: index of the first item that has not been started
    next: int
    #: number of started iterations that have not ended
    open: int = 0


class Gathered(Struct, omit_defaults=True):
    """The changes that the iterations of a parallel loop have made to ctx so far."""

    #: keys without a reducer: written once, or again with an equal value
    written: dict[str, Any] = field(default_factory=dict)
    #: declared keys whose order does not matter, folded as values come
    folded: dict[str, Any] = field(default_factory=dict)
    #: declared keys that are folded in item order at the end: key → path → value
    ordered: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: exact sums of floats: multiples of the smallest float, in hex
    exact: dict[str, str] = field(default_factory=dict)
    ordered_bytes: int = 0
    #: why these writes conflict
    problem: dict[str, Any] | None = None


class Fault(Struct, omit_defaults=True):
    """A failure that is not a consequence of another, and its place."""

    #: sequence number of the event that records it
    seq: int
    #: the error of the pipeline, the step or the run
    error: dict[str, Any]
    step: str = ""
    run: int = 0
    iteration: tuple[int, ...] | None = None
    #: the task that failed, or that was in progress when its step failed; '' if no task is to blame
    task: str = ""
    task_run: int = 0
    attempt: int = 0
    #: as in `Pipeline.rule`
    rule: int = 0
    #: the task's own error, if `error` differs from it: the policy could not be evaluated, or no attempts were left
    own: dict[str, Any] | None = None
    traceback: str = ""
    #: execution id of the child that failed
    child: str = ""


class ItemFault(Struct, omit_defaults=True):
    """A failed item of a loop."""

    path: tuple[int, ...]
    task: str
    kind: str
    message: str


class StepTally(Struct, omit_defaults=True):
    """Totals over all runs of one step; `core.transitions.faults` maintains it."""

    #: start of the latest run, and duration of the latest ended run in microseconds (None if none has ended)
    since: int = 0
    took: int | None = None
    #: kind and message of the latest failed run
    error: dict[str, Any] | None = None
    #: number of tokens that its admission rules denied, and the rule (from 1) that denied the last one; 0 if none
    #: matched
    denied: int = 0
    denied_by: int = 0
    #: items of its loop over all runs; `ok` counts ended runs only
    total: int = 0
    ok: int = 0
    failed: int = 0
    #: the first failed items, by index
    item_faults: list[ItemFault] = field(default_factory=list)


class StepRun(Struct, omit_defaults=True):
    """One run of a step, from step.scheduled to next.evaluated."""

    step: str
    run: int
    args: dict[str, Any]
    captured: Captured
    scheduled_at: int
    started: bool = False
    started_at: int = 0
    #: set if a worker must evaluate `loop.in` first, since it reads stored data: the values that it needs
    expanding: Captured | None = None
    #: set for a step without a loop
    pipeline: Pipeline | None = None
    #: loops by path, '' is the step run's own
    loops: dict[str, Loop] = field(default_factory=dict)
    chunks: dict[int, Chunk] = field(default_factory=dict)
    chunks_made: int = 0
    #: open iterations by path
    iterations: dict[str, Iteration] = field(default_factory=dict)
    #: set for a parallel loop whose iterations wrote ctx
    gathered: Gathered | None = None
    #: outcome record of the last task; for a loop, of its last item or of the item that failed it
    record: dict[str, Any] | None = None
    #: path of the item that the record belongs to
    record_of: tuple[int, ...] = ()
    #: open | done | failed
    state: str = "open"
    error: dict[str, Any] | None = None
    #: event_name, status, timestamp and payload of the boundary event, once it is recorded
    boundary: dict[str, Any] | None = None
    #: `event` of its token
    arrival: dict[str, Any] = field(default_factory=dict)
    #: the first failure in this step run that is not a consequence of another
    fault: Fault | None = None

    @property
    def loop(self) -> Loop | None:
        """The step run's own loop."""
        return self.loops.get("")

    def open_pipelines(self) -> list[tuple[tuple[int, ...] | None, Pipeline]]:
        """Return the open pipelines with the iterations that they belong to."""
        if self.pipeline is not None:
            return [(None, self.pipeline)]
        return [(path_of(key), iteration.pipeline) for key, iteration in self.iterations.items()]

    def pipelines(self, chunk: int = 0) -> list[Pipeline]:
        """Return the open pipelines: the step's own, or those of its iterations (of one chunk)."""
        if self.pipeline is not None:
            return [self.pipeline]
        part = self.chunks.get(chunk)
        return [
            iteration.pipeline
            for key, iteration in self.iterations.items()
            if part is None or (path_of(key)[:-1] == part.path and part.first <= path_of(key)[-1] < part.last)
        ]


class Iteration(Struct, omit_defaults=True):
    """One open iteration of the innermost loop."""

    started_at: int
    pipeline: Pipeline
    #: id of the chunk that it belongs to; 0 in snapshots of older releases
    chunk: int = 0


class Wait(Struct, omit_defaults=True):
    """A waiting task: its pipeline continues when `core.flow.waits.resolve` gives it an outcome."""

    key: str
    #: wait | approval | playbook | retry (a delay that is too long to wait with a lease)
    kind: str
    step: str
    run: int
    iteration: tuple[int, ...] | None
    task: str
    task_run: int
    #: the task's rendered config
    config: dict[str, Any]
    since: int
    #: when it ends automatically, microseconds since 1970; 0 for never
    until: int = 0
    #: for a playbook: execution id of the child, assigned before it starts
    child: int = 0


class OpenCommand(Struct, omit_defaults=True):
    """A command that has not ended."""

    id: int
    step: str
    run: int
    #: the chunk of a loop that it covers; 0 for a step run without a loop
    chunk: int = 0
    #: number of lost leases
    losses: int = 0
    #: number of other returns: returned for a pause, or withdrawn by a signal
    returns: int = 0
    #: n of the last accepted report of the current fence
    report: int = 0
    #: it cannot be claimed: the run is paused or pausing
    held: bool = False

    @property
    def fence(self) -> int:
        """The fence of its holder, or of its next holder."""
        return self.losses + self.returns + 1


class Pause(Struct, omit_defaults=True):
    """A requested pause. It has taken effect once `State.paused_at` is set; until then the run is pausing."""

    signal_id: str
    by: str
    reason: str
    at: int


class Signalled(Struct, omit_defaults=True):
    """A recorded signal."""

    signal: str
    #: why it was refused; '' if it was applied
    problem: str = ""
    #: whether no task was waiting for it
    kept: bool = False


class KeptSignal(Struct, omit_defaults=True):
    """A custom signal that no task was waiting for. The next wait for it takes it."""

    signal_id: str
    signal: str
    #: the step or wait that it is meant for; '' for any
    step: str = ""
    data: Any = None


class Failure(Struct, omit_defaults=True):
    """The data for running a step again whose latest run failed."""

    run: int
    args: dict[str, Any]
    event: dict[str, Any]


class State(Struct, omit_defaults=True):
    """The state of an execution: all data that decisions need."""

    execution_id: int
    #: sequence number of the last applied event
    head: int = 0
    #: number of informational events, which do not count toward the playbook's limits
    informative: int = 0
    #: PENDING RUNNING COMPLETED FAILED CANCELLED
    status: str = PENDING
    workflow: str = PENDING
    #: type of the event that ended it
    terminal: str | None = None
    processed: bool = False
    workload: dict[str, Any] = field(default_factory=dict)
    ctx: dict[str, Any] = field(default_factory=dict)
    #: tenant/project/environment
    scope: str = ""
    #: tokens that are ready to start their step, the oldest first
    tokens: dict[int, Token] = field(default_factory=dict)
    tokens_made: int = 0
    #: tokens at joins that have not fired, by step and place, the oldest first
    waiting: dict[str, dict[str, list[Token]]] = field(default_factory=dict)
    #: expected tokens of waves for which a counted join has fired, by step and place: they end on arrival
    absorbs: dict[str, dict[str, int]] = field(default_factory=dict)
    #: open step runs by (step, run)
    open: dict[str, StepRun] = field(default_factory=dict)
    #: number of runs per step
    runs: dict[str, int] = field(default_factory=dict)
    step_runs: int = 0
    #: status of the latest run per step: running | done | failed | skipped | cancelled (by the end of the run)
    latest: dict[str, str] = field(default_factory=dict)
    #: outcome record of the latest ended run per step
    results: dict[str, Any] = field(default_factory=dict)
    commands: dict[int, OpenCommand] = field(default_factory=dict)
    #: tasks that wait without a worker, by key
    waits: dict[str, Wait] = field(default_factory=dict)
    #: when each open timer is due, by its id
    timers: dict[str, int] = field(default_factory=dict)
    #: time limits that are suspended while the run is paused: the remaining microseconds of each
    stopped: dict[str, int] = field(default_factory=dict)
    #: the task that called this run: execution_id, step_run_id, task_run_id, wait
    parent: dict[str, Any] | None = None
    #: number of ancestors of this run
    depth: int = 0
    #: the priority in the request; None for the playbook's
    priority: int | None = None
    #: playbooks called by file, as they were registered: plan → file → (path, version)
    files: dict[str, dict[str, tuple[str, int]]] = field(default_factory=dict)
    #: data of the last step run that ended without a successor
    last_data: Any = None
    #: ref of that data, if it is stored outside the log
    last_ref: dict[str, Any] | None = None
    #: the first unhandled failure
    error: dict[str, Any] | None = None
    result: Any = None
    result_ref: dict[str, Any] | None = None
    current_step: str | None = None
    started_at: int | None = None
    ended_at: int | None = None
    #: the reason why a run is PENDING: '' | approval | slot
    pending_for: str = ""
    #: signals by signal_id
    signals: dict[str, Signalled] = field(default_factory=dict)
    #: signals that no wait has taken yet, the oldest first
    kept_signals: list[KeptSignal] = field(default_factory=list)
    pause: Pause | None = None
    #: when the pause took effect; time limits are suspended from then on
    paused_at: int | None = None
    #: number of pauses of the run
    pauses: int = 0
    #: steps whose latest run failed
    failures: dict[str, Failure] = field(default_factory=dict)
    #: unhandled failures, by (step, run); `error` is the first of them
    unhandled: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: the places of the first unhandled failures, by the same keys
    faults: dict[str, Fault] = field(default_factory=dict)
    #: for a failed run: its root cause
    fault: Fault | None = None
    #: totals per step
    tally: dict[str, StepTally] = field(default_factory=dict)
    #: number of failed loop items of all steps
    failed_items: int = 0
    #: the playbook's file, as its author names it
    file: str = ""
    #: for a run that began with the events of another: execution_id and seq of the origin, how, how many events
    origin: dict[str, Any] | None = None
    #: the end of the run after its final step: state (completed, failed, cancelled), error; None before the final step
    final: dict[str, Any] | None = None

    @property
    def tenant(self) -> str:
        return self.scope.partition("/")[0]

    def run_of(self, step: str, run: int) -> StepRun | None:
        return self.open.get(f"{step}#{run}")  # `run_key`, inlined for speed


def run_key(step: str, run: int) -> str:
    return f"{step}#{run}"


def path_key(path: tuple[int, ...]) -> str:
    if len(path) == 1:
        # Inlined for speed: a dozen calls per loop item.
        return str(path[0])
    return ".".join(map(str, path))


def path_of(key: str) -> tuple[int, ...]:
    """Invert `path_key`."""
    return tuple(int(part) for part in key.split("."))
