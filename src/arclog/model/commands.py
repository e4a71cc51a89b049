"""A command: work for a worker, with a lease and a fence.

It contains everything that a remote worker needs except the plan, which it names by its hash.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from arclog.model.events import Event


class Captured(Struct, omit_defaults=True):
    """The values of the names that a step run's templates use, captured when it was scheduled."""

    ctx: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    #: outcome records of other steps
    steps: dict[str, Any] = {}
    #: workload keys, which templates can use without a prefix
    bare: dict[str, Any] = {}


#: Values of `Pipeline.rule` if no rule decided: none matched and on_unmatched is fail, or the rules could not be
#: evaluated.
UNMATCHED = -1
UNEVALUABLE = -2


class Pipeline(Struct, omit_defaults=True):
    """The position of a pipeline of tasks.

    `core.flow.pipeline` folds it from task events, on the worker and on the server.
    """

    #: index of the task that runs or comes next; before guards are evaluated, the index after the last task
    at: int = 0
    #: whether that task comes next without guards: a jump leads to it, or its policy is not yet evaluated
    direct: bool = False
    #: number of rounds of blocks that have a `max`, by block
    rounds: dict[str, int] = {}
    #: number of task runs per label, and in total
    runs: dict[str, int] = {}
    total_runs: int = 0
    #: number of the attempt of the current task run; 0 before its start
    attempt: int = 0
    #: whether the current attempt has started and has no outcome yet
    in_flight: bool = False
    #: when the next attempt may start, microseconds since 1970; 0 for now
    due: int = 0
    #: when the current attempt started, microseconds since 1970
    since: int = 0
    #: outcome records by label
    results: dict[str, Any] = {}
    #: label of the previous task
    prev: str = ""
    iter: dict[str, Any] = {}
    #: refs of values in iter that are too large for the log
    stored: dict[str, Any] = {}
    #: changes of this pipeline to ctx, which it sees at once
    ctx: dict[str, Any] = {}
    #: open | done | failed
    state: str = "open"
    error: dict[str, Any] | None = None
    #: the policy rule (from 1) that failed it; UNMATCHED or UNEVALUABLE; 0 if no policy failed it
    rule: int = 0


class LoopWork(Struct, omit_defaults=True):
    """The chunk of a loop that a command covers."""

    #: indexes of the outer iterations
    path: tuple[int, ...]
    total: int
    #: items [first, last) have not been started
    first: int
    last: int
    #: those items: a list, {"range": [start, stop, step]}, or {"ref": the ref of a list, "first": index of the first
    #: item}
    items: Any
    #: maximum number of iterations that run in parallel
    at_a_time: int = 1
    #: whether an iteration sees the ctx changes of the one before
    carries_ctx: bool = False
    #: `iter` of the outer iteration
    parent: dict[str, Any] | None = None
    #: iterations that were started and continue, by path
    under_way: dict[str, Pipeline] = {}


class Expansion(Struct, omit_defaults=True):
    """A loop whose items only a worker can read: the worker evaluates `loop.in` and reports the items."""

    #: `event` of the step run's token
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
    #: whether step.started is in the log already
    started: bool = False
    loop: LoopWork | None = None
    expansion: Expansion | None = None
    #: the pipeline to continue, of a step without a loop; None to start a new one
    pipeline: Pipeline | None = None
    #: time that the claim had waited; the worker's own clock cannot tell how long the answer took
    waited_ms: int = 0


class NextTask(Struct, frozen=True, omit_defaults=True):
    """The next task, for a worker that evaluates neither templates nor policies."""

    task: str
    kind: str
    attempt: int = 1
    #: whether its start is in the log already, from a worker that is gone: do not report it again
    in_flight: bool = False
    #: the task's rendered config; None if the server cannot render it
    config: dict[str, Any] | None = None
    #: why it cannot be rendered: the config reads the keychain, or stored data
    problem: str = ""
    timeout_s: float = 0.0
    #: RFC 3339; '' for now
    not_before: str = ""


class WireIteration(Struct, frozen=True, omit_defaults=True):
    """An iteration that was started and has not ended."""

    #: its index after those of the outer loops: 3, or 1.3
    iteration: str
    #: None if its tasks have ended: report the end of the iteration
    next: NextTask | None = None
    #: set if the pipeline has failed
    error: dict[str, Any] | None = None


class WireLoop(Struct, frozen=True, omit_defaults=True):
    """The chunk of a loop that a command covers."""

    #: items [first, last) have not been started
    first: int
    last: int
    total: int
    #: indexes of the outer iterations, each followed by a dot: '' or '1.'
    outer: str = ""
    under_way: list[WireIteration] = []


class WireCommand(Struct, frozen=True, omit_defaults=True):
    """A command for a worker that evaluates neither templates nor policies; ids are strings."""

    command_id: str
    fence: int
    execution_id: str
    step: str
    step_run_id: str
    #: RFC 3339
    lease_until: str
    args: dict[str, Any]
    scope: str = ""
    #: whether step.enter is in the log already
    started: bool = False
    #: None if all its tasks have ended: report the end of the step (for a loop, see `loop`)
    next: NextTask | None = None
    #: set if the pipeline has failed
    error: dict[str, Any] | None = None
    loop: WireLoop | None = None
    #: whether only a worker that evaluates templates can run it: give it back
    expansion: bool = False


class Report(Struct, omit_defaults=True):
    """One report of a command's ordered stream."""

    worker_id: str
    execution_id: int
    command_id: int
    fence: int
    #: number of the report, from 1, per fence
    n: int
    events: list[Event]
    #: number of further commands that the worker can take
    wants: int = 0


class ReportAnswer(Struct, omit_defaults=True):
    """The answer to a report."""

    #: n of the last accepted report
    accepted: int
    #: commands that were claimed in the commit of the report
    commands: list[Command] = []
    #: whether the command is over (completed, cancelled or withdrawn): stop working on it
    closed: bool = False
    #: whether the run is pausing: stop at the next task boundary and give the command back
    pause: bool = False


#: The reason for withdrawing the work of a step that exceeded its time limit.
TOO_LONG = "the step took too long"


class Revocation(Struct, frozen=True, omit_defaults=True):
    """A message to the holder of a command between two reports: the command is withdrawn or pauses."""

    command_id: int
    #: stop at the next task boundary and give it back; otherwise stop at once
    pause: bool = False
    #: whether to stop running tasks without a grace period
    kill: bool = False
    #: whether the step exceeded its time limit: the tool should log what it knows about the position of its task
    late: bool = False
    #: without a command (0): the worker must claim nothing more, finish, and stop
    leave: bool = False
