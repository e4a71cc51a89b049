"""What can bring a token to a join, against a slow walk over every arc; and that a dense net stays cheap to ask."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from arclog.plan.build import build
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
    found: set[str] = set()
    open_names = [step]
    while open_names:
        name = open_names.pop()
        if name not in found and name != avoiding:
            found.add(name)
            open_names += graph.before[name]
    return found


@pytest.mark.parametrize("seed", range(40))
def test_each_source_of_a_join_is_reached_from_where_a_slow_walk_says(seed):
    random = Random(seed)
    size = random.randint(1, 9)
    arcs = {one: [other for other in range(size) if random.random() < 0.35] for one in range(size)}
    plan = build(net(arcs), "p.yaml", KINDS).plan
    assert plan is not None
    reach = Reach(plan.entry, plan.steps)
    runs = {plan.entry, *reach.graph.named(reach.graph.led_to_by(plan.entry))}
    for join in reach.joins.values():
        for incoming in join.incoming:
            if incoming.source in runs:
                wanted = slowly(reach.graph, incoming.source, join.step)
                assert set(reach.graph.named(incoming.reach)) & runs == wanted & runs


def test_sources_of_one_join_share_their_walk(monkeypatch):
    """150 steps, each with an arc to each: below the limits of a playbook, and once minutes of work to check."""
    looked: list[int] = []

    class Counted(list[int]):
        def __getitem__(self, number):
            looked.append(1)
            return super().__getitem__(number)

    masks = Graph._masks

    def counted(self: Graph, edges: dict[str, list[str]]) -> Sequence[int]:
        return Counted(masks(self, edges))

    monkeypatch.setattr(Graph, "_masks", counted)
    plan = build(net({one: list(range(40)) for one in range(40)}), "p.yaml", KINDS).plan
    assert plan is not None
    looked.clear()
    Reach(plan.entry, plan.steps)
    assert len(looked) < 40 * 40 * 3
