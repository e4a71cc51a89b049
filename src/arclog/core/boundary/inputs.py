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
    #: why the request cannot run; None if it can
    problem: TaskError | None = None
    #: for a child: the task that called it
    parent: dict[str, Any] | None = None
    depth: int = 0
    #: playbooks called by file, as they were registered: plan → file → (path, version)
    files: dict[str, dict[str, tuple[str, int]]] = {}
    #: run_id of the run that this run repeats, and its origin as the first event records it
    original_run_id: str = ""
    origin: dict[str, Any] | None = None
    #: None for the playbook's priority
    priority: int | None = None
    #: the playbook's file, as its author names it
    file: str = ""


class WorkReported(Struct, frozen=True):
    """The next piece of a command's report, not yet checked."""

    command_id: int
    fence: int
    #: position in the command's stream of reports; 0 means next: repeated events are recognized by their ids
    n: int
    worker_id: str
    events: list[Event]
    #: sha256 of the content of events that were sent with an id, by id
    digests: dict[int, str] = {}
    #: sent as one event with `POST /api/events`: the server fills in omitted fields and evaluates the task's policy
    from_wire: bool = False


class Observed(Struct, frozen=True):
    """Events from outside that only readers of the log see. They have no effect on decisions."""

    events: list[Event]
    #: sha256 of the content of events that were sent with an id, by id
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
    #: the holder's command.failed
    event: Event
    #: sha256 of the event's content, by the id that it was sent with
    digests: dict[int, str] = {}


class Reclaimed(Struct, frozen=True):
    """A command whose lease was lost has been claimed again."""

    command_id: int
    fence: int
    worker_id: str


class Abort(Struct, frozen=True):
    """The engine cannot continue this run."""

    problem: TaskError
    #: end the run without ending its open work one by one, because even that is impossible
    bare: bool = False


class TimerFired(Struct, frozen=True):
    """A durable timer is due."""

    timer_id: str


class ChildEnded(Struct, frozen=True):
    """The outcome of the child that a task waits for, or the reason why there is none."""

    key: str
    child: int
    #: lean outcome record of the waiting task
    record: dict[str, Any]


class ParentNotified(Struct, frozen=True):
    """The parent of this ended run, if any, has its result; the webhooks are delivered or given up."""


class Continue(Struct, frozen=True):
    """Continue with tokens that an earlier decision left ready."""


class Forked(Struct, frozen=True):
    """Continue from events that were copied from another run: offer their open work, and route step runs that have ended."""


class Signal(Struct, frozen=True):
    """A signal to the run."""

    signal: str
    #: a repeated id gets the first answer again
    signal_id: str
    reason: str = ""
    by: str = ""
    step: str = ""
    data: Any = None
    #: the roles of the sender; None for the owner of the home, who may send every signal
    roles: frozenset[str] | None = None
    #: with PAUSE: open commands that no worker holds
    idle: tuple[int, ...] = ()
    #: maximum number of stored signals that no task waits for yet
    most_kept: int = 0


class GivenBack(Struct, frozen=True):
    """A worker returned its command between two tasks."""

    command_id: int
    fence: int
    worker_id: str


class TakeSlot(Struct, frozen=True):
    """Start a run that waits for one of its playbook's concurrency slots."""

    #: executions that hold all slots; empty if a slot was free when the engine looked (the commit checks again)
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
    """The reason why an input changes nothing. It is returned, not raised."""

    #: closed | stale | duplicate | gap | ended | malformed | early | signal | forbidden | no_slot | full
    reason: str
    message: str
    #: with gap: the n that is expected
    expected: int = 0
    #: with malformed: the type of the invalid event; '' if the report as a whole is invalid
    event_type: str = ""


class Txn(Struct):
    """The result of `decide`: the changes that must be committed together. Effects happen only after the commit."""

    events: list[Event] = field(default_factory=list)
    issue: list[NewWork] = field(default_factory=list)
    close: list[int] = field(default_factory=list)
    release: list[int] = field(default_factory=list)
    #: due times of timers by id; 0 if cleared
    timers: dict[str, int] = field(default_factory=dict)
    #: (command_id, stored fence): commands that no worker may claim; the commit fails if one has been claimed
    hold: list[tuple[int, int]] = field(default_factory=list)
    #: held commands that may be claimed again
    unhold: list[int] = field(default_factory=list)
    #: the run starts and needs a concurrency slot
    slot: bool = False
    #: ready tokens are left: the next input must be Continue
    more: bool = False
    refused: Refused | None = None
    #: a task was waiting for the signal
    waiting: bool = False
    #: content of events that were sent with an id, by id
    digests: dict[int, str] = field(default_factory=dict)
    #: of a report over the wire: index of the event that represents the sent one
    spoken: int = 0
