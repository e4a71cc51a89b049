"""Random nets of splits, joins, denials, failures and cycles: each ends, once, and a restart anywhere changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arclog.core.flow.joins import waiting
from arclog.engine.views.why import explain
from tests.unit.core.nets import Net, program_of

#: Laps of a cycle; a token carries its count, so every net is finite.
LAPS = 2
CAP = 250


def drawn_net(draw: Random, *, cycles: bool) -> str:
    """A net of up to eight steps whose arcs go forward, and back while laps are left."""
    count = draw.randint(2, 8)
    names = [f"s{n}" for n in range(count)]
    made: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        spec: dict[str, Any] = {}
        chance = draw.random()
        if chance < 0.35:
            spec["join"] = "all"
        elif chance < 0.6:
            spec["join"] = {"count": draw.randint(1, 3)}
        policy: dict[str, Any] = {}
        if number and draw.random() < 0.12:
            policy["admit"] = {
                "rules": [{"when": draw.choice([False, "args.lap is defined"]), "then": {"allow": True}}]
            }
        if draw.random() < 0.3:
            policy["failure"] = {"mode": "best_effort"}
        if policy:
            spec["policy"] = policy
        arcs: list[dict[str, Any]] = []
        for _ in range(draw.randint(0, 3)):
            back = cycles and draw.random() < 0.25
            target = draw.choice(names[: number + 1]) if back else draw.choice(names[number + 1 :] or [""])
            if not target:
                continue
            arc: dict[str, Any] = {"step": target, "args": {"lap": "{{ args.lap | default(0) }}"}}
            if back:
                arc["when"] = f"{{{{ (args.lap | default(0)) < {LAPS} }}}}"
                arc["args"] = {"lap": "{{ (args.lap | default(0)) + 1 }}"}
            elif draw.random() < 0.2:
                arc["when"] = "event.name == 'step.failed'"
            elif draw.random() < 0.25:
                arc["when"] = draw.choice([False, "execution_id == '1'", "event.status == 'success'"])
            arcs.append(arc)
        step: dict[str, Any] = {"step": name, "tool": {"kind": "noop"}, "spec": spec}
        if arcs:
            step["next"] = {"spec": {"mode": draw.choice(["inclusive", "inclusive", "exclusive"])}, "arcs": arcs}
        made.append(step)
    places = Counter(arc["step"] for step in made for arc in step.get("next", {}).get("arcs", ()))
    for step in made:
        wanted = step["spec"].get("join")
        if isinstance(wanted, dict):
            most = places[step["step"]] + (step is made[0])
            step["spec"]["join"] = {"count": min(wanted["count"], most)} if most else "all"
    executor = {"spec": {"policy": {"limits": {"max_step_runs": CAP}}}}
    return json.dumps({"metadata": {"name": "p"}, "executor": executor, "workflow": made})


def finished(net: Net, draw: Random, failing: float) -> Net:
    """End the open step runs in any order until the run is over."""
    while not net.over:
        assert net.open, explain(net.state, net.program, [], 0)
        # A join that waits is held up by something that is there.
        for join in waiting(net.program, net.state):
            assert not join.ready
            assert any(lack.from_steps for lack in join.lacks), join
        net.end(draw.choice(net.open), "timeout" if draw.random() < failing else "")
    net.check_end()
    return net


@pytest.mark.parametrize("group", range(8))
def test_nets_end_and_a_restart_after_every_decision_changes_nothing(group):
    for seed in range(group * 60, group * 60 + 60):
        text = drawn_net(Random(seed), cycles=seed % 3 > 0)
        program = program_of(text)
        try:
            plain = finished(Net(program), Random(seed), 0.1)
            again = finished(Net(program, reborn=True), Random(seed), 0.1)
            assert again.log == plain.log
        except BaseException as problem:
            problem.add_note(f"seed {seed}: {text}")
            raise


@settings(max_examples=150)
@given(st.randoms(use_true_random=False), st.booleans())
def test_the_same_with_nets_that_shrink(draw, cycles):
    finished(Net(drawn_net(draw, cycles=cycles), reborn=True), draw, 0.1)


@pytest.mark.parametrize("group", range(4))
def test_without_cycles_the_order_of_the_branches_decides_nothing(group):
    """The k-th token of each place is of the k-th wave, so what runs how often is the same whoever comes first."""
    for seed in range(group * 60, group * 60 + 60):
        program = program_of(drawn_net(Random(seed), cycles=False))
        seen = []
        for order in range(4):
            net = finished(Net(program), Random(order), 0.0)
            seen.append((net.state.status, sorted(net.state.runs.items()), sorted(map(str, net.failures()))))
        if seen[0][0] == "COMPLETED":
            assert all(ending == seen[0] for ending in seen), f"seed {seed}: {seen}"
