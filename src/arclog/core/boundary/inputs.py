"""The inputs of an execution, and the transaction that a decision returns."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from arclog.model.events import Event
from arclog.model.outcome import TaskError


class Request(Struct, frozen=True):
    """Start the run."""

    path: str
    version: int
    #: the request's own workload
    workload: dict[str, Any]
    #: tenant/project/environment
    scope: str = ""
    #: why the request cannot run; None = it can
    problem: TaskError | None = None
    #: for a child: the task that called it
    parent: dict[str, Any] | None = None
    depth: int = 0
    #: playbooks called by file, as they were registered: plan → file → (path, version)
    files: dict[str, dict[str, tuple[str, int]]] = {}
    #: run_id of the run that this one repeats
    original_run_id: str = ""
    #: None: the playbook's
    priority: int | None = None
    #: the playbook's file, as its author names it
    file: str = ""


class WorkReported(Struct, frozen=True):
    """The next piece of a command's report, not yet checked."""

    command_id: int
    fence: int
    #: 0 = the next one: a repetition is recognized by the events' own ids
    n: int
    worker_id: str
    events: list[Event]
    #: sha256 of the content of events that were sent with an id, by that id
    digests: dict[int, str] = {}
    #: it is one event of `POST /api/events`: what it leaves out, and what a task's policy makes of an outcome, is for the
    #: server to find out
    from_wire: bool = False


class Observed(Struct, frozen=True):
    """Events from outside that only readers of the log see. They have no effect on decisions."""

    events: list[Event]
    #: sha256 of the content of events that were sent with an id, by that id
    digests: dict[int, str] = {}
    #: maximum number of these events per run
    most: int = 0


class LeaseEnded(Struct, frozen=True):
    """A worker did not renew its lease."""

    command_id: int
    fence: int
    worker_id: str
    max_losses: int


class GaveUp(Struct, frozen=True):
    """The holder of a command reports that it cannot be executed."""

    command_id: int
    fence: int
    worker_id: str
    max_losses: int
    #: its command.failed
    event: Event
    #: sha256 of the event's content, by the id that it brought
    digests: dict[int, str] = {}


class Reclaimed(Struct, frozen=True):
    """Work whose lease was lost has found a worker again."""

    command_id: int
    fence: int
    worker_id: str


class Abort(Struct, frozen=True):
    """The engine cannot continue this run."""

    problem: TaskError
    #: even what is open cannot be ended one by one: end the run alone
    bare: bool = False


class TimerFired(Struct, frozen=True):
    """A durable timer has come due."""

    timer_id: str


class ChildEnded(Struct, frozen=True):
    """The outcome of the child that a task waits for (or why there is none)."""

    key: str
    child: int
    #: lean outcome record of the waiting task
    record: dict[str, Any]


class ParentNotified(Struct, frozen=True):
    """The parent of this ended run, if it has one, has its result; its webhooks are delivered or given up."""


class Continue(Struct, frozen=True):
    """Continue with tokens that an earlier decision left ready."""


class Forked(Struct, frozen=True):
    """Continue from events that were copied from another run: offer their open work, route what has ended."""


class Signal(Struct, frozen=True):
    """A signal to the run."""

    signal: str
    #: the same id again is answered as before
    signal_id: str
    reason: str = ""
    by: str = ""
    step: str = ""
    data: Any = None
    #: the roles of the sender; None: it owns the home and may do everything
    roles: frozenset[str] | None = None
    #: with PAUSE: open commands that no worker holds
    idle: tuple[int, ...] = ()
    #: maximum number of kept signals that nothing waits for yet
    most_kept: int = 0


class GivenBack(Struct, frozen=True):
    """A worker returned its command between two tasks."""

    command_id: int
    fence: int
    worker_id: str


class TakeSlot(Struct, frozen=True):
    """Start a run that waits for one of its playbook's concurrency slots."""

    #: executions that hold all slots; none = there was one when the engine looked, and the commit makes sure
    holders: tuple[int, ...] = ()


Input = (
    Request
    | WorkReported
    | Observed
    | LeaseEnded
    | GaveUp
    | Reclaimed
    | Abort
    | TimerFired
    | ChildEnded
    | ParentNotified
    | Continue
    | Forked
    | Signal
    | GivenBack
    | TakeSlot
)


class NewWork(Struct, frozen=True):
    """A command to issue."""

    command_id: int
    step: str
    run: int
    kinds: tuple[str, ...]
    pool: str = "default"
    priority: int = 0
    resources: tuple[str, ...] = ()


class Refused(Struct, frozen=True):
    """Why an input changes nothing. Data, not an exception."""

    #: closed | stale | duplicate | gap | ended | malformed | early | signal | forbidden | no_slot | full
    reason: str
    message: str
    #: with gap: the n that is expected
    expected: int = 0
    #: with malformed: the type of the event that does not fit; '' when it is the report as a whole
    event_type: str = ""


class Txn(Struct):
    """The result of `decide`: what must be committed together. Effects happen only after the commit."""

    events: list[Event] = field(default_factory=list)
    issue: list[NewWork] = field(default_factory=list)
    close: list[int] = field(default_factory=list)
    release: list[int] = field(default_factory=list)
    #: timers by id: when they are due; 0 = cleared
    timers: dict[str, int] = field(default_factory=dict)
    #: (command_id, fence as the store has it): no worker may claim these; the commit fails if one has been claimed
    hold: list[tuple[int, int]] = field(default_factory=list)
    #: held commands that may be claimed again
    unhold: list[int] = field(default_factory=list)
    #: the run starts: it needs a concurrency slot
    slot: bool = False
    #: ready tokens were left: put Continue next
    more: bool = False
    refused: Refused | None = None
    #: something was waiting for the signal
    waiting: bool = False
    #: content of events that were sent with an id, by that id
    digests: dict[int, str] = field(default_factory=dict)
    #: of a report over the wire: index of the event that represents the one that was sent
    spoken: int = 0
