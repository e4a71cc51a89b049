"""Limits, resources and workers: what bounds the claims, and who makes them."""

from __future__ import annotations

from arclog.ports.storage.pools import (
    MOST_AHEAD,
    Contest,
    Limit,
    QueueHead,
    Resource,
    ResourceRecord,
    Share,
    WorkerRecord,
)
from arclog.stores.claim_choice import carried_over
from arclog.stores.records import kinds_of, worker_columns, worker_record
from arclog.stores.sqlite.lanes import Tx
from arclog.stores.sqlite.queries import SQL
from arclog.stores.sqlite.readers import Execute


def set_limit(tx: Tx, limit: Limit) -> None:
    tx.execute(SQL["set_limit"], (limit.pool, limit.tenant, limit.concurrency))


def remove_limit(tx: Tx, pool: str, tenant: str) -> bool:
    tx.execute(SQL["remove_limit"], (pool, tenant))
    return bool(tx.changes())


def limits(execute: Execute) -> list[Limit]:
    return [Limit(*row) for row in execute(SQL["limits"]).fetchall()]


def limits_by_place(tx: Tx) -> dict[tuple[str, str], int]:
    return {(pool, tenant): most for pool, tenant, most in tx.execute(SQL["limits"]).fetchall()}


def set_resource(tx: Tx, resource: Resource) -> None:
    known = tx.execute(SQL["resource_full_at"], (resource.name,)).get
    full_at = 0 if known is None else carried_over(resource, known, tx.at)
    about = (resource.name, resource.interval, resource.burst, resource.concurrency, full_at)
    tx.execute(SQL["set_resource"], about)


def remove_resource(tx: Tx, name: str) -> bool:
    tx.execute(SQL["remove_resource"], (name,))
    return bool(tx.changes())


def resources(execute: Execute) -> list[ResourceRecord]:
    rows = execute(SQL["resources"]).fetchall()
    if not rows:
        return []
    held = dict(execute(SQL["held_resources"]).fetchall())
    return [ResourceRecord(Resource(*row[:4]), row[4], held.get(row[0], 0)) for row in rows]


def shares(execute: Execute) -> list[Share]:
    return [Share(*row) for row in execute(SQL["shares"]).fetchall()]


def queue_heads(execute: Execute, tenant: str, limit: int) -> list[QueueHead]:
    found: list[QueueHead] = []
    pool = execute(SQL["next_pool"], ("",)).get
    while pool is not None and len(found) < limit:
        lane = ("", "")
        while len(found) < limit and (row := execute(SQL["next_head"], (pool, tenant, *lane)).fetchone()) is not None:
            lane = (row[0], row[1])
            found.append(QueueHead(pool, kinds_of(row[0]), *row[2:]))
        pool = execute(SQL["next_pool"], (pool,)).get
    return found


def contest(execute: Execute, pool: str) -> Contest:
    first, last, limited = execute(SQL["contest"], (pool,)).fetchone()
    return Contest(() if first is None else tuple(sorted({first, last})), bool(limited))


def ahead(execute: Execute, execution_id: int, command_id: int) -> int:
    count: int = execute(SQL["ahead"], (execution_id, command_id, MOST_AHEAD)).get
    return count


def see_worker(tx: Tx, worker: WorkerRecord, forget: int) -> bool:
    tx.execute(SQL["forget_workers"], (forget,))
    (draining,) = tx.execute(SQL["see_worker"], worker_columns(worker)).fetchall()[0]
    return bool(draining)


def workers(execute: Execute) -> list[WorkerRecord]:
    return [worker_record(row) for row in execute(SQL["workers"]).fetchall()]


def drain_worker(tx: Tx, worker_id: str) -> bool:
    tx.execute(SQL["drain_worker"], (worker_id,))
    return bool(tx.changes())
