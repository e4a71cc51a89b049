"""One test a lint: what it finds, and what it leaves alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from arclog.core.boundary.signals import RULES
from arclog.model.status import RESERVED_SIGNALS
from arclog.plan.build import build
from tests.unit.plan.kinds import KINDS

ROOT = Path(__file__).parents[4]


def findings_of(text: str, code: str) -> list[tuple[str, str, str]]:
    made = build(text, "p.yaml", KINDS)
    return [(str(finding.at), finding.severity, finding.hint) for finding in made.findings if finding.code == code]


def one_step(tool: str = "{kind: noop}", more: str = "", before: str = "") -> str:
    more = "".join(f"    {line}\n" for line in more.splitlines())
    return f"metadata: {{name: p}}\n{before}workflow:\n  - step: one\n    tool: {tool}\n{more}"


def policy(rules: str, kind: str = "kind: http, url: x") -> str:
    return f"{{{kind}, spec: {{policy: {{rules: {rules}}}}}}}"


@pytest.mark.parametrize(
    ("rules", "falls"),
    [
        ("[]", True),
        ("""[{when: "{{ outcome.status == 'ok' }}", then: {do: continue}}]""", True),
        ("""[{when: "{{ outcome.status == 'error' and outcome.http.status == 500 }}", then: {do: retry}}]""", True),
        ("""[{when: "{{ outcome.status == 'error' }}", then: {do: retry}}]""", False),
        ("""[{when: 'outcome.status != "ok"', then: {do: fail}}]""", False),
        ("""[{when: "{{ outcome.error }}", then: {do: fail}}]""", False),
        ("""[{when: "{{ (outcome.error is not none) or ctx.a }}", then: {do: fail}}]""", False),
        ("""[{when: "{{ not (outcome.status == 'ok') }}", then: {do: fail}}]""", False),
        ("""[{when: "{{ outcome['status'] in ['error', 'ok'] }}", then: {do: fail}}]""", False),
        ("""[{when: "{{ outcome.status == 'ok' or outcome.http.status == 404 }}", then: {do: continue}}]""", True),
        ("[{when: true, then: {do: continue}}]", False),
        ("[{else: {then: {do: continue}}}]", False),
        ("[], on_unmatched: fail", False),
    ],
)
def test_errors_that_fall_through(rules, falls):
    assert bool(findings_of(one_step(policy(rules)), "error-falls-through")) is falls


def test_a_noop_has_no_error_to_fall_through():
    assert (
        findings_of(one_step(policy("[{when: 'ctx.a', then: {do: break}}]", "kind: noop")), "error-falls-through") == []
    )


@pytest.mark.parametrize(
    ("when", "warned"),
    [
        ("outcome.status == 'success'", True),
        ("'failed' != outcome.status", True),
        ('outcome.status == "COMPLETED"', True),
        ("outcome.status == 'ok'", False),
        ("outcome.status != 'error'", False),
        ("outcome.http.status == 200", False),
        ("outcome['status'] == 'done'", True),
        ("outcome.status in ['ok', 'skipped']", True),
        ("outcome.data.status == 'done'", False),
        ("outcome.data == 'outcome.status == 1'", False),
    ],
)
def test_statuses_that_do_not_exist(when, warned):
    text = one_step(f"""
      kind: http
      url: x
      spec:
        policy:
          rules:
            - when: >-
                {{{{ {when} }}}}
              then: {{do: continue}}
            - else: {{then: {{do: fail}}}}
    """)
    assert bool(findings_of(text, "outcome-status")) is warned


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("start.status == 'shipped'", "a key `status` of the data is start.data.status"),
        ("fetch.status == '404'", "an http status is fetch.http.status"),
        ("_prev.status in ['ok', 'done']", "a key `status` of the data is _prev.data.status"),
        ("start.status == 'ok'", None),
        ("start.data.status == 'shipped'", None),
        ("ctx.status == 'shipped'", None),
        ("order.status == 'shipped'", None),
        ("args.status == 'shipped'", None),
        ("iter.start.status == 'shipped'", None),
    ],
)
def test_a_status_of_a_view_that_never_comes(expression, hint):
    text = f"""
    metadata: {{name: p}}
    workload: {{order: {{status: new}}}}
    workflow:
      - step: start
        tool: {{kind: noop}}
        next: {{arcs: [{{step: end}}]}}
      - step: end
        tool:
          - {{name: fetch, kind: http, url: x}}
          - {{name: last, kind: noop, data: "{{{{ {expression} }}}}"}}
    """
    findings = findings_of(text, "outcome-status")
    assert [found_hint for _, _, found_hint in findings] == ([] if hint is None else [hint])


def test_names_that_are_not_views_have_any_status():
    text = """
    metadata: {name: p}
    workload: {fetch: {status: new}}
    workflow:
      - step: start
        tool:
          - {name: fetch, kind: noop}
          - {name: text, kind: noop, data: "{% for start in [1] %}{{ start.status == 'new' }}{% endfor %}"}
        next:
          arcs: [{step: end, when: "{{ fetch.status == 'new' }}"}]
      - {step: end, tool: {kind: noop}}
    """
    assert findings_of(text, "outcome-status") == []


@pytest.mark.parametrize(
    ("loop", "name", "warned"),
    [
        (True, "step.done", True),
        (True, "loop.done", False),
        (True, "step.failed", False),
        (False, "loop.done", True),
        (False, "step.done", False),
        (False, "step.failed", False),
        (False, "step.exit", True),
    ],
)
def test_event_names_that_never_come(loop, name, warned):
    more = f"next: {{arcs: [{{step: two, when: \"{{{{ event.name == '{name}' }}}}\"}}]}}\n"
    more += "loop: {in: [1], iterator: i}\n" if loop else ""
    text = one_step(more=more) + "  - {step: two, tool: {kind: noop}}\n"
    assert bool(findings_of(text, "event-name")) is warned


@pytest.mark.parametrize(
    ("when", "warned"),
    [
        ("event.name == 'playbook.started'", True),
        ("event.name == 'loop.done'", True),
        ("event.name in ['step.done', 'step.failed']", True),
        ("event.name == 'step.done'", False),
        ("event.name != 'loop.done'", False),
    ],
)
def test_event_names_that_no_arc_brings(when, warned):
    admit = f'spec: {{policy: {{admit: {{rules: [{{when: "{when}", then: {{allow: true}}}}]}}}}}}'
    text = one_step(more="next: {arcs: [{step: two}]}") + f"  - {{step: two, tool: {{kind: noop}}, {admit}}}\n"
    assert bool(findings_of(text, "event-name")) is warned


def test_steps_that_nothing_leads_to():
    text = one_step() + "  - {step: two, tool: {kind: noop}, next: {arcs: [{step: two}]}}\n"
    assert [at for at, *_ in findings_of(text, "unreachable-step")] == ["5:12"]


@pytest.mark.parametrize(
    ("steps", "endless"),
    [
        ("{step: a, tool: {kind: noop}, next: {arcs: [{step: a}]}}", True),
        (
            "{step: a, tool: {kind: noop}, next: {arcs: [{step: b}]}}, {step: b, tool: {kind: noop}, next: {arcs: [{step: a}]}}",
            True,
        ),
        ("{step: a, tool: {kind: noop}, next: {arcs: [{step: a, when: ctx.more}]}}", False),
        ("{step: a, tool: {kind: noop}, next: {arcs: [{step: a, when: \"event.name == 'step.done'\"}]}}", True),
        (
            "{step: a, tool: {kind: noop}, next: {arcs: [{step: b, when: ctx.x}, {step: a}]}}, {step: b, tool: {kind: noop}}",
            False,
        ),
        (
            "{step: a, tool: {kind: noop}, spec: {policy: {admit: {rules: [{when: ctx.x, then: {allow: true}}]}}}, next: {arcs: [{step: a}]}}",
            False,
        ),
    ],
)
def test_cycles_without_exit(steps, endless):
    assert bool(findings_of(f"metadata: {{name: p}}\nworkflow: [{steps}]", "endless-cycle")) is endless


def test_a_long_chain_and_a_long_cycle_need_no_deep_stack():
    count = 5000
    steps = "".join(
        f"  - {{step: s{n}, tool: {{kind: noop}}, next: {{arcs: [{{step: s{(n + 1) % count}}}]}}}}\n"
        for n in range(count)
    )
    assert len(findings_of(f"metadata: {{name: p}}\nworkflow:\n{steps}", "endless-cycle")) == 1


@pytest.mark.parametrize(
    ("text", "dead"),
    [
        (one_step(policy("[{when: true, then: {}}, {when: ctx.a, then: {}}]")), True),
        (one_step(policy("[{when: '{{ true }}', then: {}}, {else: {then: {}}}]")), True),
        (one_step(policy("[{when: ctx.a, then: {}}, {else: {then: {}}}]")), False),
        (
            one_step(
                more="spec: {policy: {admit: {rules: [{when: true, then: {allow: true}}, {else: {then: {allow: false}}}]}}}"
            ),
            True,
        ),
        (one_step(more="next: {arcs: [{step: one}, {step: one, when: ctx.a}]}"), True),
        (one_step(more="next: {arcs: [{step: one}, {step: one, when: \"event.name == 'step.failed'\"}]}"), False),
        (one_step(more="next: {spec: {mode: inclusive}, arcs: [{step: one}, {step: one, when: ctx.a}]}"), False),
        (one_step(more="next: {arcs: [{step: one, when: \"event.name == 'step.done'\"}, {step: one}]}"), True),
        (one_step(more="next: {arcs: [{step: one, when: \"event.name == 'step.failed'\"}, {step: one}]}"), False),
        (one_step(more="next: {arcs: [{step: one, when: false}]}"), True),
        (
            one_step(
                more="next: {arcs: [{step: one, when: \"event.name == 'step.done' and event.name == 'step.failed'\"}]}"
            ),
            True,
        ),
        (one_step(more="next: {arcs: [{step: one, when: \"event.name == 'step.exit'\"}]}"), False),
        (one_step(policy("[{when: '{{ 1 == 2 }}', then: {}}, {else: {then: {}}}]")), True),
    ],
)
def test_rules_that_can_never_match(text, dead):
    assert bool(findings_of(text, "dead-rule")) is dead


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (one_step("{kind: http, url: '{{ whoo }}'}", before="workload: {who: 1}\n"), "did you mean who?"),
        (one_step("{kind: http, url: '{{ outcome.data }}'}"), "_prev"),
        (one_step("{kind: http, url: '{{ event.name }}'}"), "an arc"),
        (one_step("{kind: http, url: '{{ city }}'}", "loop: {in: [1], iterator: city}"), "iter.city"),
        (
            one_step("[{name: fetch, kind: noop}]", "next: {arcs: [{step: one, when: '{{ fetch.data }}'}]}"),
            "the step's view is one",
        ),
        (one_step("{kind: http, url: '{{ token }}'}"), "workload.token"),
    ],
)
def test_names_that_no_scope_has(text, hint):
    ((_, severity, got),) = findings_of(text, "unknown-name")
    assert severity == "warning"
    assert hint in got


@pytest.mark.parametrize(
    "template",
    [
        "{{ who }}",
        "{{ one.data }}",
        "{{ first.status }}",
        "{{ maybe | default(1) }}",
        "{{ maybe.deep.x | d(1) }}",
        "{{ 1 if maybe is defined else 2 }}",
        "{% for x in [1] %}{{ x }}{% endfor %}",
        "{{ range(3) | list }}",
        "{{ _prev.data }}{{ _task.key }}{{ _attempt }}{{ execution_id }}{{ args.a }}{{ iter.x }}{{ ctx.y }}",
    ],
)
def test_names_in_scope_are_no_finding(template):
    text = one_step(
        f"""[{{name: first, kind: noop}}, {{kind: http, url: "{template}"}}]""", before="workload: {who: 1}\n"
    )
    assert build(text, "p", KINDS).findings == []


@pytest.mark.parametrize(
    "text",
    [
        one_step(more="args: {a: '{{ keychain.x }}'}"),
        one_step(more="next: {arcs: [{step: one, when: '{{ keychain.x }}'}]}"),
        one_step(more="next: {arcs: [{step: one, args: {a: '{{ keychain.x }}'}}]}"),
        one_step(more="loop: {in: '{{ keychain.x }}', iterator: i}"),
        one_step(more="spec: {policy: {admit: {rules: [{when: '{{ keychain.x }}', then: {allow: true}}]}}}"),
        one_step(policy("[{when: '{{ keychain.x }}', then: {do: fail}}]")),
        one_step(policy("[{else: {then: {set_ctx: {a: '{{ keychain.x }}'}}}}]")),
    ],
)
def test_keychain_outside_task_fields_is_an_error(text):
    ((_, severity, _),) = findings_of(text, "keychain-misplaced")
    assert severity == "error"


def test_keychain_in_a_task_field_is_fine():
    assert findings_of(one_step("{kind: http, url: '{{ keychain.x }}'}"), "keychain-misplaced") == []


def test_templates_in_a_shell_text():
    assert [
        severity
        for _, severity, _ in findings_of(one_step("{kind: shell, command: 'ls {{ args.a }}'}"), "shell-template")
    ] == ["info"]
    assert findings_of(one_step("{kind: shell, command: [ls, '{{ args.a }}']}"), "shell-template") == []


def test_jumps():
    text = (
        one_step(policy("[{when: ctx.a, then: {do: jump, to: two}}, {else: {then: {}}}]"))
        + "  - {step: two, tool: {kind: noop}}\n"
    )
    ((_, severity, hint),) = findings_of(text, "unknown-task")
    assert severity == "error"
    assert "next: {arcs" in hint


@pytest.mark.parametrize(
    "text",
    [
        one_step(before="executor: {spec: {policy: {defaults: {resources: {cpu: 1}}}}}\n"),
        one_step(more="spec: {policy: {tracing: {}}}"),
        one_step(more="loop: {in: [1], iterator: i, spec: {policy: {ordering: x}}}"),
        one_step(more="next: {spec: {policy: {priority: 1}}, arcs: []}"),
        one_step(more="next: {arcs: [{step: one, when: ctx.a, spec: {weight: 1}}]}"),
        one_step("{kind: noop, spec: {policy: {mode: exclusive, rules: []}}}"),
    ],
)
def test_placeholders_are_info(text):
    assert [severity for _, severity, _ in findings_of(text, "placeholder")] == ["info"]
    assert build(text, "p", KINDS).plan is not None


def test_hooks_are_not_run():
    assert [
        severity
        for _, severity, _ in findings_of(
            one_step("{kind: noop, spec: {policy: {before: [{}], rules: []}}}"), "not-run"
        )
    ] == ["warning"]
    assert findings_of(one_step("{kind: noop, spec: {policy: {before: [], after: , rules: []}}}"), "not-run") == []


def test_every_code_is_documented():
    source = "".join(
        path.read_text()
        for folder in ("playbook", "plan", "cli", "wiring")
        for path in (ROOT / "src/arclog" / folder).rglob("*.py")
    )
    used = set(re.findall(r'\(\s*"((?:yaml|[a-z]+)-[a-z-]+)",\s*(?:f?"|message)', source)) | {
        "conflict",
        "placeholder",
        "legacy-form",
        "wrong-type",
        "missing-key",
    }
    documented = set(re.findall(r"^### `([a-z-]+)`", (ROOT / "docs/findings.md").read_text(), re.MULTILINE))
    assert used <= documented, used - documented
    assert all(f'"{code}"' in source for code in documented)


@pytest.mark.parametrize(
    "place",
    [
        "executor: {spec: {timeout_s: 1e300}}",
        "executor: {spec: {timeout: 1e300}}",
        "executor: {spec: {policy: {defaults: {timeouts: {task_s: 1e300, step_s: 1}}}}}",
        "workflow: [{step: a, tool: {kind: noop}, spec: {policy: {lifecycle: {timeout_s: 1e300}}}}]",
        "workflow: [{step: a, tool: {kind: noop}, spec: {policy: {lifecycle: {deadline_s: 1e300}}}}]",
        "workflow: [{step: a, tool: {kind: noop, spec: {timeout: 1e300}}}]",
        "workflow: [{step: a, tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: retry, delay: 1e300}}}]}}}}]",
        "workflow: [{step: a, tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: retry, max_delay: 1e300}}}]}}}}]",
    ],
)
def test_no_time_is_longer_than_can_be_counted(place):
    """A retry due in 1e300 s was once a report that no log could take, sent again and again."""
    text = (
        "metadata: {name: p}\n" + place + ("" if "workflow" in place else "\nworkflow: [{step: a, tool: {kind: noop}}]")
    )
    errors = [finding for finding in build(text, "p.yaml", KINDS).findings if finding.severity == "error"]
    assert [finding.code for finding in errors] == ["out-of-range"]
    assert "above the highest value allowed" in errors[0].message


def test_a_wait_for_a_signal_of_the_run_itself() -> None:
    assert [severity for _, severity, _ in findings_of(one_step("{kind: wait, signal: PAUSE}"), "reserved-signal")] == [
        "warning"
    ]
    assert findings_of(one_step("{kind: wait, signal: paid}"), "reserved-signal") == []


def test_the_reserved_signals_are_those_that_the_core_knows() -> None:
    assert {*RULES, "RETRY_RUN"} == RESERVED_SIGNALS


def test_a_rule_whose_condition_is_no_condition_is_not_called_dead_as_well():
    text = one_step(policy("[{expr: a, then: {do: retry}}, {else: {then: {do: fail}}}]"))
    assert findings_of(text, "dead-rule") == []
    assert len(findings_of(text, "legacy-form")) == 1
    admission = "spec: {policy: {admit: {rules: [{expr: a, then: {allow: true}}]}}}"
    assert findings_of(one_step(more=admission), "dead-rule") == []


@pytest.mark.parametrize(
    ("more", "hint"),
    [
        ("args: {n: '{{ num }}'}", "the item is known inside the loop only: its tasks see it as iter.num"),
        ("next: {arcs: [{step: one, when: '{{ num }}'}]}", "the item is known inside the loop only"),
    ],
)
def test_a_loops_item_is_said_to_be_known_where_it_is(more, hint):
    loop = "loop: {in: [1], iterator: num}\n"
    hints = [text for _, _, text in findings_of(one_step(more=loop + more), "unknown-name")]
    assert len(hints) == 1
    assert hints[0].startswith(hint)
    inside = [text for _, _, text in findings_of(one_step("{kind: noop, data: '{{ num }}'}", loop), "unknown-name")]
    assert inside == ["the loop's item is iter.num"]


def test_conditions_of_blocks_do_not_know_a_task():
    (hint,) = [
        text
        for _, _, text in findings_of(one_step("[{until: {do: [{kind: noop}], when: _task.run > 2}}]"), "unknown-name")
    ]
    assert hint.startswith("_task is known in a task's field")


@pytest.mark.parametrize("key", ["placement", "cost", "quantum"])
def test_placeholders_of_the_executor(key):
    text = one_step(before=f"executor: {{spec: {{policy: {{{key}: {{any: thing}}}}}}}}\n")
    assert build(text, "p", KINDS).plan is not None
    assert [severity for _, severity, _ in findings_of(text, "placeholder")] == ["info"]


def test_a_time_limit_in_parts_is_for_the_kinds_that_know_parts():
    both = one_step(
        "[{kind: http, url: x}, {name: py, kind: python, code: x}]", "spec: {timeout: {connect: 5, read: 15}}"
    )
    made = build(both, "p", KINDS)
    assert made.plan is not None, [str(finding) for finding in made.findings]
    http, python = made.plan.steps[0].tasks
    assert http.spec["timeout"] == {"connect": 5, "read": 15}
    assert ("timeout" in python.spec, python.timeout_s) == (False, 3600.0)
    total = one_step(
        "[{kind: http, url: x}, {name: py, kind: python, code: x}]", "spec: {timeout: {total: 30, read: 15}}"
    )
    made = build(total, "p", KINDS)
    assert made.plan is not None
    assert [task.timeout_s for task in made.plan.steps[0].tasks] == [30, 30]


def test_a_time_limit_in_parts_that_no_task_knows_is_an_error():
    text = one_step("[{name: py, kind: python, code: x}, {kind: noop}]", "spec: {timeout: {connect: 5}}")
    assert [severity for _, severity, _ in findings_of(text, "wrong-type")] == ["error"]


def test_a_workbook_entry_may_stand_more_than_once():
    before = "workbook: [{name: w, kind: noop}]\n"
    tool = "[{kind: workbook, name: w}, {name: x, kind: noop}, {kind: workbook, name: w}, {kind: workbook, name: w}]"
    made = build(one_step(tool, before=before), "p", KINDS)
    assert made.plan is not None
    assert [task.name for task in made.plan.steps[0].tasks] == ["w", "x", "w_2", "w_3"]
    clash = one_step("[{kind: workbook, name: w}, {name: w_2, kind: noop}, {kind: workbook, name: w}]", before=before)
    assert len(findings_of(clash, "duplicate-name")) == 1


@pytest.mark.parametrize(
    ("step", "hint"),
    [
        ('args: {n: 1}, tool: {kind: noop, data: "{{ n }}"}', "an arg of the step is args.n"),
        ('tool: {kind: noop}, next: {arcs: [{step: start, when: "{{ result.n }}"}]}', "outcome.data"),
        ('tool: {kind: noop, data: "{{ response.x }}"}', "_prev"),
    ],
)
def test_names_of_other_releases_get_the_name_of_today(step, hint):
    text = f"metadata: {{name: p}}\nworkflow:\n  - {{step: start, {step}}}\n"
    (finding,) = [finding for finding in build(text, "p.yaml", KINDS).findings if finding.code == "unknown-name"]
    assert hint in finding.hint


def test_a_template_in_the_workload_is_a_text():
    text = (
        'metadata: {name: p}\nworkload:\n  a: [1, {b: "{{ x }}"}]\nworkflow:\n  - {step: start, tool: {kind: noop}}\n'
    )
    (finding,) = build(text, "p.yaml", KINDS).findings
    assert (finding.code, finding.severity, str(finding.at)) == ("workload-template", "warning", "3:14")
