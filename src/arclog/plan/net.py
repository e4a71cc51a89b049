"""A plan: the compiled, immutable form of a playbook. It is plain data, stored once under the sha256 of its encoding.

As a Petri net: a token is at a place; `start:<step>` takes tokens from the step's incoming places and marks
`run:<step>`; `end:<step>` takes that mark and puts a token on the place of every arc that routing selected. Templates
are source text here; `plan.program` compiles them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from arclog.model.config.settings import LEAST_EVENT_BYTES
from arclog.model.data.digest import sha256
from arclog.model.errors import NOWHERE, NewerLog, Position
from arclog.model.events import ENVELOPE_BYTES

#: The plan format. Incremented when a plan contains something that an older release would ignore.
#: 2: `choose`, `while` and `until` are guards (`StepPlan.flow`), and every `set_ctx` of a key with a reducer contributes
#: a value. A plan that uses neither is written as format 1.
#: 3: the error of a fail (`Action.message`, `Action.code`), `Action.delays`, tasks of kind assert, inputs, captured
#: files, steps that end the run, final steps, and `all_ok` joins.
FORMAT = 3


class AdmitRule(Struct, frozen=True, omit_defaults=True, gc=False):
    """One rule of `step.spec.policy.admit.rules`; `when` None is the else."""

    allow: bool
    when: str | bool | None = None
    at: Position = NOWHERE


class Action(Struct, frozen=True, omit_defaults=True, gc=False):
    """The effect of a matched task rule. Defaults are resolved."""

    #: retry | jump | continue | break | fail
    do: str = "continue"
    attempts: int = 3
    #: none | linear | exponential
    backoff: str = "none"
    delay: float = 1.0
    max_delay: float = 300.0
    #: random share of the delay, 0 to 1
    jitter: float = 0.0
    #: seconds before the second, third … attempt, in place of delay and backoff; the last repeats
    delays: tuple[float, ...] = ()
    #: for a fail: template of the error's message, and its code
    message: str = ""
    code: str = ""
    #: label of the task to jump to
    to: str = ""
    #: templates, evaluated in the scope before the rule
    set_iter: dict[str, Any] = {}
    set_ctx: dict[str, Any] = {}


class TaskRule(Struct, frozen=True, omit_defaults=True, gc=False):
    """One rule of `task.spec.policy.rules`; `when` None is the else."""

    then: Action
    when: str | bool | None = None
    at: Position = NOWHERE


class TaskPolicy(Struct, frozen=True, omit_defaults=True, gc=False):
    rules: tuple[TaskRule, ...]
    #: continue | fail
    on_unmatched: str = "continue"


class TaskPlan(Struct, frozen=True, omit_defaults=True, gc=False):
    """A task of a step's pipeline."""

    name: str
    kind: str
    #: the kind's config keys as written, templates unrendered
    config: dict[str, Any]
    #: config keys whose text is never a template
    verbatim: tuple[str, ...] = ()
    #: config keys that are SQL, and their dialect
    sql: tuple[str, ...] = ()
    dialect: str = ""
    #: config keys that may be passed as a ref
    by_ref: tuple[str, ...] = ()
    #: effective spec after layering, without `policy`
    spec: dict[str, Any] = {}
    policy: TaskPolicy | None = None
    timeout_s: float = 3600.0
    effectful: bool = True
    #: 'worker' (a tool), 'pipeline' (the worker itself) or 'engine'
    runs_on: str = "worker"
    #: names that the tool reads as a whole, besides those in its templates
    needs: tuple[str, ...] = ()
    #: whether an attempt that may have started is never repeated
    at_most_once: bool = False
    data_at: str = ""
    #: config keys that contain the text of a file beside the playbook: key → path
    files: dict[str, str] = {}
    #: the kind's helper with null fields
    helper: dict[str, dict[str, Any]] = {}
    at: Position = NOWHERE
    #: in plans of format 1, for a task that represents a part of a `choose`, `while` or `until`: 'while at 12:5'
    origin: str = ""


class Branch(Struct, frozen=True, omit_defaults=True, gc=False):
    """Tasks of a block, and their condition."""

    #: indexes of tasks, and blocks among them, in order
    body: tuple[int | Block, ...]
    #: None for the else of a choose
    when: str | bool | None = None


class Block(Struct, frozen=True, omit_defaults=True, gc=False):
    """A `choose`, `while` or `until`: guards on the tasks inside it."""

    #: choose | while | until
    word: str
    #: the word and its number in the step, in reading order: 'while_1'
    name: str
    #: a while or until has one: its round
    branches: tuple[Branch, ...]
    #: maximum number of rounds
    max: int | None = None
    at: Position = NOWHERE


class LoopPlan(Struct, frozen=True, omit_defaults=True, gc=False):
    #: template (or literal list) of the items
    items: Any
    iterator: str
    #: sequential | parallel
    mode: str = "sequential"
    max_in_flight: int = 1
    #: local | distributed
    exec: str = "local"
    inner: LoopPlan | None = None
    at: Position = NOWHERE


class ArcPlan(Struct, frozen=True, omit_defaults=True, gc=False):
    """One entry of `next.arcs`. Its place is `arc:<source>:<index>`."""

    source: str
    index: int
    target: str
    when: str | bool | None = None
    args: dict[str, Any] = {}
    #: whether its `when` names `event` or `outcome`, so that it may also match a failed step
    sees_failure: bool = False
    at: Position = NOWHERE

    @property
    def place(self) -> str:
        return f"arc:{self.source}:{self.index}"


class StepPlan(Struct, frozen=True, omit_defaults=True, gc=False):
    name: str
    tasks: tuple[TaskPlan, ...]
    #: the order of the tasks if blocks guard some of them; () for sequential order
    flow: tuple[int | Block, ...] = ()
    desc: str = ""
    args: dict[str, Any] = {}
    #: None if the step has no admission rules
    admit: tuple[AdmitRule, ...] | None = None
    loop: LoopPlan | None = None
    arcs: tuple[ArcPlan, ...] = ()
    #: exclusive | inclusive
    mode: str = "exclusive"
    #: end | fail
    on_no_match: str = "end"
    #: any | all | all_ok | count
    join: str = "any"
    join_count: int = 0
    #: completed | failed: the state that a token that ends here gives the run; '' for none
    end: str = ""
    timeout_s: float | None = None
    deadline_s: float | None = None
    #: fail_fast | best_effort
    failure_mode: str = "fail_fast"
    #: workers that run it
    pool: str = "default"
    #: None for that of the run
    priority: int | None = None
    #: external resources that it uses, sorted
    resources: tuple[str, ...] = ()
    #: further event types to record, or 'full'
    emit: tuple[str, ...] = ()
    at: Position = NOWHERE
    #: locations of the template texts inside this step, by dotted path: 'tasks.0.config.url', 'arcs.1.when', 'args.x',
    #: 'loop.items'
    spots: dict[str, Position] = {}


class Limits(Struct, frozen=True, omit_defaults=True, gc=False):
    """The limits of one execution, capped by the settings."""

    max_payload_bytes: int = 262_144
    max_task_runs: int = 1_000_000
    max_iterations: int = 10_000_000
    max_events: int = 100_000_000
    max_step_runs: int = 10_000_000
    max_loop_results_bytes: int = 8_388_608
    #: a larger payload is stored outside the log
    inline_max_bytes: int = 65_536
    #: for each template evaluation; set by the operator only
    max_expr_work: int = 1_000_000
    max_expr_bytes: int = 16_777_216


def event_room(limits: Limits) -> int:
    """Return the maximum bytes of an event's payload. A plan of an older release may have a limit below the minimum."""
    return max(limits.max_payload_bytes, LEAST_EVENT_BYTES) - ENVELOPE_BYTES


class Place(Struct, frozen=True, gc=False):
    id: str
    #: entry | arc | run
    role: str


class Transition(Struct, frozen=True, gc=False):
    id: str
    step: str
    #: start | end
    role: str


class NetArc(Struct, frozen=True, gc=False):
    """An edge of the net, from a place to a transition or back."""

    source: str
    target: str


class Webhook(Struct, frozen=True, gc=False):
    """An address that is notified when a run ends."""

    #: http://, https:// or mailto:
    url: str
    #: name of the keychain entry that signs; '' if it is not signed
    secret: str
    #: completed, failed, cancelled
    on: tuple[str, ...]


class Plan(Struct, frozen=True, omit_defaults=True, gc=False):
    name: str
    entry: str
    steps: tuple[StepPlan, ...]
    #: the lowest format that the plan needs; an older release refuses a format that it does not know
    format: int = 1
    path: str = ""
    description: str = ""
    labels: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    #: defaults of the workload
    workload: dict[str, Any] = {}
    #: files beside the playbook that its tasks contain, captured at compile time: path → sha256
    files: dict[str, str] = {}
    #: declarations of typed inputs, see `model.inputs`; their defaults are in the workload
    inputs: dict[str, Any] = {}
    #: the step that runs once when no other work is left; '' if there is none
    final_step: str = ""
    #: template of the execution's result; None for the data of the last step run that ended without a successor
    result: Any = None
    timeout_s: float | None = None
    #: maximum number of concurrent runs of this playbook, and the handling of more: queue | reject
    concurrency: int | None = None
    on_excess: str = "queue"
    #: of a run whose request has none
    priority: int = 0
    approval: bool = False
    #: declared ctx keys: {name: {reducer, initial}}
    ctx: dict[str, Any] = {}
    keychain: tuple[dict[str, Any], ...] = ()
    webhooks: tuple[Webhook, ...] = ()
    #: applied when the playbook is registered: {name, cron, tz, workload, catch_up, overlap}
    schedules: tuple[dict[str, Any], ...] = ()
    limits: Limits = Limits()
    emit: tuple[str, ...] = ()
    #: locations of template texts outside steps: 'result'
    spots: dict[str, Position] = {}
    places: tuple[Place, ...] = ()
    transitions: tuple[Transition, ...] = ()
    net: tuple[NetArc, ...] = ()


#: Keys keep the author's order: the order of columns is part of a playbook. A plan contains no sets.
_ENCODER = msgspec.json.Encoder()
#: The parts of a plan that can be numerous.
_PART_TYPES = {"steps": StepPlan, "places": Place, "transitions": Transition, "net": NetArc}
_ROWS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PARTS = msgspec.json.Decoder(list[msgspec.Raw])
_NONE = msgspec.Raw(b"[]")
_AT_ONCE = 20


@cache
def _decoder(of: type[Any]) -> msgspec.json.Decoder[Any]:
    """Return a decoder. Created on first use: resolving all annotations takes 3 ms."""
    return msgspec.json.Decoder(of)


def encode(plan: Plan) -> bytes:
    return _ENCODER.encode(plan)


def decode(body: bytes) -> Plan:
    """Decode a plan. Raises NewerLog for the plan of a newer release, whose additions would be ignored."""
    plan: Plan = _decoder(Plan).decode(body)
    if plan.format > FORMAT:
        raise NewerLog(
            f"the plan of {plan.name!r} has format {plan.format}, which a newer arclog made; this one knows {FORMAT}: update it"
        )
    return plan


def decode_in_parts(body: bytes, pause: Callable[[], None]) -> Plan:
    """Decode a plan like `decode`, with a call of `pause` now and then, so that a large plan does not block."""
    rows = _ROWS.decode(body)
    parts: dict[str, tuple[Any, ...]] = {}
    for name, kind in _PART_TYPES.items():
        decoder = _decoder(kind)
        decoded: list[Any] = []
        for number, part in enumerate(_PARTS.decode(rows.pop(name, _NONE))):
            decoded.append(decoder.decode(part))
            if number % _AT_ONCE == 0:
                pause()
        parts[name] = tuple(decoded)
    rows["steps"] = _NONE
    return msgspec.structs.replace(decode(_ENCODER.encode(rows)), **parts)


def digest(body: bytes) -> str:
    """Return the plan's name: sha256 of its encoding, lowercase hex."""
    return sha256(body)
