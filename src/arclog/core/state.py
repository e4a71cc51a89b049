"""The state of one execution: plain records, folded from its events by `core.apply` and changed by nothing else.

Values held here (args, ctx, results) are never changed in place: a change replaces them, so they can be shared freely.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from arclog.model.commands import Captured, Pipeline
from arclog.model.status import PENDING

#: Rises when a snapshot of an older state can no longer be used.
STATE_VERSION = "1"


class Token(Struct):
    """A token with its own identity, standing at one place."""

    id: int
    place: str
    #: step that it is on its way to
    step: str
    args: dict[str, Any]
    #: of the event that put it there: what the next admission sees as `event`
    event: dict[str, Any]


class Loop(Struct):
    """The loop of an open step run."""

    total: int
    items: list[Any]
    #: index of the iteration that runs or comes next
    index: int = 0
    started: bool = False
    ok: int = 0
    failed: int = 0
    #: the first errors, with their index
    errors: list[dict[str, Any]] = field(default_factory=list)
    #: data of each iteration in item order; None: nobody reads it
    results: list[Any] | None = None
    results_bytes: int = 0
    #: an iteration failed and the loop stops there
    broken: dict[str, Any] | None = None


class StepRun(Struct):
    """One firing of a step, from step.scheduled to next.evaluated."""

    step: str
    run: int
    args: dict[str, Any]
    captured: Captured
    scheduled_at: int
    command_id: int = 0
    started: bool = False
    pipeline: Pipeline | None = None
    loop: Loop | None = None
    #: open | done | failed
    state: str = "open"
    error: dict[str, Any] | None = None
    #: event_name, status, timestamp and payload of the boundary event, once there is one
    boundary: dict[str, Any] | None = None


class Wait(Struct):
    """A task that no worker runs: its pipeline goes on when `core.waits.resolve` gives it an outcome."""

    key: str
    #: wait | approval | playbook | retry (a delay that is too long to sleep under a lease)
    kind: str
    step: str
    run: int
    iteration: tuple[int, ...] | None
    task: str
    task_run: int
    #: the task's rendered config
    config: dict[str, Any]
    since: int
    #: when it ends by itself, microseconds since 1970; 0 = it does not
    until: int = 0
    #: playbook: execution id of the child, given out before it is started
    child: int = 0


class OpenCommand(Struct):
    """A command that is not over."""

    id: int
    step: str
    run: int
    #: how often its lease was lost; its holder's fence is one more
    losses: int = 0
    #: n of the last accepted report of the current fence
    report: int = 0


class State(Struct):
    """Everything that decisions need."""

    execution_id: int
    #: seq of the last event applied
    head: int = 0
    #: PENDING RUNNING COMPLETED FAILED CANCELLED
    status: str = PENDING
    workflow: str = PENDING
    #: event type that ended it
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
    #: tokens still to come of waves that a counted join has fired for, by step and place: they end on arrival
    absorbs: dict[str, dict[str, int]] = field(default_factory=dict)
    #: open step runs by (step, run)
    open: dict[str, StepRun] = field(default_factory=dict)
    #: firings per step
    runs: dict[str, int] = field(default_factory=dict)
    step_runs: int = 0
    #: status of the latest run per step: running | done | failed | skipped
    latest: dict[str, str] = field(default_factory=dict)
    #: outcome record of the latest ended run per step
    results: dict[str, Any] = field(default_factory=dict)
    commands: dict[int, OpenCommand] = field(default_factory=dict)
    #: tasks that wait without a worker, by key
    waits: dict[str, Wait] = field(default_factory=dict)
    #: when each open timer is due, by its id
    timers: dict[str, int] = field(default_factory=dict)
    #: the task that called this run: execution_id, step_run_id, task_run_id, wait
    parent: dict[str, Any] | None = None
    #: how many runs stand above this one
    depth: int = 0
    #: playbooks called by file, as they were registered: plan → file → (path, version)
    files: dict[str, dict[str, tuple[str, int]]] = field(default_factory=dict)
    #: data of the last step run that ended without a successor
    last_data: Any = None
    #: first failure that nothing handled
    error: dict[str, Any] | None = None
    result: Any = None
    current_step: str | None = None
    started_at: int | None = None
    ended_at: int | None = None

    def run_of(self, step: str, run: int) -> StepRun | None:
        return self.open.get(run_key(step, run))


def run_key(step: str, run: int) -> str:
    return f"{step}#{run}"
