"""What may not stand where: keys without effect, control words outside tasks, and older forms with their remedy."""

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

#: Words that steer a task; refused in every policy but a task's.
CONTROL = frozenset({*ACTIONS, *ACTION_KEYS, "do", "rules", "on_unmatched", "set_iter", "set_ctx", "then", "else"})
CONTROL_LABELS = frozenset(
    {"executor.spec.policy", "step.spec.policy", "loop.spec.policy", "step.next.spec.policy", "arc.spec", "admit.then"}
)

_RULES = "spec: {policy: {rules: [{when: \"{{ outcome.status == 'error' }}\", then: {do: fail}}, {else: {then: {do: continue}}}]}}"
_RETRY = "on the task: spec: {policy: {rules: [{when: \"{{ outcome.status == 'error' }}\", then: {do: retry, attempts: 3, backoff: exponential, delay: 1.0}}]}}"
_ARCS = 'next: {arcs: [{step: NAME, when: "{{ … }}"}]}'
_ADMISSION = 'spec: {policy: {admit: {rules: [{when: "{{ … }}", then: {allow: true}}]}}}'
_STATE = "inputs belong to `workload:` at the root; state is written by a task's rule: then: {do: continue, set_ctx: {key: …}} (or set_iter)"
_SINK = "storing is an ordinary task of the list: tool: [{name: store, kind: postgres, …}]"

#: Older forms, by label of the map ('*': anywhere) and key: what to write instead.
LEGACY: dict[tuple[str, str], str] = {
    ("playbook", "vars"): _STATE,
    ("playbook", "steps"): "the list of steps is called `workflow:`",
    ("playbook", "name"): "metadata: {name: …}",
    ("playbook", "path"): "metadata: {name: …, path: …}",
    ("playbook", "version"): "metadata: {name: …, version: …}",
    ("step", "when"): _ADMISSION,
    ("step", "name"): "a step's name stands under `step:`, as in - step: NAME",
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
    ("task.spec", "retry"): _RETRY,
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
