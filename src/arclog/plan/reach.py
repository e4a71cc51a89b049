"""Which steps can still bring a token to a join: computed once per plan, from its arcs alone.

For a join J and an incoming arc from A: the steps from which A can be reached without passing through J, A included.
A way through J itself is a later wave, so an arc from J to itself has no such step. Sets of steps are bit masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from arclog.plan.net import StepPlan

#: The place that the run's first token stands at.
ENTRY = "entry"


class Incoming(Struct, frozen=True):
    """A place that a join takes tokens from."""

    place: str
    #: the step whose arc ends here; '' is the entry
    source: str
    #: steps that can bring a token here; nothing brings a second one to the entry
    reach: int


class Join(Struct, frozen=True):
    """A step whose join is not `any`."""

    step: str
    #: its bit in the masks
    bit: int
    #: tokens of a wave that it takes to fire; 0 is all that can come
    count: int
    #: in plan order: the entry first, then arcs as they are written
    incoming: tuple[Incoming, ...]


class Graph:
    """The arcs of a plan, with steps as bits."""

    def __init__(self, steps: Sequence[StepPlan]) -> None:
        self.names = [step.name for step in steps]
        self.bit_of = {name: 1 << number for number, name in enumerate(self.names)}
        self.before: dict[str, list[str]] = {name: [] for name in self.names}
        self.after: dict[str, list[str]] = {name: [] for name in self.names}
        for step in steps:
            for target in dict.fromkeys(arc.target for arc in step.arcs):
                if target in self.bit_of:
                    self.after[step.name].append(target)
                    self.before[target].append(step.name)
        self._before = self._masks(self.before)
        self._after = self._masks(self.after)
        number_of = {name: number for number, name in enumerate(self.names)}
        self._sources = [[number_of[other] for other in self.before[name]] for name in self.names]

    def _masks(self, edges: Mapping[str, list[str]]) -> list[int]:
        """The neighbours of each step; the names of a list differ, so their sum is their union."""
        return [sum(self.bit_of[other] for other in edges[name]) for name in self.names]

    def named(self, mask: int) -> Iterator[str]:
        """The steps of a mask, in plan order."""
        while mask:
            lowest = mask & -mask
            yield self.names[lowest.bit_length() - 1]
            mask ^= lowest

    def leading_to(self, step: str, avoiding: int = 0, known: Mapping[str, int] | None = None) -> int:
        """Steps from which `step` can be reached, itself included, by ways that touch none of `avoiding`.

        `known` are answers for other steps with the same `avoiding`: what they hold is not walked again, so that all
        sources of a join together cost about one walk.
        """
        if not known:
            return self._walk_back(step, avoiding)
        return self._closure(step, self._before, avoiding, known)

    def led_to_by(self, step: str, avoiding: int = 0) -> int:
        """Steps that can be reached from `step`, itself included; `avoiding` ones are reached by nothing."""
        return self._closure(step, self._after, avoiding, {})

    def _walk_back(self, step: str, avoiding: int) -> int:
        """As `_closure` over what comes before, without known answers: with numbers instead of masks, so that each of
        the many joins of a long cycle costs one plain walk.
        """
        seen = bytearray(len(self.names) // 8 + 1)
        mask = bytearray(avoiding.to_bytes(len(seen), "little"))
        work = [self.bit_of[step].bit_length() - 1]
        sources = self._sources
        while work:
            number = work.pop()
            byte, bit = number >> 3, 1 << (number & 7)
            if mask[byte] & bit:
                continue
            mask[byte] |= bit
            seen[byte] |= bit
            work += sources[number]
        return int.from_bytes(seen, "little")

    def _closure(self, step: str, edges: Sequence[int], avoiding: int, known: Mapping[str, int]) -> int:
        ends = sum(self.bit_of[name] for name in known)
        seen = 0
        open_steps = self.bit_of[step] & ~avoiding
        while open_steps:
            lowest = (open_steps & ends) or open_steps
            lowest &= -lowest
            number = lowest.bit_length() - 1
            if lowest & ends:
                seen |= known[self.names[number]]
            else:
                seen |= lowest
                open_steps |= edges[number]
            open_steps &= ~(seen | avoiding)
        return seen

    def ancestors(self, entry: str) -> dict[str, int]:
        """For each step that can run, the steps from which it can be reached by at least one arc."""
        return self._closures(self._order(entry), self.before)

    def descendants(self, entry: str) -> dict[str, int]:
        """For each step that can run, the steps that can be reached from it by at least one arc."""
        return self._closures(self._order(entry)[::-1], self.after)

    def _closures(self, order: list[str], edges: Mapping[str, list[str]]) -> dict[str, int]:
        # Neighbours come first in the order but for arcs that lead back, so an acyclic plan takes one round and a look.
        found = dict.fromkeys(order, 0)
        changed = True
        while changed:
            changed = False
            for name in order:
                mask = found[name]
                for other in edges[name]:
                    if other in found:
                        mask |= found[other] | self.bit_of[other]
                if mask != found[name]:
                    found[name] = mask
                    changed = True
        return found

    def _order(self, entry: str) -> list[str]:
        """The steps that can run, sources before targets (reverse postorder)."""
        if entry not in self.bit_of:
            return []
        seen = {entry}
        ended: list[str] = []
        work: list[tuple[str, Iterator[str]]] = [(entry, iter(self.after[entry]))]
        while work:
            name, rest = work[-1]
            target = next((one for one in rest if one not in seen), None)
            if target is None:
                ended.append(name)
                work.pop()
            else:
                seen.add(target)
                work.append((target, iter(self.after[target])))
        return ended[::-1]


class Reach:
    """The joins of a plan, with what can reach them."""

    def __init__(self, entry: str, steps: Sequence[StepPlan]) -> None:
        self.graph = Graph(steps)
        joining = [step for step in steps if step.join != "any"]
        #: by step, in plan order
        self.joins: dict[str, Join] = dict(self._joins(entry, steps, joining)) if joining else {}

    def _joins(self, entry: str, steps: Sequence[StepPlan], joining: Iterable[StepPlan]) -> Iterator[tuple[str, Join]]:
        graph = self.graph
        ancestors = graph.ancestors(entry)
        arriving: dict[str, list[tuple[str, str]]] = {}
        for step in steps:
            for arc in step.arcs:
                arriving.setdefault(arc.target, []).append((arc.place, step.name))
        for step in joining:
            own = graph.bit_of[step.name]
            masks: dict[str, int] = {step.name: 0}
            walked: dict[str, int] = {}
            incoming = [Incoming(ENTRY, "", 0)] if step.name == entry else []
            for place, source in arriving.get(step.name, ()):
                if source not in masks:
                    before = ancestors.get(source, 0)
                    # Only where the join leads back to the source are there ways through it to leave out.
                    if before & own:
                        masks[source] = walked[source] = graph.leading_to(source, own, walked)
                    else:
                        masks[source] = before | graph.bit_of[source]
                incoming.append(Incoming(place, source, masks[source]))
            count = step.join_count if step.join == "count" else 0
            yield step.name, Join(step.name, own, count, tuple(incoming))
