"""Random valid playbooks, of every construct that can run: by seed (fast), or as a hypothesis strategy (shrinks).

`sequential` ones have one token at a time, so everything about their runs is determined: ctx, results and (except for
loops with parallel items) the order of all ends. `branching` ones fan out. The writes of their branches do not depend
on the order, so their ctx and the multiset of their ends are determined, but not the order. Cycles and jumps are
bounded by counters.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

#: Most laps of a cycle of steps, and most jumps of a task.
LAPS = 2
#: Reducers that take any number.
REDUCERS = ("sum", "count", "min", "max", "append", "union", "last")


@dataclass(frozen=True)
class Drawn:
    """A random playbook; JSON is YAML."""

    text: str
    #: several tokens may be alive at a time
    branching: bool
    #: the seed that generates it again
    seed: int | None = None

    @property
    def side_by_side(self) -> bool:
        """Some loop runs its items side by side: the order of events is not determined."""
        return any(_is_parallel(step.get("loop")) for step in json.loads(self.text)["workflow"])

    @property
    def racing(self) -> set[str]:
        """Return steps with parallel items whose first failure ends the rest, so that the amount of finished work
        differs.
        """
        return {
            step["step"]
            for step in json.loads(self.text)["workflow"]
            if _is_parallel(step.get("loop"))
            and step.get("spec", {}).get("policy", {}).get("failure", {}).get("mode") != "best_effort"
        }

    def __repr__(self) -> str:
        return f"Drawn(seed={self.seed}, branching={self.branching}, text=\n{json.dumps(json.loads(self.text), indent=1)}\n)"


def _is_parallel(loop: dict[str, Any] | None) -> bool:
    return loop is not None and (loop["spec"]["mode"] == "parallel" or _is_parallel(loop.get("loop")))


class Draw:
    """One playbook, while it is built."""

    def __init__(self, integer: Callable[[int, int], int], branching: bool) -> None:
        #: a random integer between two bounds, both included
        self.integer = integer
        self.branching = branching
        self.count = integer(1, 5)
        self.names = [f"s{i}" for i in range(self.count)]
        #: whether the current tasks run in parallel, so that their effect on ctx must not depend on the order
        self.side_by_side = False
        #: whether their step is a loop
        self.in_loop = False
        #: with joins arcs carry no args: how often a join fires is determined, which tokens meet there is not
        self.joins = branching and self.chance(60)

    def one_of(self, *choices: Any) -> Any:
        return choices[self.integer(0, len(choices) - 1)]

    def chance(self, percent: int) -> bool:
        return self.integer(1, 100) > 100 - percent

    # -- values -------------------------------------------------------------------------------------------------------

    def number(self, labels: list[str], *, in_task: bool) -> Any:
        """Return an expression that yields a number (or sometimes an error)."""
        shared = ["{{ args.n | default(7) }}", "{{ workload.w }}", "{{ w * 2 }}", "{{ workload.list | length }}"]
        choices: list[Any] = [1, 2, *shared]
        if not self.branching:
            choices += ["{{ ctx.total | default(0) }}", "{{ (ctx.total | default(0)) + 1 }}"]
            choices += ["{{ ctx.nowhere }}"] if self.chance(15) else []
            choices += [f"{{{{ {name}.n | default(3) }}}}" for name in self.names[:2]]
            choices += [f"{{{{ {self.names[0]}.data.n if {self.names[0]} else -1 }}}}"]
        if in_task:
            choices += [
                "{{ iter.index | default(0) }}",
                "{{ _attempt }}",
                "{{ _task.run }}",
                "{{ iter.kept | default(0) }}",
            ]
            choices += ["{{ _prev.n if _prev else 0 }}"]
            choices += [f"{{{{ {label}.data.n }}}}" for label in labels]
        return self.one_of(*choices)

    def condition(self, *, in_task: bool = False) -> Any:
        choices: list[Any] = [
            True,
            False,
            "{{ workload.w > 3 }}",
            "args.n is defined",
            "{{ workload.list | length == 2 }}",
        ]
        if in_task:
            choices += ["{{ outcome.status == 'ok' }}", "{{ outcome.data.n is defined and outcome.data.n > 2 }}"]
        elif not self.branching:
            choices += ["{{ (ctx.total | default(0)) < 3 }}"]
        return self.one_of(*choices)

    # -- tasks --------------------------------------------------------------------------------------------------------

    def pipeline(self, step: str) -> list[dict[str, Any]]:
        count = self.integer(1, 4)
        tasks: list[dict[str, Any]] = []
        labels: list[str] = []
        for i in range(count):
            label = f"{step}_t{i}"
            tasks.append(self.task(step, label, labels))
            labels.append(label)
        return tasks

    def task(self, step: str, label: str, before: list[str]) -> dict[str, Any]:
        kind = self.one_of("act", "act", "act", "peek", "noop")
        value = {"n": self.number(before, in_task=True), "task": label}
        task: dict[str, Any] = {"name": label, "kind": kind}
        if kind == "noop":
            task["data"] = value
        else:
            task["returns"] = value
            if self.chance(25):
                task["fail_attempts"] = self.integer(1, 3)
                task["error"] = self.one_of("exception", "connection", "timeout")
            if self.chance(40):
                task["takes"] = self.one_of(0.05, 0.5, 40)
        if self.chance(65):
            task["spec"] = {"policy": self.policy(step, label, before)}
        if self.chance(8):
            task.setdefault("spec", {})["delivery"] = "at_most_once"
        return task

    def policy(self, step: str, label: str, before: list[str]) -> dict[str, Any]:
        rules: list[dict[str, Any]] = []
        if self.chance(55):
            retry = {"do": "retry", "attempts": self.integer(1, 4), "delay": self.one_of(0, 0.5, 50)}
            retry["backoff"] = self.one_of("none", "linear", "exponential")
            rules.append({"when": "{{ outcome.status == 'error' }}", "then": self.setting(retry, step)})
        if self.chance(25):
            counter = f"jumps_{label}"
            jump = {"do": "jump", "to": self.one_of(label, *before)}
            jump["set_iter"] = {counter: f"{{{{ (iter.{counter} | default(0)) + 1 }}}}"}
            rules.append({"when": f"{{{{ (iter.{counter} | default(0)) < {LAPS} }}}}", "then": jump})
        for _ in range(self.integer(0, 2)):
            then = self.setting({"do": self.one_of("continue", "continue", "continue", "break", "fail")}, step)
            rules.append({"when": self.condition(in_task=True), "then": then})
        if self.chance(70) or not rules:
            then = self.setting({"do": self.one_of(*["continue"] * 6, "break", "fail")}, step)
            rules.append({"else": {"then": then}})
        policy: dict[str, Any] = {"rules": rules}
        if self.chance(20):
            policy["on_unmatched"] = self.one_of("continue", "fail")
        return policy

    def setting(self, then: dict[str, Any], step: str) -> dict[str, Any]:
        if self.chance(35):
            if self.in_loop and self.chance(60):
                # Each iteration sets one value per key, so the result of the reducers is determined.
                then["set_ctx"] = {f"{self.one_of(*REDUCERS)}_{step}": self.reducible()}
            elif self.branching or self.side_by_side:
                then["set_ctx"] = {f"seen_{step}": True}
            else:
                then["set_ctx"] = {
                    "total": "{{ (ctx.total | default(0)) + 1 }}",
                    "last": self.one_of("{{ outcome.data }}", step),
                }
        if self.chance(30):
            then["set_iter"] = {"kept": "{{ (iter.kept | default(0)) + 1 }}"}
        return then

    def reducible(self) -> Any:
        """A value for any reducer but merge, the same whenever its iteration runs."""
        return self.one_of(1, 0.1, "{{ iter.index }}", "{{ iter.index / 3 }}", "{{ iter.total }}")

    def loop(self, depth: int = 0) -> dict[str, Any]:
        """A loop of any mode, up to three levels deep."""
        items: Any = self.one_of([], [1], [1, 2, 3], "{{ workload.list }}", "{{ range(args.n | default(2)) }}")
        if depth:
            items = self.one_of([], [1], [1, 2], "{{ workload.list }}", "{{ range(iter.index + 1) }}")
        if self.chance(4):
            items = "{{ workload.w }}"
        spec: dict[str, Any] = {"mode": self.one_of("sequential", "sequential", "parallel")}
        if spec["mode"] == "parallel":
            self.side_by_side = True
            spec["max_in_flight"] = self.integer(1, 4)
        if self.chance(30):
            spec["policy"] = {"exec": self.one_of("local", "distributed")}
        made: dict[str, Any] = {"in": items, "iterator": "item", "spec": spec}
        if depth < 2 and self.chance(25):
            made["loop"] = self.loop(depth + 1)
        return made

    # -- steps --------------------------------------------------------------------------------------------------------

    def step(self, index: int) -> dict[str, Any]:
        name = self.names[index]
        step: dict[str, Any] = {"step": name}
        policy: dict[str, Any] = {}
        if self.chance(25 if index else 4):
            policy["admit"] = {"rules": self.admission()}
        if self.chance(30):
            policy["failure"] = {"mode": self.one_of("best_effort", "fail_fast")}
        if self.chance(12):
            more = (
                ["task.attempt.started"],
                ["task.attempt.done", "task.attempt.failed"],
                ["loop.iteration.scheduled"],
                ["full"],
            )
            policy["emit"] = {"events": self.one_of(*more)}
        if policy:
            step["spec"] = {"policy": policy}
        if self.joins and self.chance(45):
            step.setdefault("spec", {})["join"] = self.one_of("all", "all", {"count": self.integer(1, 3)})
        if self.chance(30):
            step["args"] = {"n": self.number([], in_task=False), "deep": {"m": self.number([], in_task=False)}}
        if self.chance(35):
            step["loop"] = self.loop()
            self.in_loop = True
        step["tool"] = self.pipeline(name)
        if self.side_by_side and self.chance(70):
            step.setdefault("spec", {}).setdefault("policy", {})["failure"] = {"mode": "best_effort"}
        self.in_loop = self.side_by_side = False
        arcs = self.arcs(index)
        if arcs:
            spec: dict[str, Any] = {"mode": self.one_of("inclusive", "exclusive") if self.branching else "exclusive"}
            if self.chance(8):
                spec["on_no_match"] = "fail"
            step["next"] = {"spec": spec, "arcs": arcs}
        return step

    def admission(self) -> list[dict[str, Any]]:
        rules: list[dict[str, Any]] = [{"when": self.condition(), "then": {"allow": self.one_of(True, True, False)}}]
        if self.chance(70):
            rules.append({"else": {"then": {"allow": self.one_of(True, True, True, False)}}})
        return rules

    def arcs(self, index: int) -> list[dict[str, Any]]:
        arcs: list[dict[str, Any]] = []
        later = self.names[index + 1 :]
        if later and self.chance(45):
            arcs.append({"step": self.one_of(*later), "when": "{{ event.name == 'step.failed' }}"})
            if self.chance(50) and not self.joins:
                arcs[-1]["args"] = {"why": "{{ event.payload.error.kind }}", "n": 1}
        if not self.branching and self.chance(25):
            lap = {"step": self.one_of(*self.names[: index + 1]), "when": f"{{{{ (args.lap | default(0)) < {LAPS} }}}}"}
            lap["args"] = {"n": self.number([], in_task=False)}
            arcs.append(lap)
        for _ in range(self.integer(0, 3 if self.branching else 2)):
            if later:
                arc: dict[str, Any] = {"step": self.one_of(*later)}
                if self.chance(50):
                    arc["when"] = self.condition()
                if self.chance(50) and not self.joins:
                    arc["args"] = {"n": self.number([], in_task=False)}
                arcs.append(arc)
        if later and (not arcs or self.chance(40)):
            arcs.append({"step": later[0]})
        if not self.branching:
            # The counter of laps moves with every token, so cycles are bounded whatever the tasks do.
            for arc in arcs:
                back = self.names.index(arc["step"]) <= index
                more = "{{ (args.lap | default(0)) + 1 }}" if back else "{{ args.lap | default(0) }}"
                arc["args"] = {**arc.get("args", {}), "lap": more}
        return arcs

    def playbook(self) -> dict[str, Any]:
        declared = {f"{name}_{step}": {"reducer": name} for name in REDUCERS for step in self.names}
        spec: dict[str, Any] = {"entry_step": "s0", "ctx": declared}
        if self.branching:
            spec["result"] = "{{ ctx }}"
        elif self.chance(40):
            spec["result"] = self.one_of(
                "{{ ctx }}", "{{ s0.data }}", {"first": "{{ s0.n | default(0) }}"}, "{{ s0.results | default([]) }}"
            )
        return {
            "metadata": {"name": "random"},
            "workload": {"w": self.integer(0, 5), "list": self.one_of([], [1, 2], ["a", {"b": None}, 2.5])},
            "executor": {"spec": spec},
            "workflow": self.countable([self.step(i) for i in range(self.count)]),
        }

    def countable(self, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Limit the count of each join to the number of arcs that lead to it."""
        targets = [arc["step"] for step in steps for arc in step.get("next", {}).get("arcs", ())]
        for step in steps:
            join = step.get("spec", {}).get("join")
            if isinstance(join, dict):
                most = targets.count(step["step"]) + (step is steps[0])
                step["spec"]["join"] = {"count": max(1, min(join["count"], most))} if most else "all"
        return steps


def by_seed(seed: int) -> Drawn:
    """The playbook of a seed; odd seeds branch."""
    branching = seed % 2 == 1
    return Drawn(json.dumps(Draw(Random(seed).randint, branching).playbook()), branching, seed)


@st.composite
def playbooks(draw: st.DrawFn) -> Drawn:
    """Return a strategy for random playbooks. It is slower than a seed, but hypothesis shrinks a failing playbook."""
    branching = draw(st.booleans())
    made = Draw(lambda low, high: draw(st.integers(low, high)), branching).playbook()
    return Drawn(json.dumps(made), branching)
