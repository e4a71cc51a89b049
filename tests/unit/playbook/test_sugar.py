"""choose, while and until: what they become, and that it runs as its author reads it."""

from __future__ import annotations

import pytest

from arclog.expr import compile_condition, compile_tree
from arclog.plan.build import build
from arclog.plan.net import StepPlan
from tests.unit.plan.kinds import KINDS


def step_of(tool: str) -> StepPlan:
    body = "".join(f"      {line}\n" for line in tool.strip().splitlines())
    made = build(f"metadata: {{name: p}}\nworkflow:\n  - step: one\n    tool:\n{body}", "p", KINDS)
    assert made.plan is not None, [str(finding) for finding in made.findings]
    assert made.findings == []
    return made.plan.steps[0]


def walk(step: StepPlan, ctx: dict | None = None, most: int = 500) -> tuple[list[str], str]:
    """Run the pipeline with tasks that do nothing: the author's labels in order, and how it ended."""
    iteration: dict = {}
    labels = [task.name for task in step.tasks]
    trace: list[str] = []
    position = 0
    for _ in range(most):
        if position >= len(step.tasks):
            return trace, "done"
        task = step.tasks[position]
        if not task.origin:
            trace.append(task.name)
        position += 1
        if task.policy is None:
            continue
        scope = {"iter": iteration, "ctx": ctx or {}}
        for rule in task.policy.rules:
            if rule.when is None or compile_condition(rule.when).evaluate(scope):
                iteration.update(compile_tree(rule.then.set_iter).evaluate(scope))
                if rule.then.do == "jump":
                    position = labels.index(rule.then.to)
                elif rule.then.do in ("fail", "break"):
                    return trace, rule.then.do
                break
    return trace, "endless"


CHOOSE = """
- {name: before, kind: noop}
- choose:
    - when: ctx.n == 1
      then: [{name: a1, kind: noop}, {name: a2, kind: noop}]
    - when: ctx.n == 2
      then: []
    - else: [{name: c, kind: noop}]
- {name: after, kind: noop}
"""


@pytest.mark.parametrize(
    ("n", "trace"), [(1, ["before", "a1", "a2", "after"]), (2, ["before", "after"]), (3, ["before", "c", "after"])]
)
def test_choose_takes_one_branch_and_never_falls_through(n, trace):
    assert walk(step_of(CHOOSE), {"n": n}) == (trace, "done")


@pytest.mark.parametrize(
    "last",
    [
        "- else: [{name: c, kind: noop}]",
        "- else: {then: [{name: c, kind: noop}]}",
        "- else:\n      then: [{name: c, kind: noop}]",
    ],
)
def test_spellings_of_else(last):
    step = step_of(f"- choose:\n    - {{when: false, then: [{{kind: noop}}]}}\n    {last}")
    assert walk(step) == (["c"], "done")


def test_choose_without_else_goes_on():
    step = step_of("- choose:\n    - {when: ctx.x, then: [{name: a, kind: noop}]}\n- {name: after, kind: noop}")
    assert walk(step, {"x": False}) == (["after"], "done")


COUNT = "{name: count, kind: noop, spec: {policy: {rules: [{else: {then: {set_iter: {n: '{{ iter.n | default(0) + 1 }}'}}}}]}}}"


def test_while_asks_first():
    step = step_of(f"- while: {{when: 'iter.n | default(0) < 3', do: [{COUNT}]}}\n- {{name: after, kind: noop}}")
    assert walk(step) == (["count", "count", "count", "after"], "done")
    step = step_of(f"- while: {{when: false, do: [{COUNT}]}}\n- {{name: after, kind: noop}}")
    assert walk(step) == (["after"], "done")


def test_until_asks_afterwards():
    step = step_of(f"- until: {{do: [{COUNT}], when: iter.n >= 3}}\n- {{name: after, kind: noop}}")
    assert walk(step) == (["count", "count", "count", "after"], "done")
    assert walk(step_of(f"- until: {{do: [{COUNT}], when: true}}")) == (["count"], "done")


@pytest.mark.parametrize("sugar", ["while: {when: true, max: 4, do: [%s]}", "until: {when: false, max: 4, do: [%s]}"])
def test_more_rounds_than_max_fail(sugar):
    step = step_of("- " + sugar % COUNT)
    assert walk(step) == (["count"] * 4, "fail")
    assert any("after max: 4 rounds" in task.origin for task in step.tasks)


@pytest.mark.parametrize(
    "sugar",
    ["while: {when: iter.n | default(0) < 4, max: 4, do: [%s]}", "until: {when: iter.n == 4, max: 4, do: [%s]}"],
)
def test_exactly_max_rounds_are_fine(sugar):
    assert walk(step_of("- " + sugar % COUNT)) == (["count"] * 4, "done")


def test_nesting_and_the_inner_counter_begins_anew():
    step = step_of(f"""
- until:
    when: iter.n >= 4
    max: 5
    do:
      - choose:
          - when: ctx.deep
            then:
              - until: {{when: iter.n % 2 == 0, max: 2, do: [{COUNT}]}}
          - else:
              - {{name: never, kind: noop}}
      - {{name: outer, kind: noop}}
""")
    assert walk(step, {"deep": True}) == (["count", "count", "outer", "count", "count", "outer"], "done")


def test_labels_are_stable_and_name_their_origin():
    step = step_of(
        "- {kind: noop}\n- choose:\n    - {when: ctx.a, then: [{kind: noop}, {kind: noop}]}\n- while: {when: ctx.b, do: [{kind: noop}]}"
    )
    assert [task.name for task in step.tasks] == [
        "task_0", "_choose_1", "task_1_0_0", "task_1_0_1", "_choose_1_1_end", "_choose_1_end",
        "_while_1_check", "task_2_0", "_while_1_back", "_while_1_end",
    ]  # fmt: skip
    assert step.tasks[1].origin == "choose at 6:9"
    assert step.tasks[6].origin == "while at 8:9"
    assert step.tasks[2].origin == ""


@pytest.mark.parametrize(
    ("tool", "code"),
    [
        ("- choose: {}", "wrong-type"),
        ("- choose: [5]", "wrong-type"),
        ("- choose: [{when: true}]", "missing-key"),
        ("- choose: [{when: true, then: {kind: noop}}]", "wrong-type"),
        ("- choose: [{else: []}, {when: true, then: []}]", "else-not-last"),
        ("- choose: [{if: true, then: []}]", "missing-key"),
        ("- while: {when: true}", "missing-key"),
        ("- while: {when: true, do: [], max: 0}", "out-of-range"),
        ("- while: {when: true, do: []}\n  name: x", "unknown-key"),
        ("- until: []", "wrong-type"),
        ("- until: {when: 5, do: []}", "wrong-type"),
        ("- until: {when: '{{ a + }}', do: []}", "template-syntax"),
        ("- until: {when: true, do: [{kind: htp}]}", "unknown-kind"),
        ("- until: {when: true, do: [{name: a, kind: noop}]}\n- {name: a, kind: noop}", "duplicate-name"),
    ],
)
def test_refusals(tool, code):
    body = "".join(f"      {line}\n" for line in tool.splitlines())
    made = build(f"metadata: {{name: p}}\nworkflow:\n  - step: one\n    tool:\n{body}", "p", KINDS)
    assert code in [finding.code for finding in made.findings if finding.severity == "error"]


def test_sugar_needs_a_list():
    made = build("metadata: {name: p}\nworkflow:\n  - step: one\n    tool: {choose: []}\n", "p", KINDS)
    assert [finding.hint for finding in made.findings] == ["tool: [{choose: …}]"]


def test_outcome_is_not_known_in_sugar():
    made = build(
        "metadata: {name: p}\nworkflow:\n  - step: one\n    tool: [{until: {when: outcome.data, do: []}}]\n", "p", KINDS
    )
    assert [finding.code for finding in made.findings] == ["unknown-name"]
    assert "_prev" in made.findings[0].hint
