"""Claims of the PostgreSQL store, and its resources."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from arclog.drivers.backoff import Patience
from arclog.drivers.postgres.refusals import is_away
from arclog.model.ids import MAX_ID
from arclog.ports.storage.pools import EACH, QueueHead, Resource, ResourceRecord
from arclog.stores.claim_choice import ClaimRequest, Lane, Room, Service, Waiting, chosen
from arclog.stores.postgres.connection.pipeline import Call, Pipeline, Rows, blobs, ints, texts, translated
from arclog.stores.postgres.connection.pool import Pool
from arclog.stores.postgres.part import PostgresPart
from arclog.stores.records import resources_of
from arclog.stores.sql.work import Work as SqlWork

# ── claims ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Claims of many servers.
#
# With one tenant and no limits, a claim is one statement that waits for no other. If tenants share a pool, a limit is
# set or resources are needed, a claim takes the turn of these pools: in one transaction, under a lock that every such
# claim takes, it reads the waiting commands, lets `stores.claim_choice` choose, and takes them.
#
# If many lanes wait, they are stored in the order of their turns (migration 5), and only the first of them are read.
# The claim with the turn of a crowded pool first updates its lanes by the notes that others have left. Where neither
# limits nor resources are set, a claim from one such pool is one statement again: a function in the database (migration
# 15) that follows the rules of `stores.claim_choice`.

log = logging.getLogger("arclog.store")

_BEGIN, _COMMIT = "BEGIN", "COMMIT"
#: of a transaction whose statements see what was committed before each of them, whatever the database's default is
_BEGIN_CURRENT = "BEGIN ISOLATION LEVEL READ COMMITTED"
#: number of retries, and pause between them, if other claims have locked the commands
_CROWDED_TRIES, _CROWDED_PAUSE_S = 3, 0.01
#: number of columns of a claim's response before those of the command
_ABOUT = 5
#: a pool with more than MANY lanes is crowded, until only FEW are left
MANY, FEW = 32, 4
#: maximum number of notes of a pool that one claim reads
_NOTES = 1000
#: number of outdated service values that a claim accepts, and of lanes that are merged at a time
_STALE, _SETTLED = 4, 1000
#: a claim in this many looks whether a crowded pool has only few lanes left, although it cannot tell from those that it read
_UNCROWDED = 16
#: a claim in this many of those limited to a run or a tenant, which read no notes, looks whether others read them
_UNREAD = 64
#: number of service rows that a claim removes in addition to those that it may have added
_FORGOTTEN = 8
#: maximum number of cached sets of crowded pools
_KNOWN = 100
#: time limit for the lock that marks a pool as crowded
_LOCK_MS = 50


#: Statements that can be limited to a project and an environment.
_LIMITED = frozenset({"lanes", "lanes_in"})


class Turn(NamedTuple):
    """The known facts about the pools of a claim that needs their turn."""

    pools: Sequence[str]
    #: whether the turn must cover all pools, because of tokens or limits of all pools
    wide: bool
    #: the pools whose lanes are kept in the order of their turns
    crowded: Sequence[str]
    #: whether a limit is set
    limited: bool
    #: whether their lanes existed at the last claim
    built: bool = False


class Facts(NamedTuple):
    """The commands to choose from."""

    #: lanes: pool, tenant, resources, order, command, execution, served, present, kinds
    rows: Rows
    #: the same for crowded pools, with the held commands
    window: Rows
    room: Room
    #: whether several tenants wait
    shared: bool
    #: the crowded ones among the turn's pools, if requested
    crowded: set[str]


class Claims:
    """Claims commands for workers."""

    def __init__(self, place: str, pool: Pool, sql: dict[str, str]) -> None:
        self._place = place
        self._pool = pool
        self._sql = sql
        #: prevents claims of one process from waiting for each other in the database
        self._lock = asyncio.Lock()
        #: the facts of the last claim from each set of crowded pools
        self._turns: dict[tuple[str, ...], Turn] = {}
        self._count = 0

    async def claim(self, asked: ClaimRequest) -> Rows:
        """Return rows of commands, in the order in which they were chosen."""
        self._count += 1
        narrowed = asked.execution_id or asked.tenant or asked.within
        drained: Sequence[str] = ()
        if narrowed and self._count % _UNREAD == 0:
            await self._settle(asked.pools)
        elif not narrowed and asked.pools in self._turns:
            async with self._lock:
                turn = self._turns.get(asked.pools)
                rows = None if turn is None else await self._in_turn(asked, turn)
            if rows is not None:
                return rows
            drained = asked.pools
        values: tuple[Any, ...] = (
            asked.worker_id,
            asked.lease_until,
            asked.limit,
            texts(asked.pools),
            _blobs(asked.kinds),
        )
        if asked.execution_id:
            values = (*values, asked.execution_id, asked.tenant, *asked.within)
            rows = await self._pool.write(self._statement("claim_in", asked), *values)
        else:
            values = (*values, asked.tenant, MANY, *asked.within)
            rows = await self._pool.write(self._statement("claim", asked), *values)
            for _ in range(_CROWDED_TRIES):
                if not _is_crowded(rows):
                    break
                # A claim from several lanes locks more rows than it takes; the others are soon free again.
                await asyncio.sleep(_CROWDED_PAUSE_S)
                rows = await self._pool.write(self._statement("claim", asked), *values)
        if not rows:
            if drained:
                await self._settle(drained)
            return []
        pools, wide, needs_turn, crowded, limited = rows[0][:_ABOUT]
        if not needs_turn:
            # RETURNING has no defined order.
            taken = [row[_ABOUT:] for row in rows if row[_ABOUT] is not None]
            return sorted(taken, key=lambda row: (row[11], row[1]))
        async with self._lock:
            return await self._in_turn(asked, Turn(pools, wide, crowded, limited)) or []

    def _statement(self, name: str, asked: ClaimRequest) -> str:
        return self._sql[f"{name}_within" if asked.within else name]

    async def _in_turn(self, asked: ClaimRequest, turn: Turn) -> Rows | None:
        """Claim in the turn of the pools. Return None if the facts about the pools are out of date."""
        patience: Patience | None = None
        while True:
            taking = False
            try:
                async with self._pool.alone() as pipeline:
                    if turn.built and not (turn.limited or turn.wide) and len(asked.pools) == 1:
                        taking = True
                        return await self._from_crowd(pipeline, asked)
                    facts = await self._facts(pipeline, asked, turn)
                    if turn.built and not _holds(turn, facts):
                        del self._turns[asked.pools]
                        await pipeline.request([(_COMMIT, ())])
                        return None
                    calls, commands = self._chosen(asked, facts, turn)
                    taking = True
                    # What is taken from a crowded pool leaves a note, and a pool with notes stays crowded.
                    tidying = self._tidying(facts, asked.limit)
                    rows = await pipeline.request([*tidying, *calls, (_COMMIT, ())])
                if crowds := _crowds(facts.rows):
                    await self._crowd(crowds)
                if any(statement == self._sql["uncrowd"] for statement, _ in tidying):
                    await self.stop_notes()
                if facts.window and set(turn.crowded) == set(asked.pools) and len(self._turns) < _KNOWN:
                    self._turns[asked.pools] = turn._replace(pools=asked.pools, crowded=asked.pools, built=True)
                places = {(command.execution_id, command.command_id): n for n, command in enumerate(commands)}
                # A claim that needs no turn may have taken a command meanwhile.
                return sorted(rows[len(tidying)], key=lambda row: places[row[0], row[1]]) if commands else []
            except Exception as error:
                if not is_away(error) or taking:
                    raise translated(error, self._place) from error
                patience = patience or Patience(self._pool.patience_s)
                if not await patience.more():
                    raise translated(error, self._place) from error

    async def _facts(self, pipeline: Pipeline, asked: ClaimRequest, turn: Turn) -> Facts:
        """Take the turn and read the waiting commands."""
        crowded = texts(turn.crowded)
        lanes = (asked.limit, texts(turn.pools), _blobs(asked.kinds), asked.tenant)
        calls: dict[str, tuple[Any, ...]] = {
            "lock_turn": (texts([*turn.pools, ""] if turn.wide else turn.pools),),
            "limits": (),
            "resources": (),
            "time": (),
        }
        if turn.built:
            calls |= {"are_crowded": (crowded,)}
        elif turn.crowded:
            calls |= {"build_lanes": (crowded,)}
        if turn.crowded:
            calls |= {"read_notes": (crowded, _NOTES)}
        if asked.execution_id:
            calls |= {"lanes_in": (*lanes, asked.execution_id, *asked.within), "held": ()}
        elif set(turn.pools) - set(turn.crowded):
            calls |= {"lanes": (*lanes, crowded, *asked.within), "held": ()}
        if turn.crowded and turn.limited:
            calls |= {"held": (), "two_lanes": (crowded, _blobs(asked.kinds))}
        elif turn.crowded:
            calls |= {"window": self._window(asked, turn, Room(0))}
        answers = await self._request(pipeline, asked, calls, begin=True)
        room = Room(
            int(answers["time"][0][0]),
            {(pool, tenant): most for pool, tenant, most in answers["limits"]},
            Counter({(pool, tenant): count for pool, tenant, count in answers.get("held", ())}),
            {row[0]: ResourceRecord(Resource(*row[:4]), *row[4:]) for row in answers["resources"]},
        )
        if turn.crowded and turn.limited:
            # Limits determine which lanes have to be read.
            answers |= await self._request(pipeline, asked, {"window": self._window(asked, turn, room)})
        rows, window = answers.get("lanes", answers.get("lanes_in", [])), answers.get("window", [])
        tenants = {row[1] for row in (*rows, *window)} | {tenant for (tenant,) in answers.get("two_lanes", ())}
        return Facts(rows, window, room, len(tenants) > 1, {pool for (pool,) in answers.get("are_crowded", ())})

    def _window(self, asked: ClaimRequest, turn: Turn, room: Room) -> tuple[Any, ...]:
        pools = turn.crowded
        names = room.limited_tenants()
        most = ints(room.limits.get((pool, EACH), MAX_ID) for pool in pools)
        return (
            asked.limit,
            texts(pools),
            _blobs(asked.kinds),
            texts([*names, *room.full()]),
            most,
            texts(names),
        )

    async def _request(
        self, pipeline: Pipeline, asked: ClaimRequest, calls: dict[str, tuple[Any, ...]], *, begin: bool = False
    ) -> dict[str, Rows]:
        """Run statements. Return their rows by the names of the statements."""
        first: list[Call] = [(_BEGIN, ())] if begin else []
        statements = {name: self._statement(name, asked) if name in _LIMITED else self._sql[name] for name in calls}
        answers = await pipeline.request([*first, *((statements[name], values) for name, values in calls.items())])
        return dict(zip(calls, answers[len(first) :], strict=True))

    def _chosen(self, asked: ClaimRequest, facts: Facts, turn: Turn) -> tuple[list[Call], list[Waiting]]:
        """Return the statements that take the chosen commands, and these commands."""
        room, service = facts.room, Service()
        for pool, tenant, *_, served, present, _kinds in facts.rows:
            service.present[pool] = present
            if served:
                service.counts[pool, tenant] = served
        for pool, tenant, *_, served, present, _kinds, held in facts.window:
            service.present[pool] = present
            room.held[pool, tenant] = held
            if served:
                service.counts[pool, tenant] = served
        rows = [row[:6] for row in (*facts.rows, *facts.window)]
        lanes = [
            Lane(pool, tenant, resources_of(needs), iter([Waiting(*row[3:]) for row in group]))
            for (pool, tenant, needs), group in groupby(sorted(rows), key=lambda row: row[:3])
            # Tokens are shared by all pools. A command that came to need one after the turn was taken waits for the
            # next claim.
            if turn.wide or room.resources.keys().isdisjoint(resources_of(needs))
        ]
        before = dict(service.counts)
        waiting = chosen(lanes, asked.limit, room, service if facts.shared else None)
        owners, ids = ints(command.execution_id for command in waiting), ints(command.command_id for command in waiting)
        calls: list[Call] = [(self._sql["take"], (asked.worker_id, asked.lease_until, owners, ids))] if waiting else []
        if room.spent:
            names = sorted(room.spent)
            spent = ints(room.resources[name].full_at for name in names)
            calls.append((self._sql["spend"], (texts(names), spent)))
        if facts.shared:
            calls += self._keeping(service, before)
        return calls, waiting

    def _keeping(self, service: Service, before: dict[tuple[str, str], int]) -> list[Call]:
        changed = {place: count for place, count in service.counts.items() if before.get(place) != count}
        if not changed:
            return []
        pools = sorted({pool for pool, _ in changed})
        rows: list[tuple[Any, ...]] = [(*place, count) for place, count in sorted(changed.items())]
        rows += [(pool, "", service.present[pool]) for pool in pools]
        columns = (texts(row[0] for row in rows), texts(row[1] for row in rows), ints(row[2] for row in rows))
        return [(self._sql["serve"], (*columns, texts(pools), _FORGOTTEN + 2 * len(changed)))]

    # -- crowded pools ------------------------------------------------------------------------------------------------

    async def _from_crowd(self, pipeline: Pipeline, asked: ClaimRequest) -> Rows | None:
        """Claim from a pool that was crowded at the last claim. Return None if that is not enough to know about it."""
        few = FEW if self._looks_for_few else -1
        values = (*asked.pools, _blobs(asked.kinds), asked.worker_id, asked.lease_until, asked.limit, few, _STALE)
        [rows] = await pipeline.request([(self._sql["claim_in_turn"], values)])
        if rows and rows[0][0] is None:
            del self._turns[asked.pools]
            return None
        return rows

    def _tidying(self, facts: Facts, limit: int) -> list[Call]:
        """Merge outdated values of service, and reset pools that are no longer crowded."""
        stale: dict[tuple[str, tuple[bytes, ...], str, int], set[int]] = {}
        lanes: dict[str, set[tuple[Any, ...]]] = {}
        for pool, tenant, resources, *_, served, present, kinds, held in facts.window:
            lanes.setdefault(pool, set()).add((tenant, tuple(kinds), resources))
            if 0 < served <= present:
                stale.setdefault((pool, tuple(kinds), resources, held), set()).add(served)
        calls: list[Call] = [
            (self._sql["settle_lanes"], (pool, blobs(kinds), resources, held, _SETTLED))
            for (pool, kinds, resources, held), values in stale.items()
            if len(values) > _STALE
        ]
        # A claim that saw more lanes than it may take did not read all of them, so that only some of these look.
        most = FEW if self._looks_for_few else min(FEW, limit)
        if few := [pool for pool, some in lanes.items() if len(some) <= most]:
            calls.append((self._sql["uncrowd"], (texts(few), FEW)))
        return calls

    @property
    def _looks_for_few(self) -> bool:
        """Whether this claim looks if a crowded pool has only few lanes left."""
        return self._count % _UNCROWDED == 0

    async def _crowd(self, pools: Sequence[str]) -> None:
        """Mark pools as crowded: from now on every change of their commands leaves a note. Waits briefly for changes in
        progress.
        """
        try:
            await self._without_changes((self._sql["crowd"], (texts(pools),)))
        except Exception as problem:  # noqa: BLE001 - the next claim tries again
            log.debug("pools %s are not yet treated as crowded: %s", ", ".join(pools), problem)

    async def _settle(self, pools: Sequence[str]) -> None:
        """Read the notes of crowded pools (of all if none is named), and reset those in which few commands are left."""
        try:
            crowded = {pool for (pool,) in await self._pool.read(self._sql["crowded"])}
            crowded &= set(pools) or crowded
            if not crowded:
                return
            settled = texts(sorted(crowded))
            async with self._pool.alone() as pipeline:
                await pipeline.request(
                    [
                        (_BEGIN, ()),
                        (self._sql["lock_turn"], (settled,)),
                        (self._sql["build_lanes"], (settled,)),
                        (self._sql["read_notes"], (settled, _NOTES)),
                        (self._sql["uncrowd"], (settled, FEW)),
                        (_COMMIT, ()),
                    ]
                )
        except Exception as problem:  # noqa: BLE001 - a later claim tries again
            log.debug("crowded pools are still treated as such: %s", problem)
        else:
            await self.stop_notes()

    async def stop_notes(self) -> None:
        """Stop leaving notes of changed commands, if no pool is crowded any more."""
        try:
            async with self._pool.alone() as pipeline:
                [[(are_idle,)]] = await pipeline.request([(self._sql["are_notes_idle"], ())])
            if are_idle:
                await self._without_changes((self._sql["stop_notes"], ()), _BEGIN_CURRENT)
        except Exception as problem:  # noqa: BLE001 - notes that nobody needs only cost time
            log.debug("changes of commands still leave notes: %s", problem)

    async def _without_changes(self, call: Call, begin: str = _BEGIN) -> None:
        """Run a statement while nobody changes a command."""
        calls: list[Call] = [
            (begin, ()),
            (f"SET LOCAL lock_timeout = {_LOCK_MS}", ()),
            (self._sql["lock_commands"], ()),
            call,
            (_COMMIT, ()),
        ]
        async with self._pool.alone() as pipeline:
            await pipeline.request(calls)


def _holds(turn: Turn, facts: Facts) -> bool:
    """Return whether the turn still covers everything that the claim needs."""
    limits = facts.room.limits
    wide = bool(facts.room.resources) or any(pool == "" for pool, _ in limits)
    covers = turn.wide >= wide and turn.limited >= bool(limits)
    return covers and facts.crowded == set(turn.pools) and bool(facts.window)


def _crowds(rows: Rows) -> list[str]:
    """Return the pools with so many lanes that they should be kept in the order of their turns."""
    lanes: dict[str, set[tuple[Any, ...]]] = {}
    for pool, tenant, resources, *_, kinds in rows:
        lanes.setdefault(pool, set()).add((tenant, tuple(kinds), resources))
    return [pool for pool, some in lanes.items() if len(some) > MANY]


def _blobs(kinds: Sequence[str]) -> bytes:
    return blobs(kind.encode() for kind in kinds)


def _is_crowded(rows: Rows) -> bool:
    """Return whether commands wait that need no turn, but other claims have locked all of them."""
    return len(rows) == 1 and not rows[0][2] and rows[0][_ABOUT] is None


# ── work ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Work(SqlWork, PostgresPart):
    _claims: Claims

    async def _claim(self, asked: ClaimRequest) -> Rows:
        return await self._claims.claim(asked)

    # -- pools ------------------------------------------------------------------------------------------------------

    async def resources(self) -> list[ResourceRecord]:
        return [ResourceRecord(Resource(*row[:4]), *row[4:]) for row in await self._read("resources")]

    async def queue_heads(self, tenant: str, limit: int = 100) -> list[QueueHead]:
        rows = await self._read("queue_heads", tenant, limit)
        return [QueueHead(pool, tuple(kind.decode() for kind in kinds), *rest) for pool, kinds, *rest in rows]
