"""Findings for misplaced keys: keys without effect, control words outside tasks, and older forms."""

from __future__ import annotations

from arclog.playbook.schema import ACTION_KEYS, ACTIONS

#: Keys without effect, by label of their map: accepted, and reported as info.
PLACEHOLDERS: dict[str, frozenset[str]] = {
    "executor.spec.policy": frozenset({"placement", "cost", "quantum"}),
    "executor.spec.policy.defaults": frozenset({"resources"}),
    "step.spec.policy": frozenset({"tracing", "quotas", "compensation"}),
    "loop.spec.policy": frozenset({"ordering", "reducers", "backpressure", "partitioning"}),
    "step.next.spec.policy": frozenset({"priority", "dedupe", "partitioning"}),
    "arc": frozenset({"spec"}),
    "task.spec.policy": frozenset({"mode"}),
}

#: Words that control a task; refused in every policy but a task's.
CONTROL = frozenset({*ACTIONS, *ACTION_KEYS, "do", "rules", "on_unmatched", "set_iter", "set_ctx", "then", "else"})
CONTROL_LABELS = frozenset(
    {"executor.spec.policy", "step.spec.policy", "loop.spec.policy", "step.next.spec.policy", "arc.spec", "admit.then"}
)

_RULES = "spec: {policy: {rules: [{when: \"{{ outcome.status == 'error' }}\", then: {do: fail}}, {else: {then: {do: continue}}}]}}"
_RETRY = "on the task: spec: {retry: {attempts: 3, delay: 1.0, backoff: exponential}}, or for errors of your choice spec: {policy: {rules: [{when: \"{{ outcome.status == 'error' }}\", then: {do: retry, attempts: 3, backoff: exponential, delay: 1.0}}]}}"
_ARCS = 'next: {arcs: [{step: NAME, when: "{{ … }}"}]}'
_ADMISSION = 'spec: {policy: {admit: {rules: [{when: "{{ … }}", then: {allow: true}}]}}}'
_STATE = "inputs belong to `workload:` at the root; state is written by a task: spec: {set_ctx: {key: …}} (or set_iter)"
_SINK = "storing is an ordinary task of the list: tool: [{name: store, kind: postgres, …}]"

_BRANCH = "next: {arcs: [{step: NAME}]} on the step before; a step that waits for several has spec: {join: all}"
_ON_FAILURE = "an arc that sees the failure: next: {arcs: [{step: NAME, when: \"{{ event.name == 'step.failed' }}\"}]}"
_CODE = "tool: {kind: python, code: |…}, or {kind: shell, command: [program, argument]}"
_TIMEOUT = "on the task: spec: {timeout: SECONDS}; of a step run: spec: {policy: {lifecycle: {timeout_s: SECONDS}}}"
_KEEP = "read a step's result by the step's name; keep a part of it with spec: {set_ctx: {key: …}} of the task"
_INPUTS = "executor: {spec: {inputs: {name: {type: string, required: true}}}}, or workload: {name: default}"
_SCHEDULES = "executor: {spec: {schedules: [{cron: '0 6 * * *'}]}}, applied when the playbook is registered"
_NOTIFY = "executor: {spec: {on_failure: [{email: name@example.org}]}}; a step that handles it: an arc with event.name == 'step.failed'"
_FINAL = "executor: {spec: {final_step: NAME}}: the step runs last, however the run ends"
_IGNORE = "on the task: spec: {policy: {rules: [{when: \"{{ outcome.status == 'error' }}\", then: {do: continue}}]}}"
_WORKDIR = 'tasks start in the folder that the setting worker.workdir names; shell: command: "cd app && …"'
_LOOP = 'loop: {in: "{{ … }}", iterator: NAME, spec: {mode: parallel}}'

#: Names in other tools, by label of the map and key: the arclog form.
FOREIGN: dict[tuple[str, str], str] = {
    **{
        ("step", key): _BRANCH
        for key in (
            "depends_on",
            "needs",
            "dependsOn",
            "after",
            "upstream",
            "requires",
            "dependencies",
            "wait_for",
            "depends",
        )
    },
    **{
        ("step", key): _RETRY
        for key in ("retries", "max_retries", "retry_policy", "retryPolicy", "max_attempts", "retry_delay")
    },
    **{("step", key): _ON_FAILURE for key in ("on_failure", "on_error", "catch", "onError", "errors", "rescue")},
    **{
        ("step", key): _LOOP
        for key in (
            "for_each",
            "foreach",
            "with_items",
            "matrix",
            "map",
            "each",
            "forEach",
            "strategy",
            "withItems",
            "withParam",
            "expand",
        )
    },
    **{("step", key): _CODE for key in ("script", "run", "cmd", "command", "code", "bash", "python")},
    **{
        ("step", key): _TIMEOUT
        for key in ("timeout", "timeout_s", "timeout_minutes", "timeout-minutes", "execution_timeout")
    },
    **{("step", key): _ADMISSION for key in ("if", "condition", "skip_if", "unless", "runIf")},
    **{("step", key): _ARCS for key in ("downstream", "next_step", "then", "goto", "transition")},
    **{("step", key): _IGNORE for key in ("continue_on_error", "continue-on-error", "ignore_errors", "allowFailure")},
    **{
        ("step", key): "spec: {pool: NAME}: workers of that pool run the step"
        for key in ("queue", "runs-on", "agent", "task_queue")
    },
    **{("step", key): _WORKDIR for key in ("workdir", "working-directory", "cwd")},
    **{
        ("step", key): "the name of a step is the value of `step:`, as in - step: NAME"
        for key in ("id", "task_id", "key")
    },
    **{("step", key): "tool: {kind: …}" for key in ("uses", "action", "operator", "task", "image")},
    **{("step", key): "tool: [{name: LABEL, kind: …}, …]" for key in ("tasks", "steps", "actions", "tools")},
    **{
        ("step", key): "args: {…}" for key in ("input", "inputs", "params", "parameters", "vars_", "env", "environment")
    },
    (
        "step",
        "finally",
    ): "a step that both the success and the failure lead to: an arc without `when` and one with event.name == 'step.failed'",
    ("step", "parallel"): "next: {spec: {mode: inclusive}, arcs: […]} starts several steps at once; for items: "
    + _LOOP,
    ("step", "register"): "read a step's result by the step's name: {{ NAME.data }}",
    ("step", "set"): _KEEP,
    ("step", "set_ctx"): _KEEP,
    ("task", "set"): "spec: {set_ctx: {key: …}} for the run, spec: {set_iter: {key: …}} for the iteration",
    ("task", "set_ctx"): "spec: {set_ctx: {key: …}}",
    ("task", "set_iter"): "spec: {set_iter: {key: …}}",
    ("arc", "set"): "the task before sets it: spec: {set_ctx: {key: …}}; an arc passes args: {key: …}",
    ("step", "output"): _KEEP,
    ("step", "outputs"): _KEEP,
    ("step", "description"): "desc: …",
    ("playbook", "inputs"): _INPUTS,
    ("playbook", "input"): _INPUTS,
    ("playbook", "params"): _INPUTS,
    ("playbook", "parameters"): _INPUTS,
    **{("playbook", key): _SCHEDULES for key in ("schedule", "schedule_interval", "start_date", "catchup")},
    **{("playbook", key): "metadata: {name: …}" for key in ("dag_id", "namespace", "flow_id")},
    ("playbook", "default_args"): "executor: {spec: {…}} has what applies to all steps: retry, timeout_s, on_failure",
    ("playbook", "errors"): _NOTIFY,
    **{
        ("executor.spec", key): _NOTIFY
        for key in ("email_on_failure", "on_failure_callback", "notify", "notifications")
    },
    **{("executor.spec", key): "concurrency: {max: 1}" for key in ("max_active_runs", "max_concurrent_runs")},
    **{
        (
            "step.spec",
            key,
        ): "join: any, all or all_ok selects the branches that the step waits for; to handle a failure, use an arc with event.name == 'step.failed'"
        for key in ("trigger_rule", "triggerRule")
    },
    **{
        ("task.spec", key): "timeout: SECONDS"
        for key in ("start_to_close_timeout", "startToCloseTimeout", "execution_timeout")
    },
    ("playbook", "schedules"): _SCHEDULES,
    ("playbook", "cron"): _SCHEDULES,
    ("playbook", "on"): _SCHEDULES,
    ("playbook", "triggers"): _SCHEDULES,
    ("playbook", "tasks"): "the list of steps is called `workflow:`",
    ("playbook", "jobs"): "the list of steps is called `workflow:`",
    ("playbook", "flow"): "the list of steps is called `workflow:`",
    ("playbook", "stages"): "the list of steps is called `workflow:`",
    ("playbook", "id"): "metadata: {name: …}",
    ("playbook", "description"): "metadata: {name: …, description: …}",
    ("playbook", "labels"): "metadata: {name: …, labels: {…}}",
    ("playbook", "tags"): "metadata: {name: …, tags: […]}",
    ("playbook", "secrets"): "keychain: [{name: NAME, kind: secret}]",
    ("playbook", "credentials"): "keychain: [{name: NAME, kind: secret}]",
    ("playbook", "env"): "workload: {…} for values, keychain: [{name: NAME, kind: env}] for secrets",
    ("playbook", "timeout"): "executor: {spec: {timeout_s: SECONDS}}",
    ("playbook", "concurrency"): "executor: {spec: {concurrency: {max: 1}}}",
    ("playbook", "output"): 'executor: {spec: {result: "{{ … }}"}}',
    ("playbook", "outputs"): 'executor: {spec: {result: "{{ … }}"}}',
    ("playbook", "result"): 'executor: {spec: {result: "{{ … }}"}}',
    ("playbook", "on_failure"): _NOTIFY,
    ("playbook", "on_error"): _NOTIFY,
    ("playbook", "on_success"): _NOTIFY.replace("on_failure", "on_success"),
    ("playbook", "finally"): _FINAL,
    **{
        ("task", key): "kind: wait takes for_s: SECONDS; a limit of time is spec: {timeout: SECONDS}"
        for key in ("seconds", "duration")
    },
    ("task", "retries"): _RETRY,
    ("task", "max_retries"): _RETRY,
    ("task", "timeout"): "spec: {timeout: SECONDS}",
    ("task", "on_error"): _RULES,
    ("task", "on_failure"): _RULES,
    ("task", "register"): "a task's outcome is known by its label: {{ LABEL.data }}",
    ("task", "id"): "name: LABEL",
    ("task", "label"): "name: LABEL",
    ("task", "if"): "branch with choose: [{when: …, then: [tasks]}]",
    ("arc", "target"): 'arcs: [{step: NAME, when: "{{ … }}"}]',
    ("arc", "next"): 'arcs: [{step: NAME, when: "{{ … }}"}]',
    ("arc", "goto"): 'arcs: [{step: NAME, when: "{{ … }}"}]',
    ("loop", "over"): 'in: "{{ … }}"',
    ("loop", "for"): 'in: "{{ … }}"',
    ("loop", "as"): "iterator: NAME",
    ("loop", "item"): "iterator: NAME",
    ("loop", "var"): "iterator: NAME",
    ("loop", "concurrency"): "spec: {mode: parallel, max_in_flight: 10}",
    ("loop", "parallel"): "spec: {mode: parallel, max_in_flight: 10}",
}

#: Older forms, by label of the map ('*' for any) and key: the replacement.
LEGACY: dict[tuple[str, str], str] = {
    ("playbook", "vars"): _STATE,
    ("playbook", "steps"): "the list of steps is called `workflow:`",
    ("playbook", "name"): "metadata: {name: …}",
    ("playbook", "path"): "metadata: {name: …, path: …}",
    ("playbook", "version"): "metadata: {name: …, version: …}",
    ("step", "when"): _ADMISSION,
    ("step", "name"): "the name of a step is the value of `step:`, as in - step: NAME",
    ("step", "case"): _ARCS,
    ("step", "type"): "tool: {kind: …}",
    ("step", "kind"): "tool: {kind: …}",
    ("step", "call"): "tool: {kind: …}",
    ("step", "retry"): _RETRY,
    ("step", "eval"): "on the task: " + _RULES,
    ("step", "vars"): _STATE,
    ("step", "with"): "args: {…}",
    ("step", "then"): _ARCS,
    ("step", "else"): _ARCS,
    ("step", "iterator"): 'loop: {in: "{{ … }}", iterator: NAME}',
    (
        "task",
        "when",
    ): "branch with a rule of the task before (spec: {policy: {rules: [{when: …, then: {do: jump, to: LABEL}}]}}), or with choose: [{when: …, then: [tasks]}]",
    ("task", "eval"): _RULES,
    ("task", "retry"): _RETRY,
    ("task", "case"): _RULES,
    ("task", "type"): "kind: …",
    ("task", "tool"): "kind: …",
    ("task", "policy"): "spec: {policy: {rules: […]}}",
    ("task", "with"): "args: {…}",
    ("task", "loop"): "a loop belongs to the step: - step: NAME, loop: {in: …, iterator: …}, tool: […]",
    ("task", "next"): "routing belongs to the step: " + _ARCS,
    ("task.spec", "eval"): _RULES,
    ("task.spec.policy", "eval"): "rules: [{when: …, then: {do: …}}]",
    ("arc", "then"): 'arcs: [{step: NAME, when: "{{ … }}"}]',
    ("arc", "to"): 'arcs: [{step: NAME, when: "{{ … }}"}]',
    ("arc", "condition"): 'when: "{{ … }}"',
    ("arc", "if"): 'when: "{{ … }}"',
    ("loop", "collection"): 'in: "{{ … }}"',
    ("loop", "items"): 'in: "{{ … }}"',
    ("loop", "element"): "iterator: NAME",
    ("loop", "mode"): "spec: {mode: sequential|parallel}",
    ("loop", "max_in_flight"): "spec: {mode: parallel, max_in_flight: 10}",
    ("step.next", "mode"): "next: {spec: {mode: exclusive|inclusive}, arcs: […]}",
    ("step.next", "step"): _ARCS,
    ("step.next", "when"): _ARCS,
    ("*", "expr"): 'the one conditional keyword is `when: "{{ … }}"`',
    ("*", "eval"): "on the task: " + _RULES,
    ("*", "case"): _ARCS,
    ("*", "retry"): _RETRY,
    ("*", "sink"): _SINK,
    ("*", "vars"): _STATE,
}
