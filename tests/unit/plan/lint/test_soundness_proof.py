"""What `check` proves of small nets is what their runs do: every order and every outcome, decided by the engine's own core."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
from hypothesis import given, note, settings
from hypothesis import strategies as st

from arclog.core.boundary.inputs import Continue, Input, Request, WorkReported
from arclog.core.transitions.decide import decide
from arclog.core.transitions.state import State
from arclog.model.events import Event
from arclog.plan.lint import markings
from arclog.plan.lint.soundness import Soundness
from arclog.plan.program import Program
from tests.unit.core.nets import program_of

#: Nets with more states than these are left out.
MOST_STATES = 60
FAILED = "event.name == 'step.failed'"


def drawn_net(draw: Random) -> str:
    """Up to five steps; arcs may hold or not (by what the step answers), never, or after a failure alone."""
    names = [f"s{number}" for number in range(draw.randint(2, 5))]
    made: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        spec: dict[str, Any] = {}
        join = draw.choice(["any", "any", "all", "all_ok", "count", "count"])
        if join != "any":
            spec["join"] = {"count": 2} if join == "count" else join
        policy: dict[str, Any] = {}
        if number and draw.random() < 0.1:
            policy["admit"] = {"rules": [{"when": False, "then": {"allow": True}}]}
        if draw.random() < 0.15:
            policy["failure"] = {"mode": "best_effort"}
        if policy:
            spec["policy"] = policy
        arcs: list[dict[str, Any]] = []
        for at in range(draw.randint(0, 3)):
            back = draw.random() < 0.1
            targets = names[: number + 1] if back else names[number + 1 :]
            if not targets:
                continue
            arc: dict[str, Any] = {"step": draw.choice(targets)}
            when = draw.choice(
                [None, None, None, f"{{{{ {name}.data.a{at} }}}}", f"{{{{ {name}.data.a{at} }}}}", False, FAILED]
            )
            if when is not None:
                arc["when"] = when
            arcs.append(arc)
        step: dict[str, Any] = {"step": name, "tool": {"kind": "noop"}, "spec": spec}
        if arcs:
            mode = {"mode": draw.choice(["inclusive", "inclusive", "exclusive"])}
            if draw.random() < 0.15:
                mode["on_no_match"] = "fail"
            step["next"] = {"spec": mode, "arcs": arcs}
        made.append(step)
    places = Counter(arc["step"] for step in made for arc in step.get("next", {}).get("arcs", ()))
    for number, step in enumerate(made):
        if isinstance(step["spec"].get("join"), dict):
            most = places[step["step"]] + (number == 0)
            step["spec"]["join"] = {"count": min(2, most)} if most else "all"
    # A failure can lead back to the join that failed, without a step between.
    executor = {"spec": {"policy": {"limits": {"max_step_runs": MOST_STATES}}}}
    return json.dumps({"metadata": {"name": "p"}, "executor": executor, "workflow": made})


class Runs:
    """All runs of a program: its states, whichever step ends next and however."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.starved: set[str] = set()
        self.ran: set[str] = set()
        #: all states were looked at
        self.is_whole = True
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(State).decode
        states = [self._put(State(execution_id=1), Request("p", 1, {}))]
        seen = {self._key(states[0])}
        while states:
            state = states.pop()
            body = self._encode(state)
            for given_input in self._inputs(state):
                after = self._put(self._decode(body), given_input)
                key = self._key(after)
                if key not in seen:
                    seen.add(key)
                    if len(seen) > MOST_STATES:
                        self.is_whole = False
                        return
                    states.append(after)

    def _put(self, state: State, given_input: Input) -> State:
        txn = decide(self.program, state, given_input, state.head + 1, (state.head + 1) * 1_000_000)
        assert txn.refused is None, txn.refused
        for event in txn.events:
            if event.type == "step.scheduled" and event.command_id:
                self.ran.add(event.step)
            if event.type == "step.failed" and event.payload["error"].get("code") == "JOIN_COUNT":
                self.starved.add(event.step)
        return self._put(state, Continue()) if txn.more else state

    def _inputs(self, state: State) -> Iterator[Input]:
        """Ends of the oldest open run of each step."""
        for step in dict.fromkeys(run.step for run in state.open.values()):
            run = next(run for run in state.open.values() if run.step == step)
            command = next(
                command for command in state.commands.values() if (command.step, command.run) == (run.step, run.run)
            )
            begin = Event("step.started", 1, step=step, run=run.run)
            failure = {"error": {"kind": "timeout", "message": "", "code": None, "retryable": False}}
            ends = [[Event("step.failed", 1, step=step, run=run.run, payload=failure)]]
            (task,) = self.program.steps[step].index
            place: dict[str, Any] = {"step": step, "run": run.run, "task": task, "task_run": 1}
            arc_indexes = [arc.index for arc in self.program.steps[step].plan.arcs if ".data." in str(arc.when)]
            for answers in product((False, True), repeat=len(arc_indexes)):
                data = {f"a{number}": False for number in range(3)}
                data |= {f"a{number}": answer for number, answer in zip(arc_indexes, answers, strict=True)}
                done = {"outcome": {"status": "ok", "result": data}}
                ends.append([
                    Event("task.started", 1, **place),
                    Event("task.done", 1, **place, payload=done),
                    Event("step.done", 1, step=step, run=run.run),
                ])  # fmt: skip
            for end in ends:
                yield WorkReported(command.id, 1, 1, "w", [msgspec.structs.replace(begin), *end])

    def _key(self, state: State) -> Any:
        if state.terminal is not None:
            return None
        return (
            tuple(sorted(run.step for run in state.open.values())),
            tuple(sorted(
                (step, place, tuple(token.event.get("name") == "step.failed" for token in queue))
                for step, held in state.waiting.items() for place, queue in held.items()
            )),
            tuple(sorted((step, place, owed) for step, places in state.absorbs.items() for place, owed in places.items())),
            tuple(sorted(step for step, tally in state.tally.items() if tally.error or tally.denied)),
        )  # fmt: skip


@settings(max_examples=40)
@given(st.integers(0, 1 << 32), st.booleans())
def test_a_proof_says_what_runs_do_and_nothing_else(seed: int, is_sampled: bool) -> None:
    """Also where a few combinations of open arcs are looked at before all of them."""
    with patch.object(markings, "FEW_OPEN_ARCS", 0 if is_sampled else markings.FEW_OPEN_ARCS):
        compare_proof_with_runs(seed)


def compare_proof_with_runs(seed: int) -> None:
    text = drawn_net(Random(seed))
    note(text)
    program = program_of(text)
    runs = Runs(program)
    if not runs.is_whole:
        return
    soundness = Soundness(program.plan, 20_000)
    proof = soundness.proof
    if proof.bound is not None:  # a cycle makes tokens until `max_step_runs` ends the run
        assert "tokens at once" in proof.bound.reason
        assert set(proof.starved) <= runs.starved
        return
    assert set(proof.starved) == runs.starved
    assert (set(soundness.before) if proof.ran is None else proof.ran) == runs.ran


def test_two_tokens_on_one_arc_are_of_two_waves() -> None:
    text = """
metadata: {name: waves}
workflow:
  - {step: start, tool: {kind: noop}, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: c}]}}
  - {step: a, tool: {kind: noop}, next: {arcs: [{step: x}]}}
  - {step: b, tool: {kind: noop}, next: {arcs: [{step: x}]}}
  - {step: c, tool: {kind: noop}, next: {arcs: [{step: end}]}}
  - {step: x, tool: {kind: noop}, next: {arcs: [{step: end}]}}
  - {step: end, spec: {join: {count: 2}}, tool: {kind: noop}}
"""
    program = program_of(text)
    proof = Soundness(program.plan, 20_000).proof
    assert Runs(program).starved == set(proof.starved) == {"end"}
    assert proof.starved["end"].came == 1
