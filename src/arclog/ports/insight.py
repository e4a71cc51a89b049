"""What a run looks like from inside: why it waits or failed, and how it stood after any of its events."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class StepSummary(Struct, frozen=True):
    #: status of the latest run: running | done | failed | skipped
    status: str
    runs: int


class Wait(Struct, frozen=True):
    """One thing that a run waits for."""

    #: worker | lease | task | retry | timer | signal | approval | child | join | token | routing | pause | slot | none
    what: str
    #: a sentence for people
    text: str
    step: str = ""
    #: when it will end by itself, if known
    until: str | None = None


class Cause(Struct, frozen=True):
    """What made a run fail: the task (else the step, else the decision) whose failure nothing handled."""

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
    #: 'line:column' in the playbook, '' when unknown
    at: str = ""
    #: which policy rule decided, as a sentence; '' without a policy
    rule: str = ""
    #: the event that says so
    seq: int = 0


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
    #: paths of the iterations under way
    open: list[str]


class TaskView(Struct, frozen=True):
    """Where a pipeline stands."""

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
    #: how often its lease was lost
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
