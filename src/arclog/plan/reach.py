"""Which steps can still bring a token to a join: computed once per plan, from its arcs alone.

For a join J and an incoming arc from A: the steps from which A can be reached without passing through J, including A. A
path through J itself belongs to a later wave, so an arc from J to itself has no such step. Sets of steps are bit masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from arclog.plan.cycles import Cycle, Edges, Work, closures, components
from arclog.plan.net import StepPlan

#: The place of the run's first token.
ENTRY = "entry"


class Incoming(Struct, frozen=True):
    """A place from which a join takes tokens."""

    place: str
    #: the step whose arc ends here; '' is the entry
    source: str
    #: steps that can bring a token here; the entry gets no second token
    reach: int


class Join(Struct, frozen=True):
    """A step whose join is not `any`."""

    step: str
    #: its bit in the masks
    bit: int
    #: number of tokens of a wave that it needs; 0 for all that can come
    count: int
    #: in plan order: the entry first, then arcs in the order of the text
    incoming: tuple[Incoming, ...]


class Graph:
    """The arcs of a plan, with steps as bits."""

    def __init__(self, steps: Sequence[StepPlan], pause: Callable[[], None] = lambda: None) -> None:
        """`pause` is called periodically."""
        self.names = [step.name for step in steps]
        self.bit_of = {name: 1 << number for number, name in enumerate(self.names)}
        self.before: dict[str, list[str]] = {name: [] for name in self.names}
        self.after: dict[str, list[str]] = {name: [] for name in self.names}
        for step in steps:
            for target in dict.fromkeys(arc.target for arc in step.arcs):
                if target in self.bit_of:
                    self.after[step.name].append(target)
                    self.before[target].append(step.name)
            pause()
        self.number_of = number_of = {name: number for number, name in enumerate(self.names)}
        self._before: list[int] = []
        self._after: list[int] = []
        #: the same by number
        self.sources: list[list[int]] = []
        self.targets: list[list[int]] = []
        for name in self.names:
            self._before.append(self._mask(self.before[name]))
            self._after.append(self._mask(self.after[name]))
            self.sources.append([number_of[other] for other in self.before[name]])
            self.targets.append([number_of[other] for other in self.after[name]])
            pause()

    def _mask(self, names: Iterable[str]) -> int:
        """Return steps as a mask. The names are distinct, so the sum of their bits is their union."""
        return sum(self.bit_of[name] for name in names)

    def names_of(self, mask: int) -> Iterator[str]:
        """Iterate over the steps of a mask, in plan order."""
        while mask:
            lowest = mask & -mask
            yield self.names[lowest.bit_length() - 1]
            mask ^= lowest

    def leading_to(self, step: str, avoiding: int = 0) -> int:
        """Return the steps that can reach `step`, including itself, by paths that touch none of `avoiding`."""
        return self._closure(step, self._before, avoiding)

    def led_to_by(self, step: str, avoiding: int = 0) -> int:
        """Return the steps reachable from `step`, including itself, by paths that touch none of `avoiding`."""
        return self._closure(step, self._after, avoiding)

    def _closure(self, step: str, edges: Sequence[int], avoiding: int) -> int:
        seen = 0
        open_steps = self.bit_of[step] & ~avoiding
        while open_steps:
            lowest = open_steps & -open_steps
            seen |= lowest
            open_steps |= edges[lowest.bit_length() - 1]
            open_steps &= ~(seen | avoiding)
        return seen

    def ancestors(self, entry: str, pause: Callable[[], None] = lambda: None) -> dict[str, int]:
        """Return, for each step that can run, the steps from which it can be reached by at least one arc.

        `pause` is called periodically.
        """
        return self._closures(entry, self.sources, self._before, pause)

    def descendants(self, entry: str) -> dict[str, int]:
        """Return, for each step that can run, the steps that can be reached from it by at least one arc."""
        return self._closures(entry, self.targets, self._after, lambda: None)

    def _closures(self, entry: str, edges: Edges, masks: Sequence[int], pause: Callable[[], None]) -> dict[str, int]:
        if entry not in self.bit_of:
            return {}
        can_run = self.led_to_by(entry)
        # The steps that lead to a step by one arc, and everything that leads to those.
        reached = closures(edges, [mask & can_run for mask in masks], pause)
        return {name: reached[self.number_of[name]] & can_run for name in self.names_of(can_run)}


class Reach:
    """The joins of a plan, with the steps that can reach them."""

    def __init__(
        self,
        entry: str,
        steps: Sequence[StepPlan],
        max_work: int | None = None,
        pause: Callable[[], None] | None = None,
    ) -> None:
        """Raises TooMuchWork after `max_work` operations; `pause` is called periodically."""
        self.graph = Graph(steps) if pause is None else Graph(steps, pause)
        joining = [step for step in steps if step.join != "any"]
        #: by step, in plan order
        self.joins: dict[str, Join] = {}
        if joining:
            work = Work(max_work, len(steps), pause)
            self.joins.update(self._joins(entry, steps, joining, work))

    def _joins(
        self, entry: str, steps: Sequence[StepPlan], joining: Iterable[StepPlan], work: Work
    ) -> Iterator[tuple[str, Join]]:
        graph = self.graph
        cycles = _Cycles(graph, entry, work)
        arriving: dict[str, list[tuple[str, str]]] = {}
        for step in steps:
            for arc in step.arcs:
                arriving.setdefault(arc.target, []).append((arc.place, step.name))
        for step in joining:
            sources = arriving.get(step.name, ())
            masks = cycles.leading_to(dict.fromkeys(source for _, source in sources), step.name)
            incoming = [Incoming(ENTRY, "", 0)] if step.name == entry else []
            incoming += [Incoming(place, source, masks[source]) for place, source in sources]
            count = step.join_count if step.join == "count" else 0
            yield step.name, Join(step.name, graph.bit_of[step.name], count, tuple(incoming))


class _Cycles:
    """Finds the steps that lead to the sources of a join, sharing work between joins."""

    def __init__(self, graph: Graph, entry: str, work: Work) -> None:
        self._graph = graph
        self._work = work
        self._ancestors = graph.ancestors(entry, work.pause)
        self._upto: dict[str, int] = {}
        self._number = [0] * len(graph.names)
        self._groups = components(graph.targets, work.pause)
        for number, group in enumerate(self._groups):
            for step in group:
                self._number[step] = number
        self._cycles: dict[int, tuple[Cycle, dict[int, int]]] = {}

    def leading_to(self, sources: Iterable[str], join: str) -> dict[str, int]:
        """Return, for each source, the steps from which it is reached without the join, including itself."""
        graph = self._graph
        own = graph.number_of[join]
        leading: dict[str, int] = {}
        around: list[int] = []
        for source in sources:
            number = graph.number_of[source]
            if number == own:
                leading[source] = 0
            elif self._number[number] == self._number[own]:
                around.append(number)
            else:
                # No path from the join leads back to the source.
                leading[source] = self._before(source)
        if around:
            cycle, entrances = self._cycle(self._number[own])
            by_mask: dict[int, int] = {}
            for number, mask in cycle.leading_to(around, own).items():
                whole = by_mask.get(mask)
                if whole is None:
                    self._work.spend(self._work.words + len(entrances), own)
                    whole = by_mask[mask] = mask | self._outside(mask, entrances)
                leading[graph.names[number]] = whole
        return leading

    def _before(self, source: str) -> int:
        mask = self._upto.get(source)
        if mask is None:
            mask = self._upto[source] = self._ancestors.get(source, 0) | self._graph.bit_of[source]
        return mask

    def _cycle(self, number: int) -> tuple[Cycle, dict[int, int]]:
        """Return a cycle, and its steps by the steps outside that lead to them."""
        entry = self._cycles.get(number)
        if entry is None:
            graph = self._graph
            cycle = Cycle(self._groups[number], graph.targets, graph.sources, self._work)
            entrances: dict[int, int] = {}
            for step in cycle.steps:
                outside = 0
                for other in graph.sources[step]:
                    if self._number[other] != number and graph.names[other] in self._ancestors:
                        outside |= self._before(graph.names[other])
                if outside:
                    entrances[outside] = entrances.get(outside, 0) | 1 << step
            entry = self._cycles[number] = cycle, entrances
        return entry

    @staticmethod
    def _outside(mask: int, entrances: Mapping[int, int]) -> int:
        count = 0
        for outside, steps in entrances.items():
            if steps & mask:
                count |= outside
        return count


def held_back_by_each_other(behind: dict[int, int]) -> int:
    """Return the first join that is held back by none, or only by joins that it holds back in turn; 0 if there is none.

    A join that is held back, directly or indirectly, by one that waits for something live is left out: that one will
    move.
    """
    for bit, blockers in behind.items():
        if not blockers:
            return bit
    for bit in behind:
        mine = _all_before(bit, behind)
        if mine is None:
            continue
        pending = mine & ~bit
        while pending:
            other = pending & -pending
            pending ^= other
            theirs = _all_before(other, behind)
            if theirs is None or not theirs & bit:
                break
        else:
            return bit
    return 0


def _all_before(bit: int, behind: dict[int, int]) -> int | None:
    """Return all joins that hold one back, directly or indirectly; None if one of them waits for something live."""
    seen, pending = 0, behind[bit]
    while pending:
        other = pending & -pending
        pending ^= other
        if other not in behind:
            return None
        seen |= other
        pending |= behind[other] & ~seen
    return seen
