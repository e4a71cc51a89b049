"""Joins: which tokens wait, when a join fires, and which tokens it consumes.

This module decides from the state alone; `core.transitions.apply` moves the tokens.

Invariant: the k-th token of each incoming place belongs to the k-th wave. `all` fires when every place has a token or
can no longer get one. `{count: n}` fires once n places have a token, and absorbs the rest of its wave when it arrives.
A waiting token is not live: it can hold back another join only if its own join could still fire first. Joins that hold
back each other, and that nothing live can reach, fire one at a time, in plan order.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

from msgspec import Struct

from arclog.core.transitions.state import State, Token
from arclog.model.data.json_data import deep_merge
from arclog.model.errors import InvariantBroken
from arclog.model.outcome import TaskError, error
from arclog.plan.program import Program
from arclog.plan.reach import Join, held_back_by_each_other


class Firing(Struct, frozen=True):
    """The tokens that a firing join consumes."""

    #: all tokens as one: args merged in arc order, the event of the last arrival
    token: Token
    #: as in the event: ids of the tokens taken, in arc order, and places whose token of this wave is absorbed later
    taken: dict[str, Any]
    #: set if too few tokens came: the step run fails at once
    problem: TaskError | None = None
    #: why the step is skipped; '' if it runs
    skipped: str = ""


class Lack(Struct, frozen=True):
    """A place from which a waiting join has no token."""

    place: str
    source: str
    #: steps that could still send one: open, about to start, or waiting joins
    from_steps: tuple[str, ...]


class Waiting(Struct, frozen=True):
    """A join that holds tokens and has not fired."""

    step: str
    #: tokens that the join needs; 0 for all that can come
    count: int
    #: sources of its tokens; '' is the entry
    held: tuple[str, ...]
    lacks: tuple[Lack, ...]
    #: whether it fires as soon as the engine continues
    ready: bool


def next_firing(program: Program, state: State) -> Firing | None:
    """Return the join to fire now; None if every join still waits. Never None if nothing is live."""
    if not state.waiting:
        return None
    join = _ripe(program, state)
    return None if join is None else _firing(program, state, join)


def waiting(program: Program, state: State) -> list[Waiting]:
    """Return, for each join that holds tokens, the missing tokens and the steps that could still send them."""
    waiting_joins: list[Waiting] = []
    if not state.waiting:
        return waiting_joins
    ripe = _ripe(program, state) if not state.tokens else None
    live = 0
    for step in _live_steps(state):
        live |= program.reach.graph.bit_of[step]
    for join in _waiting_joins(program, state):
        held = state.waiting[join.step]
        sources = live | _waiting_mask(program, state, join)
        lacks = tuple(
            Lack(place.place, place.source, tuple(program.reach.graph.names_of(place.reach & sources)))
            for place in join.incoming
            if place.place not in held
        )
        arrived = tuple(place.source for place in join.incoming if place.place in held)
        can = join is ripe or not any(lack.from_steps for lack in lacks)
        waiting_joins.append(Waiting(join.step, join.count, arrived, lacks, can))
    return waiting_joins


# -- called by `core.transitions.apply` -----------------------------------------------------------------------------------------------


def put(state: State, token: Token) -> None:
    """Add a token to its join."""
    state.waiting.setdefault(token.step, {}).setdefault(token.place, []).append(token)


def last_arrival(state: State, step: str, tokens: Sequence[int]) -> dict[str, Any]:
    """Return the event that the newest of these tokens arrived with."""
    held = [token for queue in state.waiting[step].values() for token in queue if token.id in tokens]
    return max(held, key=lambda token: token.id).event


def take(state: State, step: str, tokens: Sequence[int], absorbs: Sequence[str]) -> None:
    """Remove the tokens of a join that fired, and expect the rest of their wave."""
    held = state.waiting[step]
    left = {place: [token for token in queue if token.id not in tokens] for place, queue in held.items()}
    left = {place: queue for place, queue in left.items() if queue}
    if left:
        state.waiting[step] = left
    else:
        del state.waiting[step]
    owed = state.absorbs.setdefault(step, {}) if absorbs else {}
    for place in absorbs:
        owed[place] = owed.get(place, 0) + 1


def absorb(state: State, step: str, place: str) -> None:
    """Count a token that arrived for a wave that has fired."""
    owed = state.absorbs[step]
    owed[place] -= 1
    if not owed[place]:
        del owed[place]
    if not owed:
        del state.absorbs[step]


def settle(program: Program, state: State) -> None:
    """Stop expecting tokens that can no longer come: a later arrival belongs to a later wave."""
    if not state.absorbs:
        return
    live = _Live(program, state)
    for step in list(state.absorbs):
        join = program.reach.joins[step]
        others = _waiting_mask(program, state, join)
        owed = state.absorbs[step]
        for place in join.incoming:
            if place.place in owed and not place.reach & others and not live.meets(place.reach):
                del owed[place.place]
        if not owed:
            del state.absorbs[step]


def is_absorbed(state: State, step: str, place: str) -> bool:
    """Return whether a token that arrives at this place now belongs to a wave that has fired."""
    return bool(state.absorbs) and place in state.absorbs.get(step, ())


# -- when a join fires ----------------------------------------------------------------------------------------------------


class _Live:
    """The steps that have live tokens or step runs, computed only as far as needed."""

    __slots__ = ("_bit_of", "_live", "_rest")

    def __init__(self, program: Program, state: State) -> None:
        self._bit_of = program.reach.graph.bit_of
        self._rest = _live_steps(state)
        self._live = 0

    def meets(self, mask: int) -> bool:
        if self._live & mask:
            return True
        for step in self._rest:
            bit = self._bit_of[step]
            self._live |= bit
            if bit & mask:
                return True
        return False


def _live_steps(state: State) -> Iterator[str]:
    for token in state.tokens.values():
        yield token.step
    for step_run in state.open.values():
        yield step_run.step


def _waiting_joins(program: Program, state: State) -> list[Join]:
    """Return the joins that hold tokens, in plan order."""
    joins = program.reach.joins
    return sorted((joins[step] for step in state.waiting), key=lambda join: join.bit)


def _waiting_mask(program: Program, state: State, join: Join) -> int:
    """Return the other joins that hold tokens, as a mask."""
    bit_of = program.reach.graph.bit_of
    mask = 0
    for step in state.waiting:
        mask |= bit_of[step]
    return mask & ~join.bit


def _ripe(program: Program, state: State) -> Join | None:
    """Return the first join in plan order that may fire, by the rules in the module docstring."""
    joins = _waiting_joins(program, state)
    for join in joins:
        came = len(state.waiting[join.step])
        if came == len(join.incoming) or came >= (join.count or came + 1):
            return join
    live = _Live(program, state)
    #: joins that wait for nothing live → the joins that hold them back
    behind: dict[int, int] = {}
    for join in joins:
        held = state.waiting[join.step]
        others = _waiting_mask(program, state, join)
        if join.count and not _enough(join, held, others, live):
            return join
        # Stop at the first place that something live can reach, so that a wide join is not scanned each time.
        if not any(place.place not in held and live.meets(place.reach) for place in join.incoming):
            behind[join.bit] = others & _reaching(join, held)
    free = held_back_by_each_other(behind)
    return next((join for join in joins if join.bit == free), None)


def _enough(join: Join, held: Container[str], others: int, live: _Live) -> bool:
    """Return whether a counted join can still reach its count."""
    missing = join.count
    for place in join.incoming:
        if place.place in held or place.reach & others or live.meets(place.reach):
            missing -= 1
            if not missing:
                return True
    return False


def _reaching(join: Join, held: Container[str]) -> int:
    """Return the steps that could send the missing tokens, as a mask."""
    mask = 0
    for place in join.incoming:
        if place.place not in held:
            mask |= place.reach
    return mask


def _firing(program: Program, state: State, join: Join) -> Firing:
    held = state.waiting[join.step]
    taken = [held[place.place][0] for place in join.incoming if place.place in held]
    if not taken:
        raise InvariantBroken(f"join {join.step} fires without a token")
    args = taken[0].args
    for token in taken[1:]:
        args = deep_merge(args, token.args)
    last = max(taken, key=lambda token: token.id)
    fields: dict[str, Any] = {"tokens": [token.id for token in taken]}
    problem = None
    if join.count:
        live, others = _Live(program, state), _waiting_mask(program, state, join)
        later = [
            place.place
            for place in join.incoming
            if place.place not in held and (place.reach & others or live.meets(place.reach))
        ]
        if later:
            fields["absorbs"] = later
        if len(taken) < join.count:
            came = ", ".join(place.source or "the entry" for place in join.incoming if place.place in held)
            message = f"join {{count: {join.count}}} of step {join.step}: only {len(taken)} came ({came}), and too few others still can"
            problem = error("config", message, code="JOIN_COUNT")
    merged = Token(last.id, last.place, join.step, args, last.event)
    skipped = _broken(program, state, join) if program.steps[join.step].plan.join == "all_ok" else ""
    return Firing(merged, fields, problem, skipped)


def _broken(program: Program, state: State, join: Join) -> str:
    """Return the branch of an `all_ok` join that failed or was denied, or ''.

    A branch failed if its token came from a failed step, or if no token came and a step on the way failed or was
    denied.
    """
    held = state.waiting[join.step]
    for place in join.incoming:
        if place.place in held:
            if held[place.place][0].event.get("name") == "step.failed":
                return f"step {place.source} failed"
            continue
        for step in program.reach.graph.names_of(place.reach):
            tally = state.tally.get(step)
            if tally is not None and (tally.error or tally.denied):
                return f"step {step} {'failed' if tally.error else 'was denied'}"
    return ""
