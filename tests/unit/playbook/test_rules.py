"""Short forms compile to the canonical core: rules, arcs and templates."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.plan.build import Build, build
from arclog.plan.expanded import as_playbook
from arclog.plan.net import Plan
from arclog.playbook.load import as_yaml
from arclog.playbook.rules import bare
from arclog.testing.harness import SPECS


def made(*tasks: dict[str, Any], **spec: Any) -> Build:
    book = {
        "metadata": {"name": "p"},
        "executor": {"spec": spec},
        "workflow": [{"step": "start", "tool": list(tasks)}],
    }
    return build(json.dumps(book), "p.yaml", SPECS)


def plan_of(*tasks: dict[str, Any], **spec: Any) -> Plan:
    built = made(*tasks, **spec)
    assert built.plan is not None, built.findings
    return built.plan


def rules(plan: Plan, index: int = 0) -> list[tuple[Any, str]]:
    policy = plan.steps[0].tasks[index].policy
    return [] if policy is None else [(rule.when, rule.then.do) for rule in policy.rules]


ACT = {"name": "a", "kind": "act"}
OK = "{{ outcome.status == 'ok' }}"
ERROR = "{{ outcome.status == 'error' }}"
AGAIN = "{{ outcome.status == 'error' and outcome.error.retryable }}"


def test_a_playbook_without_short_forms_is_a_plan_of_the_first_format() -> None:
    plan = plan_of(ACT)
    assert (plan.format, rules(plan)) == (1, [])


def test_retry_is_layered_and_leaves_policies_alone() -> None:
    own = {**ACT, "name": "b", "spec": {"retry": {"attempts": 7}}}
    policed = {**ACT, "name": "c", "spec": {"policy": {"rules": [{"else": {"then": {"do": "continue"}}}]}}}
    still = {"name": "d", "kind": "noop"}
    plan = plan_of(ACT, own, policed, still, retry={"attempts": 4, "delay": 2})
    assert rules(plan) == rules(plan, 1) == [(AGAIN, "retry"), (ERROR, "fail")]
    actions = [task.policy.rules[0].then for task in plan.steps[0].tasks[:2] if task.policy is not None]
    assert [(action.attempts, action.delay) for action in actions] == [(4, 2.0), (7, 2.0)]
    assert (rules(plan, 2), rules(plan, 3)) == ([(None, "continue")], [])
    assert all("retry" not in task.spec for task in plan.steps[0].tasks)
    assert plan.format == 1


def test_retry_on_kinds_and_with_delays() -> None:
    plan = plan_of({**ACT, "spec": {"retry": {"delays": [1, 5], "on": ["exception", "sql"]}}})
    (again, _), _ = rules(plan)
    assert again.endswith("and (outcome.error.retryable or outcome.error.kind in ['exception', 'sql']) }}")
    policy = plan.steps[0].tasks[0].policy
    assert policy is not None
    assert (policy.rules[0].then.attempts, policy.rules[0].then.delays) == (3, (1.0, 5.0))
    assert plan.format == 3


def test_sets_without_a_policy_still_fail_on_an_error() -> None:
    plan = plan_of({**ACT, "spec": {"set_ctx": {"n": "{{ outcome.data }}"}}})
    assert rules(plan) == [(OK, "continue"), (None, "fail")]
    both = plan_of({**ACT, "spec": {"set_iter": {"n": 1}, "retry": {}}})
    assert rules(both) == [(AGAIN, "retry"), (ERROR, "fail"), (None, "continue")]


def test_sets_beside_a_policy_hold_for_ok_outcomes_whatever_rule_matches() -> None:
    policy = {
        "rules": [
            {"when": "{{ outcome.data > 3 }}", "then": {"do": "break", "set_ctx": {"n": 9}}},
            {"when": "outcome.status == 'error'", "then": {"do": "fail"}},
        ]
    }
    plan = plan_of({**ACT, "spec": {"set_ctx": {"n": 1, "m": 2}, "policy": policy}})
    task = plan.steps[0].tasks[0].policy
    assert task is not None
    assert [(rule.when, rule.then.do, rule.then.set_ctx) for rule in task.rules] == [
        ("{{ outcome.status == 'ok' and (outcome.data > 3) }}", "break", {"n": 9, "m": 2}),
        ("{{ outcome.data > 3 }}", "break", {"n": 9}),
        ("{{ outcome.status == 'ok' and (outcome.status == 'error') }}", "fail", {"n": 1, "m": 2}),
        ("outcome.status == 'error'", "fail", {}),
        (OK, "continue", {"n": 1, "m": 2}),
    ]


@pytest.mark.parametrize(
    ("when", "expression"),
    [("{{ -x }}", "-x"), ("{{- x -}}", "x"), ("x > 1", "x > 1"), ("{{ '}' ~ y }}", "'}' ~ y")],
)
def test_the_expression_of_a_condition(when: str, expression: str) -> None:
    assert bare(when) == expression


@pytest.mark.parametrize(
    ("task", "code"),
    [
        ({**ACT, "spec": {"retry": {}, "policy": {"rules": [{"else": {"then": {"do": "fail"}}}]}}}, "conflict"),
        ({**ACT, "spec": {"retry": {"on": ["nope"]}}}, "bad-value"),
        ({**ACT, "spec": {"retry": {"attempts": 0}}}, "out-of-range"),
        ({**ACT, "spec": {"retry": {"times": 3}}}, "unknown-key"),
        ({**ACT, "spec": {"set_ctx": {"_x": 1}}}, "reserved-name"),
        ({**ACT, "spec": {"set_ctx": {"x": "{{ a b }}"}}}, "template-syntax"),
        ({"kind": "assert"}, "missing-key"),
        ({"kind": "assert", "that": "a >"}, "template-syntax"),
        ({"kind": "assert", "that": 3}, "wrong-type"),
        (
            {**ACT, "spec": {"policy": {"rules": [{"else": {"then": {"do": "continue", "message": "x"}}}]}}},
            "action-key",
        ),
    ],
)
def test_mistakes_are_found(task: dict[str, Any], code: str) -> None:
    assert code in [finding.code for finding in made(task).findings if finding.severity == "error"]


def test_a_sequence_leads_on_where_a_step_says_nothing() -> None:
    steps = [
        {"step": "a", "tool": ACT},
        {"step": "b", "tool": ACT, "next": {"arcs": []}},
        {"step": "c", "tool": ACT, "spec": {"end": "failed"}},
        {"step": "d", "tool": ACT, "next": {"arcs": [{"step": "e"}]}},
        {"step": "e", "tool": ACT},
    ]
    book = {"metadata": {"name": "p"}, "executor": {"spec": {"sequence": True}}, "workflow": steps}
    plan = build(json.dumps(book), "p.yaml", SPECS).plan
    assert plan is not None
    assert [[arc.target for arc in step.arcs] for step in plan.steps] == [["b"], [], [], ["e"], []]


def test_the_expanded_form_is_canonical() -> None:
    tasks = (
        {**ACT, "spec": {"retry": {"delays": [1]}, "set_ctx": {"n": "{{ outcome.data }}"}}},
        {
            "name": "sure",
            "kind": "assert",
            "that": ["{{ ctx.n > 1 }}", True],
            "message": "n is {{ ctx.n }}",
            "code": "N",
        },
        {"choose": [{"when": "ctx.n", "then": [{**ACT, "name": "b"}]}, {"else": [{**ACT, "name": "c"}]}]},
        {"while": {"when": "ctx.more", "do": [{**ACT, "name": "d"}], "max": 3}},
    )
    plan = plan_of(*tasks, inputs={"day": {"type": "date"}, "n": {"default": 3}}, result="{{ ctx }}", timeout_s=5)
    text = as_yaml(as_playbook(plan))
    again = build(text, "p.yaml", SPECS, Settings())
    assert again.plan is not None, again.findings
    assert as_playbook(again.plan) == as_playbook(plan)
    assert "spec: {retry" not in text
