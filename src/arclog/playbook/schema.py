"""The playbook language as data.

The keys of every map are in a table here: validation (`walk`), `json_schema` and the reference use the same rows. In
these tables, `items` of an open object describes each of its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arclog.model.config.kinds import COMMON_SPEC_FIELDS, KindSpec
from arclog.model.config.reducers import REDUCERS
from arclog.model.config.schedules import CATCH_UP, OVERLAP
from arclog.model.config.settings import LEAST_EVENT_BYTES
from arclog.model.data.lazy import pattern
from arclog.model.data.shapes import LONGEST_S, Field
from arclog.model.inputs import TYPES as INPUT_TYPES

NAME = pattern(r"[A-Za-z_][A-Za-z0-9_]*\Z")
NAME_LENGTH = 128
#: Names that templates use.
RESERVED = frozenset(
    {"ctx", "iter", "workload", "args", "event", "outcome", "keychain", "workbook", "execution_id", "RUN"}
)
#: Built-in keys of `iter`, which no iterator may have as its name.
ITER_KEYS = frozenset({"index", "total", "parent"})
API_VERSIONS = ("noetl.io/v10", "noetl.io/v2")
ACTIONS = ("retry", "jump", "continue", "break", "fail")
BACKOFFS = ("none", "linear", "exponential")
JOINS = ("any", "all", "all_ok")
#: Names of worker pools and resources.
POOL_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

_TEMPLATE = pattern(r"\{[{%#]")


def has_template(value: Any) -> bool:
    """Return whether a text contains a template."""
    return isinstance(value, str) and _TEMPLATE.search(value) is not None


# --- tables -----------------------------------------------------------------------------------------------------


def _closed(name: str, doc: str, *fields: Field, required: bool = False) -> Field:
    return Field(name, "object", doc, required=required, fields=fields)


def _open(name: str, doc: str) -> Field:
    return Field(name, "object", doc)


def _seconds(name: str, doc: str) -> Field:
    return Field(name, "number", doc, exclusive_min=0, maximum=LONGEST_S)


def _count(name: str, doc: str, minimum: float = 1) -> Field:
    return Field(name, "integer", doc, minimum=minimum)


EMIT = _closed(
    "emit",
    "Additional events in the log.",
    Field(
        "events",
        "list",
        "Event types to record in addition to those of the default (lean) log; `full` records all.",
        items=Field("event", "string"),
    ),
)

RULE = (
    Field("when", "condition", "Condition of the rule: `{{ expr }}`, a bare expression or a boolean.", required=True),
    Field("then", "object", "Effect of the rule if its condition holds.", required=True),
)
#: `- else: {then: …}`
ELSE_RULE = (
    Field(
        "else",
        "object",
        "Applies if no other rule matches. Must be the last rule.",
        fields=(Field("then", "object", required=True),),
    ),
)
#: `- else:` with `then:` beside it
EMPTY_ELSE_RULE = (Field("else", "null"), Field("then", "object", required=True))

ADMIT_THEN = (Field("allow", "boolean", "Whether the token may start the step.", required=True),)

ACTION = (
    Field("do", "string", "Action after the task.", default="continue", choices=ACTIONS),
    Field("attempts", "integer", "retry: total number of attempts.", default=3, minimum=1),
    Field("backoff", "string", "retry: how the delay grows.", default="none", choices=BACKOFFS),
    Field("delay", "number", "retry: seconds before the next attempt.", default=1.0, minimum=0, maximum=LONGEST_S),
    Field(
        "max_delay",
        "number",
        "retry: upper limit of the delay, in seconds.",
        default=300.0,
        minimum=0,
        maximum=LONGEST_S,
    ),
    Field(
        "jitter",
        "number",
        "retry: random part of the delay, as a fraction from 0 to 1.",
        default=0.0,
        minimum=0,
        maximum=1,
    ),
    Field(
        "delays",
        "list",
        "retry: seconds before the second, third and further attempts, instead of `delay` and `backoff`. The last value is repeated.",
        items=Field("delay", "number", minimum=0, maximum=LONGEST_S),
    ),
    Field("message", "string", "fail: message of the error. The task's own error becomes its `cause`.", template=True),
    Field("code", "string", "fail: code of the error."),
    Field("to", "string", "jump: label of a task in this list."),
    Field("set_iter", "object", "Keys of `iter` to set; values may be templates.", template=True),
    Field("set_ctx", "object", "Keys of `ctx` to set; values may be templates.", template=True),
)
#: Keys of an action that belong to a single `do`.
ACTION_KEYS = {
    "attempts": "retry",
    "backoff": "retry",
    "delay": "retry",
    "max_delay": "retry",
    "jitter": "retry",
    "delays": "retry",
    "message": "fail",
    "code": "fail",
    "to": "jump",
}

TASK_POLICY = _closed(
    "policy",
    "Rules that decide what follows the task's outcome.",
    Field(
        "rules",
        "list",
        "Rules `{when, then}`, optionally with `{else: {then}}` as the last. The first match applies.",
        required=True,
    ),
    Field("on_unmatched", "string", "Action if no rule matches.", default="continue", choices=("continue", "fail")),
    Field("mode", "string", "Placeholder; has no effect.", choices=("exclusive", "inclusive")),
    Field("before", "list|null", "Placeholder; its entries are not run."),
    Field("after", "list|null", "Placeholder; its entries are not run."),
    Field("finally", "list|null", "Placeholder; its entries are not run."),
)

#: Keys of `task.spec` that only a task itself may have: values to set after an ok outcome, before those of its policy.
ON_SUCCESS = (
    Field("set_iter", "object", "Keys of `iter` to set after an ok outcome; values may be templates.", template=True),
    Field("set_ctx", "object", "Keys of `ctx` to set after an ok outcome; values may be templates.", template=True),
)

TASK = (
    Field(
        "name",
        "name",
        "Label of the task, unique in its step. Default: `task_<index>` in a list, `<step>_task` for a single task.",
    ),
    Field("kind", "string", "Kind of the task: the tool that runs it.", required=True),
    Field("desc", "string", "Description for readers."),
    Field("auth", "string", "Name of a keychain entry.", template=True),
    _open("spec", "Options of this task."),
)

#: A task from the workbook.
WORKBOOK_TASK = (
    Field("name", "string", "Name of the workbook entry.", required=True),
    Field("kind", "string", required=True),
    Field("desc", "string", "Description for readers."),
    Field("args", "object", "Args, merged over those of the entry.", template=True),
    _open("spec", "Options, merged over those of the entry."),
)

_ADMIT = _closed(
    "admit",
    "Rules that decide whether a token may start the step. The first match applies; if no rule matches, the token is denied.",
    Field(
        "mode",
        "string",
        "Has no effect: both modes apply the first match.",
        default="exclusive",
        choices=("exclusive", "inclusive"),
    ),
    Field(
        "rules",
        "list",
        "Rules `{when, then: {allow}}`, optionally with `{else: {then: {allow}}}` as the last.",
        required=True,
    ),
)

_LIFECYCLE = _closed(
    "lifecycle",
    "Time limits of a step run.",
    _seconds("timeout_s", "Seconds from the start of the step run."),
    _seconds("deadline_s", "Seconds from the start of the execution."),
)

_FAILURE = _closed(
    "failure",
    "Effect of a failure on other work.",
    Field(
        "mode",
        "string",
        "`fail_fast` cancels open work and fails the execution. `best_effort` runs all items of a loop, and lets other branches finish.",
        default="fail_fast",
        choices=("fail_fast", "best_effort"),
    ),
)

STEP_POLICY = _closed(
    "policy",
    "Admission, time limits and failure handling of the step. Actions (`do`) belong to the policies of tasks.",
    _ADMIT,
    _LIFECYCLE,
    _FAILURE,
    EMIT,
    Field("tracing", "any", "Placeholder; has no effect."),
    Field("quotas", "any", "Placeholder; has no effect."),
    Field("compensation", "any", "Placeholder; has no effect."),
)

JOIN = Field(
    "join",
    "string|object",
    "Which tokens start a step that several arcs lead to: `any` (each one), `all`, `all_ok` or `{count: n}`.",
    default="any",
    choices=JOINS,
    fields=(Field("count", "integer", "Number of tokens that start the step.", required=True, minimum=1),),
)

END = Field(
    "end",
    "string",
    "State of the run if a token ends in this step.",
    choices=("completed", "failed"),
)

POOL = Field(
    "pool", "string", "Name of the pool whose workers run the tasks (`arclog worker --pool NAME`).", default="default"
)

PRIORITY = Field(
    "priority",
    "integer",
    "Priority among the commands of one tenant that wait for the same workers; the highest comes first.",
    default=0,
    minimum=-100,
    maximum=100,
)

RESOURCES = Field(
    "resources",
    "list",
    "Names of external resources that the step uses. Operators limit them: `arclog resource set NAME --rate 10/s --concurrency 4`.",
    items=Field("resource", "string"),
)

_MODE = Field("mode", "string", "Order in which items run.", default="sequential", choices=("sequential", "parallel"))
_IN_FLIGHT = Field(
    "max_in_flight",
    "integer",
    "Maximum number of items that a parallel loop runs at a time.",
    default=10,
    minimum=1,
    maximum=100_000,
)

LOOP_POLICY = _closed(
    "policy",
    "Scheduling of iterations.",
    Field(
        "exec",
        "string",
        "Where iterations run: `distributed` on any worker, in chunks; `local` on one worker. Default: `distributed` for a parallel loop, otherwise `local`.",
        choices=("distributed", "local"),
    ),
    _MODE,
    _IN_FLIGHT,
    Field("ordering", "any", "Placeholder; has no effect."),
    Field("reducers", "any", "Placeholder; has no effect."),
    Field("backpressure", "any", "Placeholder; has no effect."),
    Field("partitioning", "any", "Placeholder; has no effect."),
)

NEXT = (
    _closed(
        "spec",
        "How arcs are selected.",
        Field(
            "mode",
            "string",
            "`exclusive` takes the first arc that matches, `inclusive` all of them.",
            default="exclusive",
            choices=("exclusive", "inclusive"),
        ),
        Field(
            "on_no_match",
            "string",
            "What happens if the step succeeded and no arc matches.",
            default="end",
            choices=("end", "fail"),
        ),
        _closed(
            "policy",
            "Placeholders; they have no effect.",
            Field("priority", "any", "Placeholder; has no effect."),
            Field("dedupe", "any", "Placeholder; has no effect."),
            Field("partitioning", "any", "Placeholder; has no effect."),
        ),
    ),
    Field(
        "arcs",
        "list",
        "Arcs to other steps, evaluated in order.",
        required=True,
        items=_closed(
            "arc",
            "An arc to another step.",
            Field("step", "string", "Name of the step that the arc leads to.", required=True),
            Field(
                "when",
                "condition",
                "Condition of the arc. An arc without a condition, or whose condition uses neither `event` nor `outcome`, applies only after a success.",
            ),
            Field("args", "object", "Args of the token; values may be templates.", template=True),
            Field("spec", "object", "Placeholder; has no effect."),
        ),
    ),
)

LIMITS = _closed(
    "limits",
    "Limits of one execution. They cannot exceed the settings of the same names.",
    _count("max_payload_bytes", "Largest single event, in bytes.", LEAST_EVENT_BYTES),
    _count("max_task_runs", "Maximum number of task runs of one pipeline, including those after jumps."),
    _count("max_iterations", "Maximum number of items of one loop."),
    _count("max_events", "Maximum number of events of the execution.", 16),
    _count("max_step_runs", "Maximum number of step runs of the execution."),
    _count(
        "max_loop_results_bytes",
        "Maximum total size, in bytes, of the iteration results that one loop keeps for `{{ step.results }}`.",
    ),
)

EXECUTOR_POLICY = _closed(
    "policy",
    "Defaults and limits of the execution.",
    _closed(
        "defaults",
        "Defaults for steps and tasks.",
        _closed(
            "timeouts",
            "Default time limits.",
            _seconds("task_s", "Default of `task.spec.timeout`, in seconds."),
            _seconds("step_s", "Default of `lifecycle.timeout_s`, in seconds."),
        ),
        Field("resources", "any", "Placeholder; has no effect."),
    ),
    _closed(
        "results",
        "Storage of results.",
        Field(
            "reference_first",
            "boolean",
            "`false` keeps results in the log as long as they fit into an event.",
            default=True,
        ),
    ),
    LIMITS,
    Field(
        "approval",
        "string",
        "`required`: the run does not start before it is approved.",
        default="none",
        choices=("none", "required"),
    ),
    EMIT,
    *(Field(name, "any", "Placeholder; has no effect.") for name in ("placement", "cost", "quantum")),
)

_CTX_ENTRY = _closed(
    "ctx entry",
    "A declared ctx key.",
    Field("reducer", "string", "How the values that `set_ctx` sets are combined.", required=True, choices=REDUCERS),
    Field("initial", "any", "Value before the first `set_ctx`."),
)

#: One input; `items` and `properties` contain declarations of the same form.
INPUT = _closed(
    "input",
    "A typed input of a run.",
    Field("type", "string", "Type of the value.", default="any", choices=INPUT_TYPES),
    Field(
        "required",
        "boolean",
        "Whether a request without this input is refused. An optional input without a default is null.",
        default=False,
    ),
    Field("default", "any", "Value if the request does not have this input."),
    Field("enum", "list", "Allowed values."),
    Field("min", "number", "Minimum of a number, or minimum length of a text, list or map."),
    Field("max", "number", "Maximum of a number, or maximum length of a text, list or map."),
    Field("pattern", "string", "Regular expression that a text must match somewhere; `^…$` for the whole text."),
    Field("description", "string", "Description, shown in forms and error messages."),
    Field("items", "object", "Declaration of each item of a list."),
    Field("properties", "object", "Declarations of the keys of a map; no others are allowed."),
)

#: Ends of a run that a webhook may be notified of.
ENDS = ("completed", "failed", "cancelled")

_WEBHOOK = _closed(
    "webhook",
    "A receiver of a signed POST request when a run has ended.",
    Field("url", "string", "Address of the receiver, http:// or https://. Templates are not evaluated.", required=True),
    Field("secret", "string", "Name of the keychain entry whose value signs the request.", required=True),
    Field(
        "on",
        "list",
        "States of the run that cause a notification. Default: all.",
        items=Field("end", "string", choices=ENDS),
    ),
)

_NOTIFICATION = _closed(
    "notification",
    "A notification by POST request or e-mail.",
    Field(
        "webhook",
        "string",
        "Address of the receiver of a POST request, http:// or https://. Templates are not evaluated.",
    ),
    Field(
        "secret",
        "string",
        "Name of the keychain entry whose value signs the request. Default: the request is not signed.",
    ),
    Field(
        "email", "string|list", "Address or list of addresses to send an e-mail to.", items=Field("address", "string")
    ),
)

_SCHEDULE = _closed(
    "schedule",
    "A schedule of the playbook.",
    Field("name", "string", "Name of the schedule. Default: the playbook's path, with `.` instead of `/`."),
    Field("cron", "string", "Cron expression: minute, hour, day, month, weekday.", required=True),
    Field("tz", "string", "Time zone of the cron expression.", default="UTC"),
    Field("workload", "object", "Workload of the scheduled runs."),
    Field(
        "catch_up",
        "string",
        "What to do about times missed while no server was running.",
        default="last",
        choices=CATCH_UP,
    ),
    Field("overlap", "string", "What to do when the previous run has not ended.", default="skip", choices=OVERLAP),
)

_EXECUTOR_SPEC = (
    Field(
        "entry_step",
        "string",
        "Name of the first step. Default: `start` if there is such a step, otherwise the first step in the list.",
    ),
    Field(
        "final_step",
        "string",
        "Name of a step that runs once after all others, whether the run succeeded or failed. No arc may lead to it.",
    ),
    Field(
        "result",
        "any",
        "Template of the execution's result. Default: the data of the last step run that no other step followed.",
        template=True,
    ),
    _seconds("timeout_s", "Time limit of the whole execution, in seconds."),
    _closed(
        "concurrency",
        "Limit on concurrent runs of this playbook.",
        Field("max", "integer", "Maximum number of runs at a time.", required=True, minimum=1),
        Field("on_excess", "string", "What happens to further runs.", default="queue", choices=("queue", "reject")),
    ),
    Field("inputs", "object", "Typed inputs, by name. The workload of a request is checked against them.", items=INPUT),
    Field(
        "sequence",
        "boolean",
        "Whether a step without `next` leads to the next step in the file.",
        default=False,
    ),
    Field("ctx", "object", "Declared ctx keys, by name.", items=_CTX_ENTRY),
    POOL,
    PRIORITY,
    Field("webhooks", "list", "Notifications when a run has ended.", items=_WEBHOOK),
    Field("on_failure", "list", "Notifications when a run has failed.", items=_NOTIFICATION),
    Field("on_success", "list", "Notifications when a run has completed.", items=_NOTIFICATION),
    Field("schedules", "list", "Schedules, created or updated when the playbook is registered.", items=_SCHEDULE),
    EXECUTOR_POLICY,
)

KEYCHAIN_ENTRY = Field(
    "keychain entry",
    "object",
    "A credential that the playbook needs; `playbook.declarations` has the fields of each kind.",
)

METADATA = _closed(
    "metadata",
    "Name, path and description of the playbook.",
    Field("name", "string", "The playbook's name.", required=True),
    Field("path", "string", "Catalog path. Default: the name."),
    Field("version", "string|number", "Informational; the catalog assigns version numbers itself."),
    Field("description", "string", "Description for readers."),
    Field("labels", "object", "Key-value pairs of your own."),
    Field("tags", "list", "Words of your own.", items=Field("tag", "string")),
    required=True,
)


def crossing_fields(kinds: Mapping[str, KindSpec]) -> tuple[Field, ...]:
    """Return the task spec keys that may be set in an outer spec: those of all kinds.

    A key on which kinds differ has any type.
    """
    fields: dict[str, Field] = {}
    for field in (*COMMON_SPEC_FIELDS, *(field for kind in kinds.values() for field in kind.spec_fields)):
        previous = fields.get(field.name)
        if previous is None:
            fields[field.name] = field
        elif previous != field:
            fields[field.name] = Field(field.name, "any", previous.doc)
    return tuple(fields.values())


def task_spec_fields(kind: KindSpec) -> tuple[Field, ...]:
    """Return the keys of `task.spec` for a kind; the kind's own definition of a common key wins."""
    own = {field.name: field for field in kind.spec_fields}
    return (*(own.pop(field.name, field) for field in COMMON_SPEC_FIELDS), *own.values())


def root_field(kinds: Mapping[str, KindSpec]) -> Field:
    """Return the schema of the whole language with the task spec keys of these kinds."""
    crossing = crossing_fields(kinds)

    def spec(own: tuple[Field, ...], doc: str) -> Field:
        taken = {field.name for field in own}
        return _closed("spec", doc, *own, *(field for field in crossing if field.name not in taken))

    loop_spec = spec((_MODE, _IN_FLIGHT, LOOP_POLICY), "Behaviour of the loop, and task spec keys for all tasks in it.")
    loop_own = (
        Field("in", "any", "The items: a list, or a template that evaluates to a list.", required=True, template=True),
        Field("iterator", "name", "Name under which templates read the item: `iter.NAME`.", required=True),
        loop_spec,
    )
    # One table serves every level: a nested `loop` has the same label.
    loop = _closed("loop", "Runs the tasks once for each item.", *loop_own, Field("loop", "object", "A nested loop."))
    step = _closed(
        "step",
        "One step of the workflow.",
        Field("step", "name", "The step's name.", required=True),
        Field("desc", "string", "Description for readers."),
        spec(
            (STEP_POLICY, JOIN, END, POOL, PRIORITY, RESOURCES),
            "Behaviour of the step, and task spec keys for all its tasks.",
        ),
        Field(
            "args",
            "object",
            "Args of the step; those of the token take precedence. Values may be templates.",
            template=True,
        ),
        loop,
        Field("tool", "object|list", "The task, or the list of tasks.", required=True),
        _closed("next", "Routing after the step.", *NEXT),
    )
    return _closed(
        "playbook",
        "A playbook.",
        Field("apiVersion", "string", "Version of the language.", choices=API_VERSIONS),
        Field("kind", "string", "Always `Playbook`.", choices=("Playbook",)),
        METADATA,
        Field("keychain", "list", "Credentials that the playbook needs.", items=KEYCHAIN_ENTRY),
        _closed(
            "executor",
            "How the playbook runs.",
            spec(_EXECUTOR_SPEC, "Behaviour of the run, and task spec keys for all tasks."),
        ),
        Field("workload", "object", "Default workload. Templates in it are not evaluated."),
        Field("workbook", "list", "Reusable tasks, used by `kind: workbook`.", items=Field("workbook entry", "object")),
        Field("workflow", "list", "The steps.", required=True, items=step),
    )
