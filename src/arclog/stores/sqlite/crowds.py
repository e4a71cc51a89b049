"""Crowded pools: where many lanes wait, they are kept in the order of their turns, and a claim sees the first of them.

A pool is crowded from more than `MANY` lanes on, until `FEW` are left. Triggers keep `lanes` and `holding` (migration 14).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from arclog.model.ids import MAX_ID
from arclog.ports.storage.pools import EACH
from arclog.stores.claim_choice import Room, Visit, Waiting
from arclog.stores.records import kinds_of
from arclog.stores.sqlite.connection.writer import Tx
from arclog.stores.sqlite.queries import SQL

MANY, FEW = 16, 4
#: Values of service behind the present that a claim steps through; more are made one.
_STALE = 4
#: Lanes that are made so at a time.
_SETTLED = 1000


class Seen(NamedTuple):
    """A lane of a crowded pool."""

    tenant: str
    kinds: str
    resources: str
    held: int
    served: int
    head: Waiting


def crowd(tx: Tx, pool: str) -> None:
    """Keep the lanes of a pool from now on."""
    for name in ("crowd", "crowd_holding", "crowd_lanes"):
        tx.execute(SQL[name], (pool,))


def uncrowd(tx: Tx, pool: str) -> None:
    """Do so no more, if only few are left."""
    if tx.execute(SQL["few_lanes"], (pool, FEW + 1)).get <= FEW:
        for name in ("uncrowd", "uncrowd_holding", "uncrowd_lanes"):
            tx.execute(SQL[name], (pool,))


def present_of(tx: Tx, pool: str) -> int:
    present: int | None = tx.execute(SQL["present"], (pool,)).get
    return present or 0


def window(tx: Tx, pool: str, kinds: frozenset[str], limit: int, room: Room, present: int) -> list[Seen]:
    """The lanes that a claim has to see. `room` has the limits, and with them all that is held."""
    named = room.named()
    hidden = [*named, *room.full()]
    most_held = room.limits.get((pool, EACH), MAX_ID)
    seen: dict[tuple[str, str, str], Seen] = {}
    for needs in _needs(tx, pool):
        if kinds.issuperset(kinds_of(needs[0])):
            place = (pool, *needs)
            some, stale = _first_lanes(tx, place, Visit(limit, present), hidden, most_held)
            while stale is not None:
                tx.execute(SQL["settle_lanes"], (*place, stale, present, _SETTLED))
                some, stale = _first_lanes(tx, place, Visit(limit, present), hidden, most_held)
            if room.limits:
                # Whether tenants compete does not depend on their room: two of them are enough to tell.
                two = tx.execute(SQL["two_lanes"], place).fetchall()
                some += [Seen._make((*row[:5], Waiting._make(row[5:]))) for row in two]
            seen.update((each[:3], each) for each in some)
    for tenant in named:
        for needs, *rest in tx.execute(SQL["lanes_of"], (pool, tenant)).fetchall():
            if kinds.issuperset(kinds_of(needs)):
                resources, held, served, *head = rest
                seen[tenant, needs, resources] = Seen(tenant, needs, resources, held, served, Waiting(*head))
    return list(seen.values())


def _needs(tx: Tx, pool: str) -> Iterator[tuple[str, str]]:
    row = tx.execute(SQL["next_needs"], (pool, "", "", -1)).fetchone()
    while row is not None:
        yield row
        row = tx.execute(SQL["next_needs"], (pool, *row, MAX_ID)).fetchone()


def _first_lanes(
    tx: Tx, place: tuple[str, str, str], visit: Visit, hidden: Sequence[str], most_held: int
) -> tuple[list[Seen], int | None]:
    """Of lanes that need the same. And, when too many values of service lie behind the present, of which tenants: of those
    that hold so much.
    """
    _, kinds, resources = place
    seen: list[Seen] = []
    statement, left_out = SQL["in_turn"], list[str]()
    if hidden:
        statement, left_out = SQL["in_turn_but"], [msgspec.json.encode(hidden).decode()]
    stale = 0
    for held, served in _turns(tx, place):
        if held >= most_held or visit.enough(held, served):
            break
        stale += 0 < served <= visit.present
        if stale > _STALE:
            return seen, held
        rows = tx.execute(statement, (*place, held, served, visit.most, *left_out)).fetchall()
        visit.note(held, len(rows))
        seen += [Seen(tenant, kinds, resources, held, served, Waiting(*head)) for tenant, *head in rows]
    return seen, None


def _turns(tx: Tx, place: tuple[str, str, str]) -> Iterator[Sequence[int]]:
    """The pairs of held and served, smallest first."""
    turn = tx.execute(SQL["next_turn"], (*place, -1, -1, -1)).fetchone()
    while turn is not None:
        yield turn
        turn = tx.execute(SQL["next_turn"], (*place, *turn, MAX_ID)).fetchone()
