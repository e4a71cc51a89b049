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
    #: what its token had seen as `event`
    arrival: dict[str, Any] = field(default_factory=dict)


class OpenCommand(Struct):
    """A command that is not over."""

    id: int
    step: str
    run: int
    #: how often its lease was lost
    losses: int = 0
    #: how often it came back for another reason: given back for a pause, or taken back by a signal
    returns: int = 0
    #: n of the last accepted report of the current fence
    report: int = 0
    #: nobody may claim it: the run is paused, or about to be
    held: bool = False

    @property
    def fence(self) -> int:
        """What its holder's fence is, or its next holder's will be."""
        return self.losses + self.returns + 1


class Pause(Struct):
    """A pause that was asked for. It has taken effect once `State.paused_at` stands; until then the run drains."""

    signal_id: str
    by: str
    reason: str
    at: int


class Signalled(Struct):
    """A signal that was recorded."""

    signal: str
    #: why it was refused; '' = it was applied
    problem: str = ""


class Failure(Struct):
    """The latest run of a step failed: what firing it again needs."""

    run: int
    args: dict[str, Any]
    event: dict[str, Any]


class Wait(Struct):
    """A task that waits without holding a worker."""

    key: str
    #: seconds | until | signal | approval | playbook
    kind: str
    step: str
    run: int
    iteration: tuple[int, ...] | None = None
    task: str = ""
    task_run: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    since: int = 0
    until: int = 0


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
    tokens: dict[int, Token] = field(default_factory=dict)
    tokens_made: int = 0
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
    #: data of the last step run that ended without a successor
    last_data: Any = None
    #: first failure that nothing handled
    error: dict[str, Any] | None = None
    result: Any = None
    current_step: str | None = None
    started_at: int | None = None
    ended_at: int | None = None
    #: tasks that wait, by key
    waits: dict[str, Wait] = field(default_factory=dict)
    #: what a PENDING run waits for: '' | approval | slot
    pending_for: str = ""
    #: signals by signal_id
    signals: dict[str, Signalled] = field(default_factory=dict)
    pause: Pause | None = None
    #: when the pause took effect; time limits stand still from then on
    paused_at: int | None = None
    #: how often the run was paused
    pauses: int = 0
    #: steps whose latest run failed
    failures: dict[str, Failure] = field(default_factory=dict)
    #: failures that nothing handled, by (step, run); `error` is the first of them
    unhandled: dict[str, dict[str, Any]] = field(default_factory=dict)

    def run_of(self, step: str, run: int) -> StepRun | None:
        return self.open.get(run_key(step, run))


def run_key(step: str, run: int) -> str:
    return f"{step}#{run}"
