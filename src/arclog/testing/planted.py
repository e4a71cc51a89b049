"""Random families of playbooks with planted failures: whatever a run of one fails with must be one of them.

Steps run in sequence or side by side; loops are sequential or parallel, local, distributed or nested; some steps call
other playbooks of the family. A failure is an error of a task, exhausted retries, a policy that says `fail` (also of an ok
outcome) or cannot be evaluated, a task or a step that takes too long, or a lease that is lost each time. Other failures are
handled, by a policy or an arc, and are never to blame.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

from arclog.model.outcome import Outcome, error, failed
from arclog.ports.tool import TaskContext
from arclog.testing.faults import forever
from arclog.testing.harness import World
from arclog.testing.scripted import Call

ERROR, EXHAUSTED, FAIL_RULE, UNEVALUABLE = "error", "exhausted", "fail rule", "unevaluable policy"
REFUSED, SLOW_TASK, LATE_STEP, LOST = "ok but refused", "slow task", "late step", "lost lease"
CONTINUED, HANDLED = "continued", "handled by an arc"
WAYS = (ERROR, EXHAUSTED, FAIL_RULE, UNEVALUABLE, REFUSED, SLOW_TASK, LATE_STEP, LOST)
#: Failures that are not the root cause of anything.
HARMLESS = frozenset({CONTINUED, HANDLED})
#: Loops of each shape, by the names that tests use.
SHAPES = ("plain", "sequential", "parallel local", "parallel distributed", "nested", "nested parallel")

_ON_ERROR = "{{ outcome.status == 'error' }}"
#: Longer than any time limit here.
_FOR_EVER_S = 5000.0


@dataclass(frozen=True)
class Plant:
    """A failure in one task."""

    step: str
    task: str
    way: str
    shape: str
    #: it strikes in items whose indexes add up to `remainder` modulo `modulo`
    modulo: int = 1
    remainder: int = 0

    def strikes(self, path: tuple[int, ...]) -> bool:
        return sum(path) % self.modulo == self.remainder


@dataclass
class Planted:
    """A playbook, those that it calls, and their planted failures."""

    main: str
    children: list[str]
    plants: dict[tuple[str, str], Plant]
    seed: int
    #: the messages of the tools while it ran: message → (step, task, item)
    struck: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    def hook(self, world: World) -> Any:
        """Return the hook that replaces the behaviour of the scripted tools."""

        async def act(call: Call, context: TaskContext) -> Outcome | None:
            plant = self.plants.get((context.step, context.task))
            item = call.key.split(":")[3]
            path = tuple(map(int, item.split("."))) if item else ()
            # The first one differs between seeds, but is the same for each seed.
            await asyncio.sleep(Random(f"{self.seed}{call.key}").choice((0.0, 0.01, 0.4, 3.0)))
            if plant is None or not plant.strikes(path):
                return None
            if plant.way in (SLOW_TASK, LATE_STEP):
                await asyncio.sleep(_FOR_EVER_S)
            if plant.way == LOST:
                await _lose_lease(world, int(context.execution_id), context.step, path)
                await forever()
            if plant.way == REFUSED:
                return None
            message = f"planted in {context.step}, {context.task}, item {item or '-'}, attempt {context.attempt}"
            self.struck[message] = (context.step, context.task, item)
            return failed(error("exception", message))

        return act


async def _lose_lease(world: World, execution_id: int, step: str, path: tuple[int, ...]) -> None:
    """The lease of the command that runs this task ends, as if its worker had died."""
    life = world.current_life
    state = (await life.engine.live.folded(execution_id)).state
    for record in await world.store.commands(execution_id):
        command = state.commands.get(record.command_id)
        step_run = None if command is None else state.run_of(command.step, command.run)
        if command is None or step_run is None or command.step != step or record.state != "claimed":
            continue
        chunk = step_run.chunks.get(command.chunk)
        if chunk is None or (chunk.path == path[:-1] and chunk.first <= path[-1] < chunk.last):
            await life.control.end_lease(record)


def planted(seed: int) -> Planted:
    """The family of a seed."""
    draw = Random(seed)
    plants: dict[tuple[str, str], Plant] = {}
    names = [f"kid{number}" for number in range(draw.randint(0, 3))]
    made = [_Playbook(draw, name, names[:number], plants) for number, name in enumerate(names)]
    main = _Playbook(draw, "main", names, plants)
    return Planted(json.dumps(main.made), [json.dumps(kid.made) for kid in made], plants, seed)


class _Playbook:
    """One playbook of a family, while it is built."""

    def __init__(self, draw: Random, name: str, callable_: list[str], plants: dict[tuple[str, str], Plant]) -> None:
        self._draw = draw
        self._callable = callable_
        self._plants = plants
        count = draw.randint(1, 4)
        self._names = [f"{name}_s{number}" for number in range(count)]
        self._handlers: list[dict[str, Any]] = []
        steps = [self._step(number) for number in range(count)]
        self.made = {
            "metadata": {"name": name, "path": name},
            "executor": {"spec": {"entry_step": self._names[0]}},
            "workflow": [*steps, *self._handlers],
        }

    def _step(self, number: int) -> dict[str, Any]:
        draw, name = self._draw, self._names[number]
        shape = draw.choice(SHAPES)
        step: dict[str, Any] = {"step": name}
        if shape != "plain":
            step["loop"] = self._loop(shape)
        policy: dict[str, Any] = {}
        if draw.random() < 0.3:
            policy["failure"] = {"mode": "best_effort"}
        tasks = [self._task(name, f"t{index}", shape, policy) for index in range(draw.randint(1, 3))]
        step["tool"] = tasks
        if policy:
            step["spec"] = {"policy": policy}
        step["next"] = {"spec": {"mode": "inclusive"}, "arcs": self._arcs(number, tasks)}
        return step

    def _loop(self, shape: str) -> dict[str, Any]:
        draw = self._draw
        spec: dict[str, Any] = {"mode": "sequential"}
        if "parallel" in shape:
            spec = {"mode": "parallel", "max_in_flight": draw.randint(2, 5)}
            spec["policy"] = {"exec": "local" if shape == "parallel local" else "distributed"}
        loop: dict[str, Any] = {"in": f"{{{{ range({draw.randint(1, 8)}) }}}}", "iterator": "n", "spec": spec}
        if shape.startswith("nested"):
            loop["loop"] = {
                "in": f"{{{{ range({draw.randint(1, 3)}) }}}}",
                "iterator": "m",
                "spec": {"mode": "sequential"},
            }
        return loop

    def _task(self, step: str, label: str, shape: str, policy: dict[str, Any]) -> dict[str, Any]:
        draw = self._draw
        if self._callable and draw.random() < 0.35:
            return {"name": label, "kind": "playbook", "path": draw.choice(self._callable)}
        task: dict[str, Any] = {"name": label, "kind": "act", "returns": {"n": 1}}
        if draw.random() < 0.55:
            return task
        way = draw.choice((*WAYS, *sorted(HARMLESS)))
        modulo = draw.randint(1, 4) if shape != "plain" else 1
        plant = Plant(step, label, way, shape, modulo, draw.randrange(modulo))
        self._plants[step, label] = plant
        spec = _spec(plant)
        if spec:
            task["spec"] = spec
        if way == LATE_STEP:
            policy["lifecycle"] = {"timeout_s": 20}
        return task

    def _arcs(self, number: int, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        name, later = self._names[number], self._names[number + 1 :]
        arcs = [{"step": target} for target in later[: self._draw.choice((1, 1, 2))]]
        ways = {plant.way for task in tasks if (plant := self._plants.get((name, task["name"]))) is not None}
        calls = any(task["kind"] == "playbook" for task in tasks)
        if ways and ways <= HARMLESS and not calls:
            handler = f"{name}_handled"
            arcs.append({"step": handler, "when": "{{ event.name == 'step.failed' }}"})
            self._handlers.append({"step": handler, "tool": {"kind": "noop"}})
        elif HANDLED in ways:
            # Its step may also fail in another way, which must not be handled.
            for task in tasks:
                plant = self._plants.get((name, task["name"]))
                if plant is not None and plant.way == HANDLED:
                    self._plants[name, task["name"]] = Plant(
                        name, plant.task, ERROR, plant.shape, plant.modulo, plant.remainder
                    )
        return arcs


def _spec(plant: Plant) -> dict[str, Any]:
    """Return the spec that makes the failure of a task the planted one."""
    rules: list[dict[str, Any]] = []
    match plant.way:
        case "exhausted":
            rules = [{"when": _ON_ERROR, "then": {"do": "retry", "attempts": 2, "delay": 1}}]
        case "fail rule":
            rules = [{"when": _ON_ERROR, "then": {"do": "fail"}}, {"else": {"then": {"do": "continue"}}}]
        case "unevaluable policy":
            rules = [
                {"when": "{{ outcome.status == 'error' and outcome.nothing.there > 1 }}", "then": {"do": "continue"}}
            ]
        case "ok but refused":
            index = "iter.index" if not plant.shape.startswith("nested") else "(iter.index + iter.parent.index)"
            struck = "true" if plant.shape == "plain" else f"{index} % {plant.modulo} == {plant.remainder}"
            rules = [{"when": f"{{{{ {struck} }}}}", "then": {"do": "fail"}}, {"else": {"then": {"do": "continue"}}}]
        case "slow task":
            return {"timeout": 4}
        case "continued":
            rules = [{"else": {"then": {"do": "continue"}}}]
    return {"policy": {"rules": rules}} if rules else {}
