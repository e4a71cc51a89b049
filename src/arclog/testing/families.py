"""Random families of playbooks, with every construct of the language: a playbook, and those that it calls.

`calm` ones do not depend on time: if their waits are answered, they reach the same end, however often the process dies.
The others also have time limits that can expire anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from arclog.testing.playbooks import Draw, Drawn

#: A time that is near the beginning of virtual time, and one that is long past.
_UNTIL = ("2027-01-15T08:05:00Z", "2020-01-01T00:00:00Z")


@dataclass(frozen=True)
class Family:
    """A playbook and those that it may call, directly or not."""

    main: Drawn
    children: tuple[Drawn, ...]
    calm: bool
    seed: int

    @property
    def text(self) -> str:
        return self.main.text

    def __repr__(self) -> str:
        below = "\n".join(map(repr, self.children))
        return f"Family(seed={self.seed}, calm={self.calm})\n{self.main!r}\n{below}"


def family(seed: int) -> Family:
    """The family of a seed: odd seeds branch, and every other pair is calm."""
    draw = Random(seed)
    branching, calm = seed % 2 == 1, seed % 4 < 2
    children: list[Drawn] = []
    for number in range(draw.randint(0, 3)):
        # Each playbook calls only playbooks that were created before it, so that none calls itself.
        name = f"kid{number}"
        kid = _Any(draw.randint, draw.random() < 0.3, calm, name, [f"kid{n}" for n in range(number)])
        children.append(Drawn(json.dumps(kid.playbook()), kid.branching, seed))
    main = _Any(draw.randint, branching, calm, "main", [f"kid{n}" for n in range(len(children))])
    return Family(Drawn(json.dumps(main.playbook()), branching, seed), tuple(children), calm, seed)


class _Any(Draw):
    """Builds a playbook that may use every construct."""

    def __init__(
        self, integer: Callable[[int, int], int], branching: bool, calm: bool, name: str, callable_: list[str]
    ) -> None:
        super().__init__(integer, branching)
        self.calm = calm
        self.name = name
        self.callable = callable_
        self.workbook: list[dict[str, Any]] = []
        self.sugared = 0

    # -- tasks --------------------------------------------------------------------------------------------------------

    def pipeline(self, step: str) -> list[dict[str, Any]]:
        tasks = super().pipeline(step)
        if self.chance(20):
            entry = {"name": f"wb_{step}", "kind": "act", "returns": {"n": "{{ args.n | default(1) }}"}}
            self.workbook.append(entry)
            tasks.insert(self.integer(0, len(tasks)), {"kind": "workbook", "name": entry["name"]})
        if self.chance(30):
            tasks.insert(self.integer(0, len(tasks)), self.sugar(step))
        return tasks

    def sugar(self, step: str) -> dict[str, Any]:
        self.sugared += 1
        inside, counter = f"{step}_in{self.sugared}", f"rounds_{self.sugared}"
        task = self.suspending(f"{inside}_w") if self.chance(40) else {"name": f"{inside}_w", "kind": "act"}
        counted = {"name": inside, "kind": "act", "returns": {"n": 1}}
        more = {"do": "continue", "set_iter": {counter: f"{{{{ (iter.{counter} | default(0)) + 1 }}}}"}}
        counted["spec"] = {"policy": {"rules": [{"else": {"then": more}}]}}
        match self.one_of("choose", "while", "until"):
            case "choose":
                branches: list[dict[str, Any]] = [{"when": self.condition(), "then": [task]}]
                if self.chance(60):
                    branches.append({"else": [counted]})
                return {"choose": branches}
            case "while":
                rounds = {"when": f"{{{{ (iter.{counter} | default(0)) < 2 }}}}", "do": [counted, task]}
                return {"while": {**rounds, "max": self.one_of(1, 5)}}
            case _:
                rounds = {"do": [counted, task], "when": f"{{{{ iter.{counter} >= 2 }}}}"}
                return {"until": {**rounds, "max": 5}}

    def task(self, step: str, label: str, before: list[str]) -> dict[str, Any]:
        if self.chance(40):
            task = self.suspending(label)
            if self.chance(60):
                task["spec"] = {**task.get("spec", {}), "policy": self.policy(step, label, before)}
            return task
        task = super().task(step, label, before)
        if self.chance(10) and task["kind"] != "noop":
            # Longer than a worker sleeps under its lease.
            retry = {"do": "retry", "attempts": 2, "delay": self.one_of(61, 120)}
            rules = [{"when": "{{ outcome.status == 'error' }}", "then": retry}]
            task["spec"] = {**task.get("spec", {}), "policy": {"rules": rules}}
        task.get("spec", {}).pop("delivery", None)
        return task

    def suspending(self, label: str) -> dict[str, Any]:
        """Return a task that no worker runs: it ends at a time, with an answer, or with a child."""
        choices = ["time", "time", "signal", "approval", *(["playbook"] * 4 if self.callable else [])]
        match self.one_of(*choices):
            case "time":
                task = {"kind": "wait", **self.one_of({"for_s": 0}, {"for_s": 30}, {"for_s": 90}, {"until": _UNTIL[0]})}
            case "signal":
                task = {"kind": "wait", "signal": f"go_{label}", **self.late()}
            case "approval":
                task = {"kind": "approval", "prompt": f"{label}?", **self.late()}
            case _:
                args = {"w": self.number([], in_task=False), "list": self.one_of([], [1, 2])}
                task = {"kind": "playbook", "path": self.one_of(*self.callable), "args": args}
                if self.chance(10):
                    task["wait"] = False
                elif not self.calm and self.chance(20):
                    task["spec"] = {"timeout": self.one_of(5, 60)}
        return {"name": label, **task}

    def late(self) -> dict[str, Any]:
        """Return a time limit for an answer; in a calm playbook a wait with a limit is never answered."""
        return {"timeout_s": self.one_of(10, 100)} if self.chance(25) else {}

    # -- steps and the whole ------------------------------------------------------------------------------------------

    def step(self, index: int) -> dict[str, Any]:
        step = super().step(index)
        if not self.calm and self.chance(25):
            limit = {self.one_of("timeout_s", "deadline_s"): self.one_of(1, 35, 200)}
            step.setdefault("spec", {}).setdefault("policy", {})["lifecycle"] = limit
        elif self.chance(10):
            never = {"timeout_s": 90_000, "deadline_s": 90_000}
            step.setdefault("spec", {}).setdefault("policy", {})["lifecycle"] = never
        return step

    def playbook(self) -> dict[str, Any]:
        made = super().playbook()
        made["metadata"] = {"name": self.name, "path": self.name}
        if self.workbook:
            made["workbook"] = self.workbook
        spec = made["executor"]["spec"]
        if self.chance(20):
            spec["policy"] = {"approval": "required"}
        if self.chance(25):
            excess = "queue" if self.calm else self.one_of("queue", "queue", "reject")
            spec["concurrency"] = {"max": self.integer(1, 2), "on_excess": excess}
        if not self.calm and self.chance(15):
            spec["timeout_s"] = self.one_of(20, 100, 400)
        return made
