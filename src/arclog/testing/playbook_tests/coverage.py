"""Which arcs and rules of a playbook its tests took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from arclog.model.errors import Position
from arclog.model.events import Event
from arclog.plan.net import Plan


@dataclass(slots=True)
class Coverage:
    """Places of a plan that can be taken, and those that were."""

    #: what it is → where it stands, in order of the plan
    places: dict[str, Position] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, plan: Plan) -> Coverage:
        found = cls()
        for step in plan.steps:
            found.places[f"step {step.name}"] = step.at
            for index, arc in enumerate(step.arcs):
                found.places[f"arc {step.name}[{index}] → {arc.target}"] = arc.at
            for index, rule in enumerate(step.admit or ()):
                found.places[f"admission rule {step.name}[{index}]"] = rule.at
            for task in step.tasks:
                for index, chosen in enumerate(task.policy.rules if task.policy is not None else ()):
                    found.places[f"rule {step.name}.{task.name}[{index}]"] = chosen.at
        return found

    def add(self, plan: Plan, events: Iterable[Event]) -> None:
        """Take note of what a run did."""
        targets = {(step.name, index): arc.target for step in plan.steps for index, arc in enumerate(step.arcs)}
        for event in events:
            if event.type == "step.scheduled":
                self.taken.add(f"step {event.step}")
            elif event.type == "next.evaluated":
                for arc in event.payload.get("selected", ()):
                    target = targets.get((event.step, arc.get("arc")))
                    self.taken.add(f"arc {event.step}[{arc.get('arc')}] → {target}")
            elif event.type in ("policy.task.evaluated", "policy.admit.evaluated"):
                index = event.payload.get("matched_rule_index")
                if index is not None:
                    what = (
                        "admission rule " + event.step
                        if event.type == "policy.admit.evaluated"
                        else f"rule {event.step}.{event.task}"
                    )
                    self.taken.add(f"{what}[{index}]")

    def merge(self, other: Coverage) -> None:
        """Add what another run of the same playbook's tests took."""
        self.places |= other.places
        self.taken |= other.taken

    @property
    def missed(self) -> dict[str, Position]:
        return {what: at for what, at in self.places.items() if what not in self.taken}

    @property
    def share(self) -> float:
        """How much of it was taken, 0 to 1."""
        return 1.0 if not self.places else 1 - len(self.missed) / len(self.places)
