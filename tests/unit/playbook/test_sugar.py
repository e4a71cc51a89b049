"""choose, while and until: what they become, and that it runs as its author reads it."""

from __future__ import annotations

import pytest

from arclog.core.flow.pipeline import Ask, Frame, Over, conclude, fold, guarded_move, next_move, started
from arclog.model.commands import Captured, Pipeline
from arclog.model.errors import Position
from arclog.plan import draw
from arclog.plan.build import build
from arclog.plan.net import Block, Branch, Plan, StepPlan
from arclog.plan.program import Program
from tests.unit.plan.kinds import KINDS


def step_of(tool: str) -> StepPlan:
    body = "".join(f"      {line}\n" for line in tool.strip().splitlines())
    made = build(f"metadata: {{name: p}}\nworkflow:\n  - step: one\n    tool:\n{body}", "p", KINDS)
    assert made.plan is not None, [str(finding) for finding in made.findings]
    assert made.findings == []
    return made.plan.steps[0]


def walk(step: StepPlan, ctx: dict | None = None, most: int = 500) -> tuple[list[str], str]:
    """Run the pipeline with tasks that do nothing: their labels in order, and how it ended."""
    program = Program(Plan("p", step.name, (step,), format=2), "").steps[step.name]
    pipeline = Pipeline()
    frame = Frame("1", {}, Captured(ctx=ctx or {}), step.name, 1, names=program.names)
    trace: list[str] = []
    while True:
        move = next_move(pipeline, program, most)
        if isinstance(move, Ask):
            move = guarded_move(pipeline, program, frame, most)
        if isinstance(move, Over):
            return trace, "done" if move.error is None else move.error["message"]
        trace.append(move.task.plan.name)
        for event in (*started(move, frame, 0, None), *conclude(pipeline, move, frame, {"status": "ok"}, 0, 0.0, 1000)):
            fold(pipeline, program, event)


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


@pytest.mark.parametrize(
    ("sugar", "still"),
    [("while: {when: true, max: 4, do: [%s]}", "true"), ("until: {when: false, max: 4, do: [%s]}", "not true")],
)
def test_more_rounds_than_max_fail(sugar, still):
    trace, end = walk(step_of("- " + sugar % COUNT))
    assert trace == ["count"] * 4
    assert end == f"{sugar[:5]} at 5:9: its condition is still {still} after 4 rounds (max: 4)"


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
    assert [task.name for task in step.tasks] == ["task_0", "task_1_0_0", "task_1_0_1", "task_2_0"]
    assert step.flow == (
        0,
        Block("choose", "choose_1", (Branch((1, 2), "ctx.a"),), at=Position(6, 9)),
        Block("while", "while_1", (Branch((3,), "ctx.b"),), at=Position(8, 9)),
    )


def test_a_list_without_blocks_is_compiled_as_before():
    made = build("metadata: {name: p}\nworkflow:\n  - step: one\n    tool: [{kind: noop}, {kind: noop}]\n", "p", KINDS)
    assert made.plan is not None
    assert (made.plan.format, made.plan.steps[0].flow) == (1, ())


def test_a_jump_goes_to_its_task_and_asks_no_guard():
    jump = "spec: {policy: {rules: [{when: iter.n < 5, then: {do: jump, to: count}}]}}"
    step = step_of(f"- while: {{when: iter.n | default(0) < 1, do: [{COUNT}]}}\n- {{name: after, kind: noop, {jump}}}")
    assert walk(step) == (["count", "after"] + ["count", "after"] * 4, "done")


@pytest.mark.parametrize(
    ("sugar", "words"),
    [
        ("while: {when: true, do: []}", "while at 5:9: a round ran no task, so its condition never changes"),
        ("until: {when: false, do: []}", "until at 5:9: a round ran no task, so its condition never changes"),
        ("while: {when: true, max: 3, do: []}", "while at 5:9: its condition is still true after 3 rounds (max: 3)"),
        ("while: {when: true, do: [{choose: [{when: ctx.no, then: [{kind: noop}]}]}]}", "a round ran no task"),
        ("while: {when: true, do: [{while: {when: ctx.no, do: [{kind: noop}]}}]}", "while at 5:9: a round ran no task"),
    ],
)
def test_rounds_without_tasks_end(sugar, words):
    trace, end = walk(step_of(f"- {sugar}"), {"no": False})
    assert (trace, words in end) == ([], True), end


@pytest.mark.parametrize("sugar", ["while: {when: false, do: []}", "until: {when: true, do: []}", "choose: []"])
def test_blocks_may_hold_nothing(sugar):
    assert walk(step_of(f"- {sugar}\n- {{name: after, kind: noop}}")) == (["after"], "done")


@pytest.mark.parametrize("word", ["_prev", "_prev.data.more", "page", "page.data.more", "not _prev and page.more"])
def test_what_has_not_run_is_false(word):
    step = step_of(
        f"- while: {{when: '{{{{ {word} }}}}', do: [{{name: page, kind: noop}}]}}\n- {{name: z, kind: noop}}"
    )
    assert walk(step) == (["z"], "done")


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ("_prev.n < 3", "while at 5:9: '_prev.n' is undefined: no task has run before"),
        ("page.n < 3", "while at 5:9: 'page.n' is undefined: task page has not run"),
        ("ctx.missing", "while at 5:9: 'ctx.missing' is undefined"),
    ],
)
def test_an_error_in_a_condition_names_the_authors_line(when, words):
    step = step_of(f"- while: {{when: '{{{{ {when} }}}}', do: [{{name: page, kind: noop}}]}}")
    trace, end = walk(step)
    assert (trace, end.startswith(words), "at 5:24" in end) == ([], True, True), end


def test_drawings_show_blocks_as_their_author_wrote_them():
    made = build(
        f"""metadata: {{name: p}}
workflow:
  - step: one
    tool:
      - choose:
          - {{when: ctx.a, then: [{{name: a, kind: noop}}]}}
          - else: [{{while: {{when: ctx.b, max: 3, do: [{COUNT}]}}}}]
""",
        "p",
        KINDS,
    )
    assert made.plan is not None
    assert draw.as_text(made.plan).splitlines()[2:] == [
        "▶ one",
        "  ├─ choose",
        "  │     when ctx.a",
        "  │       a: noop",
        "  │     else",
        "  │       while ctx.b (at most 3 rounds)",
        "  │         count: noop",
        "  │           else → continue, sets iter.n",
        "  └─ → (end)",
    ]
    rounds = {"when": "ctx.b", "do": ["count"]}
    inner = {"word": "while", "name": "while_1", "branches": [rounds], "max": 3, "line": 7, "column": 21}
    assert draw.as_json(made.plan)["steps"][0]["flow"][0]["branches"] == [
        {"when": "ctx.a", "do": ["a"]},
        {"when": None, "do": [inner]},
    ]


@pytest.mark.parametrize(
    ("tool", "code"),
    [
        ("- choose: {}", "wrong-type"),
        ("- choose: [5]", "wrong-type"),
        ("- choose: [{when: true}]", "missing-key"),
        ("- choose: [{when: true, then: {kind: noop}}]", "wrong-type"),
        ("- choose: [{else: {kind: noop}}]", "wrong-type"),
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


def test_the_tasks_that_can_come_next():
    step = step_of("""
- {name: a, kind: noop}
- choose:
    - {when: ctx.x, then: [{name: b, kind: noop}]}
    - {when: ctx.y, then: []}
- while: {when: ctx.z, max: 3, do: [{name: c, kind: noop}, {name: d, kind: noop}]}
""")
    guards = Program(Plan("p", step.name, (step,), format=2), "").steps[step.name].guards
    assert guards is not None
    a, b, c, d, end = range(5)
    assert guards.reachable == (
        frozenset({a}), frozenset({b, c, end}), frozenset({c, end}), frozenset({d}), frozenset({c, end}),
    )  # fmt: skip
    assert [guards.certain(at) for at in range(5)] == [a, None, None, d, None]
