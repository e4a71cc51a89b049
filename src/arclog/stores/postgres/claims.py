"""Claims between many servers.

One tenant without limits: one statement, in which nobody waits for anybody. Where tenants share a pool, a limit is set or
resources are needed, whoever chooses holds the turn of these pools: what waits is read, `stores.choosing` chooses, and what
it chose is taken, in one transaction under a lock that every such claim takes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from arclog.ports.pools import Resource, ResourceRecord
from arclog.stores.choosing import Lane, Room, Service, Waiting, chosen
from arclog.stores.postgres.errors import is_away, translated
from arclog.stores.postgres.link import Call, Rows
from arclog.stores.postgres.pool import Patience, Pool
from arclog.stores.postgres.values import blobs, ints, texts
from arclog.stores.records import resources_of

_BEGIN, _COMMIT = "BEGIN", "COMMIT"
#: how often a claim looks again for commands that others have their hands on
_CROWDED_TRIES, _CROWDED_PAUSE_S = 3, 0.01


class Asked(NamedTuple):
    """A claim."""

    worker_id: str
    limit: int
    lease_until: int
    kinds: tuple[str, ...]
    pools: tuple[str, ...]
    execution_id: int
    tenant: str
    #: the project and the environment that it is limited to, '' is any; () = it is not
    within: tuple[str, ...] = ()


class Claims:
    """Takes commands for workers."""

    def __init__(self, place: str, pool: Pool, sql: dict[str, str]) -> None:
        self._place = place
        self._pool = pool
        self._sql = sql
        #: claims of one process do not wait for each other in the database
        self._one = asyncio.Lock()

    async def claim(self, asked: Asked) -> Rows:
        """Rows of commands, in the order in which they were chosen."""
        kinds = blobs(kind.encode() for kind in asked.kinds)
        given: tuple[Any, ...] = (asked.worker_id, asked.lease_until, asked.limit, texts(asked.pools), kinds)
        if asked.execution_id:
            given = (*given, asked.execution_id, asked.tenant, *asked.within)
            rows = await self._pool.write(self._statement("claim_in", asked), *given)
        else:
            given = (*given, asked.tenant, *asked.within)
            rows = await self._pool.write(self._statement("claim", asked), *given)
            for _ in range(_CROWDED_TRIES):
                if not _is_crowded(rows):
                    break
                # Who takes of several lanes locks more than it takes: the rest is free again in a moment.
                await asyncio.sleep(_CROWDED_PAUSE_S)
                rows = await self._pool.write(self._statement("claim", asked), *given)
        if not rows:
            return []
        pools, wide, needs_turn = rows[0][:3]
        if not needs_turn:
            # RETURNING gives them in any order.
            return sorted((row[3:] for row in rows if row[3] is not None), key=lambda row: (row[11], row[1]))
        async with self._one:
            return await self._in_turn(asked, pools, wide=wide)

    def _statement(self, name: str, asked: Asked) -> str:
        return self._sql[f"{name}_within" if asked.within else name]

    async def _in_turn(self, asked: Asked, pools: Sequence[str], *, wide: bool) -> Rows:
        patience: Patience | None = None
        while True:
            taking = False
            try:
                async with self._pool.alone() as link:
                    facts = await link.request(self._reading(asked, pools, wide=wide))
                    calls, found = self._chosen(asked, facts, wide=wide)
                    taking = True
                    rows = await link.request([*calls, (_COMMIT, ())])
                places = {(each.execution_id, each.command_id): n for n, each in enumerate(found)}
                # Somebody who needed no turn may have taken one meanwhile.
                return sorted(rows[0], key=lambda row: places[row[0], row[1]]) if found else []
            except Exception as error:
                if not is_away(error) or taking:
                    raise translated(error, self._place) from error
                patience = patience or Patience(self._pool.patience_s)
                if not await patience.more():
                    raise translated(error, self._place) from error

    def _reading(self, asked: Asked, pools: Sequence[str], *, wide: bool) -> list[Call]:
        sql = self._sql
        kinds = blobs(kind.encode() for kind in asked.kinds)
        lanes = (asked.limit, texts(pools), kinds, asked.tenant)
        return [
            (_BEGIN, ()),
            (sql["lock_turn"], (texts([*pools, ""] if wide else pools),)),
            (self._statement("lanes_in", asked), (*lanes, asked.execution_id, *asked.within))
            if asked.execution_id
            else (self._statement("lanes", asked), (*lanes, *asked.within)),
            (sql["limits"], ()),
            (sql["held"], ()),
            (sql["resources"], ()),
            (sql["service"], (texts(pools),)),
            (sql["time"], ()),
        ]

    def _chosen(self, asked: Asked, facts: list[Rows], *, wide: bool) -> tuple[list[Call], list[Waiting]]:
        """What takes the commands that were chosen, and which these are."""
        rows, limits, held, resources, served, [(now,)] = facts[2:]
        lanes = [
            Lane(pool, tenant, resources_of(needs), iter([Waiting(*each[3:]) for each in those]))
            for (pool, tenant, needs), those in groupby(sorted(rows), key=lambda row: row[:3])
            # Tokens are everybody's: what came to need one after the turn was asked for waits for the next claim.
            if wide or not needs
        ]
        room = Room(
            int(now),
            {(pool, tenant): most for pool, tenant, most in limits},
            Counter({(pool, tenant): count for pool, tenant, count in held}),
            {row[0]: ResourceRecord(Resource(*row[:4]), *row[4:]) for row in resources},
        )
        service: Service | None = None
        if any(lane.tenant != lanes[0].tenant for lane in lanes):
            service = Service(
                {pool: count for pool, tenant, count in served if not tenant},
                {(pool, tenant): count for pool, tenant, count in served if tenant},
            )
        before = {} if service is None else dict(service.counts)
        found = chosen(lanes, asked.limit, room, service)
        owners, ids = ints(each.execution_id for each in found), ints(each.command_id for each in found)
        calls: list[Call] = [(self._sql["take"], (asked.worker_id, asked.lease_until, owners, ids))] if found else []
        if room.spent:
            names = sorted(room.spent)
            spent = ints(room.resources[name].full_at for name in names)
            calls.append((self._sql["spend"], (texts(names), spent)))
        if service is not None:
            calls += self._keeping(service, before)
        return calls, found

    def _keeping(self, service: Service, before: dict[tuple[str, str], int]) -> list[Call]:
        changed = {place: count for place, count in service.counts.items() if before.get(place) != count}
        if not changed:
            return []
        pools = sorted({pool for pool, _ in changed})
        rows: list[tuple[Any, ...]] = [(*place, count) for place, count in sorted(changed.items())]
        rows += [(pool, "", service.present[pool]) for pool in pools]
        columns = (texts(row[0] for row in rows), texts(row[1] for row in rows), ints(row[2] for row in rows))
        return [(self._sql["serve"], columns), (self._sql["forget_service"], (texts(pools),))]


def _is_crowded(rows: Rows) -> bool:
    """There are commands that need no turn, and none of them was free."""
    return len(rows) == 1 and not rows[0][2] and rows[0][3] is None
