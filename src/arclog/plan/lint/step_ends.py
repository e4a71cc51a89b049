"""What can come of a step: which of its arcs match when it ends, and whether a token is let in.

Conditions that the plan itself does not settle may hold or not, each for itself; an arc with such a condition is open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from msgspec import Struct

from arclog.plan.lint.conditions import on_failure, on_success, truth
from arclog.plan.net import ArcPlan, StepPlan

Cases = Sequence[tuple[ArcPlan, bool | None]]


class Option(Struct, frozen=True):
    """What can come of a step run that ends."""

    arcs: tuple[ArcPlan, ...]
    failed: bool = False


def options(step: StepPlan, most_open: int) -> Iterator[Option]:
    """What can come of the end of a run: after a success, and after a failure. Of more than `most_open` open arcs of an inclusive
    split: none of them, each alone, all but one, and all.
    """
    seen: set[tuple[tuple[int, ...], bool]] = set()
    for cases, failed in _ends(step):
        for arcs in _exclusive(cases) if step.mode == "exclusive" else _inclusive(cases, most_open):
            key = tuple(arc.index for arc in arcs), failed
            if key not in seen:
                seen.add(key)
                yield Option(arcs, failed)


def open_arcs(step: StepPlan) -> int:
    """Arcs of an inclusive split that may or may not match in one end of a run, at most."""
    if step.mode == "exclusive":
        return 0
    return max(sum(matches is None for _, matches in cases) for cases, _ in _ends(step))


def possible_arcs(step: StepPlan) -> list[ArcPlan]:
    """The arcs that match in some end of a run."""
    found: list[ArcPlan] = []
    for cases, _ in _ends(step):
        if step.mode == "exclusive":
            found += [arc for arcs in _exclusive(cases) for arc in arcs]
        else:
            found += [arc for arc, matches in cases if matches is not False]
    return found


def admission(step: StepPlan) -> tuple[bool, bool]:
    """Whether a token may be let in, and whether it may be denied."""
    if step.admit is None:
        return True, False
    may_allow = may_deny = False
    for rule in step.admit:
        holds = True if rule.when is None else truth(rule.when)
        if holds is False:
            continue
        may_allow, may_deny = may_allow or rule.allow, may_deny or not rule.allow
        if holds:
            return may_allow, may_deny
    return may_allow, True


def _ends(step: StepPlan) -> Iterator[tuple[Cases, bool]]:
    """Whether each arc matches, after a success and after a failure."""
    for decide, failed in ((on_success, False), (on_failure, True)):
        yield [(arc, decide(step, arc)) for arc in step.arcs], failed


def _exclusive(cases: Cases) -> Iterator[tuple[ArcPlan, ...]]:
    for arc, matches in cases:
        if matches is not False:
            yield (arc,)
        if matches:
            return
    yield ()


def _inclusive(cases: Cases, most_open: int) -> Iterator[tuple[ArcPlan, ...]]:
    sure = [arc for arc, matches in cases if matches]
    perhaps = [arc for arc, matches in cases if matches is None]
    count = len(perhaps)
    sizes = range(count + 1) if count <= most_open else sorted({0, 1, max(count - 1, 0), count})
    for size in sizes:
        for part in combinations(perhaps, size):
            arcs = {id(arc) for arc in (*sure, *part)}
            yield tuple(arc for arc, _ in cases if id(arc) in arcs)
