"""Insight into a run: why it waits or failed, and its state after any of its events."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class ItemCounts(Struct, frozen=True):
    """Counts of the items of a loop step over all its runs.

    Items that did not run or were cancelled only count in `total`.
    """

    total: int
    ok: int
    failed: int


class ItemError(Struct, frozen=True):
    """A failed item of a loop."""

    #: its index: '3', or '3.1' in a nested loop
    item: str
    task: str
    kind: str
    message: str


class StepSummary(Struct, frozen=True, omit_defaults=True):
    #: status of the latest run: queued | running | done | failed | skipped | cancelled; also skipped if no token was
    #: admitted
    status: str
    runs: int
    #: set for a loop
    items: ItemCounts | None = None
    #: its first failed items
    errors: list[ItemError] = []
    #: number of tokens that its admission rules denied
    denied: int = 0
    #: duration of the latest ended run
    took_ms: int | None = None
    #: kind and message of the latest failed run
    error: dict[str, Any] | None = None


class Wait(Struct, frozen=True):
    """A reason why a run waits."""

    #: worker | lease | task | retry | timer | signal | approval | child | join | token | routing | pause | slot | none
    what: str
    #: a sentence for people
    text: str
    step: str = ""
    #: when it ends without intervention, if known
    until: str | None = None
    #: for an approval: its name for `approve --step`, if several wait
    key: str = ""
    #: the signal's name
    signal: str = ""
    #: execution id of the child
    child: str = ""


class Cause(Struct, frozen=True):
    """The root cause of a failed run: the first failure that is not a consequence of another.

    Step, task and location are those of the run in which it happened, which may be a child.
    """

    kind: str
    message: str
    code: str | None = None
    step: str = ""
    step_run: int = 0
    task: str = ""
    task_run: int = 0
    #: attempt of the task run; 0 if no task failed
    attempt: int = 0
    #: the loop item: '3', '3.1' in a nested loop, '' outside loops
    iteration: str = ""
    #: 'line:column' of the task (else the step) in the playbook; '' if unknown
    at: str = ""
    #: the policy rule that decided, as a sentence; '' without a policy
    rule: str = ""
    #: sequence number of the event that records it
    seq: int = 0
    #: the playbook's file, else its path and version in the catalog
    file: str = ""
    #: the line of the file that failed: of python code its own line, else that of the template or the task; 0 if
    #: unknown
    line: int = 0
    #: the text of that line
    source: str = ""
    #: of a python task, with the lines of the file; after a timeout, the position of the code
    traceback: str = ""
    #: the run in which it happened
    execution_id: str = ""
    #: the calls that led there, from the outermost on: 'step call, task call_task'; empty if it happened in the run
    #: itself
    via: list[str] = []

    def calls(self) -> list[str]:
        """Return `via` for people: the middle of a long chain is only counted."""
        ends = 2
        left_out = len(self.via) - 2 * ends
        if left_out <= 1:
            return self.via
        return [*self.via[:ends], f"… {left_out} more calls …", *self.via[-ends:]]


class Problem(Struct, frozen=True):
    """A problem in a run, whatever its final state."""

    #: failed | items (of a loop) | denied (by admission rules) | cancelled
    what: str
    step: str
    #: a sentence for people
    text: str
    #: the first failed items
    errors: list[ItemError] = []


class Account(Struct, frozen=True):
    """The summary of a run that `run`, `show`, `list`, `why`, the HTTP API and the clients all use."""

    #: one line
    summary: str
    #: by step, in the order of their first runs
    steps: dict[str, StepSummary]
    problems: list[Problem]
    #: for a run that failed or was cancelled: kind, message, code, retryable, step, task, item, traceback, cause
    error: dict[str, Any] | None
    #: for a failed run
    cause: Cause | None
    #: commands worth running now
    next: list[str]


class Why(Struct, frozen=True):
    execution_id: str
    state: str
    #: one line
    summary: str
    waits: list[Wait]
    #: for a failed run
    cause: Cause | None = None
    #: commands worth running now
    next: list[str] = []
    #: problems so far
    problems: list[Problem] = []


class TokenView(Struct, frozen=True):
    id: int
    place: str
    #: the step that it moves to
    step: str
    args: dict[str, Any]


class LoopView(Struct, frozen=True):
    #: number of issued items
    handed: int
    total: int
    ok: int
    failed: int
    #: paths of the iterations in progress
    open: list[str]


class TaskView(Struct, frozen=True):
    """The position of a pipeline."""

    #: label of the task that runs or comes next; '' if the pipeline is over
    task: str
    task_run: int
    #: 0 before its start
    attempt: int
    in_flight: bool
    #: when the attempt started
    since: str | None
    #: when a retry is due
    due: str | None
    iter: dict[str, Any]


class StepRunView(Struct, frozen=True):
    """An open step run."""

    step: str
    run: int
    #: scheduled | running | done | failed (ended, routing comes next)
    status: str
    args: dict[str, Any]
    scheduled_at: str
    command_ids: list[str]
    #: one per open pipeline: the step's own, or those of its iterations
    tasks: list[TaskView]
    loop: LoopView | None


class CommandView(Struct, frozen=True):
    command_id: str
    step: str
    run: int
    #: fence of the current holder, or of the next one
    fence: int
    #: number of lost leases
    losses: int


class StateView(Struct, frozen=True):
    """A run as it was after one event."""

    execution_id: str
    #: sequence number of that event; 0 for before the first
    at: int
    #: sequence number of the last event
    head: int
    #: the event itself: type, time, step; None at 0
    event_type: str | None
    timestamp: str | None
    state: str
    tokens: list[TokenView]
    step_runs: list[StepRunView]
    commands: list[CommandView]
    steps: dict[str, StepSummary]
    ctx: dict[str, Any]
    result: Any
    error: dict[str, Any] | None
    #: the result's ref, if it is stored outside the log
    result_ref: dict[str, Any] | None = None
