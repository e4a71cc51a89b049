"""Insight into a run: why it waits or failed, and its state after any of its events."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class ItemCounts(Struct, frozen=True):
    """Counts of the items of a loop step, all its runs together; items that did not run or were cancelled only count in `total`."""

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
    #: status of the latest run: queued | running | done | failed | skipped | cancelled; skipped too, when no token was admitted
    status: str
    runs: int
    #: of a loop
    items: ItemCounts | None = None
    #: its first failed items
    errors: list[ItemError] = []
    #: tokens that its admission rules refused
    denied: int = 0
    #: duration of the latest ended run
    took_ms: int | None = None
    #: kind and message of the latest failed run
    error: dict[str, Any] | None = None


class Wait(Struct, frozen=True):
    """One thing that a run waits for."""

    #: worker | lease | task | retry | timer | signal | approval | child | join | token | routing | pause | slot | none
    what: str
    #: a sentence for people
    text: str
    step: str = ""
    #: when it will end without intervention, if known
    until: str | None = None
    #: of an approval: what `approve --step` calls it, when several wait
    key: str = ""
    #: the signal's name
    signal: str = ""
    #: execution id of the child
    child: str = ""


class Cause(Struct, frozen=True):
    """The root cause of a failed run: the first failure that is not a consequence of another.

    Step, task and place are those of the run in which it happened: of a child, when the run failed because of one.
    """

    kind: str
    message: str
    code: str | None = None
    step: str = ""
    step_run: int = 0
    task: str = ""
    task_run: int = 0
    #: of the task run; 0 when no task failed
    attempt: int = 0
    #: of the loop item, '' outside loops: '3', or '3.1' in a nested loop
    iteration: str = ""
    #: 'line:column' of the task (else the step) in the playbook, '' when unknown
    at: str = ""
    #: the policy rule that decided, as a sentence; '' without a policy
    rule: str = ""
    #: the event that says so
    seq: int = 0
    #: the playbook's file, else its path and version in the catalog
    file: str = ""
    #: the line of the file that failed: of python code its own line, else that of the template or the task; 0: unknown
    line: int = 0
    #: the text of that line
    source: str = ""
    #: of a python task, with the lines of the file; of one that took too long, where it was
    traceback: str = ""
    #: the run in which it happened
    execution_id: str = ""
    #: the calls that led there, from the outermost on: 'step call, task call_task'; none when it is the run's own
    via: list[str] = []

    def calls(self) -> list[str]:
        """`via` for people: of a long chain the middle is counted, not named."""
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
    """The account of a run that `run`, `show`, `list`, `why`, the HTTP API and the clients all use."""

    #: one line
    summary: str
    #: by step, in the order in which they first ran
    steps: dict[str, StepSummary]
    problems: list[Problem]
    #: of a run that ended otherwise than well: kind, message, code, retryable, step, task, item, traceback, cause
    error: dict[str, Any] | None
    #: of a failed run
    cause: Cause | None
    #: commands worth running now
    next: list[str]


class Why(Struct, frozen=True):
    execution_id: str
    state: str
    #: one line
    summary: str
    waits: list[Wait]
    #: of a failed run
    cause: Cause | None = None
    #: commands worth running now
    next: list[str] = []
    #: problems so far
    problems: list[Problem] = []


class TokenView(Struct, frozen=True):
    id: int
    place: str
    #: step that it is on its way to
    step: str
    args: dict[str, Any]


class LoopView(Struct, frozen=True):
    #: items before this one were handed out
    handed: int
    total: int
    ok: int
    failed: int
    #: paths of the iterations in progress
    open: list[str]


class TaskView(Struct, frozen=True):
    """The position of a pipeline."""

    #: label of the task that runs or comes next; '' when the pipeline is over
    task: str
    task_run: int
    #: 0 before its start
    attempt: int
    in_flight: bool
    #: when the attempt began
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
    #: one for each open pipeline: the step's own, or those of its iterations
    tasks: list[TaskView]
    loop: LoopView | None


class CommandView(Struct, frozen=True):
    command_id: str
    step: str
    run: int
    #: of its holder now, or of the next one
    fence: int
    #: number of lost leases
    losses: int


class StateView(Struct, frozen=True):
    """A run as it was after one event."""

    execution_id: str
    #: seq of that event; 0 = before anything
    at: int
    #: seq of the last event that there is
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
    #: the result's ref, when it is stored outside the log
    result_ref: dict[str, Any] | None = None
