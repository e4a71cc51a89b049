"""Reachability in a cycle of steps when one step is left out, in nearly linear time for all steps together.

A cycle is a set of steps that all reach each other. Let r be one of them. Without a step J, the steps that still reach
r are all except those that J dominates in the reversed graph (J is on each of their paths to r), and the steps that r
still reaches are all except those that J dominates. Two dominator trees answer this for every J at once; the rest is
searched in the part of the cycle that J dominates. Sets of steps are bit masks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from msgspec import Struct

Edges = Sequence[Sequence[int]]


class TooMuchWork(Exception):
    """Analyzing the joins of a plan exceeds the limit; `number` is the step at which it did."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Work:
    """Counts operations on masks; None for no limit."""

    def __init__(self, most: int | None, steps: int, pause: Callable[[], None] | None = None) -> None:
        """`pause` is called periodically."""
        self.remaining = most
        self._pause = pause
        #: number of words of a mask
        self.words = 1 + steps // 64

    def spend(self, operations: int, number: int) -> None:
        if self.remaining is not None:
            self.remaining -= operations
            if self.remaining < 0:
                raise TooMuchWork(number)
        self.pause()

    def pause(self) -> None:
        """Yield to other threads, if the caller wants that."""
        if self._pause is not None:
            self._pause()


def components(edges: Edges, pause: Callable[[], None] = lambda: None) -> list[list[int]]:
    """Return the strongly connected components, each after those that it leads to (Tarjan).

    `pause` is called periodically.
    """
    count = len(edges)
    index, low = [0] * count, [0] * count
    on_stack = bytearray(count)
    stack: list[int] = []
    groups: list[list[int]] = []
    clock = 0
    for root in range(count):
        if index[root]:
            continue
        clock += 1
        index[root] = low[root] = clock
        stack.append(root)
        on_stack[root] = 1
        work = [(root, iter(edges[root]))]
        while work:
            node, successors = work[-1]
            for other in successors:
                if not index[other]:
                    clock += 1
                    index[other] = low[other] = clock
                    stack.append(other)
                    on_stack[other] = 1
                    work.append((other, iter(edges[other])))
                    break
                if on_stack[other] and index[other] < low[node]:
                    low[node] = index[other]
            else:
                pause()
                work.pop()
                if work and low[node] < low[work[-1][0]]:
                    low[work[-1][0]] = low[node]
                if low[node] == index[node]:
                    group: list[int] = []
                    while not group or group[-1] != node:
                        group.append(stack.pop())
                        on_stack[group[-1]] = 0
                    groups.append(group)
    return groups


def closures(edges: Edges, own: Sequence[int], pause: Callable[[], None] = lambda: None) -> list[int]:
    """Return, for each node, the union of the masks of all nodes that it reaches, including its own.

    `pause` is called periodically.
    """
    reached = [0] * len(edges)
    for group in components(edges, pause):
        mask = 0
        for node in group:
            mask |= own[node]
            for other in edges[node]:
                mask |= reached[other]
            pause()
        for node in group:
            reached[node] = mask
    return reached


class Dominators(Struct):
    """The dominator tree of a graph: the nodes on every path from node 0 to a node (Lengauer and Tarjan)."""

    children: list[list[int]]
    #: a node dominates those whose `enter` is in its [enter, leave)
    enter: list[int]
    leave: list[int]
    #: the nodes in order of `enter`
    order: list[int]

    def dominates(self, node: int, other: int) -> bool:
        return self.enter[node] <= self.enter[other] < self.leave[node]


def dominators(after: Edges, before: Edges, pause: Callable[[], None] = lambda: None) -> Dominators:
    """Compute the dominators of a graph whose nodes are all reachable from node 0. `pause` is called periodically."""
    above = _immediate(after, before, pause)
    children: list[list[int]] = [[] for _ in after]
    for node, parent in enumerate(above):
        if node:
            children[parent].append(node)
    enter, leave = [0] * len(after), [0] * len(after)
    order: list[int] = []
    work = [0]
    while work:
        node = work.pop()
        if node < 0:
            leave[~node] = len(order)
            continue
        enter[node] = len(order)
        order.append(node)
        work.append(~node)
        work += reversed(children[node])
    return Dominators(children, enter, leave, order)


def _immediate(after: Edges, before: Edges, pause: Callable[[], None]) -> list[int]:
    """Return the immediate dominator of each node."""
    count = len(after)
    number, parent = [-1] * count, [0] * count
    nodes: list[int] = []
    work = [(0, 0)]
    while work:
        node, source = work.pop()
        if number[node] >= 0:
            continue
        number[node] = len(nodes)
        parent[number[node]] = source
        nodes.append(node)
        pause()
        work += [(other, number[node]) for other in reversed(after[node]) if number[other] < 0]
    semi, best, dominators = list(range(count)), list(range(count)), [0] * count
    ancestor = [-1] * count
    waiting: list[list[int]] = [[] for _ in range(count)]

    def lowest(node: int) -> int:
        """Return the node with the least semidominator on the path up, and compress the path."""
        if ancestor[node] < 0:
            return node
        way = []
        while ancestor[ancestor[node]] >= 0:
            way.append(node)
            node = ancestor[node]
        for vertex in reversed(way):
            higher = ancestor[vertex]
            if semi[best[higher]] < semi[best[vertex]]:
                best[vertex] = best[higher]
            ancestor[vertex] = ancestor[higher]
        return best[way[0] if way else node]

    for vertex in range(count - 1, 0, -1):
        pause()
        for source in before[nodes[vertex]]:
            semi[vertex] = min(semi[vertex], semi[lowest(number[source])])
        waiting[semi[vertex]].append(vertex)
        above = ancestor[vertex] = parent[vertex]
        for other in waiting[above]:
            least = lowest(other)
            dominators[other] = least if semi[least] < semi[other] else above
        waiting[above] = []
    for vertex in range(1, count):
        if dominators[vertex] != semi[vertex]:
            dominators[vertex] = dominators[dominators[vertex]]
    result = [0] * count
    for vertex in range(1, count):
        result[nodes[vertex]] = nodes[dominators[vertex]]
    return result


class Cycle:
    """A set of steps that all reach each other."""

    def __init__(self, steps: Sequence[int], after: Edges, before: Edges, work: Work) -> None:
        self.steps = list(steps)
        self._work = work
        self._node = {step: node for node, step in enumerate(self.steps)}
        node_of = self._node
        self._after = [[node_of[other] for other in after[step] if other in node_of] for step in self.steps]
        self._before = [[node_of[other] for other in before[step] if other in node_of] for step in self.steps]
        self._forward = dominators(self._after, self._before, work.pause)
        self._backward = dominators(self._before, self._after, work.pause)
        self._own = [1 << step for step in self.steps]
        self._under_forward = self._masks(self._forward)
        self._under_backward = self._masks(self._backward)
        self._whole = self._under_forward[0]
        self._sources: list[int] = [0] * len(self.steps)
        for node, others in enumerate(self._before):
            for other in others:
                self._sources[node] |= self._own[other]

    def _masks(self, tree: Dominators) -> list[int]:
        """Return, for each node, the steps that it dominates, including itself."""
        masks = list(self._own)
        for node in reversed(tree.order):
            self._work.pause()
            for child in tree.children[node]:
                masks[node] |= masks[child]
        return masks

    def leading_to(self, sources: Sequence[int], without: int) -> dict[int, int]:
        """Return, for each of `sources`, the steps of the cycle that reach it when the step `without` is left out.

        A source reaches itself. Each source has an arc to that step.
        """
        work, own = self._work, self._node[without]
        work.spend(1 + len(sources), without)
        if own == 0:
            return self._looked_through(sources, own, self._whole)
        staying = self._whole & ~self._under_backward[own]
        region = self._under_forward[own]
        is_simple = not region & staying
        behind: dict[int, int] | None = None
        leading: dict[int, int] = {}
        hard: list[int] = []
        for source in sources:
            node = self._node[source]
            is_reached = not self._forward.dominates(own, node)
            if not is_reached and not is_simple:
                hard.append(source)
                continue
            # Steps that still reach r reach the source if r does.
            mask = staying if is_reached else 0
            if self._backward.dominates(own, node):
                if behind is None:
                    behind = self._behind(own)
                mask |= behind[node]
                work.spend(work.words, without)
            leading[source] = mask
        if hard:
            leading |= self._looked_through(hard, own, region)
        return leading

    def _behind(self, own: int) -> dict[int, int]:
        """Return, for each step with an arc to `own` that does not reach r without it, the like steps that reach it.

        In the reversed tree such a step is a child of `own`; only its arcs leave the part that it dominates, and
        everything in that part reaches it.
        """
        tree = self._backward
        children = tree.children[own]
        starts = [tree.enter[child] for child in children]
        before: list[list[int]] = [[] for _ in children]
        for at, child in enumerate(children):
            for other in self._after[child]:
                if other != own:
                    into = bisect_right(starts, tree.enter[other]) - 1
                    if into != at:
                        before[into].append(at)
        self._work.spend(len(children) + sum(map(len, before)), self.steps[own])
        masks = closures(before, [self._under_backward[child] for child in children])
        return dict(zip(children, masks, strict=True))

    def _looked_through(self, sources: Sequence[int], own: int, region: int) -> dict[int, int]:
        """Return the same by a search through `region`, which contains everything that reaches the sources."""
        leading: dict[int, int] = {}
        work, allowed = self._work, region & ~self._own[own]
        cost = 1 + work.words // 8
        ends = 0
        for source in sources:
            seen, pending = 0, 1 << source
            visits = 0
            while pending:
                lowest = (pending & ends) or pending
                lowest &= -lowest
                step = lowest.bit_length() - 1
                if lowest & ends:
                    seen |= leading[step]
                else:
                    seen |= lowest
                    pending |= self._sources[self._node[step]]
                pending &= allowed & ~seen
                visits += 1
            work.spend(visits * cost + work.words, self.steps[own])
            leading[source] = seen
            ends |= 1 << source
        return leading
