"""What can bring a token to a join, against a slow walk over every arc; and that a dense net stays cheap to ask."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from arclog.plan.build import build
from arclog.plan.cycles import TooMuchWork
from arclog.plan.net import ArcPlan, StepPlan
from arclog.plan.reach import Graph, Reach
from tests.unit.plan.kinds import KINDS


def net(arcs: dict[int, list[int]]) -> str:
    rows = ["metadata: {name: p}", "workflow:"]
    for number, targets in arcs.items():
        leads = ", ".join(f"{{step: s{target}}}" for target in targets)
        after = f", next: {{spec: {{mode: inclusive}}, arcs: [{leads}]}}" if targets else ""
        rows.append(f"  - {{step: s{number}, spec: {{join: all}}, tool: {{kind: noop}}{after}}}")
    return "\n".join(rows)


def slowly(graph: Graph, step: str, avoiding: str) -> set[str]:
    reached: set[str] = set()
    open_names = [step]
    while open_names:
        name = open_names.pop()
        if name not in reached and name != avoiding:
            reached.add(name)
            open_names += graph.before[name]
    return reached


@pytest.mark.parametrize("seed", range(40))
def test_each_source_of_a_join_is_reached_from_where_a_slow_walk_says(seed):
    random = Random(seed)
    size = random.randint(1, 9)
    arcs = {step: [other for other in range(size) if random.random() < 0.35] for step in range(size)}
    plan = build(net(arcs), "p.yaml", KINDS).plan
    assert plan is not None
    reach = Reach(plan.entry, plan.steps)
    runs = {plan.entry, *reach.graph.names_of(reach.graph.led_to_by(plan.entry))}
    for join in reach.joins.values():
        for incoming in join.incoming:
            if incoming.source in runs:
                wanted = slowly(reach.graph, incoming.source, join.step)
                assert set(reach.graph.names_of(incoming.reach)) & runs == wanted & runs


SHAPES: dict[str, Callable[[int, int, Random], list[int]]] = {
    "random": lambda n, size, random: [(n + 1) % size, *(random.randrange(size) for _ in range(19))],
    "back to near ones": lambda n, size, _: [(n + 1) % size, *(max(0, n - k) for k in range(1, 20))],
    "a ring with short ways back": lambda n, size, _: [(n + 1) % size, *((n - k) % size for k in range(1, 20))],
    "a path with ways back": lambda n, size, _: [min(n + 1, size - 1), max(0, n - 1), 0],
    "a star": lambda n, size, random: [0, *(random.randrange(size) for _ in range(19))] if n else [*range(size)],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_joins_of_a_large_cycle_take_little_work(shape: str) -> None:
    """2,000 joins with 20 arcs each in one cycle took a minute."""
    random, size = Random(1), 2000
    steps = [
        StepPlan(
            name=f"s{n}",
            tasks=(),
            join="all",
            arcs=tuple(
                ArcPlan(source=f"s{n}", index=index, target=f"s{target}")
                for index, target in enumerate(dict.fromkeys(SHAPES[shape](n, size, random)))
            ),
        )
        for n in range(size)
    ]
    reach = Reach("s0", steps, 2_000_000)
    for step in random.sample(steps, 3):
        for incoming in reach.joins[step.name].incoming[:2]:
            wanted = slowly(reach.graph, incoming.source, step.name)
            assert set(reach.graph.names_of(incoming.reach)) == wanted


@pytest.mark.parametrize("seed", range(60))
def test_what_reaches_a_source_in_sparse_cycles(seed: int) -> None:
    """Rings, paths with ways back, and trees of loops: where one step stands on all ways to another."""
    random = Random(seed)
    size = random.randint(2, 14)
    arcs = {
        n: sorted({(n + 1) % size, *(max(0, n - random.randint(1, 3)) for _ in range(random.randint(0, 2)))})
        for n in range(size)
    }
    if seed % 2:
        arcs[size - 1] = [random.randrange(size)]
    plan = build(net(arcs), "p.yaml", KINDS).plan
    assert plan is not None
    reach = Reach(plan.entry, plan.steps)
    runs = set(reach.graph.names_of(reach.graph.led_to_by(plan.entry)))
    for join in reach.joins.values():
        for incoming in join.incoming:
            if incoming.source in runs:
                wanted = slowly(reach.graph, incoming.source, join.step)
                assert set(reach.graph.names_of(incoming.reach)) & runs == wanted & runs


def test_the_work_of_joins_is_bounded() -> None:
    arcs = {n: sorted({(n + 1) % 30, max(0, n - 1), 0}) for n in range(30)}
    plan = build(net(arcs), "p.yaml", KINDS).plan
    assert plan is not None
    with pytest.raises(TooMuchWork):
        Reach(plan.entry, plan.steps, 50)
