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
from arclog.model.data.patterns import pattern
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
    "More events in the log.",
    Field(
        "events",
        "list",
        "Event types to write although the lean log leaves them out; `full` for all.",
        items=Field("event", "string"),
    ),
)

RULE = (
    Field("when", "condition", "The rule's condition: `{{ expr }}`, a bare expression or a boolean.", required=True),
    Field("then", "object", "What a match does.", required=True),
)
#: `- else: {then: …}`
ELSE_RULE = (
    Field(
        "else",
        "object",
        "When no rule before matched; the last rule.",
        fields=(Field("then", "object", required=True),),
    ),
)
#: `- else:` with `then:` beside it
EMPTY_ELSE_RULE = (Field("else", "null"), Field("then", "object", required=True))

ADMIT_THEN = (Field("allow", "boolean", "Whether the token may start the step.", required=True),)

ACTION = (
    Field("do", "string", "What happens next.", default="continue", choices=ACTIONS),
    Field("attempts", "integer", "retry: total number of attempts.", default=3, minimum=1),
    Field("backoff", "string", "retry: how the delay grows.", default="none", choices=BACKOFFS),
    Field("delay", "number", "retry: seconds before the next attempt.", default=1.0, minimum=0, maximum=LONGEST_S),
    Field(
        "max_delay", "number", "retry: upper bound of the delay, seconds.", default=300.0, minimum=0, maximum=LONGEST_S
    ),
    Field("jitter", "number", "retry: random share of the delay, 0 to 1.", default=0.0, minimum=0, maximum=1),
    Field(
        "delays",
        "list",
        "retry: seconds before the second, third … attempt, in place of `delay` and `backoff`; the last repeats.",
        items=Field("delay", "number", minimum=0, maximum=LONGEST_S),
    ),
    Field("message", "string", "fail: the error's message; the task's own error becomes its `cause`.", template=True),
    Field("code", "string", "fail: the error's code."),
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
    "What to do with the task's outcome.",
    Field("rules", "list", "First match wins: `{when, then}`, last `{else: {then}}`.", required=True),
    Field("on_unmatched", "string", "When no rule matches.", default="continue", choices=("continue", "fail")),
    Field("mode", "string", "Placeholder, without effect.", choices=("exclusive", "inclusive")),
    Field("before", "list|null", "Placeholder, not run."),
    Field("after", "list|null", "Placeholder, not run."),
    Field("finally", "list|null", "Placeholder, not run."),
)

#: Keys of `task.spec` that only a task itself may have: values to set after an ok outcome, before those of its policy.
ON_SUCCESS = (
    Field("set_iter", "object", "Keys of `iter` that an ok outcome sets; values may be templates.", template=True),
    Field("set_ctx", "object", "Keys of `ctx` that an ok outcome sets; values may be templates.", template=True),
)

TASK = (
    Field(
        "name",
        "name",
        "Label of the task, unique in its step. Default: `task_<index>`, or `<step>_task` for a single object.",
    ),
    Field("kind", "string", "The tool kind.", required=True),
    Field("desc", "string", "For readers."),
    Field("auth", "string", "Name of a keychain entry.", template=True),
    _open("spec", "Options of this task."),
)

#: A task from the workbook.
WORKBOOK_TASK = (
    Field("name", "string", "The workbook entry.", required=True),
    Field("kind", "string", required=True),
    Field("desc", "string", "For readers."),
    Field("args", "object", "Merged over the entry's.", template=True),
    _open("spec", "Merged over the entry's."),
)

_ADMIT = _closed(
    "admit",
    "Admission: whether a token may start the step. First match decides; no rule matched denies.",
    Field("mode", "string", "Both are the same boolean gate.", default="exclusive", choices=("exclusive", "inclusive")),
    Field("rules", "list", "`{when, then: {allow}}`, last `{else: {then: {allow}}}`.", required=True),
)

_LIFECYCLE = _closed(
    "lifecycle",
    "Time limits of a step run.",
    _seconds("timeout_s", "Seconds from the step run's start."),
    _seconds("deadline_s", "Seconds from the execution's start."),
)

_FAILURE = _closed(
    "failure",
    "Effect of a failure on other work.",
    Field(
        "mode",
        "string",
        "fail_fast cancels open work and fails the execution; best_effort lets a loop run all its items, and other branches finish.",
        default="fail_fast",
        choices=("fail_fast", "best_effort"),
    ),
)

STEP_POLICY = _closed(
    "policy",
    "Admission, lifecycle and failure of the step; no control actions.",
    _ADMIT,
    _LIFECYCLE,
    _FAILURE,
    EMIT,
    Field("tracing", "any", "Placeholder, without effect."),
    Field("quotas", "any", "Placeholder, without effect."),
    Field("compensation", "any", "Placeholder, without effect."),
)

JOIN = Field(
    "join",
    "string|object",
    "When tokens from several arcs start the step: `any` (each one), `all`, `all_ok` or `{count: n}`.",
    default="any",
    choices=JOINS,
    fields=(Field("count", "integer", "Number of tokens that start the step.", required=True, minimum=1),),
)

END = Field(
    "end",
    "string",
    "A token that ends in this step decides the run's state.",
    choices=("completed", "failed"),
)

POOL = Field(
    "pool", "string", "Workers that run it: those started with `arclog worker --pool NAME`.", default="default"
)

PRIORITY = Field(
    "priority",
    "integer",
    "Among the commands of one tenant that wait for the same workers, higher comes first.",
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

_MODE = Field("mode", "string", "How items run.", default="sequential", choices=("sequential", "parallel"))
_IN_FLIGHT = Field(
    "max_in_flight", "integer", "Items at a time in a parallel loop.", default=10, minimum=1, maximum=100_000
)

LOOP_POLICY = _closed(
    "policy",
    "Scheduling of iterations; no control actions.",
    Field("exec", "string", "Where iterations run.", choices=("distributed", "local")),
    _MODE,
    _IN_FLIGHT,
    Field("ordering", "any", "Placeholder, without effect."),
    Field("reducers", "any", "Placeholder, without effect."),
    Field("backpressure", "any", "Placeholder, without effect."),
    Field("partitioning", "any", "Placeholder, without effect."),
)

NEXT = (
    _closed(
        "spec",
        "How arcs are chosen.",
        Field(
            "mode",
            "string",
            "exclusive: the first match; inclusive: all.",
            default="exclusive",
            choices=("exclusive", "inclusive"),
        ),
        Field("on_no_match", "string", "When no arc matches a success.", default="end", choices=("end", "fail")),
        _closed(
            "policy",
            "Routing hints; no control actions.",
            Field("priority", "any", "Placeholder, without effect."),
            Field("dedupe", "any", "Placeholder, without effect."),
            Field("partitioning", "any", "Placeholder, without effect."),
        ),
    ),
    Field(
        "arcs",
        "list",
        "Where the token may go, in order.",
        required=True,
        items=_closed(
            "arc",
            "One way out of the step.",
            Field("step", "string", "The step that it leads to.", required=True),
            Field(
                "when",
                "condition",
                "Taken when true. Absent, or naming neither `event` nor `outcome`: on success only.",
            ),
            Field("args", "object", "Args of the token; values may be templates.", template=True),
            Field("spec", "object", "Placeholder, without effect."),
        ),
    ),
)

LIMITS = _closed(
    "limits",
    "Caps of one execution; settings are ceilings.",
    _count("max_payload_bytes", "Largest single event, bytes.", LEAST_EVENT_BYTES),
    _count("max_task_runs", "Most task runs of one pipeline, jumps included."),
    _count("max_iterations", "Most items of one loop."),
    _count("max_events", "Most events of the execution.", 16),
    _count("max_step_runs", "Most step runs of the execution."),
    _count("max_loop_results_bytes", "Most bytes of iteration results that one loop keeps for `{{ step.results }}`."),
)

EXECUTOR_POLICY = _closed(
    "policy",
    "Defaults and limits of the execution; no control actions.",
    _closed(
        "defaults",
        "Fallbacks.",
        _closed(
            "timeouts",
            "Time limits where none is named.",
            _seconds("task_s", "Fallback of `task.spec.timeout`, seconds."),
            _seconds("step_s", "Fallback of `lifecycle.timeout_s`, seconds."),
        ),
        Field("resources", "any", "Placeholder, without effect."),
    ),
    _closed(
        "results",
        "Results.",
        Field("reference_first", "boolean", "false keeps results up to the event cap inline.", default=True),
    ),
    LIMITS,
    Field(
        "approval",
        "string",
        "`required`: the run starts after it was approved.",
        default="none",
        choices=("none", "required"),
    ),
    EMIT,
    *(Field(name, "any", "Placeholder, without effect.") for name in ("placement", "cost", "quantum")),
)

_CTX_ENTRY = _closed(
    "ctx entry",
    "A declared ctx key.",
    Field("reducer", "string", "How values that `set_ctx` sets are combined.", required=True, choices=REDUCERS),
    Field("initial", "any", "The value before the first."),
)

#: One input; `items` and `properties` contain declarations of the same form.
INPUT = _closed(
    "input",
    "A typed input of a run.",
    Field("type", "string", "What it is.", default="any", choices=INPUT_TYPES),
    Field("required", "boolean", "true: a request without it is refused. Otherwise it is null.", default=False),
    Field("default", "any", "Its value in a run that names none."),
    Field("enum", "list", "The only values allowed."),
    Field("min", "number", "Lowest number, or least length of a text, list or map."),
    Field("max", "number", "Highest number, or greatest length."),
    Field("pattern", "string", "Regular expression that a text must match somewhere; `^…$` for the whole text."),
    Field("description", "string", "For readers, forms and error messages."),
    Field("items", "object", "Declaration of each item of a list."),
    Field("properties", "object", "Declarations of the keys of a map; no others are allowed."),
)

#: Ends of a run that a webhook may be notified of.
ENDS = ("completed", "failed", "cancelled")

_WEBHOOK = _closed(
    "webhook",
    "A receiver of a signed POST when a run has ended.",
    Field("url", "string", "Address of the receiver, http:// or https://; not rendered.", required=True),
    Field("secret", "string", "Name of the keychain entry whose text signs it.", required=True),
    Field(
        "on",
        "list",
        "States that cause a notification. Default: all.",
        items=Field("end", "string", choices=ENDS),
    ),
)

_NOTIFICATION = _closed(
    "notification",
    "A notification about one outcome of a run, by POST or e-mail.",
    Field("webhook", "string", "Address that gets a POST: http:// or https://; not rendered."),
    Field("secret", "string", "Name of the keychain entry whose text signs the POST. Default: it is not signed."),
    Field("email", "string|list", "Address or addresses that get an e-mail.", items=Field("address", "string")),
)

_SCHEDULE = _closed(
    "schedule",
    "A schedule of the playbook.",
    Field("name", "string", "The schedule's name. Default: the playbook's path, with `.` for `/`."),
    Field("cron", "string", "minute hour day month weekday.", required=True),
    Field("tz", "string", "Time zone of the fields.", default="UTC"),
    Field("workload", "object", "Workload of its runs."),
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
    Field("entry_step", "string", "The first step. Default: `start`, else the first of the list."),
    Field(
        "final_step",
        "string",
        "The step that runs once when nothing else is left, whatever became of the run. No arc leads to it.",
    ),
    Field(
        "result",
        "any",
        "Template of the execution's result. Default: the data of the last step run without successor.",
        template=True,
    ),
    _seconds("timeout_s", "Time limit of the whole execution, seconds."),
    _closed(
        "concurrency",
        "Runs of this playbook at a time.",
        Field("max", "integer", "How many.", required=True, minimum=1),
        Field("on_excess", "string", "What becomes of more.", default="queue", choices=("queue", "reject")),
    ),
    Field("inputs", "object", "Typed inputs: the contract on the request's workload.", items=INPUT),
    Field(
        "sequence",
        "boolean",
        "true: a step without `next` leads to the next step of the file.",
        default=False,
    ),
    Field("ctx", "object", "Declared ctx keys.", items=_CTX_ENTRY),
    POOL,
    PRIORITY,
    Field("webhooks", "list", "Notifications when a run has ended.", items=_WEBHOOK),
    Field("on_failure", "list", "Notifications when a run has failed.", items=_NOTIFICATION),
    Field("on_success", "list", "Notifications when a run has completed.", items=_NOTIFICATION),
    Field("schedules", "list", "Schedules; applied when the playbook is registered.", items=_SCHEDULE),
    EXECUTOR_POLICY,
)

KEYCHAIN_ENTRY = Field(
    "keychain entry",
    "object",
    "A credential that the playbook needs; `playbook.declarations` has the fields of each kind.",
)

METADATA = _closed(
    "metadata",
    "Name of the playbook.",
    Field("name", "string", "The playbook's name.", required=True),
    Field("path", "string", "Catalog path. Default: the name."),
    Field("version", "string|number", "For readers; the catalog numbers versions itself."),
    Field("description", "string", "For readers."),
    Field("labels", "object", "Free key-value pairs."),
    Field("tags", "list", "Free words.", items=Field("tag", "string")),
    required=True,
)


def crossing_fields(kinds: Mapping[str, KindSpec]) -> tuple[Field, ...]:
    """Return the task spec keys that may be set in an outer spec: those of all kinds.

    A key on which kinds differ has any type.
    """
    fields: dict[str, Field] = {}
    for field in (*COMMON_SPEC_FIELDS, *(field for kind in kinds.values() for field in kind.spec_fields)):
        known = fields.get(field.name)
        if known is None:
            fields[field.name] = field
        elif known != field:
            fields[field.name] = Field(field.name, "any", known.doc)
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
        Field("in", "any", "The items: a list, or a template that gives one.", required=True, template=True),
        Field("iterator", "name", "Name of the item in `iter`.", required=True),
        loop_spec,
    )
    # One table serves every level: a nested `loop` has the same label.
    loop = _closed("loop", "Runs the tasks once for each item.", *loop_own, Field("loop", "object", "A nested loop."))
    step = _closed(
        "step",
        "One step of the workflow.",
        Field("step", "name", "The step's name.", required=True),
        Field("desc", "string", "For readers."),
        spec(
            (STEP_POLICY, JOIN, END, POOL, PRIORITY, RESOURCES),
            "Behaviour of the step, and task spec keys for all its tasks.",
        ),
        Field("args", "object", "Args of the step, below those of the token; values may be templates.", template=True),
        loop,
        Field("tool", "object|list", "The task, or the list of tasks.", required=True),
        _closed("next", "The router.", *NEXT),
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
        Field("workload", "object", "Defaults of the inputs; never rendered."),
        Field("workbook", "list", "Reusable tasks, used by `kind: workbook`.", items=Field("workbook entry", "object")),
        Field("workflow", "list", "The steps.", required=True, items=step),
    )
