"""Programs are kept by their size; a large plan is decoded and prepared in parts, to the same end."""

from __future__ import annotations

import gc

from arclog.model.config.settings import Settings
from arclog.plan import net
from arclog.plan.build import build_or_raise
from arclog.plan.program import LARGE, Program, Programs
from arclog.plan.reach import Reach
from arclog.wiring.kinds import installed_kinds

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
    found = net.decode_in_parts(body, lambda: pauses.append(1))
    assert found == net.decode(body) == plan
    assert net.encode(found) == body
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
    assert [programs.get(one.digest) is one for one in large] == [False, False, True, True, True]
    assert all(programs.get(one.digest) is one for one in small)
    huge = programs.keep(Program(plan, "huge", 100 * LARGE))
    assert programs.get("huge") is huge, "the newest is kept in any case"
    assert programs.has_given_up(large[4])
    assert not programs.has_given_up(small[0])
