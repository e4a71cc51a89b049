"""Schedules: a row each, with the columns that are looked for; the rest is its body."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from arclog.model.config.schedules import Schedule
from arclog.model.errors import Conflict
from arclog.stores.sql.part import Rows, SqlPart

_DECODER = msgspec.json.Decoder(Schedule)


class Schedules(SqlPart):
    async def add_schedule(self, schedule: Schedule) -> None:
        row = (schedule.tenant, schedule.name, schedule.revision, schedule.wakes_at, msgspec.json.encode(schedule))
        if not await self._write("add_schedule", *row):
            raise Conflict(f"there is a schedule {schedule.name} already")

    async def schedule(self, tenant: str, name: str) -> Schedule | None:
        rows = await self._look_up("schedule", tenant, name)
        return _DECODER.decode(rows[0][0]) if rows else None

    async def schedules(self, tenant: str = "", *, after: str = "", limit: int = 1000) -> list[Schedule]:
        if tenant:
            return _decoded(await self._list("schedules_of_tenant", tenant, after, limit))
        return _decoded(await self._list("schedules", after, limit))

    async def late_schedules(self, before: int, limit: int = 1000) -> list[Schedule]:
        return _decoded(await self._list("late_schedules", before, limit))

    async def next_schedules(self, tenant: str, limit: int = 20) -> list[Schedule]:
        return _decoded(await self._read("next_schedules", tenant, limit))

    async def change_schedule(self, schedule: Schedule, owner: str = "", until: int = 0) -> Schedule:
        changed = replace(schedule, revision=schedule.revision + 1)
        row = (changed.revision, changed.wakes_at, owner, until, msgspec.json.encode(changed))
        if not await self._change_schedule((*row, schedule.tenant, schedule.name, schedule.revision)):
            raise Conflict(f"schedule {schedule.name} was changed or removed meanwhile: read it again")
        return changed

    async def _change_schedule(self, row: tuple[Any, ...]) -> bool:
        return bool(await self._write("change_schedule", *row))

    async def remove_schedule(self, tenant: str, name: str) -> bool:
        return bool(await self._write("remove_schedule", tenant, name))

    async def lease_schedules(self, owner: str, now: int, until: int, limit: int = 100) -> list[Schedule]:
        if not await self._is_due("free_schedules", now):
            return []
        leased = _decoded(await self._write("lease_schedules", owner, now, until, limit))
        return sorted(leased, key=lambda each: (each.wakes_at, each.tenant, each.name))


def _decoded(rows: Rows) -> list[Schedule]:
    return [_DECODER.decode(body) for (body,) in rows]
