"""A command: work handed to a worker under a lease with a fence. It carries all that a remote worker needs, but the plan,
which it names by its hash.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from arclog.model.events import Event


class Captured(Struct, omit_defaults=True):
    """The values of the free names that a step run's templates use, as they were when it was scheduled."""

    ctx: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    #: outcome records of other steps
    steps: dict[str, Any] = {}
    #: names that belong to no scope of their own: workload keys
    bare: dict[str, Any] = {}


#: `Pipeline.rule` where no rule decided: none matched and on_unmatched is fail, or the rules could not be evaluated.
UNMATCHED = -1
UNEVALUABLE = -2


class Pipeline(Struct, omit_defaults=True):
    """Where a pipeline of tasks stands. `core.flow.pipeline` folds it from task events, on both sides of the wire."""

    #: index of the task that runs or comes next; where guards are still to be asked, of the one behind the last task
    at: int = 0
    #: that task comes next whatever guards say: a jump leads to it, or its policy is still to be evaluated
    direct: bool = False
    #: rounds of blocks that have a `max`, by block
    rounds: dict[str, int] = {}
    #: entries per label so far, and in all
    runs: dict[str, int] = {}
    total_runs: int = 0
    #: of the current task run; 0 before its start
    attempt: int = 0
    #: the current attempt was started and has no outcome yet
    in_flight: bool = False
    #: when the next attempt may start, microseconds since 1970; 0 = at once
    due: int = 0
    #: when the current attempt began, microseconds since 1970
    since: int = 0
    #: outcome records by label
    results: dict[str, Any] = {}
    #: label of the task executed before
    prev: str = ""
    iter: dict[str, Any] = {}
    #: refs of what is in iter and too large for the log
    stored: dict[str, Any] = {}
    #: ctx changes of this pipeline, visible to itself at once
    ctx: dict[str, Any] = {}
    #: open | done | failed
    state: str = "open"
    error: dict[str, Any] | None = None
    #: the policy rule (from 1) that failed it; UNMATCHED or UNEVALUABLE; 0: no policy did
    rule: int = 0


class LoopWork(Struct, omit_defaults=True):
    """The part of a loop that a command covers."""

    #: indexes of the outer iterations
    path: tuple[int, ...]
    total: int
    #: items [first, last) were not started yet
    first: int
    last: int
    #: those items: a list, {"range": [start, stop, step]}, or {"ref": the ref of a list, "first": its first item here}
    items: Any
    #: iterations that may run side by side
    at_a_time: int = 1
    #: an iteration sees the ctx changes of the one before
    carries_ctx: bool = False
    #: `iter` of the outer iteration
    parent: dict[str, Any] | None = None
    #: iterations that were started, by path, to be gone on with
    under_way: dict[str, Pipeline] = {}


class Expansion(Struct, omit_defaults=True):
    """A loop whose items only a worker can read: it evaluates `loop.in` and tells what the items are."""

    #: what the step run's token had seen as `event`
    event: dict[str, Any]


class Command(Struct, omit_defaults=True):
    command_id: int
    fence: int
    execution_id: int
    #: sha256 of the plan
    plan: str
    step: str
    run: int
    lease_until: int
    args: dict[str, Any]
    captured: Captured
    #: tenant/project/environment, for isolation between executions
    scope: str = ""
    #: step.started is in the log already
    started: bool = False
    loop: LoopWork | None = None
    expansion: Expansion | None = None
    #: the pipeline to continue with, of a step without a loop; None starts a new one
    pipeline: Pipeline | None = None
    #: how long the claim that got it had waited by then: a worker's own clock cannot tell how long an answer was on its way
    waited_ms: int = 0


class NextTask(Struct, frozen=True, omit_defaults=True):
    """What a worker that knows neither templates nor policies must do next."""

    task: str
    kind: str
    attempt: int = 1
    #: its start is in the log already, from a worker that is gone: it is not reported again
    in_flight: bool = False
    #: the task's config, rendered; None when the server cannot render it
    config: dict[str, Any] | None = None
    #: why it cannot: the config reads the keychain, or data that is stored outside the log
    problem: str = ""
    timeout_s: float = 0.0
    #: RFC 3339; '' = at once
    not_before: str = ""


class WireIteration(Struct, frozen=True, omit_defaults=True):
    """An iteration that was started and has not ended."""

    #: its index, behind those of the outer loops: 3, or 1.3
    iteration: str
    #: None: its tasks have ended, and what is left is to report the end of the iteration
    next: NextTask | None = None
    #: of a pipeline that has failed
    error: dict[str, Any] | None = None


class WireLoop(Struct, frozen=True, omit_defaults=True):
    """The part of a loop that a command covers."""

    #: items [first, last) were not started yet
    first: int
    last: int
    total: int
    #: indexes of the outer iterations, each with a dot behind it: '' or '1.'
    outer: str = ""
    under_way: list[WireIteration] = []


class WireCommand(Struct, frozen=True, omit_defaults=True):
    """A command as such a worker gets it; ids are strings."""

    command_id: str
    fence: int
    execution_id: str
    step: str
    step_run_id: str
    #: RFC 3339
    lease_until: str
    args: dict[str, Any]
    scope: str = ""
    #: step.enter is in the log already
    started: bool = False
    #: None: all its tasks have ended, and what is left is to report the end of the step (of a loop: see `loop`)
    next: NextTask | None = None
    #: of a pipeline that has failed
    error: dict[str, Any] | None = None
    loop: WireLoop | None = None
    #: only a worker that evaluates templates can carry it out: give it back
    expansion: bool = False


class Report(Struct, omit_defaults=True):
    """A piece of a command's ordered report stream."""

    worker_id: str
    execution_id: int
    command_id: int
    fence: int
    #: from 1, per fence
    n: int
    events: list[Event]
    #: how many further commands the worker can take
    wants: int = 0


class ReportAnswer(Struct, omit_defaults=True):
    """What became of a report."""

    #: n of the last accepted report
    accepted: int
    #: commands claimed in the report's own commit
    commands: list[Command] = []
    #: the command is over (completed, cancelled or taken away): stop working on it
    closed: bool = False
    #: the run is to pause: stop at the next task boundary and give the command back
    pause: bool = False


#: Why a step's work was withdrawn that took longer than its time limit.
TOO_LONG = "the step took too long"


class Revocation(Struct, frozen=True, omit_defaults=True):
    """What the holder of a command must know between two reports: it is no longer his, or it shall pause."""

    command_id: int
    #: stop at the next task boundary and give it back; otherwise it is gone: stop at once
    pause: bool = False
    #: without grace for what is running
    kill: bool = False
    #: its step took too long: what the tool knows of where its task was is worth a line in the log
    late: bool = False
    #: of no command (0): the worker itself shall take nothing new, finish, and end
    leave: bool = False
