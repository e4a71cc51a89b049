"""Lints of joins and of branches that run side by side: what they find, and what they leave alone."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import Finding
from arclog.plan.build import build
from arclog.plan.lint.conditions import AFTER_ERROR, truth
from tests.unit.core.nets import steps
from tests.unit.plan.kinds import KINDS


def findings_of(text: str, code: str) -> list[Finding]:
    return [finding for finding in build(text, "p.yaml", KINDS).findings if finding.code == code]


# -- joins ------------------------------------------------------------------------------------------------------------


def test_a_count_beyond_the_arcs_is_an_error():
    text = """\
metadata: {name: p}
workflow:
  - {step: s, tool: {kind: noop}, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: j}]}}
  - {step: a, tool: {kind: noop}, next: {arcs: [{step: j}]}}
  - step: j
    tool: {kind: noop}
    spec:
      join: {count: 3}
"""
    (finding,) = findings_of(text, "join-count")
    assert (finding.severity, str(finding.at)) == ("error", "8:13")
    assert "only 2 arcs lead" in finding.message
    assert findings_of(text.replace("count: 3", "count: 2"), "join-count") == []


def test_the_entry_counts_as_an_arc():
    assert findings_of(steps("j 2 -> j if ctx.x"), "join-count") == []
    assert findings_of(steps("j 2 -> k", "k"), "join-count") != []


@pytest.mark.parametrize(
    ("rows", "starved"),
    [
        (("s -> a, b", "a -> j", "b -> j", "j all"), False),
        (("s -> a", "a -> j", "b -> j", "j all"), True),
        (("s -> a, b", "a -> j if false", "b -> j", "j all"), True),
        (("s -> a, b", "a -> j if event.name == 'step.failed'", "b -> j", "j all"), False),
        (("s -> a", "a -> j", "b -> j", "j"), False),
    ],
)
def test_joins_that_never_get_a_token_from_an_arc(rows, starved):
    assert bool(findings_of(steps(*rows), "join-starved")) is starved


def test_a_starved_count_says_that_it_must_fail():
    (finding,) = findings_of(steps("s -> a", "a -> j", "b -> j", "j 2"), "join-starved")
    assert finding.severity == "warning"
    assert "cannot reach 2" in finding.hint


@pytest.mark.parametrize(
    ("rows", "warned"),
    [
        (("s -> j, k", "j all -> k", "k all -> j if ctx.x"), True),
        # One behind the other, without a way back.
        (("s -> a, b, c", "a -> j", "b -> j", "c -> k", "j all -> k", "k all"), False),
        # Two in a row inside a cycle: no split sends tokens to both.
        (
            ("s -> a, b", "a -> j", "b -> j", "j all -> c, d", "c -> k", "d -> k", "k all -> s if ctx.x"),
            False,
        ),
        # One inside a branch of the other, in a cycle: both may hold tokens.
        (("s -> a, b", "a -> c, d", "c -> k", "d -> k", "k all -> j", "b -> j", "j all -> s if ctx.x"), True),
        # An exclusive split has one token.
        (("s => j if ctx.x, k", "j all -> k", "k all -> j if ctx.x"), False),
    ],
)
def test_joins_that_can_wait_for_each_other(rows, warned):
    assert [finding.severity for finding in findings_of(steps(*rows), "join-cycle")] == (["warning"] if warned else [])


# -- ctx --------------------------------------------------------------------------------------------------------------


def writing(text: str, reducer: bool = False, **values: Any) -> str:
    """The playbook with tasks that set ctx.k in the named steps."""
    playbook = json.loads(text)
    for step in playbook["workflow"]:
        if step["step"] in values:
            then = {"do": "continue", "set_ctx": {"k": values[step["step"]]}}
            step["tool"]["spec"] = {"policy": {"rules": [{"else": {"then": then}}]}}
    if reducer:
        playbook["executor"] = {"spec": {"ctx": {"k": {"reducer": "sum"}}}}
    return json.dumps(playbook)


A, B = "{{ args.a }}", "{{ args.b }}"


@pytest.mark.parametrize(
    ("rows", "values", "warned"),
    [
        (("s -> a, b", "a", "b"), {"a": A, "b": B}, True),
        (("s -> a, b", "a", "b"), {"a": 1, "b": 1}, False),
        (("s -> a, b", "a", "b"), {"a": 1, "b": 2}, True),
        (("s -> a, b", "a", "b"), {"a": [A], "b": [A]}, True),
        (("s => a if ctx.x, b", "a", "b"), {"a": A, "b": B}, False),
        (("s -> a, b if failed", "a", "b"), {"a": A, "b": B}, False),
        (("s -> a, b", "a -> c", "b", "c"), {"b": A, "c": B}, True),
        (("s -> a, b", "a -> c", "b", "c"), {"a": A, "c": B}, False),
        # Behind the join of all branches only one is left.
        (("s -> a, b", "a -> j", "b -> j", "j all"), {"a": A, "j": B}, False),
        (("s -> a, b", "a -> j", "b -> j", "j all -> z", "z"), {"s": A, "z": B}, False),
        # A counted join lets the others run on, and a join of two branches runs beside the third.
        (("s -> a, b", "a -> j", "b -> j", "j 1"), {"a": A, "j": B}, True),
        (("s -> a, b, c", "a -> j", "b -> j", "j all", "c"), {"c": A, "j": B}, True),
        # One step that both branches start.
        (("s -> a, b", "a -> m", "b -> m", "m"), {"m": A}, True),
        (("s -> a, b", "a -> m", "b -> m", "m"), {"m": True}, False),
    ],
)
def test_keys_that_branches_set_side_by_side(rows, values, warned):
    assert [finding.severity for finding in findings_of(writing(steps(*rows), **values), "ctx-race")] == (
        ["warning"] if warned else []
    )


def test_a_key_with_a_reducer_may_be_set_side_by_side():
    text = steps("s -> a, b", "a", "b")
    assert findings_of(writing(text, a=A, b=B), "ctx-race") != []
    assert findings_of(writing(text, reducer=True, a=A, b=B), "ctx-race") == []


# -- conditions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (None, True),
        (False, False),
        ("true", True),
        ("{{ true }}", True),
        ("{{- not false -}}", True),
        ("1 == 1", True),
        ("'a' in ['a', 'b']", None),
        ("ctx.a", None),
        ("outcome.status == 'error'", True),
        ("outcome['status'] == 'ok'", False),
        ("outcome.status == 'ok' and ctx.a", False),
        ("ctx.a and outcome.status == 'ok'", False),
        ("ctx.a or outcome.status != 'ok'", True),
        ("not ctx.a or outcome.status == 'ok'", None),
        ("outcome.error", True),
        ("outcome.error is none", False),
        ("outcome.error is defined", True),
        ("outcome.error == 'x'", None),
        ("outcome.error.kind == 'timeout'", None),
        ("true if outcome.error else false", True),
        ("outcome.status | upper == 'ERROR'", None),
        ("outcome.status ==", None),
        ("outcome.status == 'error' or " * 900 + "false", None),
    ],
)
def test_the_truth_of_a_condition_after_an_error(when, expected):
    assert truth(when, AFTER_ERROR) is expected


def test_pairs_of_joins_are_those_that_hear_of_each_other():
    """By the cycles that they stand in, which is what makes a long plan without one cheap."""
    from itertools import combinations

    from arclog.plan.lint.flow import _Flow, _sources_of
    from arclog.plan.reach import Reach
    from tests.unit.core.test_random_nets import drawn_net

    seen = 0
    for seed in range(60):
        made = build(drawn_net(Random(seed), cycles=True), "p.yaml", KINDS)
        assert made.plan is not None
        reach = Reach(made.plan.entry, made.plan.steps)
        flow = _Flow(made.plan, None, None, reach)  # type: ignore[arg-type] # nothing is told here
        able = [join for join in flow.reach.joins.values() if join.step in flow.below]
        slow = [(a, b) for a, b in combinations(able, 2) if _sources_of(a) & b.bit and _sources_of(b) & a.bit]
        assert [pair for pair in flow.pairs() if pair[1] in able] == slow
        seen += len(slow)
    assert seen


def test_joins_that_take_too_much_work_are_refused_where_they_stand():
    rows = [f"s{n} all -> s{(n + 1) % 5} if ctx.x" for n in range(5)]
    text = steps(*rows)

    def findings_with(most: int) -> list[Finding]:
        made = build(text, "p.yaml", KINDS, Settings({"playbook.max_join_work": most}))
        return [finding for finding in made.findings if finding.code == "join-cycle-size"]

    assert findings_with(1000) == []
    (finding,) = findings_with(10)
    assert "takes more than 10 operations (playbook.max_join_work)" in finding.message
    assert finding.at.column > 1


ELSE: dict[str, Any] = {"else": {"then": {}}}


def parallel_findings(
    value: Any, *, mode: str = "parallel", inner: str = "", when: Any = None, ctx: Any = None
) -> list[str]:
    rule: dict[str, Any] = {"else": {"then": {"set_ctx": {"key": value}}}}
    rules = [rule] if when is None else [{"when": when, "then": rule["else"]["then"]}, ELSE]
    loop: dict[str, Any] = {"in": [1, 2], "iterator": "item", "spec": {"mode": mode}}
    if inner:
        loop["loop"] = {"in": [1], "iterator": "inner", "spec": {"mode": inner}}
    step = {
        "step": "start",
        "loop": loop,
        "tool": [{"name": "t", "kind": "noop", "spec": {"policy": {"rules": rules}}}],
    }
    made = {
        "metadata": {"name": "p"},
        "executor": {"spec": {"ctx": ctx or {}}},
        "workload": {"w": 1},
        "workflow": [step],
    }
    result = build(json.dumps(made), "p.yaml", KINDS)
    return [finding.severity for finding in result.findings if finding.code == "ctx-conflict"]


@pytest.mark.parametrize(
    "value", ["{{ iter.item }}", "{{ outcome.data.n }}", ["{{ _prev.n }}"], {"a": "{{ t.data }}"}, "n {{ iter.index }}"]
)
def test_a_value_that_differs_from_item_to_item(value: Any) -> None:
    assert parallel_findings(value) == ["warning"]
    assert parallel_findings(value, mode="sequential") == []
    assert parallel_findings(value, mode="sequential", inner="parallel") == ["warning"]
    assert parallel_findings(value, ctx={"key": {"reducer": "append"}}) == []


@pytest.mark.parametrize("value", [True, "{{ workload.w }}", "{{ execution_id }}", "plain", {"a": [1]}])
def test_a_value_that_all_items_share(value: Any) -> None:
    assert parallel_findings(value) == []


def test_a_rule_that_picks_items_may_pick_one() -> None:
    assert parallel_findings("{{ iter.item }}", when="{{ iter.index == 0 }}") == []
    assert parallel_findings("{{ iter.item }}", when="{{ outcome.status == 'ok' }}") == ["warning"]
