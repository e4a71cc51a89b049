"""The reachable markings of a plan: which steps run, which tokens wait at joins, and which tokens will be absorbed.

Invariant: the rules of joins here are those of `core.flow.joins`, applied to counts of tokens. Conditions that the plan
alone does not decide may hold or not, independently, and every step may fail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from arclog.plan.lint.conditions import Option, admission, open_arcs, options
from arclog.plan.net import ArcPlan, Plan, StepPlan
from arclog.plan.reach import ENTRY, Join, Reach, held_back_by_each_other

#: Maximum number of open arcs of a step for which every combination is tried, unless the caller asks for more
#: (`combine`).
FEW_OPEN_ARCS = 8
#: Maximum number of tokens of a marking, or the number of the plan's arcs if that is larger. A cycle can create tokens
#: forever.
_MOST_TOKENS = 40
#: A marking with more tokens than this counts as several.
_SMALL = 40
#: Maximum number of joins that starve one after the other before the run is considered to have no other end.
_MOST_IN_A_ROW = 20


#: running steps (their numbers, once per run) · (join, place, whether each token came from a failure) · (join, place,
#: expected) · mask of steps that failed or were denied, if an `all_ok` join needs them
Marking = tuple[tuple[int, ...], tuple[tuple[int, int, tuple[bool, ...]], ...], tuple[tuple[int, int, int], ...], int]


class Starved(Struct, frozen=True):
    """A counted join that gets too few tokens."""

    #: the steps that ended before, in order
    way: list[str]
    came: int


class Explored(Struct):
    """The results of the explored markings."""

    #: by the name of the join, each after a shortest run
    starved: dict[str, Starved]
    #: steps that ran
    ran: set[str]
    #: whether all markings were explored, given the options of their steps (`Markings.sampled`)
    is_whole: bool
    #: number of explored markings; large ones count as several
    markings: int = 0
    #: whether a marking exceeded the maximum number of tokens
    is_crowded: bool = False
    #: whether a step ends the run, whatever else is running
    is_ended: bool = False


class Markings:
    """The markings of one plan. Raises TooMuchWork if the analysis of its joins exceeds `max_join_work`."""

    def __init__(self, plan: Plan, max_join_work: int | None = None) -> None:
        self._plan = plan
        self._steps = list(plan.steps)
        self._number = {step.name: number for number, step in enumerate(self._steps)}
        reach = Reach(plan.entry, plan.steps, max_join_work)
        self._joins: list[Join | None] = [reach.joins.get(step.name) for step in self._steps]
        #: place of an arc → its index among the places of its join
        self._place = {
            incoming.place: index
            for join in reach.joins.values()
            for index, incoming in enumerate(join.incoming)
            if incoming.place != ENTRY
        }
        #: steps of whose open arcs not every combination is tried, with the number of these arcs
        self.sampled: dict[str, int] = {}
        self._options: list[list[Option]] = []
        self.combine(FEW_OPEN_ARCS)
        self.most_tokens = max(_MOST_TOKENS, sum(len(step.arcs) for step in self._steps))
        self._admission = [admission(step) for step in self._steps]
        #: steps whose failures and denials an `all_ok` join needs
        self._waited_for = 0
        for step in self._steps:
            if step.join == "all_ok":
                for incoming in reach.joins[step.name].incoming:
                    self._waited_for |= incoming.reach

    def combine(self, most_open: int) -> None:
        """Try every combination of open arcs for steps with at most `most_open` of them, and a few for the others."""
        counts = {step.name: open_arcs(step) for step in self._steps}
        self.sampled = {name: count for name, count in counts.items() if count > most_open}
        self._options = [list(options(step, most_open)) for step in self._steps]

    def explore(
        self, most: int, is_enough: Callable[[Explored], bool], *, any_order: bool = False, goes_on: bool = False
    ) -> Explored:
        """Explore at most `most` markings, breadth first, until `is_enough` returns true.

        With `any_order`, any running step may end first, else the first in plan order. With `goes_on`, a step whose
        every end ends the run ends alone, and the run continues.
        """
        explored = Explored({}, set(), is_whole=True)
        trails: dict[Marking, tuple[Marking | None, int]] = {}
        pending: deque[Marking] = deque()

        def note(made: _Made, before: Marking | None, step: int) -> bool:
            """Add a successor. Returns False if it exceeds a limit."""
            explored.ran.update(self._steps[number].name for number in made.ran)
            if made.is_cut:
                explored.is_crowded = True
                return False
            explored.is_ended = explored.is_ended or made.marking is None
            for number, came in made.starved:
                name = self._steps[number].name
                if name not in explored.starved:
                    explored.starved[name] = Starved(self._way(trails, before, step), came)
            if made.marking is not None and made.marking not in trails:
                explored.markings += 1 + len(made.marking[0]) // _SMALL
                if explored.markings > most:
                    return False
                trails[made.marking] = (before, step)
                pending.append(made.marking)
            return True

        explored.is_whole = all(note(made, None, -1) for made in self._first(goes_on=goes_on))
        while pending and explored.is_whole and not is_enough(explored):
            marking = pending.popleft()
            ready = dict.fromkeys(marking[0]) if any_order else marking[0][:1]
            explored.is_whole = all(
                note(made, marking, step) for step in ready for made in self._after(marking, step, goes_on=goes_on)
            )
        return explored

    def _way(self, trails: dict[Marking, tuple[Marking | None, int]], at: Marking | None, step: int) -> list[str]:
        names: list[str] = []
        while at is not None:
            names.append(self._steps[step].name)
            at, step = trails[at]
        names.reverse()
        return names

    # -- successors ---------------------------------------------------------------------------------------------------

    def _first(self, *, goes_on: bool) -> Iterator[_Made]:
        entry = self._number[self._plan.entry]
        work = _Work(self, (), goes_on=goes_on)
        if self._joins[entry] is None:
            work.tokens.append(entry)
        else:
            work.waiting[entry] = {0: (False,)}
        yield from work.settled()

    def _after(self, marking: Marking, step: int, *, goes_on: bool) -> Iterator[_Made]:
        """Iterate over the possible successors after the end of a run of that step."""
        is_over = True
        for option in self._options[step]:
            work = _Work(self, marking, goes_on=goes_on)
            work.running.remove(step)
            if work.route(step, option):
                is_over = False
                yield from work.settled()
        if not is_over:
            return
        work = _Work(self, marking, goes_on=goes_on)
        if goes_on:
            work.running.remove(step)
            work.settle()
            yield from work.settled()
        else:
            yield _Made(None, [], [])

    # -- what the working copies ask ------------------------------------------------------------------------------------

    def step(self, number: int) -> StepPlan:
        return self._steps[number]

    def join(self, number: int) -> Join:
        join = self._joins[number]
        if join is None:
            raise KeyError(self._steps[number].name)
        return join

    def target(self, arc: ArcPlan) -> tuple[int, int] | None:
        """Return the step that an arc leads to and its place there (-1 without a join); None if the step is missing."""
        number = self._number.get(arc.target)
        if number is None:
            return None
        return number, -1 if self._joins[number] is None else self._place[arc.place]

    def options(self, number: int) -> list[Option]:
        return self._options[number]

    def admission(self, number: int) -> tuple[bool, bool]:
        return self._admission[number]

    @property
    def waited_for(self) -> int:
        return self._waited_for


class _Made(Struct):
    """A successor, and the events on the way to it."""

    #: None if the run has ended
    marking: Marking | None
    ran: list[int]
    #: (join, tokens that came)
    starved: list[tuple[int, int]]
    #: whether it has too many tokens to be explored
    is_cut: bool = False


class _Work:
    """A marking that is being changed."""

    __slots__ = ("absorbs", "broken", "goes_on", "in_a_row", "net", "ran", "running", "starved", "tokens", "waiting")

    def __init__(self, net: Markings, marking: Marking | tuple[()], *, goes_on: bool) -> None:
        self.net = net
        self.goes_on = goes_on
        #: steps that tokens are about to start
        self.tokens: list[int] = []
        self.waiting: dict[int, dict[int, tuple[bool, ...]]] = {}
        self.absorbs: dict[int, dict[int, int]] = {}
        self.running: list[int] = []
        self.broken = 0
        self.ran: list[int] = []
        self.starved: list[tuple[int, int]] = []
        #: number of joins that starved one after the other, without a step run between them
        self.in_a_row = 0
        if marking:
            running, waiting, absorbs, self.broken = marking
            self.running = list(running)
            for join, place, queue in waiting:
                self.waiting.setdefault(join, {})[place] = queue
            for join, place, owed in absorbs:
                self.absorbs.setdefault(join, {})[place] = owed

    def copy(self) -> _Work:
        made = _Work(self.net, (), goes_on=self.goes_on)
        made.tokens = list(self.tokens)
        made.waiting = {join: dict(held) for join, held in self.waiting.items()}
        made.absorbs = {join: dict(owed) for join, owed in self.absorbs.items()}
        made.running = list(self.running)
        made.broken = self.broken
        made.ran = list(self.ran)
        made.starved = list(self.starved)
        made.in_a_row = self.in_a_row
        return made

    def route(self, step: int, option: Option) -> bool:
        """Move the tokens of an ended step run. Returns False if that ends the run."""
        plan = self.net.step(step)
        if option.failed:
            self.broken |= self.net.waited_for & (1 << step)
        if not option.arcs:
            if option.failed and plan.failure_mode == "fail_fast":
                return False
            if not option.failed and plan.arcs and plan.on_no_match == "fail":
                return False
        for arc in option.arcs:
            place_of = self.net.target(arc)
            if place_of is None:
                continue
            target, place = place_of
            if place < 0:
                self.tokens.append(target)
            elif self.absorbs.get(target, {}).get(place):
                self._absorb(target, place)
            else:
                queue = self.waiting.setdefault(target, {})
                failed = option.failed and self.net.step(target).join == "all_ok"
                queue[place] = (*queue.get(place, ()), failed)
        self.settle()
        return True

    def settled(self) -> Iterator[_Made]:
        """Start ready steps; every admission may have several outcomes."""
        if self._is_large:
            yield _Made(None, self.ran, self.starved, is_cut=True)
            return
        while True:
            if self.tokens:
                step = self.tokens.pop(0)
                if self.net.admission(step) != (True, False):
                    yield from self._arrive(step)
                    return
                self.running.append(step)
                self.ran.append(step)
                continue
            if not self.waiting:
                break
            join = self._ripe()
            if join is None:
                break
            if not self._fires(join):
                yield from self._fire_into(join)
                return
        yield _Made(self._marking(), self.ran, self.starved)

    def _arrive(self, step: int) -> Iterator[_Made]:
        may_allow, may_deny = self.net.admission(step)
        if may_deny:
            other = self.copy() if may_allow else self
            other.broken |= self.net.waited_for & (1 << step)
            other.settle()
            yield from other.settled()
        if may_allow:
            self.running.append(step)
            self.ran.append(step)
            yield from self.settled()

    # -- joins, with the rules of `core.flow.joins`
    # ------------------------------------------------------------------------

    def _absorb(self, join: int, place: int) -> None:
        owed = self.absorbs[join]
        owed[place] -= 1
        if not owed[place]:
            del owed[place]
        if not owed:
            del self.absorbs[join]

    def settle(self) -> None:
        """Stop expecting tokens that can no longer come."""
        if not self.absorbs:
            return
        live = self._live()
        for number in list(self.absorbs):
            join, owed = self.net.join(number), self.absorbs[number]
            sources = live | self._others(number)
            for place in list(owed):
                if not join.incoming[place].reach & sources:
                    del owed[place]
            if not owed:
                del self.absorbs[number]

    def _live(self) -> int:
        mask = 0
        for step in self.running:
            mask |= 1 << step
        for step in self.tokens:
            mask |= 1 << step
        return mask

    def _others(self, number: int) -> int:
        mask = 0
        for other in self.waiting:
            mask |= 1 << other
        return mask & ~(1 << number)

    def _ripe(self) -> int | None:
        waiting = sorted(self.waiting)
        for number in waiting:
            join, came = self.net.join(number), len(self.waiting[number])
            if came == len(join.incoming) or came >= (join.count or came + 1):
                return number
        live = self._live()
        behind: dict[int, int] = {}
        for number in waiting:
            join, held, others = self.net.join(number), self.waiting[number], self._others(number)
            lacks = [place.reach for index, place in enumerate(join.incoming) if index not in held]
            if join.count and len(held) + sum(bool(reach & (others | live)) for reach in lacks) < join.count:
                return number
            if not any(reach & live for reach in lacks):
                mask = 0
                for reach in lacks:
                    mask |= reach
                behind[1 << number] = others & mask
        free = held_back_by_each_other(behind)
        return free.bit_length() - 1 if free else None

    def _fires(self, number: int) -> bool:
        """Consume the tokens of a join whose step is skipped. Returns False if its step runs next."""
        join, held, plan = self.net.join(number), self.waiting[number], self.net.step(number)
        if plan.join != "all_ok" or not self._is_broken(join, held):
            return False
        self._take(number, held, ())
        self.broken |= self.net.waited_for & (1 << number)
        self.settle()
        return True

    def _is_broken(self, join: Join, held: dict[int, tuple[bool, ...]]) -> bool:
        return any(
            held[index][0] if index in held else bool(place.reach & self.broken)
            for index, place in enumerate(join.incoming)
        )

    def _fire_into(self, number: int) -> Iterator[_Made]:
        join, held = self.net.join(number), self.waiting[number]
        came = len(held)
        later: list[int] = []
        if join.count:
            sources = self._live() | self._others(number)
            later = [index for index, place in enumerate(join.incoming) if index not in held and place.reach & sources]
        self._take(number, held, later)
        if not join.count or came >= join.count:
            yield from self._arrive(number)
            return
        self.starved.append((number, came))
        self.in_a_row += 1
        if self.in_a_row > _MOST_IN_A_ROW:
            yield _Made(None, self.ran, self.starved)  # a failure that leads back to its join: a limit ends the run
            return
        for option in self.net.options(number):
            if not option.failed:
                continue
            work = self.copy()
            if work.route(number, option):
                yield from work.settled()
            elif self.goes_on:
                work.settle()
                yield from work.settled()
            else:
                yield _Made(None, work.ran, work.starved)

    def _take(self, number: int, held: dict[int, tuple[bool, ...]], later: Sequence[int]) -> None:
        remaining = {place: queue[1:] for place, queue in held.items() if len(queue) > 1}
        if remaining:
            self.waiting[number] = remaining
        else:
            del self.waiting[number]
        if later:
            owed = self.absorbs.setdefault(number, {})
            for place in later:
                owed[place] = owed.get(place, 0) + 1

    @property
    def _is_large(self) -> bool:
        queued = sum(len(queue) for held in self.waiting.values() for queue in held.values())
        return len(self.running) + len(self.tokens) + queued > self.net.most_tokens

    def _marking(self) -> Marking:
        waiting = sorted((join, place, queue) for join, held in self.waiting.items() for place, queue in held.items())
        absorbs = sorted((join, place, owed) for join, places in self.absorbs.items() for place, owed in places.items())
        return tuple(sorted(self.running)), tuple(waiting), tuple(absorbs), self.broken
