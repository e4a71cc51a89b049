"""Lint of parallel branches: joins that cannot get their tokens, and ctx keys that two branches set.

Every code is in docs/findings.md. Only the arcs of the plan are analyzed; a plan without joins and inclusive splits
costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import combinations
from typing import Any

from msgspec import Struct

from arclog.expr import compile_condition, compile_tree
from arclog.model.errors import ArclogError, Position
from arclog.plan.cycles import TooMuchWork
from arclog.plan.lint.conditions import on_failure, on_success
from arclog.plan.net import ArcPlan, LoopPlan, Plan, StepPlan, TaskRule
from arclog.plan.reach import Join, Reach
from arclog.playbook.canon import Playbook
from arclog.playbook.schema import has_template
from arclog.playbook.walk import Findings

#: Maximum number of pairs of joins, and of branches, that are analyzed; a net with more is generated.
MOST_PAIRS = 64
#: Maximum number of pairs, branches and arcs that are searched for those.
MOST_LOOKS = 200_000


def check_flow(plan: Plan, playbook: Playbook, findings: Findings, max_work: int) -> None:
    """Add findings about the plan's branches and joins.

    The reachability of its joins may take `max_work` operations.
    """
    names = {step.name for step in plan.steps}
    if plan.entry not in names or len(names) != len(plan.steps):
        return
    try:
        reach = Reach(plan.entry, plan.steps, max_work)
    except TooMuchWork as problem:
        step = plan.steps[problem.number]
        message = (
            f"to work out which steps can reach the joins up to step {step.name} takes more than {max_work} operations "
            "(playbook.max_join_work)"
        )
        findings.add("join-cycle-size", message, step.at, "take the cycle of steps apart, or raise the setting")
        return
    _Flow(plan, playbook, findings, reach).all()


class _Writer(Struct, frozen=True):
    """A task rule that sets a ctx key."""

    step: str
    value: Any
    at: Position


class _Branch(Struct, frozen=True):
    """The steps that can run in one branch of a split, or after a join of several of its branches."""

    #: the arcs of the split that lead to it, as bits
    arcs: int
    #: 1 after a success of the split, 2 after a failure
    cases: int
    steps: int


class _Flow:
    def __init__(self, plan: Plan, playbook: Playbook, findings: Findings, reach: Reach) -> None:
        self.plan = plan
        self.reach = reach
        #: remaining part of MOST_LOOKS for ctx
        self.looks = MOST_LOOKS
        self.playbook = playbook
        self.findings = findings
        self.steps = {step.name: step for step in plan.steps}

    @cached_property
    def below(self) -> dict[str, int]:
        """Steps that can run, with the steps that can follow them."""
        return self.reach.graph.descendants(self.plan.entry)

    @cached_property
    def splits(self) -> list[StepPlan]:
        """Steps that can create several tokens at once."""
        return [step for step in self.plan.steps if step.mode == "inclusive" and len(self.arcs_of(step)) > 1]

    @cached_property
    def split_targets(self) -> list[tuple[StepPlan, int]]:
        """Splits with the steps that they lead to."""
        targets = []
        for step in self.splits:
            mask = 0
            for arc in self.arcs_of(step):
                mask |= self.reach.graph.bit_of[arc.target]
            targets.append((step, mask))
        return targets

    def arcs_of(self, step: StepPlan) -> list[ArcPlan]:
        return [arc for arc in step.arcs if arc.target in self.steps]

    def all(self) -> None:
        if any(step.join != "any" for step in self.plan.steps):
            self.starved()
            self.waiting_for_each_other()
        self.races()

    # --- joins --------------------------------------------------------------------------------------------------

    def starved(self) -> None:
        arcs = {arc.place: arc for step in self.plan.steps for arc in step.arcs}
        for number, step in enumerate(self.plan.steps):
            if step.join == "any":
                continue
            join = self.reach.joins[step.name]
            path = (*self.playbook.steps[number].path, "spec", "join")
            missing = [arcs[place.place] for place in join.incoming if place.source and self.never(arcs[place.place])]
            if join.count > len(join.incoming):
                arcs_there = len(join.incoming)
                message = f"join {{count: {join.count}}}: only {arcs_there} {_ways(arcs_there)} to step {step.name!r}"
                self.findings.value("join-count", message, path, "lower the count, or add arcs to the step")
            elif missing:
                sources = ", ".join(dict.fromkeys(arc.source for arc in missing))
                message = f"the join never gets a token from {sources}: that step never runs, or its arc to here never matches"
                hint = "remove the arc, or correct the path to it"
                if join.count > len(join.incoming) - len(missing):
                    hint = f"without it the join cannot reach {join.count}, and fails; lower the count"
                self.findings.value("join-starved", message, path, hint, "warning")

    def never(self, arc: ArcPlan) -> bool:
        """Return whether an arc never brings a token: its source never runs, or its condition never holds."""
        step = self.steps[arc.source]
        return arc.source not in self.below or (on_success(step, arc) is False and on_failure(step, arc) is False)

    def waiting_for_each_other(self) -> None:
        """Report joins that can hold each other back while both have tokens."""
        reported: set[str] = set()
        for looked, (join, other) in enumerate(self.pairs(), 1):
            if looked > MOST_PAIRS:
                return
            if join.step not in reported and self.both_can_wait(join, other):
                reported.add(join.step)
                number = next(n for n, step in enumerate(self.plan.steps) if step.name == join.step)
                message = f"the joins of steps {join.step} and {other.step} can wait for each other"
                hint = f"{join.step}, the first in the list, then fires with the tokens that it has; put the join that should fire first before the other"
                path = (*self.playbook.steps[number].path, "spec", "join")
                self.findings.value("join-cycle", message, path, hint, "warning")

    def pairs(self) -> Iterator[tuple[Join, Join]]:
        """Iterate over joins that can each get a token from the other; both are then in one cycle."""
        joins, graph = self.reach.joins, self.reach.graph
        sources = {step: _sources_of(join) for step, join in joins.items()}
        every = sum(join.bit for join in joins.values())
        looks = MOST_LOOKS
        for join in joins.values():
            near = every & self.below.get(join.step, 0) & sources[join.step] & ~((join.bit << 1) - 1)
            for name in graph.names_of(near):
                looks -= 1
                if sources[name] & join.bit:
                    yield join, joins[name]
            if looks < 0:
                return

    def both_can_wait(self, join: Join, other: Join) -> bool:
        """Return whether a split sends tokens to both joins, to each without passing through the other."""
        graph = self.reach.graph
        to_one = graph.leading_to(join.step, other.bit)
        to_other = graph.leading_to(other.step, join.bit)
        for split, targets in self.split_targets:
            both = targets & (to_one | to_other)
            if not (targets & to_one and targets & to_other):
                continue
            if both.bit_count() > 1 or sum(1 for arc in self.arcs_of(split) if graph.bit_of[arc.target] & both) > 1:
                return True
        return False

    # --- ctx ----------------------------------------------------------------------------------------------------

    def races(self) -> None:
        """Report keys that parallel branches set, so that the later write wins."""
        if not self.splits:
            return
        graph = self.reach.graph
        looked = 0
        for key, writers in self.writers().items():
            mask = 0
            for writer in writers:
                mask |= graph.bit_of[writer.step]
            for split in self.splits:
                self.looks -= len(split.arcs)
                if self.looks < 0:
                    return
                roads = [self.below.get(arc.target, 0) | graph.bit_of[arc.target] for arc in self.arcs_of(split)]
                if split.name not in self.below or sum(bool(road & mask) for road in roads) < 2:
                    continue
                looked += 1
                if looked > MOST_PAIRS:
                    return
                pair = self.clash(split, roads, writers, mask)
                if pair is not None:
                    self.report_race(key, split, *pair)
                    break

    def report_race(self, key: str, split: StepPlan, first: _Writer, second: _Writer) -> None:
        if first is second:
            problem = f"step {first.step} can run several times at once and sets ctx.{key} each time"
        else:
            problem = f"steps {first.step} and {second.step} can run at once and both set ctx.{key}"
        message = f"{problem} (after the inclusive split of step {split.name})"
        hint = (
            f"set different keys and merge them after a join, or declare executor.spec.ctx: {{{key}: {{reducer: …}}}}"
        )
        self.findings.add("ctx-race", message, second.at, hint, "warning")

    def writers(self) -> dict[str, list[_Writer]]:
        """Return the rules that set each key, without keys that have a reducer."""
        writers: dict[str, list[_Writer]] = {}
        for step in self.plan.steps:
            for task in step.tasks:
                for rule in task.policy.rules if task.policy is not None else ():
                    for key, value in rule.then.set_ctx.items():
                        if key not in self.plan.ctx:
                            writers.setdefault(key, []).append(_Writer(step.name, value, rule.at))
        return writers

    def clash(
        self, split: StepPlan, roads: list[int], writers: list[_Writer], mask: int
    ) -> tuple[_Writer, _Writer] | None:
        """Return two writers, or one twice, in branches that run at the same time; None if there are none."""
        branches = [road for road in self.branches(split, roads) if road.steps & mask]
        bit_of = self.reach.graph.bit_of
        for branch, other in combinations(branches, 2):
            self.looks -= 1
            if self.looks < 0:
                return None
            if branch.arcs & other.arcs or not branch.cases & other.cases:
                continue
            for first in writers:
                for second in writers:
                    apart = branch.steps & bit_of[first.step] and other.steps & bit_of[second.step]
                    if apart and not _same_constant(first, second):
                        return first, second
        return None

    def branches(self, split: StepPlan, roads: list[int]) -> Iterator[_Branch]:
        """Iterate over the split's branches, each up to the `all` joins that it shares.

        The steps after such a join form another branch.
        """
        graph = self.reach.graph
        arcs = self.arcs_of(split)
        cases = [(on_success(split, arc) is not False) | 2 * (on_failure(split, arc) is not False) for arc in arcs]
        meeting: dict[str, int] = {}
        barrier = 0
        self.looks -= len(self.reach.joins) * len(roads)
        for join in self.reach.joins.values():
            reached = sum(1 << number for number, road in enumerate(roads) if road & join.bit)
            if not join.count and reached.bit_count() > 1:
                meeting[join.step] = reached
                barrier |= join.bit
        for number, arc in enumerate(arcs):
            yield _Branch(1 << number, cases[number], graph.led_to_by(arc.target, barrier))
        for step, reached in meeting.items():
            both = 0
            for number, case in enumerate(cases):
                both |= case if reached >> number & 1 else 0
            yield _Branch(reached, both, graph.led_to_by(step, barrier & ~graph.bit_of[step]))


def _sources_of(join: Join) -> int:
    """Return the steps that can bring a token to a join."""
    mask = 0
    for place in join.incoming:
        mask |= place.reach
    return mask


def _same_constant(left: _Writer, right: _Writer) -> bool:
    return bool(left.value == right.value) and _constant(left.value)


def _constant(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_constant, value.values()))
    return all(map(_constant, value)) if isinstance(value, list) else not has_template(value)


def _ways(count: int) -> str:
    return "arc leads" if count == 1 else "arcs lead"


# Lint of parallel loops: ctx keys that iterations would set to different values. Every code is in docs/findings.md.


#: Names whose values differ between items; so do task labels.
_OWN = frozenset({"iter", "outcome", "_prev", "_task", "_attempt"})


def check_parallel(plan: Plan, findings: Findings) -> None:
    """Add findings about the plan's parallel loops."""
    for step in plan.steps:
        if not _is_parallel(step.loop):
            continue
        for task in step.tasks:
            for rule in task.policy.rules if task.policy is not None else ():
                _rule(plan, step, rule, findings)


def _rule(plan: Plan, step: StepPlan, rule: TaskRule, findings: Findings) -> None:
    own = _OWN | {task.name for task in step.tasks}
    for key, value in rule.then.set_ctx.items():
        if "reducer" in plan.ctx.get(key, {}) or not _names(value) & own or _chooses(rule):
            continue
        message = (
            f"iterations of the parallel loop of step {step.name} can set ctx.{key} to different values: that fails it"
        )
        hint = f"declare executor.spec.ctx: {{{key}: {{reducer: …}}}}, or read {{{{ {step.name}.results }}}} after the loop"
        findings.add("ctx-conflict", message, rule.at, hint, "warning")


def _chooses(rule: TaskRule) -> bool:
    """Return whether the rule selects items, perhaps a single one."""
    if not isinstance(rule.when, str):
        return False
    try:
        return "iter" in compile_condition(rule.when, rule.at).free
    except ArclogError:
        return True  # reported elsewhere


def _names(value: Any) -> set[str]:
    try:
        return {path[0] for path in compile_tree(value).paths}
    except ArclogError:
        return set()  # reported elsewhere


def _is_parallel(loop: LoopPlan | None) -> bool:
    return loop is not None and (loop.mode == "parallel" or _is_parallel(loop.inner))
