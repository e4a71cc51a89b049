"""Soundness: every step can be reached, every run can end, and every counted join gets its tokens.

By their rules, `all` joins never starve, and no token is left behind: a token that can no longer come is not waited
for. The other questions are answered from the arcs that can match, and, if a join counts its tokens or skips its step,
from all reachable markings (`plan.lint.markings`), breadth first, so that the first counterexample is a shortest one.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from arclog.plan.cycles import TooMuchWork
from arclog.plan.lint.conditions import admission, possible_arcs
from arclog.plan.net import Plan, StepPlan
from arclog.playbook.walk import Findings

if TYPE_CHECKING:
    from arclog.plan.lint.markings import Explored, Markings, Starved

#: Maximum number of steps named in a counterexample.
_MOST_NAMED = 12


class Bound(Struct, frozen=True):
    """The reason why not every marking was explored."""

    reason: str
    hint: str
    at: StepPlan


class Proof(Struct, frozen=True):
    """The conclusions from the markings of a plan."""

    starved: dict[str, Starved]
    #: steps that run in some run; None if unknown, since not all markings were explored
    ran: set[str] | None
    #: None if the exploration is complete
    bound: Bound | None = None


class Soundness:
    """Checks one plan."""

    def __init__(self, plan: Plan, most_markings: int, max_join_work: int | None = None) -> None:
        self.plan = plan
        self._steps = {step.name: step for step in plan.steps}
        self.most_markings = most_markings
        self._max_join_work = max_join_work
        #: step → the step before it on a shortest path from the entry; '' for the entry
        self.before = self._ways()

    def _ways(self) -> dict[str, str]:
        first = [name for name in (self.plan.entry, self.plan.final_step) if name in self._steps]
        ways = {name: "" for name in first if admission(self._steps[name])[0]}
        open_names = deque(ways)
        while open_names:
            name = open_names.popleft()
            for target in dict.fromkeys(arc.target for arc in possible_arcs(self._steps[name])):
                if target in self._steps and target not in ways and admission(self._steps[target])[0]:
                    ways[target] = name
                    open_names.append(target)
        return ways

    def way_to(self, step: str) -> str:
        """Return a shortest path from the entry to a step, as text; '' if there is none."""
        names: list[str] = []
        while step in self.before and step:
            names.append(step)
            step = self.before[step]
        return shown(list(reversed(names)))

    @property
    def asking(self) -> StepPlan | None:
        """The first step whose join requires the markings."""
        return next((step for step in self.plan.steps if step.join in ("count", "all_ok")), None)

    @cached_property
    def proof(self) -> Proof:
        """Return the counted joins that can get too few tokens and the steps that run, from the markings."""
        if self.asking is None or self.plan.entry not in self._steps:
            return Proof({}, None)
        from arclog.plan.lint.markings import Markings  # only a plan with counted joins needs it

        try:
            markings = Markings(self.plan, self._max_join_work)
        except TooMuchWork:  # reported elsewhere
            return Proof({}, None)
        proof = self._proof(markings)
        if not markings.sampled or (proof.bound is None and proof.ran is not None and self._is_all(proof)):
            return proof
        # A few combinations of many open arcs did not show everything: try all of them, if there are not too many.
        most_open = self.most_markings.bit_length() - 1
        name, count = max(markings.sampled.items(), key=lambda row: row[1])
        if count > most_open:
            reason = f"{count} arcs of step {name!r} may or may not match, each for itself"
            return Proof(proof.starved, None, Bound(reason, "", self._steps[name]))
        markings.combine(most_open)
        whole = self._proof(markings)
        return Proof({**proof.starved, **whole.starved}, whole.ran, whole.bound)

    def _proof(self, markings: Markings) -> Proof:
        """Return the conclusions with the current options of the markings."""
        remaining = self.most_markings
        explored = markings.explore(remaining, self._is_all)
        remaining -= explored.markings
        starved, ran = explored.starved, explored.ran
        if self._is_all(explored):
            return Proof(starved, ran)
        if not explored.is_whole or remaining <= 0:
            return Proof(starved, None, self._bound(markings, explored))
        if not explored.is_ended:
            return Proof(starved, ran)
        # An end of the run comes before other steps run. If that hides anything, try every order.
        beyond = markings.explore(remaining, self._is_all, goes_on=True)
        remaining -= beyond.markings
        if not beyond.is_whole:
            return Proof(starved, None, self._bound(markings, beyond))
        if beyond.starved.keys() == starved.keys() and beyond.ran == ran:
            return Proof(starved, ran)
        every = markings.explore(remaining, self._is_all, any_order=True)
        starved = {**every.starved, **starved}
        if every.is_whole or self._is_all(every):
            return Proof(starved, every.ran | ran)
        return Proof(starved, None, self._bound(markings, every))

    def _is_all(self, explored: Explored | Proof) -> bool:
        """Return whether every linked step has run and every counted join has starved: nothing else can be found."""
        return self._wanted <= (explored.ran or set()) and self._counted <= explored.starved.keys()

    @cached_property
    def _wanted(self) -> set[str]:
        linked = {arc.target for name in self.before for arc in possible_arcs(self._steps[name])}
        return {name for name in self.before if name in linked or name == self.plan.entry}

    @cached_property
    def _counted(self) -> set[str]:
        return {name for name in self.before if self._steps[name].join == "count"}

    def _bound(self, markings: Markings, explored: Explored) -> Bound | None:
        if self.asking is None:
            return None
        if explored.is_crowded:
            reason = f"a run can have more than {markings.most_tokens} tokens at once"
            return Bound(
                reason, "a cycle that keeps splitting makes more and more of them; join them in it", self.asking
            )
        reason = f"there are more than {self.most_markings:,} markings"
        return Bound(reason, "", self.asking)


def check_soundness(soundness: Soundness, findings: Findings, linked: set[str]) -> None:
    """Report unsound parts. `linked` has the steps that arcs lead to, whatever their conditions."""
    plan = soundness.plan
    if len({step.name for step in plan.steps}) != len(plan.steps):
        return
    proof = soundness.proof
    for step in plan.steps:
        if step.name not in linked or step.name == plan.final_step:
            continue
        if step.name not in soundness.before:
            reason = "the arcs that lead to it can never match"
            if not admission(step)[0]:
                reason = "its admission rules let no token in"
            message = f"no run reaches step {step.name!r}: {reason}"
            hint = "correct the conditions, or remove the step"
            findings.add("unreachable-step", message, step.at, hint, "warning")
        elif proof.ran is not None and step.name not in proof.ran:
            message = f"no run reaches step {step.name!r}: its join, or one before it, can never fire"
            findings.add("unreachable-step", message, step.at, "correct the join, or remove the step", "warning")
    for name, starved in proof.starved.items():
        step = next(step for step in plan.steps if step.name == name)
        message = (
            f"join {{count: {step.join_count}}} of step {name!r} can get too few tokens: "
            f"after {shown(starved.way)}, {starved.came} came"
        )
        hint = "lower the count, use join: all, or let every path send a token; the step fails otherwise (JOIN_COUNT)"
        findings.add("join-too-few", message, step.at, hint, "warning")
    if proof.bound is not None:
        message = f"not every way to the joins was looked at: {proof.bound.reason}"
        hint = proof.bound.hint or "raise playbook.max_markings to look at more"
        findings.add("soundness-bound", message, proof.bound.at.at, hint, "info")


def shown(steps: list[str]) -> str:
    """Format a path of steps."""
    if len(steps) <= _MOST_NAMED:
        return " → ".join(steps)
    return " → ".join([*steps[: _MOST_NAMED - 1], "…", steps[-1]])
