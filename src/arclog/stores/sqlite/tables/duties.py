"""Duties: who does what only one may do, and how far it is."""

from __future__ import annotations

from arclog.ports.storage.duties import DutyRecord
from arclog.stores.sqlite.lanes import Tx
from arclog.stores.sqlite.queries import SQL
from arclog.stores.sqlite.readers import Execute


def lease(tx: Tx, duty: str, owner: str, now: int, until: int) -> bool:
    tx.execute(SQL["lease_duty"], (duty, owner, now, until))
    return bool(tx.changes())


def position(execute: Execute, duty: str) -> int:
    row = execute(SQL["duty_position"], (duty,)).fetchone()
    return 0 if row is None else row[0]


def move(tx: Tx, duty: str, owner: str, now: int, to: int) -> bool:
    tx.execute(SQL["move_position"], (duty, owner, now, to))
    return bool(tx.changes())


def several(execute: Execute) -> list[DutyRecord]:
    return [DutyRecord(*row) for row in execute(SQL["duties"]).fetchall()]
