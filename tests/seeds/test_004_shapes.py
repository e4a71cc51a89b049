"""Document 004, the canonical step spec: what a playbook may look like, and what `check` says of everything else."""

from __future__ import annotations

import json

import pytest

from arclog.playbook.json_schema import json_schema
from arclog.wiring.kinds import installed_kinds
from tests.seeds.support import checked, errors, plan_of, playbook, step_of


def findings(text: str, code: str) -> list[str]:
    """Severities of the findings with a code."""
    return [finding.severity for finding in checked(text)[1] if finding.code == code]


def hint(text: str, code: str) -> str:
    return next(finding.hint for finding in checked(text)[1] if finding.code == code)


# -- decisions of v10, and the migration checklist --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (playbook("tool: {kind: noop}\nwhen: '{{ ctx.a }}'"), "admit: {rules: ["),
        (playbook("tool: {kind: noop, eval: []}"), "policy: {rules: ["),
        (playbook("tool: {kind: noop}\nnext: {arcs: [{step: one, expr: x}]}"), "when:"),
        (playbook("tool: {kind: noop}\nnext: [{step: one}]"), "next: {arcs: [{step: one}]}"),
        (playbook("tool: {kind: noop}\nsink: {}"), "ordinary task"),
        (playbook("tool: {kind: noop}", "vars: {a: 1}\n"), "workload:"),
        (playbook("tool: {kind: noop, retry: {}}"), "do: retry"),
    ],
    ids=["step.when", "eval", "expr", "next as a list", "sink", "vars", "retry"],
)
def test_forms_that_v10_dropped_are_errors_that_show_the_canonical_form(text: str, canonical: str) -> None:
    assert "legacy-form" in errors(text)
    assert canonical in hint(text, "legacy-form")


def test_when_is_the_only_conditional() -> None:
    for key in ("if", "unless", "expr", "condition"):
        rule = f"tool: {{kind: noop, spec: {{policy: {{rules: [{{{key}: true, then: {{do: continue}}}}]}}}}}}"
        assert errors(playbook(rule))
        assert errors(playbook(f"tool: {{kind: noop}}\nnext: {{arcs: [{{step: one, {key}: 'ctx.a'}}]}}"))


def test_there_is_no_sink_and_no_loop_kind() -> None:
    for kind in ("sink", "loop"):
        assert "unknown-kind" in errors(playbook(f"tool: {{kind: {kind}}}"))
        assert kind not in installed_kinds()


# -- 2: the root ------------------------------------------------------------------------------------------------------


def test_all_sections_of_the_root() -> None:
    plan = plan_of("""
metadata: {name: whole, path: flows/whole, version: "1", description: All of it., labels: {a: b}, tags: [c]}
keychain: [{name: token, kind: env}]
executor: {spec: {timeout_s: 60}}
workload: {a: 1}
workbook: [{name: shared, kind: noop}]
workflow: [{step: start, tool: {kind: workbook, name: shared}}]
""")
    assert (plan.name, plan.path, plan.timeout_s, plan.workload) == ("whole", "flows/whole", 60, {"a": 1})


@pytest.mark.parametrize("left_out", ["keychain", "executor", "workload", "workbook"])
def test_optional_sections_of_the_root(left_out: str) -> None:
    sections = {
        "keychain": "keychain: [{name: token, kind: env}]\n",
        "executor": "executor: {}\n",
        "workload": "workload: {}\n",
        "workbook": "workbook: []\n",
    }
    before = "".join(text for name, text in sections.items() if name != left_out)
    assert plan_of(playbook("tool: {kind: noop}", before)).entry == "one"


def test_metadata_and_workflow_are_required_and_workflow_is_a_list() -> None:
    assert "missing-key" in errors("metadata: {name: p}")
    assert "missing-key" in errors("workflow: [{step: a, tool: {kind: noop}}]")
    assert "wrong-type" in errors("metadata: {name: p}\nworkflow: {step: a, tool: {kind: noop}}")


# -- 3: layers of spec ------------------------------------------------------------------------------------------------


def test_spec_at_every_scope() -> None:
    plan, reported = checked("""
metadata: {name: p}
executor: {spec: {timeout: 9}}
workflow:
  - step: one
    spec: {timeout: 8}
    loop: {in: [1], iterator: i, spec: {timeout: 7}}
    tool: [{kind: noop, spec: {timeout: 6}}, {kind: noop}]
    next: {spec: {mode: inclusive}, arcs: [{step: two, spec: {weight: 1}}]}
  - {step: two, spec: {timeout: 8}, tool: {kind: noop}}
  - {step: three, tool: {kind: noop}}
""")
    assert plan is not None
    assert [task.timeout_s for step in plan.steps for task in step.tasks] == [6, 7, 8, 9]
    assert plan.steps[0].mode == "inclusive"
    assert [finding.severity for finding in reported if finding.code == "placeholder"] == ["info"]


def test_inner_scalars_win_maps_merge_and_lists_are_replaced() -> None:
    plan = plan_of("""
metadata: {name: p}
executor: {spec: {lanes: 2, tls: {min: '1.3', names: [a, b]}}}
workflow:
  - step: one
    spec: {tls: {ca: x}}
    tool: {kind: http, url: x, spec: {lanes: 5, tls: {names: [c]}}}
""")
    spec = plan.steps[0].tasks[0].spec
    assert spec["lanes"] == 5
    # `verify` is a default of the kind.
    assert spec["tls"] == {"verify": True, "min": "1.3", "ca": "x", "names": ["c"]}


def test_a_policy_belongs_to_its_scope() -> None:
    plan = plan_of("""
metadata: {name: p}
executor: {spec: {policy: {defaults: {timeouts: {task_s: 5}}}}}
workflow:
  - step: one
    spec: {policy: {failure: {mode: best_effort}}}
    tool: [{kind: noop, spec: {policy: {rules: [{else: {then: {do: break}}}]}}}, {kind: noop}]
""")
    first, second = plan.steps[0].tasks
    assert first.policy is not None
    assert second.policy is None
    assert "policy" not in first.spec


CONTROL = ["do: fail", "retry: 3", "jump: x", "break: true", "continue: true", "fail: true", "rules: []"]


@pytest.mark.parametrize("key", CONTROL)
@pytest.mark.parametrize("scope", ["executor", "step", "loop", "next"])
def test_control_actions_belong_to_tasks_alone(scope: str, key: str) -> None:
    text = {
        "executor": playbook("tool: {kind: noop}", f"executor: {{spec: {{policy: {{{key}}}}}}}\n"),
        "step": playbook(f"tool: {{kind: noop}}\nspec: {{policy: {{{key}}}}}"),
        "loop": playbook(f"tool: {{kind: noop}}\nloop: {{in: [1], iterator: i, spec: {{policy: {{{key}}}}}}}"),
        "next": playbook(f"tool: {{kind: noop}}\nnext: {{spec: {{policy: {{{key}}}}}, arcs: []}}"),
    }[scope]
    assert "control-key" in errors(text)


# -- 4, 5: policies ---------------------------------------------------------------------------------------------------


def test_executor_policy() -> None:
    plan = plan_of(
        playbook(
            "tool: {kind: noop}",
            "executor: {spec: {policy: {defaults: {timeouts: {task_s: 5, step_s: 50}},"
            " results: {reference_first: true}, limits: {max_payload_bytes: 100000}}}}\n",
        )
    )
    assert (plan.steps[0].tasks[0].timeout_s, plan.steps[0].timeout_s) == (5, 50)
    assert plan.limits.max_payload_bytes == 100_000


PLACEHOLDERS = {
    "executor.spec.policy.defaults.resources": playbook(
        "tool: {kind: noop}", "executor: {spec: {policy: {defaults: {resources: {cpu: 1}}}}}\n"
    ),
    **{
        f"step.spec.policy.{key}": playbook(f"tool: {{kind: noop}}\nspec: {{policy: {{{key}: {{}}}}}}")
        for key in ("tracing", "quotas", "compensation")
    },
    **{
        f"loop.spec.policy.{key}": playbook(
            f"tool: {{kind: noop}}\nloop: {{in: [1], iterator: i, spec: {{policy: {{{key}: {{}}}}}}}}"
        )
        for key in ("ordering", "reducers", "backpressure", "partitioning")
    },
    **{
        f"next.spec.policy.{key}": playbook(
            f"tool: {{kind: noop}}\nnext: {{spec: {{policy: {{{key}: {{}}}}}}, arcs: []}}"
        )
        for key in ("priority", "dedupe", "partitioning")
    },
    "arc.spec": playbook("tool: {kind: noop}\nnext: {arcs: [{step: one, when: ctx.a, spec: {weight: 1}}]}"),
    "task.spec.policy.mode": playbook("tool: {kind: noop, spec: {policy: {mode: exclusive, rules: []}}}"),
}


@pytest.mark.parametrize("text", PLACEHOLDERS.values(), ids=list(PLACEHOLDERS))
def test_a_placeholder_is_accepted_and_reported(text: str) -> None:
    assert findings(text, "placeholder") == ["info"]
    assert errors(text) == []
    assert checked(text)[0] is not None


@pytest.mark.parametrize("hook", ["before", "after", "finally"])
def test_hooks_are_accepted_and_reported_as_not_run(hook: str) -> None:
    text = playbook(f"tool: {{kind: noop, spec: {{policy: {{{hook}: [{{kind: noop}}], rules: []}}}}}}")
    assert findings(text, "not-run") == ["warning"]
    assert checked(text)[0] is not None
    assert findings(text.replace("[{kind: noop}]", "[]"), "not-run") == []


def test_admission_has_a_mode_and_rules_in_both_spellings_of_else() -> None:
    for last in ("{else: {then: {allow: false}}}", "{else: null, then: {allow: false}}"):
        for mode in ("mode: exclusive, ", "mode: inclusive, ", ""):
            step = step_of(
                "tool: {kind: noop}\nspec: {policy: {admit: {"
                f"{mode}rules: [{{when: '{{{{ ctx.a }}}}', then: {{allow: true}}}}, {last}]}}}}}}"
            )
            assert [(rule.allow, rule.when) for rule in step.admit or ()] == [(True, "{{ ctx.a }}"), (False, None)]
    assert "bad-value" in errors(playbook("tool: {kind: noop}\nspec: {policy: {admit: {mode: some, rules: []}}}"))


def test_step_policy_takes_lifecycle_failure_and_emit() -> None:
    step = step_of(
        "tool: {kind: noop}\nspec: {policy: {lifecycle: {timeout_s: 5, deadline_s: 9},"
        " failure: {mode: best_effort}, emit: {events: [task.attempt.started]}}}"
    )
    assert (step.timeout_s, step.deadline_s, step.failure_mode) == (5, 9, "best_effort")
    assert step_of("tool: {kind: noop}").failure_mode == "fail_fast"
    assert "bad-value" in errors(playbook("tool: {kind: noop}\nspec: {policy: {failure: {mode: later}}}"))


def test_loop_policy_takes_exec_mode_and_max_in_flight() -> None:
    for spec in ("{mode: parallel, max_in_flight: 3}", "{policy: {mode: parallel, max_in_flight: 3}}"):
        loop = step_of(f"tool: {{kind: noop}}\nloop: {{in: [1], iterator: i, spec: {spec}}}").loop
        assert loop is not None
        assert (loop.mode, loop.max_in_flight, loop.exec) == ("parallel", 3, "distributed")
    for where in ("distributed", "local"):
        loop = step_of(
            f"tool: {{kind: noop}}\nloop: {{in: [1], iterator: i, spec: {{policy: {{exec: {where}}}}}}}"
        ).loop
        assert loop is not None
        assert loop.exec == where
    assert "bad-value" in errors(
        playbook("tool: {kind: noop}\nloop: {in: [1], iterator: i, spec: {policy: {exec: far}}}")
    )


@pytest.mark.parametrize("policy", ["[{when: true, then: {do: fail}}]", "{}", "{do: retry}", "retry", "{rules: {}}"])
def test_a_task_policy_is_an_object_with_a_list_of_rules(policy: str) -> None:
    assert errors(playbook(f"tool: {{kind: noop, spec: {{policy: {policy}}}}}"))


def test_the_whole_shape_of_a_task_policy() -> None:
    step = step_of("""
tool:
  - name: a
    kind: http
    url: x
    spec:
      policy:
        mode: exclusive
        on_unmatched: continue
        before: []
        after: []
        finally: []
        rules:
          - when: "{{ outcome.status == 'error' }}"
            then: {do: retry, attempts: 5, backoff: exponential, delay: 1.0, set_iter: {n: 1}, set_ctx: {m: 2}}
          - when: "{{ ctx.jump }}"
            then: {do: jump, to: b}
          - else:
              then:
                do: continue
  - {name: b, kind: noop}
""")
    policy = step.tasks[0].policy
    assert policy is not None
    first, second, last = (rule.then for rule in policy.rules)
    assert (first.do, first.attempts, first.backoff, first.delay) == ("retry", 5, "exponential", 1.0)
    assert (first.set_iter, first.set_ctx) == ({"n": 1}, {"m": 2})
    assert (second.do, second.to, last.do) == ("jump", "b", "continue")


@pytest.mark.parametrize("value", ["exponential", "linear", "none"])
def test_three_ways_to_back_off(value: str) -> None:
    step = step_of(
        f"tool: {{kind: noop, spec: {{policy: {{rules: [{{else: {{then: {{do: retry, backoff: {value}}}}}}}]}}}}}}"
    )
    policy = step.tasks[0].policy
    assert policy is not None
    assert policy.rules[0].then.backoff == value


def test_control_actions_stand_in_rules_alone() -> None:
    for place in ("do: retry", "then: {do: retry}", "attempts: 3"):
        assert errors(playbook(f"tool: {{kind: noop, spec: {{policy: {{{place}, rules: []}}}}}}"))
        assert errors(playbook(f"tool: {{kind: noop, spec: {{{place}}}}}"))


def test_the_router() -> None:
    step = step_of(
        "tool: {kind: noop}\nnext: {spec: {mode: inclusive, policy: {}},"
        " arcs: [{step: one, when: '{{ ctx.a }}', args: {n: 1}}, {step: one}]}"
    )
    assert step.mode == "inclusive"
    assert [(arc.target, arc.when, arc.args) for arc in step.arcs] == [
        ("one", "{{ ctx.a }}", {"n": 1}),
        ("one", None, {}),
    ]
    assert step_of("tool: {kind: noop}\nnext: {arcs: []}").mode == "exclusive"
    assert "missing-key" in errors(playbook("tool: {kind: noop}\nnext: {arcs: [{when: ctx.a}]}"))


# -- 7: tasks ---------------------------------------------------------------------------------------------------------


def test_three_shapes_of_a_task_list() -> None:
    named = step_of("tool: [{name: init_iter, kind: noop}, {name: fetch_page, kind: http, method: GET, url: x}]")
    assert [(task.name, task.kind) for task in named.tasks] == [("init_iter", "noop"), ("fetch_page", "http")]
    assert named.tasks[1].config == {"method": "GET", "url": "x"}
    unnamed = step_of("tool: [{kind: http, url: x}, {kind: python, code: x}]")
    assert [(task.name, task.kind) for task in unnamed.tasks] == [("task_0", "http"), ("task_1", "python")]
    single = step_of("tool: {kind: http, method: GET, url: x}")
    assert [(task.name, task.kind) for task in single.tasks] == [("one_task", "http")]


def test_a_label_as_key_is_not_a_task() -> None:
    text = playbook("tool: [{fetch: {kind: http, url: x}}]")
    assert "task-label-map" in errors(text)
    assert "name: fetch, kind: http" in hint(text, "task-label-map")


def test_a_jump_names_a_task_of_the_list() -> None:
    rules = "spec: {policy: {rules: [{else: {then: {do: jump, to: %s}}}]}}"
    for target in ("last", "task_1"):
        second = "{name: last, kind: noop}" if target == "last" else "{kind: noop}"
        assert errors(playbook(f"tool: [{{kind: noop, {rules % target}}}, {second}]")) == []
    assert "unknown-task" in errors(playbook(f"tool: [{{kind: noop, {rules % 'nowhere'}}}]"))


def test_a_json_schema_of_the_language_is_published() -> None:
    schema = json.loads(json.dumps(json_schema(installed_kinds())))
    assert schema["required"] == ["metadata", "workflow"]
    assert {"metadata", "keychain", "executor", "workload", "workflow", "workbook"} <= schema["properties"].keys()


# -- examples of the document, as they stand there --------------------------------------------------------------------

EXAMPLES = {
    "2.1": playbook(
        "tool: {kind: noop}",
        """\
keychain:
- name: openai_token
  kind: secret_manager
- name: pg_k8s
  kind: postgres_credential
""",
    ),
    "5.2.1": playbook("""
tool: {kind: noop}
spec:
  policy:
    admit:
      mode: exclusive # exclusive | inclusive (default exclusive)
      rules:
        - when: "{{ workload.open }}"
          then: { allow: true }
        - else:
          then: { allow: false }
"""),
    "5.5": playbook("""
tool: {kind: noop}
next:
  spec:
    mode: exclusive # exclusive | inclusive (default exclusive)
    policy: {} # placeholders: priority/dedupe/partitioning
  arcs:
    - step: one
      when: "{{ ctx.more }}"
      args: { n: 1 }
"""),
    "7.1": playbook("""
tool:
  - name: init_iter
    kind: noop
    spec:
      policy:
        rules:
          - else:
              then: { do: continue, set_iter: { page: 1 } }

  - name: fetch_page
    kind: http
    method: GET
    url: "{{ workload.api_url }}"
    spec:
      policy:
        rules:
          - when: "{{ outcome.status == 'error' }}"
            then: { do: retry, attempts: 5 }
          - else:
              then: { do: continue }
"""),
    "7.2": playbook("""
tool:
  - kind: http
    url: "..."
  - kind: python
    code: "..."
"""),
    "7.3": playbook(
        """
tool:
  kind: http
  method: GET
  url: "{{ api_url }}"
""",
        "workload: {api_url: http://localhost}\n",
    ),
}


@pytest.mark.parametrize("text", EXAMPLES.values(), ids=list(EXAMPLES))
def test_an_example_of_the_document_is_valid(text: str) -> None:
    plan, reported = checked(text)
    assert plan is not None, [str(finding) for finding in reported]
    assert [finding for finding in reported if finding.severity == "error"] == []
