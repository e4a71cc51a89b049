"""The outbox: rows that an append adds, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from arclog.ports.storage.outbox import Delivery, NewDelivery
from arclog.stores.sqlite.lanes import Tx
from arclog.stores.sqlite.queries import SQL
from arclog.stores.sqlite.reads import Execute


def put(tx: Tx, execution_id: int, tell: Sequence[NewDelivery]) -> None:
    for n, new in enumerate(tell, 1):
        row = (execution_id, n, new.url, new.secret, new.event, new.body, tx.at, tx.at)
        tx.execute(SQL["add_delivery"], row)


def due(execute: Execute, now: int, limit: int, but: Sequence[str]) -> list[Delivery]:
    left_out = msgspec.json.encode(list(but)).decode()
    return [Delivery(*row) for row in execute(SQL["due_deliveries"], (now, left_out, limit)).fetchall()]


def lease(tx: Tx, now: int, until: int, limit: int, but: Sequence[str]) -> list[Delivery]:
    found = due(tx.execute, now, limit, but)
    for each in found:
        tx.execute(SQL["lease_delivery"], (until, each.execution_id, each.n))
    return found


def attempted(tx: Tx, delivery: Delivery) -> None:
    changes = (delivery.state, delivery.due, delivery.attempts, delivery.problem)
    tx.execute(SQL["attempted_delivery"], (*changes, delivery.execution_id, delivery.n))


def settle(tx: Tx, execution_id: int) -> None:
    tx.execute(SQL["settle_deliveries"], (execution_id,))


def several(execute: Execute, execution_id: int) -> list[Delivery]:
    return [Delivery(*row) for row in execute(SQL["deliveries"], (execution_id,)).fetchall()]


def told(execute: Execute, limit: int) -> list[int]:
    return [execution_id for (execution_id,) in execute(SQL["told_executions"], (limit,)).fetchall()]


def given_up(execute: Execute, since: int, limit: int) -> list[Delivery]:
    return [Delivery(*row) for row in execute(SQL["given_up_deliveries"], (since, limit)).fetchall()]
