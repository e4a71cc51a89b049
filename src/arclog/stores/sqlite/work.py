"""Claims of the SQLite store, each in one transaction, and its resources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from msgspec import Struct, json

from arclog.model.ids import MAX_ID
from arclog.ports.storage.pools import EACH, QueueHead, Resource, ResourceRecord
from arclog.ports.storage.store import Scope
from arclog.stores.claim_choice import ClaimRequest, Lane, Room, Service, Visit, Waiting, chosen
from arclog.stores.records import kinds_of, resources_of
from arclog.stores.sql.part import Rows
from arclog.stores.sql.work import Work as SqlWork
from arclog.stores.sqlite.connection.readers import Execute
from arclog.stores.sqlite.connection.writer import Tx
from arclog.stores.sqlite.part import SqlitePart
from arclog.stores.sqlite.queries import SQL

# ── claims ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Claims: waiting commands are read lane by lane, `stores.claim_choice` chooses, and the chosen ones are taken.
#
# For one tenant without limits this takes one look-up per lane and one more; shares, limits and resources are read only
# if they can matter. If many lanes wait, the pool is crowded: its lanes are stored in the order of their turns, and a
# claim reads the first of them. A pool with more than `MANY` lanes is crowded, until only `FEW` are left. Triggers
# maintain `lanes` and `holding` (migration 14).

_NEXT_LANE = SQL["next_lane"]
_TAKE = SQL["take"]
MANY, FEW = 16, 4
#: Maximum number of outdated service values that a claim steps through; more are merged.
_STALE = 4
#: Number of lanes that are merged at a time.
_SETTLED = 1000
#: number of service rows that a claim removes in addition to those that it may have added
_FORGOTTEN = 8


class _Candidates(Struct, frozen=True):
    lanes: list[Lane]
    #: whether a limit is set
    limited: bool
    #: pools whose lanes have to be read by turns
    crowded: Sequence[str] = ()


def claim(tx: Tx, asked: ClaimRequest) -> list[Sequence[Any]]:
    kinds, within = frozenset(asked.kinds), Scope(asked.tenant, *(asked.within or ("", "")))
    if asked.execution_id:
        candidates = _below(tx, asked.execution_id, kinds, frozenset(asked.pools), within)
    else:
        candidates = _waiting(tx, sorted(set(asked.pools)) or _pools(tx), kinds, within, asked.limit)
    taken = [
        tx.execute(_TAKE, (asked.worker_id, asked.lease_until, command.execution_id, command.command_id)).fetchall()
        for command in _chosen(tx, candidates, kinds, asked.limit)
    ]
    for pool in candidates.crowded:
        uncrowd(tx, pool)
    return [row for rows in taken for row in rows]


def _chosen(tx: Tx, candidates: _Candidates, kinds: frozenset[str], limit: int) -> list[Waiting]:
    lanes = candidates.lanes
    room = Room(tx.at)
    if candidates.limited:
        room.limits = {(pool, tenant): most for pool, tenant, most in tx.execute(SQL["limits"]).fetchall()}
    if room.limits or (lanes and candidates.crowded) or any(lane.tenant != lanes[0].tenant for lane in lanes):
        room.held = Counter({(pool, tenant): count for pool, tenant, count in tx.execute(SQL["held"]).fetchall()})
    service = Service()
    for pool in candidates.crowded:
        lanes = lanes + _in_turn(tx, pool, kinds, limit, room, service)
    shared = any(lane.tenant != lanes[0].tenant for lane in lanes)
    if any(lane.resources for lane in lanes):
        room.resources = {record.resource.name: record for record in read_resources(tx.execute)}
    if shared:
        _read_service(tx, candidates.lanes, service)
    before = dict(service.counts)
    taken = chosen(lanes, limit, room, service if shared else None)
    for name in sorted(room.spent):
        tx.execute(SQL["spend"], (room.resources[name].full_at, name))
    if shared:
        _keep_service(tx, service, before)
    return taken


def _in_turn(tx: Tx, pool: str, kinds: frozenset[str], limit: int, room: Room, service: Service) -> list[Lane]:
    """Return the lanes of a crowded pool that a claim has to read. Records what their tenants hold and how often they
    were served.
    """
    service.present[pool] = present_of(tx, pool)
    lanes: list[Lane] = []
    for command in window(tx, pool, kinds, limit, room, service.present[pool]):
        room.held[pool, command.tenant] = command.held
        if command.served > service.present[pool]:
            service.counts[pool, command.tenant] = command.served
        place = (pool, command.tenant, command.kinds, command.resources)
        lanes.append(
            Lane(pool, command.tenant, resources_of(command.resources), _in_lane(tx, place, command.head, limit))
        )
    return lanes


def _waiting(tx: Tx, pools: Iterable[str], kinds: frozenset[str], within: Scope, limit: int) -> _Candidates:
    """Return the lanes of some pools that a worker with these kinds can serve."""
    tenant = within.tenant
    narrowed = tenant or within.project or within.environment
    lanes: list[Lane] = []
    limited = False
    crowded: list[str] = []
    for pool in pools:
        some: list[Lane] = []
        count = 0
        row = tx.execute(_NEXT_LANE, (pool, tenant, "", "", -MAX_ID)).fetchone()
        while row is not None and (not tenant or row[0] == tenant):
            owner, needs, resources, *head, bounded, is_crowded = row
            limited = limited or bool(bounded)
            count += 1
            if not narrowed and (is_crowded or count > MANY):
                if not is_crowded:
                    crowd(tx, pool)
                crowded.append(pool)
                some = []
                break
            if kinds.issuperset(kinds_of(needs)):
                place = (pool, owner, needs, resources)
                if within.project or within.environment:
                    waiting = _in_lane_within(tx, place, within, limit)
                else:
                    waiting = _in_lane(tx, place, Waiting(*head), limit)
                some.append(Lane(pool, owner, resources_of(resources), waiting))
            row = tx.execute(_NEXT_LANE, (pool, owner, needs, resources, MAX_ID)).fetchone()
        lanes += some
    return _Candidates(lanes, limited, crowded)


def _in_lane(tx: Tx, place: tuple[str, ...], head: Waiting, limit: int) -> Iterator[Waiting]:
    """Yield a lane's commands. The first is known; the others are read when they are needed."""
    yield head
    if limit > 1:
        yield from map(
            Waiting._make,
            tx.execute(SQL["in_lane"], (*place, head.order, head.command_id, limit - 1)).fetchall(),
        )


def _in_lane_within(tx: Tx, place: tuple[str, ...], within: Scope, limit: int) -> Iterator[Waiting]:
    """Yield a lane's commands whose executions belong to a project and an environment."""
    values = (*place, within.project, within.environment, limit)
    yield from map(Waiting._make, tx.execute(SQL["in_lane_within"], values).fetchall())


def _below(tx: Tx, execution_id: int, kinds: frozenset[str], pools: frozenset[str], within: Scope) -> _Candidates:
    """Return the lanes of an execution and its descendants."""
    tenant = within.tenant
    rows = tx.execute(SQL["issued_in"], (execution_id, within.project, within.environment)).fetchall()
    mine = [
        (pool, owner, resources, Waiting(*waiting))
        for pool, owner, needs, resources, *waiting, _ in rows
        if (not pools or pool in pools) and (not tenant or owner == tenant) and kinds.issuperset(kinds_of(needs))
    ]
    lanes = [
        Lane(pool, owner, resources_of(resources), iter([row[3] for row in group]))
        for (pool, owner, resources), group in groupby(sorted(mine), key=lambda row: row[:3])
    ]
    return _Candidates(lanes, bool(rows and rows[0][-1]))


def _pools(tx: Tx) -> Iterator[str]:
    """Yield the pools that have issued commands."""
    pool = tx.execute(SQL["next_pool"], ("",)).get
    while pool is not None:
        yield pool
        pool = tx.execute(SQL["next_pool"], (pool,)).get


def _read_service(tx: Tx, lanes: Iterable[Lane], service: Service) -> None:
    """Read how often the tenants of these lanes were served, and the current values of their pools."""
    tenants: dict[str, set[str]] = {}
    for lane in lanes:
        tenants.setdefault(lane.pool, {""}).add(lane.tenant)
    for pool, some in tenants.items():
        for tenant, served in tx.execute(SQL["service"], (pool, json.encode(sorted(some)).decode())).fetchall():
            if tenant:
                service.counts[pool, tenant] = served
            else:
                service.present[pool] = served


def _keep_service(tx: Tx, service: Service, before: dict[tuple[str, str], int]) -> None:
    """Write changed service counts. A tenant at or below the current value needs no row."""
    changed = {place: count for place, count in service.counts.items() if before.get(place) != count}
    for (pool, tenant), served in changed.items():
        tx.execute(SQL["serve"], (pool, tenant, served))
    for pool in sorted({pool for pool, _ in changed}):
        tx.execute(SQL["serve"], (pool, "", service.present[pool]))
        tx.execute(SQL["forget_service"], (pool, service.present[pool], _FORGOTTEN + 2 * len(changed)))


def read_resources(execute: Execute) -> list[ResourceRecord]:
    rows = execute(SQL["resources"]).fetchall()
    if not rows:
        return []
    held = dict(execute(SQL["held_resources"]).fetchall())
    return [ResourceRecord(Resource(*row[:4]), row[4], held.get(row[0], 0)) for row in rows]


# -- crowded pools -----------------------------------------------------------------------------------------------------


class CrowdedLane(NamedTuple):
    """A lane of a crowded pool."""

    tenant: str
    kinds: str
    resources: str
    held: int
    served: int
    head: Waiting


def crowd(tx: Tx, pool: str) -> None:
    """Store the lanes of a pool from now on."""
    for name in ("crowd", "crowd_holding", "crowd_lanes"):
        tx.execute(SQL[name], (pool,))


def uncrowd(tx: Tx, pool: str) -> None:
    """Stop storing the lanes of a pool, if only few are left."""
    if tx.execute(SQL["few_lanes"], (pool, FEW + 1)).get <= FEW:
        for name in ("uncrowd", "uncrowd_holding", "uncrowd_lanes"):
            tx.execute(SQL[name], (pool,))


def present_of(tx: Tx, pool: str) -> int:
    present: int | None = tx.execute(SQL["present"], (pool,)).get
    return present or 0


def window(tx: Tx, pool: str, kinds: frozenset[str], limit: int, room: Room, present: int) -> list[CrowdedLane]:
    """Return the lanes that a claim has to read. `room` has the limits and the held commands."""
    names = room.limited_tenants()
    hidden = [*names, *room.full()]
    most_held = room.limits.get((pool, EACH), MAX_ID)
    seen: dict[tuple[str, str, str], CrowdedLane] = {}
    for needs in _needs(tx, pool):
        if kinds.issuperset(kinds_of(needs[0])):
            place = (pool, *needs)
            some, stale = _first_lanes(tx, place, Visit(limit, present), hidden, most_held)
            while stale is not None:
                tx.execute(SQL["settle_lanes"], (*place, stale, present, _SETTLED))
                some, stale = _first_lanes(tx, place, Visit(limit, present), hidden, most_held)
            if room.limits:
                # Whether tenants compete does not depend on their capacity; two tenants are enough.
                two = tx.execute(SQL["two_lanes"], place).fetchall()
                some += [CrowdedLane._make((*row[:5], Waiting._make(row[5:]))) for row in two]
            seen.update((row[:3], row) for row in some)
    for tenant in names:
        for needs, *rest in tx.execute(SQL["lanes_of"], (pool, tenant)).fetchall():
            if kinds.issuperset(kinds_of(needs)):
                resources, held, served, *head = rest
                seen[tenant, needs, resources] = CrowdedLane(tenant, needs, resources, held, served, Waiting(*head))
    return list(seen.values())


def _needs(tx: Tx, pool: str) -> Iterator[tuple[str, str]]:
    row = tx.execute(SQL["next_needs"], (pool, "", "", -1)).fetchone()
    while row is not None:
        yield row
        row = tx.execute(SQL["next_needs"], (pool, *row, MAX_ID)).fetchone()


def _first_lanes(
    tx: Tx, place: tuple[str, str, str], visit: Visit, hidden: Sequence[str], most_held: int
) -> tuple[list[CrowdedLane], int | None]:
    """Return the first lanes with the same needs. If too many of their service values are behind the present, the
    second value is the number of held commands of the affected tenants, whose values have to be merged.
    """
    _, kinds, resources = place
    seen: list[CrowdedLane] = []
    statement, left_out = SQL["in_turn"], list[str]()
    if hidden:
        statement, left_out = SQL["in_turn_but"], [json.encode(hidden).decode()]
    stale = 0
    for held, served in _turns(tx, place):
        if held >= most_held or visit.enough(held, served):
            break
        stale += 0 < served <= visit.present
        if stale > _STALE:
            return seen, held
        rows = tx.execute(statement, (*place, held, served, visit.most, *left_out)).fetchall()
        visit.note(held, len(rows))
        seen += [CrowdedLane(tenant, kinds, resources, held, served, Waiting(*head)) for tenant, *head in rows]
    return seen, None


def _turns(tx: Tx, place: tuple[str, str, str]) -> Iterator[Sequence[int]]:
    """Yield the pairs of held and served, smallest first."""
    turn = tx.execute(SQL["next_turn"], (*place, -1, -1, -1)).fetchone()
    while turn is not None:
        yield turn
        turn = tx.execute(SQL["next_turn"], (*place, *turn, MAX_ID)).fetchone()


# ── work ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Work(SqlWork, SqlitePart):
    async def _claim(self, asked: ClaimRequest) -> Rows:
        return await self._writer.do(lambda tx: claim(tx, asked))

    # -- pools ------------------------------------------------------------------------------------------------------

    async def resources(self) -> list[ResourceRecord]:
        return await self._quickly(read_resources)

    async def queue_heads(self, tenant: str, limit: int = 100) -> list[QueueHead]:
        def work(execute: Execute) -> list[QueueHead]:
            heads: list[QueueHead] = []
            pool = execute(SQL["next_pool"], ("",)).get
            while pool is not None and len(heads) < limit:
                lane = ("", "")
                while len(heads) < limit and (row := execute(SQL["next_head"], (pool, tenant, *lane)).fetchone()):
                    lane = (row[0], row[1])
                    heads.append(QueueHead(pool, kinds_of(row[0]), *row[2:]))
                pool = execute(SQL["next_pool"], (pool,)).get
            return heads

        return await self._reader.do(work)
