"""A program keeps to the limits of its plan wherever it evaluates a template."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import ExpressionError
from arclog.plan.build import build_or_raise
from arclog.plan.net import decode, encode
from arclog.plan.program import Program
from tests.unit.plan.kinds import KINDS

TEXT = """
    apiVersion: noetl.io/v10
    kind: Playbook
    metadata: {name: p}
    executor:
      spec:
        result: "{{ 'r' * 200 }}"
    workflow:
      - step: start
        args: {a: "{{ 'a' * 200 }}"}
        spec:
          policy:
            admit:
              rules: [{when: "{{ 'd' * 200 }}", then: {allow: true}}]
        loop: {in: "{{ 'i' * 200 }}", iterator: item}
        tool:
          - name: call
            kind: noop
            data: {x: "{{ 'x' * 200 }}"}
            spec:
              policy:
                rules:
                  - when: "{{ 'w' * 200 }}"
                    then: {do: continue, set_ctx: {k: "{{ 'c' * 200 }}"}, set_iter: {k: "{{ 'j' * 200 }}"}}
        next:
          arcs: [{step: start, when: "{{ 'n' * 200 }}", args: {y: "{{ 'y' * 200 }}"}}]
"""
PLACES: dict[str, Callable[[Program], object]] = {
    "result": lambda p: p.result is not None and p.result.evaluate({}),
    "step args": lambda p: p.steps["start"].args.evaluate({}),
    "admission": lambda p: (p.steps["start"].admit or ())[0][0].holds({}),
    "loop items": lambda p: p.steps["start"].items_at(0).evaluate_items({}),
    "task config": lambda p: p.steps["start"].tasks[0].config.evaluate({}),
    "task rule": lambda p: p.steps["start"].tasks[0].rules[0].condition.holds({}),
    "set_ctx": lambda p: p.steps["start"].tasks[0].rules[0].set_ctx.evaluate({}),
    "set_iter": lambda p: p.steps["start"].tasks[0].rules[0].set_iter.evaluate({}),
    "arc condition": lambda p: p.steps["start"].arcs[0].condition.holds({}),
    "arc args": lambda p: p.steps["start"].arcs[0].args.evaluate({}),
}


def program(settings: Settings) -> Program:
    plan = build_or_raise(dedent(TEXT), "p.yaml", KINDS, settings)
    return Program(decode(encode(plan)), "digest")


@pytest.mark.parametrize("place", PLACES)
def test_the_operators_limits_of_templates_hold_in_every_place(place):
    evaluate = PLACES[place]
    assert evaluate(program(Settings()))
    with pytest.raises(ExpressionError, match=r"more than 100 bytes \(setting expr.max_bytes\)"):
        evaluate(program(Settings({"expr.max_bytes": 100})))


def test_the_operators_limit_of_work_holds():
    items = TEXT.replace("'i' * 200", "range(200) | sum")
    plan = build_or_raise(dedent(items), "p.yaml", KINDS, Settings({"expr.max_work": 100}))
    with pytest.raises(ExpressionError, match=r"more than 100 operations \(setting expr.max_work\)"):
        Program(plan, "digest").steps["start"].items_at(0).evaluate({})
