"""Claims: what waits is read lane by lane, `stores.choosing` chooses, and what it chose is taken.

One tenant without limits costs one look-up per lane and one more; shares, limits and resources are read only where they
can matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from arclog.ports.store import CommandRecord, Scope
from arclog.stores.choosing import Lane, Room, Service, Waiting, chosen
from arclog.stores.records import command_record, kinds_of, resources_of
from arclog.stores.sqlite import pools as book
from arclog.stores.sqlite.lanes import Tx
from arclog.stores.sqlite.queries import SQL

_NEXT_LANE = SQL["next_lane"]
_TAKE = SQL["take"]


class _Found(NamedTuple):
    lanes: list[Lane]
    #: some limit is set
    limited: bool


def claim(
    tx: Tx,
    worker_id: str,
    limit: int,
    lease_until: int,
    kinds: frozenset[str],
    pools: Sequence[str],
    execution_id: int,
    within: Scope,
) -> list[CommandRecord]:
    """`within` limits the claim to a tenant, a project and an environment; '' is any."""
    if limit <= 0:
        return []
    if execution_id:
        found = _below(tx, execution_id, kinds, frozenset(pools), within)
    else:
        found = _waiting(tx, sorted(set(pools)) or _pools(tx), kinds, within, limit)
    taken = [
        tx.execute(_TAKE, (worker_id, lease_until, each.execution_id, each.command_id)).fetchall()
        for each in _chosen(tx, found, limit)
    ]
    return [command_record(row) for rows in taken for row in rows]


def _chosen(tx: Tx, found: _Found, limit: int) -> list[Waiting]:
    lanes = found.lanes
    shared = any(lane.tenant != lanes[0].tenant for lane in lanes)
    needed = {name for lane in lanes for name in lane.resources}
    room = Room(tx.at)
    if found.limited:
        room.limits = book.limits_by_place(tx)
    if shared or room.limits:
        room.held = Counter({(pool, tenant): count for pool, tenant, count in tx.execute(SQL["held"]).fetchall()})
    if needed:
        room.resources = {each.resource.name: each for each in book.resources(tx.execute)}
    service = _service(tx, {lane.pool for lane in lanes}) if shared else None
    before = {} if service is None else dict(service.counts)
    taken = chosen(lanes, limit, room, service)
    for name in sorted(room.spent):
        tx.execute(SQL["spend"], (room.resources[name].full_at, name))
    if service is not None:
        _keep_service(tx, service, before)
    return taken


def _waiting(tx: Tx, pools: Iterable[str], kinds: frozenset[str], within: Scope, limit: int) -> _Found:
    """The lanes of some pools that a worker with these kinds can serve."""
    tenant = within.tenant
    lanes: list[Lane] = []
    limited = False
    for pool in pools:
        row = tx.execute(_NEXT_LANE, (pool, tenant, "", "")).fetchone()
        while row is not None and (not tenant or row[0] == tenant):
            owner, needs, resources, *head, bounded = row
            limited = limited or bool(bounded)
            if kinds.issuperset(kinds_of(needs)):
                place = (pool, owner, needs, resources)
                if within.project or within.environment:
                    waiting = _in_lane_within(tx, place, within, limit)
                else:
                    waiting = _in_lane(tx, place, Waiting(*head), limit)
                lanes.append(Lane(pool, owner, resources_of(resources), waiting))
            row = tx.execute(_NEXT_LANE, (pool, owner, needs, resources)).fetchone()
    return _Found(lanes, limited)


def _in_lane(tx: Tx, place: tuple[str, ...], head: Waiting, limit: int) -> Iterator[Waiting]:
    """A lane's commands: the first is known, the others are read when they are wanted."""
    yield head
    if limit > 1:
        yield from map(
            Waiting._make,
            tx.execute(SQL["in_lane"], (*place, head.order, head.command_id, limit - 1)).fetchall(),
        )


def _in_lane_within(tx: Tx, place: tuple[str, ...], within: Scope, limit: int) -> Iterator[Waiting]:
    """A lane's commands whose executions belong to a project and an environment."""
    given = (*place, within.project, within.environment, limit)
    yield from map(Waiting._make, tx.execute(SQL["in_lane_within"], given).fetchall())


def _below(tx: Tx, execution_id: int, kinds: frozenset[str], pools: frozenset[str], within: Scope) -> _Found:
    """The lanes of an execution and those below it."""
    tenant = within.tenant
    rows = tx.execute(SQL["issued_in"], (execution_id, within.project, within.environment)).fetchall()
    mine = [
        (pool, owner, resources, Waiting(*waiting))
        for pool, owner, needs, resources, *waiting, _ in rows
        if (not pools or pool in pools) and (not tenant or owner == tenant) and kinds.issuperset(kinds_of(needs))
    ]
    lanes = [
        Lane(pool, owner, resources_of(resources), iter([each[3] for each in those]))
        for (pool, owner, resources), those in groupby(sorted(mine), key=lambda each: each[:3])
    ]
    return _Found(lanes, bool(rows and rows[0][-1]))


def _pools(tx: Tx) -> Iterator[str]:
    """The pools that issued commands wait for."""
    pool = tx.execute(SQL["next_pool"], ("",)).get
    while pool is not None:
        yield pool
        pool = tx.execute(SQL["next_pool"], (pool,)).get


def _service(tx: Tx, pools: set[str]) -> Service:
    service = Service()
    for pool in pools:
        for tenant, served in tx.execute(SQL["service"], (pool,)).fetchall():
            if tenant:
                service.counts[pool, tenant] = served
            else:
                service.present[pool] = served
    return service


def _keep_service(tx: Tx, service: Service, before: dict[tuple[str, str], int]) -> None:
    """Who stands at the present, or behind it, needs no row."""
    changed = {place: count for place, count in service.counts.items() if before.get(place) != count}
    for (pool, tenant), served in changed.items():
        tx.execute(SQL["serve"], (pool, tenant, served))
    for pool in sorted({pool for pool, _ in changed}):
        tx.execute(SQL["serve"], (pool, "", service.present[pool]))
        tx.execute(SQL["forget_service"], (pool, service.present[pool]))
