"""A program keeps to the limits of its plan wherever it evaluates a template."""

from __future__ import annotations

import gc
from collections.abc import Callable
from textwrap import dedent

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import ExpressionError
from arclog.plan import net
from arclog.plan.build import build_or_raise
from arclog.plan.net import decode, encode
from arclog.plan.program import LARGE, Program, Programs
from arclog.plan.reach import Reach
from arclog.wiring.kinds import installed_kinds
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


RING = "\n".join(
    [
        "metadata: {name: ring}",
        "workload: {a: 1}",
        "workflow:",
        *(
            f"  - {{step: s{at}, spec: {{join: all}}, tool: {{kind: noop}}, next: {{arcs: ["
            f'{{step: s{(at + 1) % 60}, when: "{{{{ outcome.ok }}}}"}}, {{step: s{(at + 7) % 60}}}]}}}}'
            for at in range(60)
        ),
    ]
)


def test_a_plan_decoded_in_parts_is_the_same() -> None:
    plan = build_or_raise(RING, "ring.yaml", installed_kinds())
    body, pauses = net.encode(plan), list[int]()
    decoded = net.decode_in_parts(body, lambda: pauses.append(1))
    assert decoded == net.decode(body) == plan
    assert net.encode(decoded) == body
    assert len(pauses) > 10


def test_a_program_that_was_prepared_answers_as_one_that_was_not() -> None:
    plan = build_or_raise(RING, "ring.yaml", installed_kinds())
    plain, pauses = Program(plan, "a"), list[int]()
    prepared = Program(plan, "a", pause=lambda: pauses.append(1))
    assert len(pauses) == 60
    prepared.prepare(lambda: pauses.append(1))
    assert len(pauses) > 60 * 8, "for each step, and for its part in each sweep over the joins"
    assert prepared.reach.joins == plain.reach.joins == Reach(plan.entry, plan.steps).joins
    assert prepared.results_read == plain.results_read
    assert prepared.demand == plain.demand


def test_arcs_are_not_looked_at_for_garbage() -> None:
    """Of a large plan they are most of the objects, and the event loop stands still while garbage is looked for."""
    program = Program(build_or_raise(RING, "ring.yaml", installed_kinds()), "a")
    step = program.steps["s0"]
    assert not any(map(gc.is_tracked, (program.plan, step.plan, *step.plan.arcs, *step.arcs)))


def test_large_programs_take_each_others_place_and_not_that_of_small_ones() -> None:
    plan = build_or_raise(RING, "ring.yaml", installed_kinds())
    programs = Programs(Settings({"engine.cache_programs_bytes": 3 * LARGE}))
    small = [programs.keep(Program(plan, f"small{at}", 100)) for at in range(5)]
    large = [programs.keep(Program(plan, f"large{at}", LARGE)) for at in range(5)]
    assert [programs.get(program.digest) is program for program in large] == [False, False, True, True, True]
    assert all(programs.get(program.digest) is program for program in small)
    huge = programs.keep(Program(plan, "huge", 100 * LARGE))
    assert programs.get("huge") is huge, "the newest is kept in any case"
    assert programs.has_given_up(large[4])
    assert not programs.has_given_up(small[0])
