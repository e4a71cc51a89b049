"""Schedules: a row each, with the columns that are looked for; the rest is its body."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from arclog.model.config.schedules import Schedule
from arclog.model.errors import Conflict
from arclog.stores.records import lost_race
from arclog.stores.sqlite.lanes import Tx
from arclog.stores.sqlite.queries import SQL
from arclog.stores.sqlite.reads import Execute

_DECODER = msgspec.json.Decoder(Schedule)


def add(tx: Tx, schedule: Schedule) -> None:
    body = msgspec.json.encode(schedule)
    tx.execute(SQL["add_schedule"], (schedule.tenant, schedule.name, schedule.revision, schedule.wakes_at, body))
    if not tx.changes():
        raise Conflict(f"there is a schedule {schedule.name} already")


def change(tx: Tx, schedule: Schedule, owner: str, until: int) -> Schedule:
    changed = replace(schedule, revision=schedule.revision + 1)
    row = (changed.revision, changed.wakes_at, owner, until, msgspec.json.encode(changed))
    tx.execute(SQL["change_schedule"], (*row, schedule.tenant, schedule.name, schedule.revision))
    if not tx.changes():
        raise lost_race(schedule)
    return changed


def change_all(tx: Tx, schedules: Sequence[Schedule], owner: str, until: int) -> list[Schedule | Conflict]:
    """What became of each; one statement for all of them."""
    changed = [replace(each, revision=each.revision + 1) for each in schedules]
    rows = [
        (new.tenant, new.name, old.revision, new.revision, new.wakes_at, msgspec.json.encode(new).hex())
        for old, new in zip(schedules, changed, strict=True)
    ]
    parameters = (msgspec.json.encode(rows).decode(), owner, until)
    won = set(tx.execute(SQL["change_schedules"], parameters).fetchall())
    return [each if (each.tenant, each.name) in won else lost_race(each) for each in changed]


def remove(tx: Tx, tenant: str, name: str) -> bool:
    tx.execute(SQL["remove_schedule"], (tenant, name))
    return bool(tx.changes())


def lease(tx: Tx, owner: str, now: int, until: int, limit: int) -> list[Schedule]:
    found = tx.execute(SQL["free_schedules"], (now, now, limit)).fetchall()
    for tenant, name, _ in found:
        tx.execute(SQL["lease_schedule"], (owner, until, tenant, name))
    return [_DECODER.decode(body) for _, _, body in found]


def upcoming(execute: Execute, tenant: str, limit: int) -> list[Schedule]:
    return [_DECODER.decode(body) for (body,) in execute(SQL["next_schedules"], (tenant, limit)).fetchall()]


def one(execute: Execute, tenant: str, name: str) -> Schedule | None:
    row = execute(SQL["schedule"], (tenant, name)).fetchone()
    return None if row is None else _DECODER.decode(row[0])


def late(execute: Execute, before: int, limit: int) -> list[Schedule]:
    return [_DECODER.decode(body) for (body,) in execute(SQL["late_schedules"], (before, limit))]


def several(execute: Execute, tenant: str, after: str, limit: int) -> list[Schedule]:
    if tenant:
        rows = execute(SQL["schedules_of_tenant"], (tenant, after, limit)).fetchall()
    else:
        rows = execute(SQL["schedules"], (after, limit)).fetchall()
    return [_DECODER.decode(body) for (body,) in rows]
