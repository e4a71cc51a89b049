"""Why an issued command has not been claimed, for `arclog why`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from arclog.model.ids import MICROS, timestamp
from arclog.ports.storage.pools import EACH, Limit, ResourceRecord, Share, WorkerRecord, next_token, tokens
from arclog.ports.storage.store import CommandRecord, Store

#: Of more commands of one run it is not counted how many come before them.
_MOST_COUNTED = 20


class PoolFacts(Struct, frozen=True):
    """What the store knows of pools."""

    tenant: str
    shares: Sequence[Share] = ()
    limits: Sequence[Limit] = ()
    resources: Sequence[ResourceRecord] = ()
    workers: Sequence[WorkerRecord] = ()
    #: commands of the same pool and tenant before each, by id
    ahead: Mapping[int, int] = {}
    #: a worker that was not seen since then is silent
    silent_before: int = 0


async def pool_facts(
    store: Store, tenant: str, commands: Sequence[CommandRecord], silent_before: int
) -> PoolFacts | None:
    """None when no command waits for a worker."""
    waiting = [each for each in commands if each.state == "issued"]
    if not waiting:
        return None
    return PoolFacts(
        tenant,
        await store.shares(),
        await store.limits(),
        await store.resources(),
        await store.workers(),
        {each.command_id: await store.ahead(each.execution_id, each.command_id) for each in waiting[:_MOST_COUNTED]},
        silent_before,
    )


def hindrance(record: CommandRecord, facts: PoolFacts, now: int) -> str:
    """The blocker of a command; '' if none is known."""
    reasons = [*_limits(record.pool, facts), *_resources(record.resources, facts, now)]
    if not reasons:
        reasons = _workers(record, facts)
    if reasons:
        return "; " + "; ".join(reasons)
    before = before_it(record, facts)
    return f" ({before} before it)" if before else ""


def before_it(record: CommandRecord, facts: PoolFacts) -> int:
    """Commands that come first: those of its tenant, and, since tenants take turns, as many of each other one."""
    own = facts.ahead.get(record.command_id)
    if own is None:
        return 0
    others = (each for each in facts.shares if each.pool == record.pool and each.tenant != facts.tenant)
    return own + sum(min(each.issued, own + 1) for each in others)


def _limits(pool: str, facts: PoolFacts) -> list[str]:
    found = []
    most = {(limit.pool, limit.tenant): limit.concurrency for limit in facts.limits}
    for where in (pool, ""):
        name = f"pool {where}" if where else "all pools together"
        held = [each for each in facts.shares if where in ("", each.pool)]
        total = sum(each.claimed for each in held)
        own = sum(each.claimed for each in held if each.tenant == facts.tenant)
        everybody = most.get((where, ""))
        if everybody is not None and total >= everybody:
            found.append(f"{name} {'is' if where else 'are'} full: {total} of {everybody}")
        mine = most.get((where, facts.tenant), most.get((where, EACH)))
        if mine is not None and own >= mine:
            found.append(f"tenant {facts.tenant} has {own} of {mine} slots of {name}")
    return found


def _resources(names: Sequence[str], facts: PoolFacts, now: int) -> list[str]:
    found = []
    known = {each.resource.name: each for each in facts.resources}
    for name in names:
        record = known.get(name)
        if record is None:
            continue
        most = record.resource.concurrency
        if most is not None and record.held >= most:
            found.append(f"resource {name} is in use: {record.held} of {most}")
        if tokens(record, now) == 0:
            found.append(f"resource {name}: next token in {(next_token(record) - now) / MICROS:.1f} s")
    return found


def _workers(record: CommandRecord, facts: PoolFacts) -> list[str]:
    """Says something when no worker that could take it was seen lately."""
    able = [
        each
        for each in facts.workers
        if (not each.pools or record.pool in each.pools) and each.tenant in ("", facts.tenant)
    ]
    knowing = [each for each in able if set(each.kinds).issuperset(record.kinds)]
    if any(each.seen_at >= facts.silent_before and not each.draining for each in knowing):
        return []
    if any(each.seen_at >= facts.silent_before for each in knowing):
        return [f"every worker of pool {record.pool} that could take it is draining"]
    if any(each.seen_at >= facts.silent_before for each in able):
        return [f"no worker of pool {record.pool} supports {', '.join(record.kinds)}"]
    if able:
        last = timestamp(max(each.seen_at for each in able))
        return [f"no worker of pool {record.pool} has been seen since {last}"]
    # Where `arclog run` brings its own worker along, nobody is listed, and nobody is missing.
    return [f"no worker of pool {record.pool} has been seen"] if facts.workers or record.pool != "default" else []
